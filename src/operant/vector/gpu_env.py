"""`CudaVecEnv`: a batch that lives on the GPU. The ``cuda`` backend.

Actions come and results go as PyTorch tensors on the GPU; nothing waits for it and nothing is
copied to the host, so a step can be captured in a CUDA graph. Who launches which kernels:
`operant.vector.gpu_numbers` for a state of numbers, `operant.vector.gpu_arrays` for one of arrays.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from operant.compiler.emit.triton_text import RECORD
from operant.compiler.recording.trace import FLOAT, INT
from operant.compiler.spec.rules import Rules
from operant.lang.env import Env
from operant.toolchain.gpus import check_memory, interpreted
from operant.vector.arguments import asked_mask
from operant.vector.base import BaseVecEnv, one_at_a_time
from operant.vector.seeding import checked_seed, fresh_seed
from operant.vector.state import COUNTERS, RESULTS, checked_state

_MODES = {AutoresetMode.NEXT_STEP: 0, AutoresetMode.SAME_STEP: 1, AutoresetMode.DISABLED: 2}
_STATE_DTYPES = {"seed": np.uint64, "index": np.uint32, "episode": np.uint32}
"""Where a state's dtype is not the tensor's: PyTorch computes little with unsigned words."""
_TICK = 16.384e-6
"""Seconds of a tick of the GPU's clock, see `triton_words.ticks`."""
_LANES = 128
"""Rows are padded to a multiple of this, so that all of them begin at an aligned address."""


class Results(NamedTuple):
    """What steps write: tensors ``[N, ...]`` for one step, ``[K, N, ...]`` for several.

    ``final_obs`` is written where an episode ended (SAME_STEP), and so is ``report``, float32
    ``[..., 4]``: its return, its length (the bits of an int32), its seconds, 0. The others keep old
    values. ``action_mask`` has no columns without a mask.
    """

    obs: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_obs: Tensor
    action_mask: Tensor
    report: Tensor

    @classmethod
    def allocate(cls, rules: Rules, shape: tuple[int, ...], device: torch.device) -> Results:
        """Zeroed tensors, every action allowed."""

        def zeros(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros((*shape, *sizes), dtype=dtype, device=device)

        obs = torch.float32 if rules.observation.dtype == FLOAT else torch.int64
        return cls(
            obs=zeros(*rules.observation.shape, dtype=obs),
            reward=zeros(),
            terminated=zeros(dtype=torch.bool),
            truncated=zeros(dtype=torch.bool),
            final_obs=zeros(*rules.observation.shape, dtype=obs),
            action_mask=zeros(rules.mask_size, dtype=torch.bool).fill_(True),
            report=zeros(4),
        )


class Lazy(Mapping[str, Any]):
    """A mapping whose values are made each time they are looked at."""

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        self._makers = makers

    def __getitem__(self, key: str) -> Any:
        return self._makers[key]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


class CudaVecEnv(BaseVecEnv):
    """A batch of environments on an NVIDIA GPU, behind Gymnasium's vector API with tensors.

    The same episodes as on the other backends from the same seed. Differences from `VecEnv`, all of
    them because nothing waits for the GPU:

    - ``info`` always has ``episode`` (``r``, ``l``, ``t``) and ``_episode``, and in SAME_STEP mode
      ``final_obs`` and ``_final_obs``: tensors ``[num_envs, ...]``. Where no episode ended the
      first are zero, and ``final_obs`` holds old values.
    - An integer action out of range acts as the nearest valid one, and a float action that is not
      finite is passed on; `check_actions`, `get_state` and ``close`` then raise.
    - In DISABLED mode a finished environment stays as it is until it is reset: reward 0, no flags.

    Args:
        env: the environment class.
        num_envs: how many.
        device: which GPU.
        seed, autoreset_mode, render_mode, max_episode_steps, params: as in `VecEnv`.
        copy: False: results are the batch's own tensors, at fixed addresses, which the next step
            overwrites. True: they are yours to keep.

    Raises:
        ValueError, TypeError: an argument is out of range or of the wrong kind.
        MemoryError: they do not fit; the message says how many would.
    """

    _OPTIONS = ("device",)

    def __init__(
        self,
        env: type[Env],
        num_envs: int = 1,
        *,
        device: torch.device | None = None,
        seed: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = False,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **params: Any,
    ) -> None:
        super().__init__(
            env, num_envs, seed, autoreset_mode, render_mode, max_episode_steps, params
        )
        self.device = device or torch.device("cpu" if interpreted() else "cuda", 0)
        self.backend, self.backend_reason, self.workers = "cuda", "asked for", 1
        self.copy = bool(copy)
        check_memory(self.device, num_envs, self._bytes_per_env(), "a batch")
        self._stride = -(-num_envs // _LANES) * _LANES
        self._memory, self._rows = self._allocate()
        self._kept = tuple(self._rows)
        records = torch.zeros((self._stride, len(RECORD)), dtype=torch.int32, device=self.device)
        self._memory["records"] = records
        self._rows |= {name: records[:num_envs, k] for k, name in enumerate(RECORD)}
        self._rows["seed"] = records.view(torch.int64)[:num_envs, 3]
        self._params = torch.from_numpy(np.append(self.rules.param_values(), np.float32(0)))
        self._params = self._params.to(self.device)
        self._own = Results.allocate(self.rules, (num_envs,), self.device)
        self._bad, self._clock = torch.zeros((2, 1), dtype=torch.int32, device=self.device)
        self._everyone = torch.ones(num_envs, dtype=torch.bool, device=self.device)
        self._mode = _MODES[self.autoreset_mode]
        self._action_shape = (num_envs, *self.rules.action.shape)
        self._prepare()
        self.closed = False
        self._built_up()

    @abstractmethod
    def _bytes_per_env(self) -> int:
        """Memory that one environment takes."""

    @abstractmethod
    def _allocate(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The tensors in which state and counters live, and from them a view
        ``[num_envs, ...]`` of every ``state_<field>``, ``episode_return``, ``steps``, ``done``."""

    @abstractmethod
    def _prepare(self) -> None:
        """Load the kernels."""

    @abstractmethod
    def _run(self, name: str, results: Results, **arguments: Any) -> None:
        """Launch ``reset``, ``step`` or ``observe`` on the caller's stream."""

    # Gymnasium's API ------------------------------------------------------------------------
    @one_at_a_time
    def reset(
        self, *, seed: Any = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """Begin new episodes; the observations ``[num_envs, *obs]`` and an empty info.

        Args:
            seed: as in `VecEnv`. Without one nothing is copied to the GPU.
            options: ``{"reset_mask": bool[num_envs]}``, a tensor or an array, resets only those
                environments; it is not looked at on the host.

        Raises:
            ValueError, TypeError: a bad seed, mask or option; the batch is unchanged.
        """
        self._check_open()
        mask = self._reset_mask(options)
        streams = [] if seed is None else [(self._stream(seed), mask)]
        if not self._was_reset:  # also those that `seed` leaves alone need a stream
            first = fresh_seed() if self._first_seed is None else self._first_seed
            streams.insert(0, (self._stream(first), self._everyone))
            mask = self._everyone
        for stream, whose in streams:
            self._assign(*stream, whose)
        if isinstance(seed, int):
            super(BaseVecEnv, self).reset(seed=seed)
        self._run("reset", self._own, chosen=mask)
        self._was_reset = True
        return self._hand_out(self._own.obs), {}

    @one_at_a_time
    def step(self, actions: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """One step of every environment: obs, reward, terminated, truncated, info.

        Args:
            actions: ``[num_envs]`` integers for Discrete, ``[num_envs, k]`` for MultiDiscrete and
                Box: a tensor on the GPU, int32, int64 or float32; anything else is converted.

        Raises:
            ValueError, TypeError: wrong shape or kind; nothing was stepped.
        """
        self._check_ready()
        own = self._own
        self._step(self._checked(actions, self._action_shape), own, 1, report=False)
        obs, reward, terminated, truncated = (self._hand_out(x) for x in own[:4])
        return obs, reward, terminated, truncated, self._own_info()

    def close_extras(self, **kwargs: Any) -> None:
        """Forget the memory. A closed environment refuses to step or reset."""
        if hasattr(self, "_bad") and not self.closed:
            self.check_actions()

    # Beyond it ------------------------------------------------------------------------------
    @one_at_a_time
    def step_many(self, actions: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """K steps of every environment in one launch; a state of numbers stays on the chip.

        Args:
            actions: ``[K, num_envs, ...]``, else as for `step`.

        Returns:
            What K calls of `step` would give, stacked: new tensors ``[K, num_envs, ...]``.

        Raises:
            ValueError, TypeError: wrong shape or kind; nothing was stepped.
        """
        self._check_ready()
        count = len(actions)
        actions = self._checked(actions, (count, *self._action_shape))
        if count == 0:
            raise ValueError("step_many needs at least one step of actions")
        results = Results.allocate(self.rules, (count, self.num_envs), self.device)
        self._step(actions, results, count, report=True)
        self.take_over(Results(*(tensor[-1] for tensor in results)))
        return (*results[:4], self._many_info(results))

    def step_into(self, actions: Tensor, results: Results) -> None:
        """One step that writes to `results`, tensors ``[num_envs, ...]``, instead of the batch's
        own. For engines: nothing is checked. `take_over` the last ones before anything else."""
        self._step(actions, results, 1, report=True)

    def take_over(self, results: Results) -> None:
        """Copy results that `step_into` wrote elsewhere to the batch's own."""
        torch._foreach_copy_(list(self._own[:-1]), list(results[:-1]))

    def memory(self) -> list[Tensor]:
        """All tensors that a step may change."""
        return [*self._memory.values(), *self._own, self._bad, self._clock]

    def check_actions(self) -> None:
        """Wait for the GPU; raise ValueError if an action since the last check was not valid."""
        if int(self._bad):
            self._bad.zero_()
            space = self.single_action_space
            raise ValueError(f"an action was out of range or not finite; expected {space}")

    def check_rules(self) -> None:
        """Wait for the GPU; raise what went wrong in the author's functions, if they can go wrong.

        Raises:
            RulesError: an index lay outside its array; element 0 was used instead.
            RulesOverflowError: an int did not fit into its array; its lowest bits were kept.
        """

    def write_obs(self, out: Tensor) -> None:
        """See `BaseVecEnv`."""
        self._check_was_reset("observations")
        out.copy_(self._own.obs)

    def action_masks(self) -> Tensor | None:
        """See `BaseVecEnv`."""
        self._check_was_reset("action masks")
        return None if self.rules.mask_size == 0 else self._hand_out(self._own.action_mask)

    @property
    def buffers(self) -> dict[str, Tensor]:
        """Every tensor of the batch, by name, as views: for DLPack, or to look at. All are
        contiguous but a state of arrays, whose elements lie beside the neighbours'.
        ``records``, int32 ``[num_envs, 8]``, has columns as in `triton_text.RECORD`."""
        counters = {name: self._rows[name] for name in self._kept}
        records = self._memory["records"][: self.num_envs]
        return {**counters, **self._own._asdict(), "records": records}

    @one_at_a_time
    def get_state(self) -> dict[str, np.ndarray]:
        """See `BaseVecEnv`. Waits for the GPU.

        Raises:
            ValueError: closed, or an action was not valid, see `check_actions`.
        """
        self._check_open()
        self.check_actions()
        return self._read()

    def _read(self) -> dict[str, np.ndarray]:
        state = {}
        for name, tensor in self._state_tensors().items():
            array = tensor.cpu().numpy()
            state[name] = array.view(_STATE_DTYPES.get(name, array.dtype)).copy()
        return state

    @one_at_a_time
    def set_state(self, state: Mapping[str, Any]) -> Tensor:
        """See `BaseVecEnv`. Entries may be tensors."""
        self._check_open()
        given = {k: v.cpu().numpy() if isinstance(v, Tensor) else v for k, v in state.items()}
        tensors = self._state_tensors()
        if not self._was_reset and set(tensors) - set(given):
            missing = ", ".join(sorted(set(tensors) - set(given)))
            raise ValueError(f"the state lacks {missing}; to set a part, reset() first")
        arrays = checked_state(self._read(), given)
        if not self._was_reset:
            self._run("reset", self._own, chosen=self._everyone)  # sets the clocks
        for name, array in arrays.items():
            if name in _STATE_DTYPES:
                array = array.view(np.int64 if array.itemsize == 8 else np.int32)
            tensors[name].copy_(torch.from_numpy(array))
        seen = self._own.obs.clone() if "obs" in arrays else None
        self._run("observe", self._own)
        if seen is not None:  # only the masks had to be computed
            self._own.obs.copy_(seen)
        self._was_reset = True
        return self._hand_out(self._own.obs)

    # Inside ---------------------------------------------------------------------------------
    def _state_tensors(self) -> dict[str, Tensor]:
        tensors = {f"state.{name}": self._rows[f"state_{name}"] for name in self.rules.memory}
        tensors |= {name: self._rows[name] for name in COUNTERS}
        return tensors | {name: getattr(self._own, name) for name in RESULTS}

    def _fields(self, index: int) -> list[Any]:
        values = [self._rows[f"state_{name}"][index] for name in self.rules.memory]
        return [value.cpu().numpy() if value.ndim else value.item() for value in values]

    def _use(self, rules: Rules) -> None:
        self._params[:-1].copy_(torch.from_numpy(rules.param_values()))

    def _hand_out(self, tensor: Tensor) -> Tensor:
        return tensor.clone() if self.copy else tensor

    def _own_info(self) -> dict[str, Any]:
        """Who finished in the last step; the report is put together when it is looked at."""
        own, rows = self._own, self._rows
        same_step = self.autoreset_mode == AutoresetMode.SAME_STEP
        ended = rows["done"]
        if self.autoreset_mode == AutoresetMode.DISABLED:
            ended = own.terminated | own.truncated
        makers = {
            "r": lambda: torch.where(ended, rows["episode_return"], 0.0),
            "l": lambda: torch.where(ended, rows["steps"], 0),
            "t": lambda: torch.where(ended, (self._clock - rows["start"]) * _TICK, 0.0),
        }
        if same_step:  # the rows are the next episode's
            makers = {
                "r": lambda: torch.where(ended, rows["return"].view(torch.float32), 0.0),
                "l": lambda: torch.where(ended, rows["length"], 0),
                "t": lambda: torch.where(ended, rows["seconds"].view(torch.float32), 0.0),
            }
        episode: Mapping[str, Any] = Lazy(makers)
        if self.copy:
            episode, ended = dict(episode), ended.clone()
        info: dict[str, Any] = {"episode": episode, "_episode": ended}
        if same_step:
            info["final_obs"], info["_final_obs"] = self._hand_out(own.final_obs), ended
        return info

    def _many_info(self, results: Results) -> dict[str, Any]:
        """The same for several steps, ``[K, num_envs, ...]``."""
        ended = results.terminated | results.truncated
        report = results.report
        episode = {"r": report[..., 0], "l": report.view(torch.int32)[..., 1], "t": report[..., 2]}
        info: dict[str, Any] = {"episode": episode, "_episode": ended}
        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            info["final_obs"], info["_final_obs"] = results.final_obs, ended
        return info

    def _step(self, actions: Tensor, results: Results, count: int, report: bool) -> None:
        self._run(
            "step",
            results,
            action=actions,
            final_obs=results.final_obs,
            report=results.report,
            bad=self._bad,
            clock=self._clock,
            STEPS=count,
            MODE=self._mode,
            REPORT=report,
        )

    def _on_device(self) -> AbstractContextManager[Any]:
        if self.device.type == "cpu" or self.device.index == torch.cuda.current_device():
            return nullcontext()
        return torch.cuda.device(self.device)

    def _checked(self, actions: Any, shape: tuple[int, ...]) -> Tensor:
        """`actions` as a contiguous tensor on the GPU, of a dtype that kernels read."""
        layout = self.rules.action
        if not isinstance(actions, Tensor):
            try:
                actions = torch.as_tensor(np.asarray(actions))
            except Exception as error:
                raise TypeError(f"actions must be a tensor of shape {shape}: {error}") from None
        if actions.shape != shape:
            raise ValueError(
                f"actions must have shape {shape}: one {layout.space} for each of {self.num_envs} "
                f"environments; got shape {tuple(actions.shape)}"
            )
        if layout.dtype == INT:
            if actions.is_floating_point() or actions.is_complex() or actions.dtype == torch.bool:
                raise TypeError(f"actions of {layout.space} must be integers, got {actions.dtype}")
            wanted = actions.dtype if actions.dtype == torch.int32 else torch.int64
        else:
            if actions.dtype == torch.bool or actions.is_complex():
                raise TypeError(f"actions of {layout.space} must be floats, got {actions.dtype}")
            wanted = torch.float32
        found: Tensor = actions.to(self.device, wanted).contiguous()
        return found

    def _reset_mask(self, options: Mapping[str, Any] | None) -> Tensor:
        mask = asked_mask(options)
        if mask is None:
            return self._everyone
        if isinstance(mask, np.ndarray):
            mask = torch.from_numpy(mask)
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            raise TypeError(f"reset_mask must be a bool tensor or array, got {mask!r}")
        if mask.shape != (self.num_envs,):
            raise ValueError(
                f"reset_mask must have shape ({self.num_envs},), got {tuple(mask.shape)}"
            )
        return mask.to(self.device).contiguous()

    def _stream(self, seed: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Seed and index of each environment, and whether it is given one; see `assign_streams`."""
        n = self.num_envs
        seed = seed.tolist() if isinstance(seed, np.ndarray | Tensor) else seed
        if isinstance(seed, list | tuple):
            if len(seed) != n:
                raise ValueError(
                    f"seed must be one int or one for each of {n} environments, got {len(seed)}"
                )
            given = torch.tensor([one is not None for one in seed], device=self.device)
            words = np.array([0 if one is None else checked_seed(one) for one in seed], np.uint64)
            index = torch.zeros(n, dtype=torch.int32, device=self.device)
            return torch.from_numpy(words.view(np.int64)).to(self.device), index, given
        word = int(np.array(checked_seed(seed), np.uint64).view(np.int64))
        index = torch.arange(n, dtype=torch.int32, device=self.device)
        return torch.full((n,), word, device=self.device), index, self._everyone

    def _assign(self, seed: Tensor, index: Tensor, given: Tensor, mask: Tensor) -> None:
        chosen = mask & given
        for name, value in (("seed", seed), ("index", index), ("episode", 0)):
            row = self._rows[name]
            row.copy_(torch.where(chosen, value, row))

    def _check_ready(self) -> None:
        self._check_open()
        if not self._was_reset:
            raise ValueError("step() before reset(): call reset() first")
