"""`EnvBlock`: neighbouring environments of a batch, stepped one after the other."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np
from gymnasium import spaces

from operant.backends.foreign.actions import action_reader
from operant.backends.foreign.errors import ForeignEnvError
from operant.backends.foreign.memory import Memory
from operant.backends.foreign.state import restore, saved
from operant.spaces.mask_leaf import KEY, MaskLeaf
from operant.spaces.rows import Leaf, ObsLayout

MakeEnv = Callable[[], Any]
"""Makes a `gymnasium.Env`, or an environment of PettingZoo's."""


class Layouts(NamedTuple):
    """What all environments of a batch have in common."""

    observation: ObsLayout
    """Of what a policy sees."""
    action: ObsLayout
    mask_size: int
    """Entries of an action mask; 0 without masks."""
    leaf: MaskLeaf | None = None
    """How observations are taken apart that bring their mask; None: ``info["action_mask"]``."""
    agents: tuple[Any, ...] = ()
    """Of environments with several: who is there, at most, in the order of the rows."""

    @property
    def rows_each(self) -> int:
        """Rows of an environment."""
        return max(1, len(self.agents))


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
        rows = self._span = slice(first * layouts.rows_each, end * layouts.rows_each)
        self._action_rows = _rows(memory.action, rows)
        self._obs_rows = _rows(memory.obs, rows)
        self._final_rows = _rows(memory.final_obs, rows)
        self._reward: Any = memoryview(memory.reward)  # type: ignore[arg-type]
        self._pack = _packer(layouts)
        self._masks = _rows(memory.mask, rows) if layouts.mask_size else None
        self.envs: list[Any] = []
        for index in range(first, end):
            try:
                self.envs.append(self._made(make_env))
            except Exception as error:
                self._fail(index, "could not be made", error)
        for index, env in enumerate(self.envs, first):
            self._check_spaces(index, env)
        self._steps = [env.step for env in self.envs]

    def _made(self, make_env: MakeEnv) -> Any:
        return make_env()

    def _check_spaces(self, index: int, env: Any) -> None:
        leaf = self.layouts.leaf
        seen = self.layouts.observation.space if leaf is None else leaf.whole
        for name, wanted in (
            ("observation_space", seen),
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
            self._begin(k, *self._reset_one(k, seed, options))

    def _begin(self, k: int, obs: Any, info: Any) -> None:
        """Write what ``reset()`` gave."""
        self._write_obs(k, obs, self._obs_rows[k])
        if self._masks is not None:
            self._write_mask(k, obs, info)

    def _reset_one(self, k: int, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        try:
            result = self.envs[k].reset(seed=seed, options=options)
        except Exception as error:
            self._fail(self.first + k, "raised in reset()", error)
        if not (isinstance(result, tuple) and len(result) == 2):
            self._fail(self.first + k, f"must return (obs, info) from reset(), got {_kind(result)}")
        return result

    def step_all(self) -> None:
        """Step every environment with its row of the actions."""
        memory = self._memory
        memory.terminated[self._span] = False
        memory.truncated[self._span] = False
        step = self._step_one
        for k in range(self.end - self.first):
            step(k)

    def step_some(self, indices: Iterable[int]) -> None:
        """Step these environments of the batch."""
        each = self.layouts.rows_each
        for index in indices:
            rows = slice(index * each, (index + 1) * each)
            self._memory.terminated[rows] = self._memory.truncated[rows] = False
            self._step_one(index - self.first)

    def _step_one(self, k: int) -> None:
        action = self._read_action(self._action_rows[k])
        try:
            obs, reward, terminated, truncated, info = self._steps[k](action)
        except Exception as error:
            self._refuse_step(k, action, error)
        try:
            self._reward[self.first + k] = reward = float(reward)
        except (TypeError, ValueError):
            self._refuse_reward(k, reward, action)
        if reward != reward:
            self._refuse_reward(k, reward, action)
        if terminated or truncated:
            self._memory.terminated[self.first + k] = terminated
            self._memory.truncated[self.first + k] = truncated
            self._write_obs(k, obs, self._final_rows[k], action)
            obs, info = self._reset_one(k)
        self._write_obs(k, obs, self._obs_rows[k], action)
        if self._masks is not None:
            self._write_mask(k, obs, info)

    def _write_obs(self, r: int, obs: Any, row: np.ndarray, action: Any = None) -> None:
        """Write an observation of row `r` of this block to `row`."""
        try:
            self._pack(obs, row)
        except _MisfitError as misfit:
            self._fail_row(r, f"gave {misfit}", action)

    def _write_mask(self, r: int, obs: Any, info: Any) -> None:
        assert self._masks is not None
        size = self.layouts.mask_size
        inside = info if self.layouts.leaf is None else obs
        where = f'{"info" if self.layouts.leaf is None else "obs"}["{KEY}"]'
        try:
            mask = np.asarray(inside[KEY], np.bool_).reshape(size)
        except (KeyError, TypeError, ValueError):
            found = inside.get(KEY) if isinstance(inside, dict) else inside
            self._fail_row(
                r,
                f"must give {size} truth values in {where} in every step, as in the first, got "
                f"{found!r}",
            )
        if not mask.any():
            self._fail_row(r, f"allows no action at all in {where}")
        self._masks[r][:] = mask

    def _refuse_reward(self, r: int, reward: Any, action: Any) -> NoReturn:
        """Say what was wrong about a reward that is no number, or NaN."""
        what = "a reward that is NaN"
        if not isinstance(reward, float):
            what = f"the reward {reward!r}, which is no number"
        self._fail_row(r, f"gave {what}", action)

    def _fail_row(self, r: int, what: str, action: Any = None) -> NoReturn:
        """`_fail` for what is wrong in row `r` of this block."""
        self._fail(self.first + r, what, action=action)

    def _refuse_step(self, k: int, action: Any, error: Exception) -> NoReturn:
        """Say what was wrong about a step that raised, or whose result is no tuple of five."""
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            wanted = "(obs, reward, terminated, truncated, info)"
            self._fail(
                self.first + k,
                f"must return {wanted} from step(), and returned something else: {error}",
                action=action,
            )
        self._fail(self.first + k, "raised in step()", error, action)

    def _name(self, env: Any) -> str:
        return type(env.unwrapped).__name__

    def _fail(
        self,
        index: int,
        what: str,
        error: Exception | None = None,
        action: Any = None,
        who: str = "",
    ) -> NoReturn:
        k = index - self.first
        name = f" ({self._name(self.envs[k])})" if k < len(self.envs) else ""
        message = f"{who}environment {index}{name} {what}"
        text = ""
        if error is not None:
            message += f": {type(error).__name__}: {error}"
            kept = error.__traceback__.tb_next if error.__traceback__ else None
            text = "".join(traceback.format_exception(type(error), error, kept))
        facts = [] if self._seeds[k] is None else [f"seed {self._seeds[k]}"]
        facts += [] if action is None else [f"action {action!r}"]
        if facts:
            message += f" ({', '.join(facts)})"
        shown = None if action is None else repr(action)
        raise ForeignEnvError(message, index, self._seeds[k], shown, text) from error

    def render(self, index: int) -> Any:
        """What ``render()`` of one environment gives."""
        try:
            return self.envs[index - self.first].render()
        except Exception as error:
            self._fail(index, "raised in render()", error)

    def states(self) -> list[bytes]:
        """Each environment as bytes."""
        found = []
        for index, env in enumerate(self.envs, self.first):
            try:
                found.append(saved(env))
            except Exception as error:
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
            except Exception:
                continue


def _rows(array: np.ndarray, span: slice) -> list[np.ndarray]:
    """Views of rows, of numbers too."""
    return [array[index, ...] for index in range(span.start, span.stop)]


class _MisfitError(Exception):
    """An observation that its space does not have, in words."""


def _packer(layouts: Layouts) -> Callable[[Any, np.ndarray], None]:
    """A function that writes an observation to a row, or raises `_MisfitError`."""
    pack = _packer_of(layouts.observation)
    only = None if layouts.leaf is None else layouts.leaf.only
    if only is None:  # a mask beside several others is no leaf of the layout, and so left out
        return pack

    def pack_entry(obs: Any, row: np.ndarray) -> None:
        try:
            entry = obs[only]
        except (KeyError, IndexError, TypeError):
            raise _MisfitError(
                f"an observation without {only!r}, which is in its space: {_kind(obs)}"
            ) from None
        pack(entry, row)

    return pack_entry


def _packer_of(layout: ObsLayout) -> Callable[[Any, np.ndarray], None]:
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
