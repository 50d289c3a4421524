"""`EnvBlock`: neighbouring environments of a batch, stepped one after the other."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np

from operant.backends.foreign.actions import action_reader
from operant.backends.foreign.errors import ForeignEnvError, in_words, is_ctrl_c, place_of, shown
from operant.backends.foreign.memory import Memory
from operant.backends.foreign.obs_check import ObsCheck
from operant.backends.foreign.obs_packer import MisfitError, kind, obs_packer
from operant.backends.foreign.state import restore, saved
from operant.spaces.mask_leaf import KEY, MaskLeaf, flat_mask, mask_choices
from operant.spaces.rows import ObsLayout

MakeEnv = Callable[[], Any]
"""Makes a `gymnasium.Env`, or an environment of PettingZoo's."""
_FALSE = np.False_
_FLAGS = (bool, np.bool_, int, np.integer)


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
        self._pack = obs_packer(layouts.observation, layouts.leaf)
        self._masks = _rows(memory.mask, rows) if layouts.mask_size else None
        self._choices = mask_choices(layouts.action.space)
        trees = layouts.observation.is_tree or layouts.action.is_tree
        self._is_plain = not trees and self._masks is None and not layouts.agents
        self._obs_check = ObsCheck(layouts.observation, memory.obs[rows])
        self._final_check = ObsCheck(layouts.observation, memory.final_obs[rows])
        self.envs: list[Any] = []
        for index in range(first, end):
            try:
                self.envs.append(self._made(make_env))
            except BaseException as error:
                self._fail(index, "could not be made", error)
        for index, env in enumerate(self.envs, first):
            self._check_spaces(index, env)
        self._steps: list[Callable[[Any], Any]] = [env.step for env in self.envs]

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
            self._check_obs(k, k + 1)

    def _begin(self, k: int, obs: Any, info: Any) -> None:
        """Write what ``reset()`` gave."""
        self._write_obs(k, obs, self._obs_rows[k])
        if self._masks is not None:
            self._write_mask(k, obs, info)

    def _reset_one(self, k: int, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        try:
            result = self.envs[k].reset(seed=seed, options=options)
        except BaseException as error:
            self._fail(self.first + k, "raised in reset()", error)
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            got = f"(obs, {kind(result[1])})" if _is_pair(result) else kind(result)
            self._fail(self.first + k, f"must return (obs, dict) from reset(), got {got}")
        return result

    def step_all(self) -> None:
        """Step every environment with its row of the actions."""
        memory = self._memory
        memory.terminated[self._span] = False
        memory.truncated[self._span] = False
        if self._is_plain:
            self._step_plain()
        else:
            for k in range(self.end - self.first):
                self._step_one(k)
        self._check_obs(0, self.end - self.first, stepped=True)

    def _step_plain(self) -> None:
        """`_step_one` for all, for arrays as observations: what most steps give is written here,
        everything else by `_take`."""
        (leaf,) = self.layouts.observation.leaves
        shape, dtype, rewards = leaf.shape, leaf.dtype, self._reward
        array_type, float64, np_false = np.ndarray, np.float64, _FALSE  # a look-up each less
        actions = self._memory.action[self.first : self.end]
        # Numbers of the type that sample() gives, or rows of a copy: an environment may keep them.
        taken = list(actions.copy() if actions.ndim > 1 else actions)
        index, take = self.first - 1, self._take  # counted by hand: less than enumerate() costs
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
                and (type(reward) is float or type(reward) is float64)
                and reward - reward == 0.0
                and (terminated is False or terminated is np_false)
                and (truncated is False or truncated is np_false)
                and type(info) is dict
            ):
                row[...] = obs
                rewards[index] = reward
            else:
                take(index - self.first, action, obs, reward, terminated, truncated, info)

    def step_some(self, indices: Iterable[int]) -> None:
        """Step these environments of the batch."""
        each = self.layouts.rows_each
        for index in indices:
            rows = slice(index * each, (index + 1) * each)
            self._memory.terminated[rows] = self._memory.truncated[rows] = False
            k = index - self.first
            self._step_one(k)
            self._check_obs(k, k + 1, stepped=True)

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
        self._write_reward(k, reward, action)
        if type(info) is not dict and not isinstance(info, dict):
            self._fail(self.first + k, f"gave {shown(info)} for info, not a dict", action=action)
        if terminated is not False or truncated is not False:
            terminated = self._flag(k, "terminated", terminated, action)
            truncated = self._flag(k, "truncated", truncated, action)
            if terminated or truncated:
                self._memory.terminated[self.first + k] = terminated
                self._memory.truncated[self.first + k] = truncated
                self._write_final(k, obs, action)
                obs, info = self._reset_one(k)
        self._write_obs(k, obs, self._obs_rows[k], action)
        if self._masks is not None:
            self._write_mask(k, obs, info)

    def _write_reward(self, r: int, reward: Any, action: Any) -> None:
        """Write the reward of row `r` of this block; an array of one number is one."""
        if type(reward) is not float:
            reward = self._number(r, reward, action)
        if reward - reward != 0.0:  # NaN, for infinity too
            text = "NaN" if reward != reward else str(reward)
            self._fail_row(r, f"gave a reward that is {text}", action)
        self._reward[self._span.start + r] = reward

    def _number(self, r: int, reward: Any, action: Any) -> float:
        """A reward that is no float, as one."""
        try:
            array = np.asarray(reward)
            if array.dtype.kind in "biuf" and array.size == 1:
                return float(array.item())
        except Exception:  # what some other library makes of it
            array = None
        self._fail_row(r, f"gave the reward {shown(reward)}, which is no number", action)

    def _flag(self, r: int, name: str, value: Any, action: Any) -> bool:
        """A truth value that is none of Python's, as one."""
        if isinstance(value, _FLAGS):
            return bool(value)
        if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "bi":
            return bool(value.item())
        self._fail_row(r, f"gave {shown(value)} for {name}, not True or False", action)

    def _write_obs(self, r: int, obs: Any, row: np.ndarray, action: Any = None) -> None:
        """Write an observation of row `r` of this block to `row`."""
        try:
            self._pack(obs, row)
        except MisfitError as misfit:
            self._fail_row(r, f"gave {misfit}", action)

    def _write_final(self, r: int, obs: Any, action: Any) -> None:
        """Write the last observation of an episode."""
        self._write_obs(r, obs, self._final_rows[r], action)
        if self._final_check.found(r, r + 1) is not None:
            self._fail_row(r, f"gave {self._final_check.where(r)}", action)

    def _check_obs(self, k: int, end: int, stepped: bool = False) -> None:
        """Refuse bad observations of environments `k` up to `end` of this block."""
        each = self.layouts.rows_each
        r = self._obs_check.found(k * each, end * each)
        if r is not None:
            action = self._read_action(self._action_rows[r]) if stepped else None
            self._fail_row(r, f"gave {self._obs_check.where(r)}", action)

    def _write_mask(self, r: int, obs: Any, info: Any) -> None:
        assert self._masks is not None
        size = self.layouts.mask_size
        inside = info if self.layouts.leaf is None else obs
        where = f'{"info" if self.layouts.leaf is None else "obs"}["{KEY}"]'
        try:
            mask = flat_mask(inside[KEY]).astype(np.bool_).reshape(size)
        except (KeyError, TypeError, ValueError):
            found = inside.get(KEY) if isinstance(inside, dict) else inside
            self._fail_row(
                r,
                f"must give {size} truth values in {where} in every step, as in the first, got "
                f"{shown(found)}",
            )
        if not all(mask[one].any() for one in self._choices):
            rest = " for one of its choices" if mask.any() else " at all"
            self._fail_row(r, f"allows no action{rest} in {where}")
        self._masks[r][:] = mask

    def _fail_row(self, r: int, what: str, action: Any = None) -> NoReturn:
        """`_fail` for what is wrong in row `r` of this block."""
        self._fail(self.first + r, what, action=action)

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

    def _name(self, env: Any) -> str:
        return type(getattr(env, "unwrapped", env)).__name__

    def _fail(
        self,
        index: int,
        what: str,
        error: BaseException | None = None,
        action: Any = None,
        who: str = "",
    ) -> NoReturn:
        if error is not None and is_ctrl_c(error):
            raise error
        k = index - self.first
        name = f" ({self._name(self.envs[k])})" if k < len(self.envs) else ""
        message = f"{who}environment {index}{name} {what}"
        text = ""
        if error is not None:
            message += f": {in_words(error)}"
            kept = error.__traceback__.tb_next if error.__traceback__ else None
            text = "".join(traceback.format_exception(type(error), error, kept))
        place = "" if error is None else place_of(error)
        facts = [place] if place else []
        facts += [] if self._seeds[k] is None else [f"seed {self._seeds[k]}"]
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


def _rows(array: np.ndarray, span: slice) -> list[np.ndarray]:
    """Views of rows, of numbers too."""
    return [array[index, ...] for index in range(span.start, span.stop)]


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def blocks(num_envs: int, workers: int) -> list[range]:
    """Which environments each worker holds: neighbours, as evenly as possible."""
    size, more = divmod(num_envs, workers)
    ends = [size * k + min(k, more) for k in range(workers + 1)]
    return [range(a, b) for a, b in pairwise(ends)]
