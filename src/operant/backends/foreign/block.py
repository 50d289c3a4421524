"""`EnvBlock`: neighbouring environments of a batch, stepped one after the other."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces

from operant.backends.foreign.actions import action_reader
from operant.backends.foreign.errors import ForeignEnvError, in_words, is_ctrl_c, shown
from operant.backends.foreign.memory import Memory
from operant.backends.foreign.nan_check import NanCheck
from operant.backends.foreign.state import restore, saved
from operant.spaces.rows import Leaf, ObsLayout

MakeEnv = Callable[[], gymnasium.Env[Any, Any]]
_FLOATS = (float, np.float64)
_FALSE = np.False_


class Layouts(NamedTuple):
    """What all environments of a batch have in common."""

    observation: ObsLayout
    action: ObsLayout
    mask_size: int
    """Entries of ``info["action_mask"]``; 0 without masks."""


class EnvBlock:
    """Environments `first` up to `end` of a batch, which read and write their rows of `memory`.

    An episode that ends begins again in the same step: ``final_obs`` has its last observation.

    Raises:
        ForeignEnvError: an environment cannot be made, or has other spaces than `layouts`.
    """

    def __init__(
        self, make_env: MakeEnv, layouts: Layouts, memory: Memory, first: int, end: int
    ) -> None:
        self.first, self.end = first, end
        self.layouts = layouts
        self._memory = memory
        self._seeds: list[int | None] = [None] * (end - first)
        self._read_action = action_reader(layouts.action)
        self._action_rows = _rows(memory.action, first, end)
        self._obs_rows = _rows(memory.obs, first, end)
        self._final_rows = _rows(memory.final_obs, first, end)
        self._reward: Any = memoryview(memory.reward)  # type: ignore[arg-type]
        self._pack = _packer(layouts.observation)
        self._masks = _rows(memory.mask, first, end) if layouts.mask_size else None
        self._is_plain = self._masks is None and not layouts.observation.is_tree
        self._is_plain &= not layouts.action.is_tree
        self._nan_check = NanCheck(layouts.observation, memory.obs[first:end])
        # Rows of episodes that ended before were looked at then.
        self._final_check = NanCheck(layouts.observation, memory.final_obs[first:end])
        self.envs: list[gymnasium.Env[Any, Any]] = []
        for index in range(first, end):
            try:
                self.envs.append(make_env())
            except BaseException as error:
                self._fail(index, "could not be made", error)
        for index, env in enumerate(self.envs, first):
            self._check_spaces(index, env)
        self._steps: list[Callable[[Any], Any]] = [env.step for env in self.envs]

    def _check_spaces(self, index: int, env: gymnasium.Env[Any, Any]) -> None:
        for name, wanted in (
            ("observation_space", self.layouts.observation.space),
            ("action_space", self.layouts.action.space),
        ):
            found = getattr(env, name, None)
            if found != wanted:
                raise ForeignEnvError(
                    f"environment {index} has the {name} {found}, the others have {wanted}; all "
                    "environments of a batch must have the same",
                    index,
                )

    def reset(self, seeds: Iterable[tuple[int, int | None]], options: Any = None) -> None:
        """Begin new episodes.

        Args:
            seeds: indices of environments, and what each is seeded with; None: it goes on with its
                own random numbers.
            options: for their ``reset``.
        """
        for index, seed in seeds:
            k = index - self.first
            if seed is not None:
                self._seeds[k] = seed
            obs, info = self._reset_one(k, seed, options)
            self._write_obs(k, obs, self._obs_rows[k])
            if self._masks is not None:
                self._write_mask(k, info)
        self._check_nan()

    def _reset_one(self, k: int, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        try:
            result = self.envs[k].reset(seed=seed, options=options)
        except BaseException as error:
            self._fail(self.first + k, "raised in reset()", error)
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            got = f"(obs, {_kind(result[1])})" if _is_pair(result) else _kind(result)
            self._fail(self.first + k, f"must return (obs, dict) from reset(), got {got}")
        return result

    def step_all(self) -> None:
        """Step every environment with its row of the actions."""
        memory = self._memory
        memory.terminated[self.first : self.end] = False
        memory.truncated[self.first : self.end] = False
        if self._is_plain:
            self._step_plain()
        else:
            for k in range(self.end - self.first):
                self._step_one(k)
        self._check_nan(stepped=True)

    def _step_plain(self) -> None:
        """`_step_one` for all, for arrays as observations: what most steps give is written here,
        everything else by `_take`."""
        (leaf,) = self.layouts.observation.leaves
        shape, dtype, rewards, array_type = leaf.shape, leaf.dtype, self._reward, np.ndarray
        actions = self._memory.action[self.first : self.end]
        # Numbers of the type that sample() gives, or rows of a copy: an environment may keep them.
        taken = list(actions.copy() if actions.ndim > 1 else actions)
        index, take = self.first - 1, self._take
        for step, action, row in zip(self._steps, taken, self._obs_rows, strict=True):
            index += 1
            try:
                obs, reward, terminated, truncated, info = step(action)
            except BaseException as error:
                self._refuse_step(index - self.first, action, error)
            if (
                type(obs) is array_type
                and (obs.dtype is dtype or obs.dtype == dtype)
                and obs.shape == shape
                and type(reward) in _FLOATS
                and reward - reward == 0.0
                and (terminated is False or terminated is _FALSE)
                and (truncated is False or truncated is _FALSE)
                and type(info) is dict
            ):
                row[...] = obs
                rewards[index] = reward
            else:
                take(index - self.first, action, obs, reward, terminated, truncated, info)

    def step_some(self, indices: Iterable[int]) -> None:
        """Step these environments of the batch."""
        for index in indices:
            self._memory.terminated[index] = self._memory.truncated[index] = False
            self._step_one(index - self.first)
        self._check_nan(stepped=True)

    def _step_one(self, k: int) -> None:
        action = self._read_action(self._action_rows[k])
        try:
            obs, reward, terminated, truncated, info = self._steps[k](action)
        except BaseException as error:
            self._refuse_step(k, action, error)
        self._take(k, action, obs, reward, terminated, truncated, info)

    def _take(
        self, k: int, action: Any, obs: Any, reward: Any, terminated: Any, truncated: Any, info: Any
    ) -> None:
        """Check what a step gave, and write it; an episode that ended begins again."""
        if type(reward) is not float:
            reward = self._number(k, reward, action)
        if reward - reward != 0.0:  # NaN, for infinity too
            text = "NaN" if reward != reward else str(reward)
            self._fail(self.first + k, f"gave a reward that is {text}", action=action)
        self._reward[self.first + k] = reward
        if type(info) is not dict and not isinstance(info, dict):
            self._fail(self.first + k, f"gave {shown(info)} for info, not a dict", action=action)
        if terminated is not False or truncated is not False:
            terminated = self._flag(k, "terminated", terminated, action)
            truncated = self._flag(k, "truncated", truncated, action)
            if terminated or truncated:
                self._memory.terminated[self.first + k] = terminated
                self._memory.truncated[self.first + k] = truncated
                self._write_obs(k, obs, self._final_rows[k], action)
                if self._final_check.found() is not None:
                    where = self._final_check.where(k)
                    self._fail(self.first + k, f"gave {where}", action=action)
                obs, info = self._reset_one(k)
        self._write_obs(k, obs, self._obs_rows[k], action)
        if self._masks is not None:
            self._write_mask(k, info)

    def _number(self, k: int, reward: Any, action: Any) -> float:
        """A reward that is no float, as one; an array of one number is one."""
        try:
            array = np.asarray(reward)
            if array.dtype.kind in "biuf" and array.size == 1:
                return float(array.item())
        except Exception:  # what some other library makes of it
            array = None
        self._fail(
            self.first + k, f"gave the reward {shown(reward)}, which is no number", action=action
        )

    def _flag(self, k: int, name: str, value: Any, action: Any) -> bool:
        """A truth value that is none of Python's, as one."""
        if isinstance(value, bool | np.bool_ | int | np.integer):
            return bool(value)
        if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "bi":
            return bool(value.item())
        self._fail(
            self.first + k, f"gave {shown(value)} for {name}, not True or False", action=action
        )

    def _write_obs(self, k: int, obs: Any, row: np.ndarray, action: Any = None) -> None:
        try:
            self._pack(obs, row)
        except _MisfitError as misfit:
            self._fail(self.first + k, f"gave {misfit}", action=action)

    def _check_nan(self, stepped: bool = False) -> None:
        k = self._nan_check.found()
        if k is not None:
            action = self._read_action(self._action_rows[k]) if stepped else None
            self._fail(self.first + k, f"gave {self._nan_check.where(k)}", action=action)

    def _write_mask(self, k: int, info: Any) -> None:
        assert self._masks is not None
        size = self.layouts.mask_size
        try:
            mask = np.asarray(info["action_mask"], np.bool_).reshape(size)
        except (KeyError, TypeError, ValueError):
            self._fail(
                self.first + k,
                f'must give {size} truth values in info["action_mask"] in every step, as in the '
                f"first, got {shown(info.get('action_mask'))}",
            )
        if not mask.any():
            self._fail(self.first + k, 'allows no action at all in info["action_mask"]')
        self._masks[k][:] = mask

    def _refuse_step(self, k: int, action: Any, error: BaseException) -> NoReturn:
        """Say what was wrong about a step that raised, or whose result is no tuple of five."""
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            wanted = "(obs, reward, terminated, truncated, info)"
            self._fail(
                self.first + k,
                f"must return {wanted} from step(), and returned something else: {error}",
                action=action,
            )
        self._fail(self.first + k, "raised in step()", error, action)

    def _fail(
        self, index: int, what: str, error: BaseException | None = None, action: Any = None
    ) -> NoReturn:
        if error is not None and is_ctrl_c(error):
            raise error
        k = index - self.first
        env = self.envs[k] if k < len(self.envs) else None
        name = f" ({type(getattr(env, 'unwrapped', env)).__name__})" if env is not None else ""
        message = f"environment {index}{name} {what}"
        text = ""
        if error is not None:
            message += f": {in_words(error)}"
            kept = error.__traceback__.tb_next if error.__traceback__ else None
            text = "".join(traceback.format_exception(type(error), error, kept))
        facts = [] if self._seeds[k] is None else [f"seed {self._seeds[k]}"]
        facts += [] if action is None else [f"action {shown(action)}"]
        if facts:
            message += f" ({', '.join(facts)})"
        taken = None if action is None else shown(action)
        raise ForeignEnvError(message, index, self._seeds[k], taken, text) from error

    def render(self, index: int) -> Any:
        """What ``render()`` of one environment gives."""
        try:
            return self.envs[index - self.first].render()
        except BaseException as error:
            self._fail(index, "raised in render()", error)

    def states(self) -> list[bytes]:
        """Each environment as bytes."""
        found = []
        for index, env in enumerate(self.envs, self.first):
            try:
                found.append(saved(env))
            except BaseException as error:
                self._fail(index, "cannot be saved", error)
        return found

    def set_states(self, states: Sequence[bytes]) -> None:
        """Continue from what `states` gave.

        Raises:
            ValueError: they are of other environments.
        """
        for env, data in zip(self.envs, states, strict=True):
            restore(env, data)

    def close(self) -> None:
        """Close the environments; what they raise is dropped, they are given up anyway."""
        envs, self.envs, self._steps = self.envs, [], []
        for env in envs:
            try:
                env.close()
            except BaseException as error:
                if is_ctrl_c(error):
                    raise


def _rows(array: np.ndarray, first: int, end: int) -> list[np.ndarray]:
    """Views of rows, of numbers too."""
    return [array[index, ...] for index in range(first, end)]


class _MisfitError(Exception):
    """An observation that its space does not have, in words."""


def _packer(layout: ObsLayout) -> Callable[[Any, np.ndarray], None]:
    """A function that writes an observation to a row, or raises `_MisfitError`."""
    if layout.is_tree:
        return _tree_packer(layout)
    (leaf,) = layout.leaves
    shape, dtype = leaf.shape, leaf.dtype

    def pack_array(obs: Any, row: np.ndarray) -> None:
        if type(obs) is not np.ndarray or obs.shape != shape or obs.dtype != dtype:
            obs = _checked(leaf, obs, "an observation")
        row[...] = obs

    return pack_array


def _tree_packer(layout: ObsLayout) -> Callable[[Any, np.ndarray], None]:
    def pack_tree(obs: Any, row: np.ndarray) -> None:
        # A row is split anew for each observation: kept views would save little, the checks cost.
        views = layout.views(row)
        for leaf in layout.leaves:
            try:
                part = leaf.of(obs)
            except (KeyError, IndexError, TypeError):
                raise _MisfitError(
                    f"an observation without {leaf.path!r}, which is in its space: {_kind(obs)}"
                ) from None
            views[leaf.path][...] = _checked(leaf, part, f"{leaf.path!r} of an observation")

    return pack_tree


def _checked(leaf: Leaf, value: Any, what: str) -> Any:
    if isinstance(leaf.space, spaces.Discrete) and type(value) is int:
        return value
    try:
        array = np.asarray(value)
    except Exception:
        raise _MisfitError(f"{what} that is no array: {_kind(value)}") from None
    if array.shape != leaf.shape:
        raise _MisfitError(f"{what} of shape {array.shape}; its space has shape {leaf.shape}")
    if not np.can_cast(array.dtype, leaf.dtype, "same_kind"):
        if isinstance(value, int | list | tuple) and array.dtype.kind in "iu":
            kind = np.iinfo(leaf.dtype) if leaf.dtype.kind in "iu" else None
            if kind and (array.size == 0 or kind.min <= array.min() <= array.max() <= kind.max):
                return array  # Python's numbers, which have no dtype of their own
        raise _MisfitError(f"{what} of dtype {array.dtype}; its space has {leaf.dtype}")
    return array


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if isinstance(value, dict):
        return f"a dict with {', '.join(map(repr, value)) or 'nothing'}"
    return type(value).__name__


def blocks(num_envs: int, workers: int) -> list[range]:
    """Which environments each worker holds: neighbours, as evenly as possible."""
    size, more = divmod(num_envs, workers)
    ends = [size * k + min(k, more) for k in range(workers + 1)]
    return [range(a, b) for a, b in pairwise(ends)]


def mask_entries(space: spaces.Space[Any]) -> int:
    """How many entries an action mask of a space has; 0: it can have none."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return 0
