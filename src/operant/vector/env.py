"""`VecEnv`: many copies of one environment behind Gymnasium's vector API."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from gymnasium.vector import AutoresetMode

from operant.compiler.compile_error import warn_of_fallback
from operant.compiler.spec.buffers import Buffers
from operant.compiler.spec.rules import Rules
from operant.lang.env import Env
from operant.vector.actions import as_actions, bad_action_message, fast_dtypes
from operant.vector.arguments import asked_mask, checked_count, recorded_by_wrapper
from operant.vector.base import NO_LIMIT, BaseVecEnv, one_at_a_time
from operant.vector.choose_backend import Backend, Choice, backend_of, choose_backend
from operant.vector.measured_workers import measured_workers
from operant.vector.seeding import assign_streams, checked_first, fresh_seed
from operant.vector.state import read_state, write_state
from operant.vector.steps import Steps

if TYPE_CHECKING:
    import torch

    from operant.backends.cpu.kernels import NumbaBackend


class VecEnv(BaseVecEnv):
    """A batch of `num_envs` environments that step together.

    A real `gymnasium.vector.VectorEnv`. Observations are ``[num_envs, *obs]``, float32 (int64 for
    Discrete and MultiDiscrete); rewards float32 ``[num_envs]``; ``terminated`` and ``truncated``
    bool ``[num_envs]``.

    Episodes that finish are reported in the format of Gymnasium's ``RecordEpisodeStatistics``:
    ``info["episode"]`` holds ``r`` (return), ``l`` (length) and ``t`` (seconds), zero for the
    others, and ``info["_episode"]`` says which finished. If that wrapper is itself around this
    environment, the report is left to it.

    Args:
        env: the environment class.
        num_envs: how many.
        backend: ``"reference"``, ``"cpu"``, or ``"auto"`` for the fastest one present. A game
            in C that `operant.vector.native.load` has loaded runs on ``"native"`` alone.
        impl: instead of a backend: ``"reference"`` (plain Python), ``"native"`` (the compiled
            implementation, whichever backend that is) or ``"auto"`` (compiled where that works,
            else plain Python).
        workers: threads that share a step (not on ``reference``), or ``"auto"``: steps of a batch
            like this one are timed, and the fastest number is used. Results do not depend on it.
        seed: used by the first ``reset`` that is given none.
        autoreset_mode: when a finished environment is reset, see `gymnasium.vector.AutoresetMode`;
            also its value as a string, such as ``"SameStep"``. SAME_STEP reports the last
            observation in ``info["final_obs"]``, a dense array with the mask
            ``info["_final_obs"]``.
        copy: True: what ``reset`` and ``step`` return is yours to keep. False: it is a view of
            buffers that the next call overwrites; nothing is allocated or copied.
        render_mode: ``"rgb_array"`` or None.
        max_episode_steps: truncate after so many steps; None for the environment's own limit.
        first_env: environment i draws the random numbers of environment `first_env` + i: the batch
            is a block of a larger one.
        params: parameters of the environment, such as ``gravity=1.6``.

    Raises:
        ValueError, TypeError: an argument is out of range or of the wrong kind; the message says
            what came and what was expected.
        CompileError: the backend asked for cannot compile the environment. Under ``"auto"`` it
            runs on ``reference`` instead, with a `FallbackWarning`.
    """

    _OPTIONS = ("backend", "workers", "first_env")
    env_class: ClassVar[type[Env]]
    """The environment of a subclass such as ``CartPoleVecEnv``."""

    def __init__(
        self,
        env: type[Env],
        num_envs: int = 1,
        *,
        backend: str = "auto",
        impl: str | None = None,
        workers: int | str = 1,
        seed: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        first_env: int = 0,
        **params: Any,
    ) -> None:
        super().__init__(
            env, num_envs, seed, autoreset_mode, render_mode, max_episode_steps, params
        )
        if isinstance(workers, str) and workers != "auto":
            raise ValueError(f"workers must be an int or 'auto', got {workers!r}")
        if not isinstance(workers, str):
            workers = checked_count("workers", workers, max(64, 4 * (os.cpu_count() or 1)))
        self.copy, self.first_env = bool(copy), checked_first(first_env)
        self._buffers = b = Buffers.allocate(self.rules, self.num_envs)
        backend = backend_of(backend, impl, env)
        chosen = choose_backend(backend, self.rules)
        self.backend = chosen.name
        self.backend_reason = chosen.reason
        self._backend = self._created(chosen, workers, backend == "auto")
        self._results = (b.cut(b.obs), b.cut(b.reward), b.cut(b.terminated), b.cut(b.truncated))
        self._report = {
            "r": b.cut(b.report_return),
            "l": b.cut(b.report_length),
            "t": b.cut(b.report_time_s),
        }
        self._done, self._final_obs = b.cut(b.done), b.cut(b.final_obs)
        self._masks = b.cut(b.action_mask)
        self._action_shape = (self.num_envs, *self.rules.action.shape)
        self._action_dtypes = fast_dtypes(self.rules.action)
        self._awaits_reset = False  # DISABLED mode: some environment finished and was not reset
        self.closed = False
        self._built_up()

    # Gymnasium's API ------------------------------------------------------------------------
    @one_at_a_time
    def reset(
        self,
        *,
        seed: int | list[int | None] | np.ndarray | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin new episodes; the observations ``[num_envs, *obs]`` and an empty info.

        Args:
            seed: an int for the batch, or one per environment (None leaves that one alone). Without
                a seed the random streams go on where they are.
            options: ``{"reset_mask": bool[num_envs]}`` resets only those environments.

        Raises:
            ValueError, TypeError: a bad seed, mask or option; the batch is unchanged.
        """
        self._check_open()
        mask = self._reset_mask(options)
        everyone = np.ones(self.num_envs, np.bool_)
        if not self._was_reset:  # also those that `seed` leaves alone need a stream
            first = fresh_seed() if self._first_seed is None else self._first_seed
            assign_streams(self._buffers, first, everyone, self.first_env)
        if seed is not None:
            assign_streams(self._buffers, seed, mask, self.first_env)
        if isinstance(seed, int):
            super().reset(seed=seed)
        if not self._was_reset:
            mask = everyone
        self._clear_reports(mask)
        for result in self._results[1:]:  # of a step that belongs to the past
            result[mask] = 0
        self._backend.reset(mask, time.perf_counter_ns() // 1000)
        self._was_reset = True
        self._awaits_reset = self._awaits_reset and bool(self._done.any())
        self._reports_episodes = not recorded_by_wrapper(self)
        return self._hand_out(self._results[0]), {}

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step of every environment: obs, reward, terminated, truncated, info.

        Args:
            actions: ``[num_envs]`` integers for Discrete, ``[num_envs, k]`` for MultiDiscrete and
                Box. Finite Box actions outside the bounds are passed on (the classic environments
                limit them, as Gymnasium's do).

        Raises:
            ValueError, TypeError: wrong shape, wrong kind, out of range or not finite. Nothing was
                stepped; the batch can be used as before.
            RuntimeError: another thread is in the middle of a step. Make a batch for each thread.
        """
        if not self._using.acquire(False):  # `in_use`, which takes 1 us
            self._refuse_use()
        try:
            if not self._was_reset or self.closed or self._awaits_reset:
                self._refuse_step()
            actions = self._taken(actions)
            finished = self._backend.step(actions, time.perf_counter_ns() // 1000)
            if finished < 0:
                raise ValueError(bad_action_message(actions, self.rules.action))
            info = self._episode_info() if finished else {}
            obs, reward, terminated, truncated = self._results
            if self.copy:
                return obs.copy(), reward.copy(), terminated.copy(), truncated.copy(), info
            return obs, reward, terminated, truncated, info
        finally:
            self._using.release()

    def close_extras(self, **kwargs: Any) -> None:
        """Stop the worker threads. A closed environment refuses to step or reset."""
        if hasattr(self, "_backend"):
            with self.in_use():  # a step that others are in would wait for them forever
                self._backend.close()

    # Beyond it ------------------------------------------------------------------------------
    @one_at_a_time
    def step_many(self, actions: Any, out: Steps | None = None) -> Steps:
        """K steps of every environment.

        Args:
            actions: ``[K, num_envs, ...]``, else as for `step`.
            out: where to write, as an earlier call returned it for as many steps; None for new
                arrays. With `out` nothing is allocated.

        Returns:
            What K calls of `step` would give, stacked: contiguous arrays ``[K, num_envs, ...]``.

        Raises:
            ValueError, TypeError: wrong shape or kind (nothing was stepped), or out of range (the
                steps before that one were taken); in DISABLED mode an episode that ended before
                the last step.
        """
        rows = [self._taken(row) for row in actions]
        if not rows:
            raise ValueError("step_many needs at least one step of actions")
        shape = (len(rows), self.num_envs)
        if out is None:
            out = Steps.allocate(self._results[0], shape)
        elif out.reward.shape != shape:
            raise ValueError(f"out must have been made for {shape}, got {out.reward.shape}")
        for k, row in enumerate(rows):
            if not self._was_reset or self.closed or self._awaits_reset:
                self._refuse_step()
            finished = self._backend.step(row, time.perf_counter_ns() // 1000)
            if finished < 0:
                raise ValueError(bad_action_message(row, self.rules.action))
            if finished > 0 and self.autoreset_mode == AutoresetMode.DISABLED:
                self._awaits_reset = True
            for array, result in zip(out, (*self._results, *self._report.values()), strict=False):
                array[k] = result
            out.final_obs[k] = self._final_obs
        return out

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Main memory."""
        import torch

        return torch.device("cpu")

    def write_obs(self, out: np.ndarray) -> None:
        """See `BaseVecEnv`."""
        self._check_was_reset("observations")
        out[...] = self._results[0]

    def action_masks(self) -> np.ndarray | None:
        """See `BaseVecEnv`."""
        self._check_was_reset("action masks")
        return None if self.rules.mask_size == 0 else self._hand_out(self._masks)

    @one_at_a_time
    def get_state(self) -> dict[str, np.ndarray]:
        """See `BaseVecEnv`."""
        self._check_open()
        return read_state(self._buffers)

    @one_at_a_time
    def set_state(self, state: Mapping[str, Any]) -> np.ndarray:
        """See `BaseVecEnv`."""
        self._check_open()
        if not self._was_reset:
            missing = set(read_state(self._buffers)) - set(state)
            if missing:
                raise ValueError(
                    f"the state lacks {', '.join(sorted(missing))}; to set a part, reset() first"
                )
        written = write_state(self._buffers, state)
        if "obs" not in written:
            self._backend.observe()
        elif self.rules.mask_size:  # the masks have to be computed, the observations stay
            given = self._results[0].copy()
            self._backend.observe()
            self._results[0][:] = given
        self._backend.state_changed()
        self._clear_reports()
        if not self._was_reset:
            self._buffers.start_us[:] = time.perf_counter_ns() // 1000
        disabled = self.autoreset_mode == AutoresetMode.DISABLED
        self._awaits_reset = disabled and bool(self._done.any())
        self._was_reset = True
        return self._hand_out(self._results[0])

    @property
    def compiled(self) -> NumbaBackend | None:
        """The compiled kernels and their memory, for engines that step environments themselves;
        None on ``"reference"``. Who does so calls its `state_changed` afterwards.

        Raises:
            ValueError: closed, or never reset.
        """
        if not self._was_reset or self.closed:
            self._refuse_step()
        compiled = self.backend in ("cpu", "native")
        return self._backend if compiled else None  # type: ignore[return-value]

    # Inside ---------------------------------------------------------------------------------
    def _taken(self, actions: Any) -> np.ndarray:
        """Actions as backends take them: as they are, if they can be."""
        if (
            type(actions) is np.ndarray
            and actions.dtype in self._action_dtypes
            and actions.shape == self._action_shape
            and actions.flags.c_contiguous
        ):
            return actions
        return as_actions(actions, self.rules.action, self.num_envs)

    def _created(self, chosen: Choice, workers: int | str, may_fall_back: bool) -> Backend:
        """The backend, or if it may be another one and this one does not work, the reference."""
        limit = self.max_episode_steps or NO_LIMIT
        given = (self.rules, self._buffers, limit, self.autoreset_mode)
        self.workers = 1
        try:
            if chosen.threads:
                measured = isinstance(workers, str)
                count = measured_workers(self.rules, self.num_envs) if measured else int(workers)
                self.workers = count
            return chosen.create(*given, self.workers)
        except Exception as error:
            if not may_fall_back or chosen.name in ("reference", "native"):
                raise
            self.backend, self.workers = "reference", 1
            self.backend_reason = warn_of_fallback(self.rules.env, chosen.name, "reference", error)
            return choose_backend("reference").create(*given, 1)

    def _use(self, rules: Rules) -> None:
        self._backend.use(rules)

    def _hand_out(self, array: np.ndarray) -> np.ndarray:
        return array.copy() if self.copy else array

    def _clear_reports(self, mask: np.ndarray | bool = True) -> None:
        """Forget episodes already reported; backends do so only for those still in ``done``."""
        for array in self._report.values():
            array[mask] = 0

    def _episode_info(self) -> dict[str, Any]:
        if self.autoreset_mode == AutoresetMode.DISABLED:
            self._awaits_reset = True
        done = self._hand_out(self._done)
        info: dict[str, Any] = {}
        if self._reports_episodes:
            info["episode"] = {key: self._hand_out(array) for key, array in self._report.items()}
            info["_episode"] = done
        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            final_info = dict(info)
            info["final_obs"] = self._hand_out(self._final_obs)
            info["_final_obs"] = done
            info["final_info"], info["_final_info"] = final_info, done
        return info

    def _reset_mask(self, options: Mapping[str, Any] | None) -> np.ndarray:
        mask = asked_mask(options)
        if mask is None:
            return np.ones(self.num_envs, np.bool_)
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError(f"reset_mask must be a bool array, got {mask!r}")
        if mask.shape != (self.num_envs,):
            raise ValueError(f"reset_mask must have shape ({self.num_envs},), got {mask.shape}")
        if not mask.any():
            raise ValueError("reset_mask selects no environment")
        return np.ascontiguousarray(mask)

    def _fields(self, index: int) -> list[Any]:
        rows = [array[index] for array in self._buffers.state.values()]
        return [row.copy() if row.ndim else row.item() for row in rows]

    def _refuse_step(self) -> None:
        self._check_open()
        if not self._was_reset:
            raise ValueError("step() before reset(): call reset() first")
        index = int(np.flatnonzero(self._done)[0])
        raise ValueError(
            f"environment {index} has finished and autoreset is disabled; call "
            "reset(options={'reset_mask': terminated | truncated}) first"
        )
