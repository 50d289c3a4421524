"""`ForeignBatch`: environments of Gymnasium's API as a batch, to train on and to step."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import logger, spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import TimeLimit

from operant.backends.foreign.actions import nested, packed_actions
from operant.backends.foreign.block import MakeEnv
from operant.backends.foreign.choose_executor import Options, start
from operant.backends.foreign.errors import ForeignEnvError
from operant.backends.foreign.executor import as_pairs
from operant.backends.foreign.part_steps import PartSteps, halves
from operant.backends.foreign.pettingzoo import as_parallel, is_pettingzoo, limited
from operant.backends.foreign.seeds import env_seed
from operant.vector.arguments import asked_mask, checked_count, recorded_by_wrapper
from operant.vector.batch import Description, Ends, StepMemory
from operant.vector.seeding import checked_first, checked_seed, fresh_seed

if TYPE_CHECKING:
    import torch

__all__ = ["ForeignBatch", "ForeignEnvError", "env_seed"]

_MAX_ENVS = 2**20
MOST_STEPS = 10_000
"""Of an episode that is played for its return, where the environment has no time limit."""


class ForeignBatch(VectorEnv[Any, Any, Any]):
    """`num_envs` environments that `make_env` makes: a batch to train on (`Batch`), and a
    vector environment of Gymnasium's, in SAME_STEP mode.

    Environment i is first reset with `env_seed` of (seed, first_env + i), later ones go on with
    their own random numbers, as in a plain loop; so `workers` changes nothing in what happens.

    Of an environment of PettingZoo's every agent is a row, row ``e * A + a`` agent a of environment
    e: the attribute ``num_envs`` is how many rows there are. All agents share one policy, so they
    need equal spaces. A row whose agent is out rests (`live_rows`) until all are, and the
    environment begins again.

    Args:
        make_env: makes one environment; for processes a function that cloudpickle can send: one of
            a module, or a lambda or ``functools.partial`` without open files and the like.
        num_envs: how many environments.
        backend: ``"serial"`` steps one after the other; ``"threads"`` is for environments that
            leave Python while they step; ``"processes"`` for all others; ``"auto"`` measures a few
            steps and says in `backend_reason` what it chose.
        workers: processes or threads, one for each core unless given; at most `num_envs`.
        seed: of the first ``reset``, unless that has one.
        name: for run files; the environment's id or class unless given.
        params: for run files: what the environment was made with.
        render_mode: what `make_env` makes its environments with; theirs unless given.
        on_worker_death: if a process is killed, ``"raise"`` `WorkerDiedError`, or ``"restart"`` it
            and truncate its episodes.
        step_timeout_s: seconds after which `StepTimeoutError` names environments that hang.
        context: how processes start; ``"spawn"``: anew, with nothing of this one but its path;
            ``"forkserver"``: as forks of one that was started so, which is faster for many.
        first_env: environment i is seeded as environment `first_env` + i: the batch is a block of a
            larger one.
        mask_in_obs: a Dict observation whose entry ``action_mask`` is one is used as a mask, and
            shown to the policy only if this is True.

    Raises:
        ValueError, TypeError: what an argument may not be.
        ForeignEnvError: an environment raised, or has other spaces than the first.
    """

    autoreset_mode = AutoresetMode.SAME_STEP

    def __init__(
        self,
        make_env: MakeEnv,
        num_envs: int = 1,
        *,
        backend: str = "auto",
        workers: int | None = None,
        seed: int | None = None,
        name: str = "",
        params: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
        on_worker_death: str = "raise",
        step_timeout_s: float = 60.0,
        context: str = "spawn",
        first_env: int = 0,
        mask_in_obs: bool = False,
    ) -> None:
        self.closed = True  # until everything has worked
        self._count = checked_count("num_envs", num_envs, _MAX_ENVS)
        if workers is not None:
            workers = checked_count("workers", workers, _MAX_ENVS)
        self._seed = None if seed is None else checked_seed(seed)
        self.first_env = checked_first(first_env)
        self._options = Options(workers, on_worker_death, step_timeout_s, context, mask_in_obs)
        self._make_env, self._params = make_env, dict(params or {})
        chosen = start(make_env, self._count, backend, self._options)
        self._probe, self._executor = chosen.probe, chosen.executor
        self._finalizer = weakref.finalize(self, chosen.executor.close)
        self.backend, self.backend_reason = chosen.backend, chosen.reason
        self.workers = chosen.executor.workers
        self.name = name or chosen.probe.name
        self.spec = chosen.probe.spec
        self.render_mode = render_mode or chosen.probe.render_mode
        self.metadata = {**chosen.probe.metadata, "autoreset_mode": self.autoreset_mode}
        self._memory = chosen.executor.memory
        self.agents: tuple[Any, ...] = chosen.probe.layouts.agents
        """Of one environment of PettingZoo's, in the order of its rows; empty for others."""
        self.num_envs = self._count * chosen.probe.layouts.rows_each
        self.layout = chosen.probe.layouts.observation
        """How rows of observations lie in memory."""
        self._action_layout = chosen.probe.layouts.action
        self.single_observation_space = self.layout.space
        self.single_action_space = self._action_layout.space
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int32)
        self._was_reset = False
        self._parts = PartSteps(chosen.executor)
        self._reports_episodes = True
        self.closed = False

    @cached_property
    def observation_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        """Of the whole batch."""
        return batch_space(self.single_observation_space, self.num_envs)

    @cached_property
    def action_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        """Of the whole batch."""
        return batch_space(self.single_action_space, self.num_envs)

    @property
    def device(self) -> torch.device:
        """Main memory."""
        import torch

        return torch.device("cpu")

    @property
    def mask_size(self) -> int:
        """Entries of the action masks of the environments; 0 without masks."""
        return self._probe.layouts.mask_size

    @property
    def why_not_saved(self) -> str | None:
        """See `Batch`."""
        return self._probe.why_not_saved

    # Gymnasium's vector environment -----------------------------------------------------------
    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes; the observations, the caller's, and an empty info.

        Args:
            seed: one for the batch, from which `env_seed` makes those of the environments, or one
                for each environment. None: in the first reset that of the constructor, or a new
                one; later the environments go on with their own random numbers.
            options: ``reset_mask``, bool ``[num_envs]``: which rows, of an environment with
                several all or none; all unless given. Others go to the environments.

        Raises:
            ValueError, TypeError: a bad seed or mask.
            ForeignEnvError: an environment failed.
        """
        self._check_open()
        self._parts.wait_for_all()
        own = dict(options or {})
        mask = asked_mask({"reset_mask": own.pop("reset_mask")} if "reset_mask" in own else None)
        self._reports_episodes = not recorded_by_wrapper(self)
        chosen = np.ones(self.num_envs, np.bool_) if mask is None else self._mask(mask)
        indices = np.flatnonzero(chosen.reshape(self._count, -1)[:, 0])
        self._executor.reset(as_pairs(indices, self._seeds(seed, indices)), own or None)
        self._returns[chosen], self._lengths[chosen] = 0, 0
        self._was_reset = True
        return nested(self.layout, self._memory.obs), {}

    def _mask(self, mask: Any) -> np.ndarray:
        array = np.asarray(mask)
        if array.shape != (self.num_envs,) or array.dtype != np.bool_:
            raise ValueError(
                f"reset_mask must be bool of shape ({self.num_envs},), got {array.dtype} of shape "
                f"{array.shape}"
            )
        if not self._was_reset and not array.all():
            raise ValueError("the first reset must be of all environments")
        each = array.reshape(self._count, -1)
        if (each.any(1) != each.all(1)).any():
            raise ValueError("reset_mask must choose all rows of an environment, or none")
        return array

    def _seeds(self, seed: Any, indices: np.ndarray) -> list[int | None]:
        if isinstance(seed, Sequence | np.ndarray):
            if len(seed) != self._count:
                raise ValueError(
                    f"seed must be one int or one for each of {self._count} environments, got "
                    f"{len(seed)}"
                )
            return [None if seed[i] is None else checked_seed(seed[i]) for i in indices]
        if seed is None and not self._was_reset:
            seed = fresh_seed() if self._seed is None else self._seed
        if seed is None:
            return [None] * len(indices)
        seed = checked_seed(seed)
        return [env_seed(seed, self.first_env + i) for i in indices.tolist()]

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all: observations, rewards float64, terminated, truncated and info, the caller's.

        Info has, if episodes ended, ``final_obs`` (as the observations; rows of ``_final_obs``
        alone) and ``episode`` with ``r`` and ``l`` (rows of ``_episode`` alone).

        Raises:
            ValueError, TypeError: actions of a wrong shape or kind; nothing was stepped.
            ForeignEnvError: an environment failed.
        """
        ends = self._step(actions)
        memory = self._memory
        obs = nested(self.layout, memory.obs)
        results = (memory.reward.copy(), memory.terminated.copy(), memory.truncated.copy())
        return obs, *results, {} if ends is None else self._info(ends)

    def _info(self, ends: Ends) -> dict[str, Any]:
        ended = self._memory.terminated | self._memory.truncated
        info = {"final_obs": nested(self.layout, self._memory.final_obs), "_final_obs": ended}
        if self._reports_episodes:
            returns, lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int32)
            returns[ends.env_index], lengths[ends.env_index] = ends.returns, ends.lengths
            info |= {"episode": {"r": returns, "l": lengths}, "_episode": ended.copy()}
        return info

    def _step(self, actions: Any) -> Ends | None:
        self._check_was_reset()
        self._parts.wait_for_all()
        packed_actions(self._action_layout, actions, self._memory.action)
        memory = self._memory
        acted = memory.live.copy() if self.agents else 1
        self._executor.step()
        self._returns += memory.reward
        self._lengths += acted
        return self._ends((memory.terminated | memory.truncated).nonzero()[0])

    def _ends(self, index: np.ndarray) -> Ends | None:
        """The episodes of these rows, which ended in this step."""
        if not len(index):
            return None
        memory = self._memory
        cut = memory.truncated[index] & ~memory.terminated[index]
        returns = self._returns[index].astype(np.float32)
        ends = Ends(index, returns, self._lengths[index], cut, memory.final_obs)
        self._returns[index], self._lengths[index] = 0, 0
        return ends

    # Halves that step beside each other -------------------------------------------------------
    def halves(self) -> tuple[np.ndarray, np.ndarray]:
        """Two sets of rows, int64 in order: of every worker about half of its environments, so
        that either keeps all workers busy."""
        return halves(self.num_envs, self.workers)

    def begin_rows(self, actions: Any, rows: np.ndarray) -> None:
        """Begin to step some rows, none of which is under way; `finish_rows` ends it.

        Args:
            actions: ``[len(rows), ...]``, as ``single_action_space`` has them; copied.
            rows: int64, in order.

        Raises:
            ValueError, TypeError: actions of a wrong shape or kind; nothing was begun.
        """
        self._check_was_reset()
        packed = self._action_layout.memory(len(rows))
        packed_actions(self._action_layout, actions, packed)
        self._memory.action[rows] = packed
        self._parts.begin(rows.tolist())

    def first_done(self, sets: Sequence[np.ndarray]) -> int:
        """Wait until all rows of one of these sets, which were begun, are done; which one.

        Raises:
            ForeignEnvError: an environment failed.
        """
        while True:
            for k, rows in enumerate(sets):
                if self._parts.are_done(rows.tolist()):
                    return k
            self._parts.wait_for_some()

    def finish_rows(self, rows: np.ndarray, out: StepMemory) -> Ends | None:
        """Wait for rows that were begun, and write what came of them to their rows of `out`; the
        episodes that ended, as `write_step` gives them. Other rows may be under way.

        Raises:
            ForeignEnvError: an environment failed, one of other rows perhaps.
        """
        self._parts.wait(rows.tolist())
        memory = self._memory
        out.obs[rows] = memory.obs[rows]
        out.reward[rows] = memory.reward[rows]
        out.terminated[rows] = memory.terminated[rows]
        out.truncated[rows] = memory.truncated[rows]
        self._returns[rows] += memory.reward[rows]
        self._lengths[rows] += 1
        return self._ends(rows[memory.terminated[rows] | memory.truncated[rows]])

    def render(self) -> tuple[Any, ...] | None:
        """A picture of each environment; None without a render mode, and a warning."""
        if self.render_mode is None:
            logger.warn("render() gives no picture without a render mode", stacklevel=2)
            return None
        return tuple(self.render_one(i) for i in range(self._count))

    def render_one(self, index: int) -> Any:
        """What ``render()`` of one environment gives, such as uint8 ``[height, width, 3]``."""
        self._check_was_reset()
        if not 0 <= index < self._count:
            raise ValueError(f"index must be 0 to {self._count - 1}, got {index}")
        return self._executor.render(index)

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers, and close the environments; called by ``close``."""
        self._finalizer()

    # What training needs: `operant.vector.batch.Batch` ----------------------------------------
    def write_obs(self, out: Any) -> None:
        """See `Batch`."""
        self._check_was_reset()
        out[...] = self._memory.obs

    def write_step(self, actions: Any, out: StepMemory) -> Ends | None:
        """See `Batch`."""
        ends = self._step(actions)
        memory = self._memory
        out.obs[...] = memory.obs
        out.reward[...] = memory.reward
        out.terminated[...] = memory.terminated
        out.truncated[...] = memory.truncated
        return ends

    def action_masks(self) -> np.ndarray | None:
        """See `Batch`."""
        if not self.mask_size:
            return None
        self._check_was_reset()
        return self._memory.mask.copy()

    def live_rows(self) -> np.ndarray | None:
        """See `Batch`: of environments with several agents those whose agents are there."""
        return self._memory.live.copy() if self.agents else None

    def get_state(self) -> dict[str, np.ndarray]:
        """See `Batch`. ``envs`` is uint8 ``[environments, bytes of the longest]``, of which the
        first ``sizes`` count.

        Raises:
            ValueError: never reset, or they cannot be saved: `why_not_saved`.
        """
        self._check_was_reset()
        self._check_saved()
        self._parts.wait_for_all()
        states = self._executor.states()
        sizes = np.array([len(state) for state in states])
        envs = np.zeros((self._count, sizes.max()), np.uint8)
        for row, state in zip(envs, states, strict=True):
            row[: len(state)] = np.frombuffer(state, np.uint8)
        return {"envs": envs, "sizes": sizes} | {
            name: array.copy() for name, array in self._saved_arrays().items()
        }

    def _saved_arrays(self) -> dict[str, np.ndarray]:
        arrays = {"obs": self._memory.obs, "returns": self._returns, "lengths": self._lengths}
        arrays |= {"live": self._memory.live} if self.agents else {}
        return arrays | ({"mask": self._memory.mask} if self.mask_size else {})

    def set_state(self, state: Mapping[str, Any]) -> None:
        """See `Batch`."""
        self._check_open()
        self._check_saved()
        self._parts.wait_for_all()
        arrays = self._saved_arrays()
        for name in ("envs", "sizes", *arrays):
            if name not in state:
                raise ValueError(f"the state has no entry {name!r}")
        for name, array in arrays.items():
            given = np.asarray(state[name])
            if given.shape != array.shape or given.dtype != array.dtype:
                raise ValueError(
                    f"state entry {name!r} must be {array.dtype} of shape {array.shape}, got "
                    f"{given.dtype} of shape {given.shape}"
                )
        envs, sizes = np.asarray(state["envs"], np.uint8), np.asarray(state["sizes"])
        if envs.ndim != 2 or len(envs) != self._count or sizes.shape != (self._count,):
            raise ValueError(f"the state is of {len(envs)} environments, not of {self._count}")
        if not self._was_reset:
            self.reset(seed=0)  # some have attributes only then
        rows = zip(envs, sizes.tolist(), strict=True)
        self._executor.set_states([row[:size].tobytes() for row, size in rows])
        for name, array in arrays.items():
            array[...] = state[name]

    def describe(self) -> Description:
        """See `Batch`."""
        found = self._probe
        return Description(
            self.name,
            self.backend,
            self.workers,
            self._params,
            found.max_episode_steps,
            found.max_episode_steps or MOST_STEPS,
            found.reward_threshold,
            tuple(map(str, self.agents)),
        )

    def for_evaluation(self, num_envs: int, max_episode_steps: int | None = None) -> ForeignBatch:
        """See `Batch`."""
        make_env = self._make_env
        if self._probe.max_episode_steps is None:
            max_episode_steps = max_episode_steps or MOST_STEPS
        if max_episode_steps is not None and max_episode_steps != self._probe.max_episode_steps:
            make_env = _Limited(make_env, max_episode_steps)
        return ForeignBatch(
            make_env,
            -(-num_envs // self._probe.layouts.rows_each),
            backend=self.backend,
            workers=self.workers,
            name=self.name,
            params=self._params,
            on_worker_death=self._options.on_worker_death,
            step_timeout_s=self._options.step_timeout_s,
            context=self._options.context,
            mask_in_obs=self._options.mask_in_obs,
        )

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("this batch is closed; make a new one")

    def _check_was_reset(self) -> None:
        self._check_open()
        if not self._was_reset:
            raise ValueError("nothing to step or to see yet: call reset() first")

    def _check_saved(self) -> None:
        if self.why_not_saved is not None:
            raise ValueError(f"these environments cannot be saved: {self.why_not_saved}")


class _Limited:
    """Makes environments with a time limit of steps; one of their own that is shorter holds too."""

    def __init__(self, make_env: MakeEnv, limit: int) -> None:
        self._make_env, self._limit = make_env, limit

    def __call__(self) -> Any:
        env = self._make_env()
        if is_pettingzoo(env):
            return limited(as_parallel(env), self._limit)
        return TimeLimit(env, self._limit)
