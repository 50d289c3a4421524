"""`VectorBatch`: a vector environment of Gymnasium's API as a batch, to train on."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from operant.backends.foreign.actions import nested, packed_actions
from operant.backends.foreign.errors import ForeignEnvError
from operant.backends.foreign.obs_check import ObsCheck
from operant.spaces.batches import flatten, unflatten
from operant.spaces.mask_leaf import mask_choices, mask_entries, mask_leaf
from operant.spaces.rows import ObsLayout
from operant.vector.arguments import checked_mode
from operant.vector.batch import Batch, Description, Ends, StepMemory
from operant.vector.seeding import checked_seed, fresh_seed
from operant.vector.vector_arrays import Arrays, arrays_of, on_host

if TYPE_CHECKING:
    import torch


class VectorBatch:
    """A vector environment as a batch (`Batch`): one of Gymnasium's own or of anyone's, with
    wrappers around it, in any of the three modes in which they begin new episodes.

    - ``SAME_STEP``: as a batch does it; ``info["final_obs"]`` has the last observations.
    - ``DISABLED``: those that ended are reset with ``options={"reset_mask": ...}``.
    - ``NEXT_STEP``: the step after an episode's last is spent on the reset, with the action
      ignored; the row rests meanwhile (`live_rows`), and is not trained on.

    Arrays that are on a GPU, as tensors or by DLPack, stay there; `device` says where.

    Args:
        env: the vector environment. It belongs to the batch now, which resets it here to see what
            it hands out, and closes it.
        name: for run files; the id of its specification or its class unless given.
        params: for run files: what it was made with.
        mask_in_obs: a Dict observation whose entry ``action_mask`` is one is used as a mask, and
            shown to the policy only if this is True.

    Raises:
        TypeError: `env` is no vector environment.
        ValueError: it does not say when it resets, or hands out a part of its environments at once;
            a space that has no layout.
        ForeignEnvError: what it hands out does not fit its spaces.
    """

    autoreset_mode = AutoresetMode.SAME_STEP
    backend = "vector"

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        *,
        name: str = "",
        params: Mapping[str, Any] | None = None,
        mask_in_obs: bool = False,
    ) -> None:
        if not isinstance(env, VectorEnv):
            raise TypeError(
                f"env must be a gymnasium.vector.VectorEnv, got {type(env).__name__}; single "
                "environments go as a function that makes one: lambda: MyEnv(...)"
            )
        self.closed = False
        self._env, self._params = env, dict(params or {})
        self.name = name or (env.spec.id if env.spec is not None else type(env.unwrapped).__name__)
        self.num_envs = env.num_envs
        at_once = getattr(env.unwrapped, "batch_size", self.num_envs)
        if at_once != self.num_envs:
            raise ValueError(
                f"{self.name} hands out {at_once} of its {self.num_envs} environments at once; "
                "make it without batch_size"
            )
        self._mode = _mode_of(env, self.name)
        self._leaf = mask_leaf(env.single_observation_space, env.single_action_space, mask_in_obs)
        self.single_action_space = env.single_action_space
        self.single_observation_space = (
            env.single_observation_space if self._leaf is None else self._leaf.seen
        )
        self.layout = ObsLayout.of(self.single_observation_space)
        """How rows of observations lie in memory."""
        self._action_layout = ObsLayout.of(self.single_action_space)
        obs, info = env.reset(seed=0)
        self._arrays: Arrays = arrays_of(obs)
        self.mask_size = 0
        """Entries of a row's action mask; 0 without masks."""
        if self._leaf is not None or "action_mask" in info:
            self.mask_size = mask_entries(self.single_action_space)
        self._allocate()
        self._begin(obs, info)
        self._was_reset = False

    def _allocate(self) -> None:
        new, n = self._arrays.zeros, self.num_envs
        self._rows = self._arrays.rows(self.layout, n)
        self._final = self._arrays.rows(self.layout, n)
        self._returns, self._lengths = new((n,), np.float64), new((n,), np.int32)
        self._live = new((n,), np.bool_)
        self._masks = new((n, self.mask_size), np.bool_)
        self._actions = np.zeros((n, *self._action_layout.shape), self._action_layout.dtype)
        # Of arrays on a GPU the guard of the trainer looks, once an iteration: here it would wait.
        host = not self._arrays.on_device
        self._check = ObsCheck(self.layout, self._rows) if host else None
        self._final_check = ObsCheck(self.layout, self._final) if host else None

    @property
    def device(self) -> torch.device:
        """See `Batch`: where the arrays of the vector environment are."""
        return self._arrays.device

    @property
    def why_not_saved(self) -> str:
        """See `Batch`."""
        return f"{self.name} is a vector environment, whose state only it knows"

    # Episodes ---------------------------------------------------------------------------------
    def reset(self, *, seed: int | None = None) -> None:
        """Begin new episodes in all rows.

        Args:
            seed: goes to the vector environment as it is; one of Gymnasium's gives environment i
                ``seed + i``. None: in the first reset a new one, later none.

        Raises:
            ValueError: a bad seed, or a closed batch.
        """
        self._check_open()
        if seed is None and not self._was_reset:
            seed = fresh_seed()
        obs, info = self._env.reset(seed=None if seed is None else checked_seed(seed))
        self._begin(obs, info)
        self._was_reset = True

    def _begin(self, obs: Any, info: Any) -> None:
        self._live[...] = True
        self._take(obs, info)
        self._returns[...] = 0
        self._lengths[...] = 0

    def _take(self, obs: Any, info: Any, rows: Any = slice(None)) -> None:
        """Keep observations and masks of these rows, as the next actions answer them."""
        obs, mask = self._split(obs)
        packed = self._packed(obs)
        self._rows[rows] = packed[rows]
        self._look(self._check, 0, self.num_envs)
        if self.mask_size:
            found = self._found_masks(info if mask is None else {"action_mask": mask})
            self._masks[rows] = found[rows]
            self._masks[~self._live] = True
            choices = mask_choices(self.single_action_space)
            if not all(self._masks[:, one].any(1).all() for one in choices):
                self._fail("allows no action at all in an action mask")

    def _look(self, check: ObsCheck | None, first: int, end: int) -> None:
        """Refuse bad observations in the rows `first` up to `end`."""
        row = None if check is None else check.found(first, end)
        if check is not None and row is not None:
            self._fail(f"gave {check.where(row)}, in row {row}")

    def _split(self, obs: Any) -> tuple[Any, Any]:
        if self._leaf is None:
            return obs, None
        try:
            return self._leaf.split(obs)
        except (KeyError, TypeError, IndexError):
            self._fail(f"gave observations that are none of {self._env.single_observation_space}")

    def _packed(self, obs: Any) -> Any:
        """Observations as rows ``[num_envs, ...]``; may be theirs."""
        try:
            packed = flatten(self.layout, self._arrays.taken(obs, self.layout))
        except ValueError as error:
            self._fail(f"gave observations that its space does not have: {error}")
        if len(packed) != self.num_envs:
            self._fail(f"gave {len(packed)} observations for {self.num_envs} environments")
        return packed

    def _found_masks(self, info: Any) -> Any:
        shape = (self.num_envs, self.mask_size)
        try:
            mask = self._arrays.array(info["action_mask"], np.bool_).reshape(shape)
        except (KeyError, TypeError, ValueError, RuntimeError):
            self._fail(f"must give masks of shape {shape} in every step, as in the first")
        given = info.get("_action_mask")
        if given is not None:
            mask = mask | ~self._arrays.array(given, np.bool_)[:, None] & ~self._live[:, None]
        return mask

    # What training needs: `operant.vector.batch.Batch` ----------------------------------------
    def write_obs(self, out: Any) -> None:
        """See `Batch`."""
        self._check_was_reset()
        out[...] = self._rows

    def write_step(self, actions: Any, out: StepMemory) -> Ends | None:
        """See `Batch`."""
        self._check_was_reset()
        with self._arrays.stepping():
            obs, reward, terminated, truncated, info = self._env.step(self._given(actions))
        reward = self._column("rewards", reward, np.float64)
        terminated = self._column("terminated", terminated, np.bool_)
        truncated = self._column("truncated", truncated, np.bool_)
        acted = self._arrays.copy(self._live)
        if self._mode == AutoresetMode.NEXT_STEP:
            reward = self._arrays.where(acted, reward)
            terminated, truncated = terminated & acted, truncated & acted
        ended = terminated | truncated
        self._returns += reward
        self._lengths += acted
        # On a GPU the only wait: what follows depends on whether an episode ended.
        ends, bad = self._arrays.read(ended.any(), (reward != reward).any())
        if bad:
            index = int(on_host(reward != reward).argmax())
            self._fail(f"gave a reward that is NaN in row {index}")
        if self._mode != AutoresetMode.SAME_STEP:
            self._live[...] = ~ended
        self._take(obs, info)
        found = self._ends(ended, terminated, truncated, info) if ends else None
        out.obs[...] = self._rows
        out.reward[...] = reward
        out.terminated[...] = terminated
        out.truncated[...] = truncated
        return found

    def _given(self, actions: Any) -> Any:
        """Actions as the vector environment takes them."""
        layout = self._action_layout
        if self._arrays.on_device:
            if not self._arrays.is_own(actions):
                packed_actions(layout, actions, self._actions)
                actions = self._arrays.array(self._actions.copy(), layout.dtype)
            return self._arrays.handed(unflatten(layout, actions))
        packed_actions(layout, actions, self._actions)
        return nested(layout, self._actions)  # copies: an environment may keep its actions

    def _column(self, what: str, values: Any, dtype: Any) -> Any:
        found = self._arrays.array(values, dtype)
        if tuple(found.shape) != (self.num_envs,):
            self._fail(
                f"gave {what} of shape {tuple(found.shape)} for {self.num_envs} environments"
            )
        return found

    def _ends(self, ended: Any, terminated: Any, truncated: Any, info: Any) -> Ends:
        """The episodes that ended in a step; begins the next ones, where that is for us to do."""
        index = np.flatnonzero(on_host(ended))
        if self._mode == AutoresetMode.SAME_STEP:
            self._keep_final(info, index)
        elif self._mode == AutoresetMode.DISABLED:
            self._final[...] = self._rows
            self._live[...] = True
            with self._arrays.stepping():
                again = self._env.reset(options={"reset_mask": self._arrays.handed(ended)})
            self._take(*again, rows=ended)
        next_step = self._mode == AutoresetMode.NEXT_STEP
        found = Ends(
            index,
            on_host(self._returns)[index].astype(np.float32),
            on_host(self._lengths)[index],
            on_host(truncated & ~terminated)[index],
            self._rows if next_step else self._final,
        )
        self._returns[ended] = 0
        self._lengths[ended] = 0
        return found

    def _keep_final(self, info: Any, index: np.ndarray) -> None:
        """Keep the last observations of these rows."""
        final, there = info.get("final_obs"), info.get("_final_obs")
        if final is None or (there is not None and not on_host(there)[index].all()):
            self._fail(
                'is in SAME_STEP mode, and gave no info["final_obs"] for an episode that ended; '
                "make it with autoreset_mode=AutoresetMode.NEXT_STEP"
            )
        if isinstance(final, np.ndarray) and final.dtype == object:  # one of each that ended
            rows = self.layout.memory(len(index))
            for at, k in enumerate(index.tolist()):
                obs, _ = self._split(final[k])
                rows[at] = flatten(self.layout, [obs])[0]
            self._final[index] = self._arrays.array(rows, self.layout.dtype)
        else:
            rows = self._packed(self._split(final)[0])
            self._final[index] = rows[index]
        for k in index.tolist():
            self._look(self._final_check, k, k + 1)

    def action_masks(self) -> Any:
        """See `Batch`."""
        if not self.mask_size:
            return None
        self._check_was_reset()
        return self._arrays.copy(self._masks)

    def live_rows(self) -> Any:
        """See `Batch`: of a vector environment in NEXT_STEP mode those that are not being reset."""
        return self._arrays.copy(self._live) if self._mode == AutoresetMode.NEXT_STEP else None

    def get_state(self) -> NoReturn:
        """See `Batch`: always ValueError."""
        raise ValueError(f"these environments cannot be saved: {self.why_not_saved}")

    def set_state(self, state: Mapping[str, Any]) -> NoReturn:
        """See `Batch`: always ValueError."""
        raise ValueError(f"these environments cannot be saved: {self.why_not_saved}")

    def describe(self) -> Description:
        """See `Batch`."""
        spec = self._env.spec
        limit = threshold = None
        if spec is not None:
            limit = spec.kwargs.get("max_episode_steps", spec.max_episode_steps)
            threshold = spec.reward_threshold
        return Description(
            self.name,
            self.backend,
            params=self._params,
            max_episode_steps=limit,
            own_limit=limit,
            reward_threshold=None if threshold is None else float(threshold),
        )

    def for_evaluation(self, num_envs: int, max_episode_steps: int | None = None) -> Batch:
        """See `Batch`: single environments of the same specification.

        Raises:
            ValueError: the vector environment has none, so nobody knows how to make another.
        """
        from operant.vector.foreign_batch import ForeignBatch

        spec, why = _single_spec(self._env)
        if spec is None:
            raise ValueError(
                f"{self.name} cannot be made again for an evaluation: {why}; instead, pass a "
                "function that makes one environment, PPO(lambda: MyEnv(...), num_envs=8)"
            )
        return ForeignBatch(
            partial(gymnasium.make, spec, max_episode_steps=max_episode_steps),
            num_envs,
            backend="serial",
            name=self.name,
            params=self._params,
        )

    def close(self) -> None:
        """Close the vector environment; again is harmless."""
        if not self.closed:
            self.closed = True
            self._env.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("this batch is closed; make a new one")

    def _check_was_reset(self) -> None:
        self._check_open()
        if not self._was_reset:
            raise ValueError("nothing to step or to see yet: call reset() first")

    def _fail(self, what: str) -> NoReturn:
        raise ForeignEnvError(f"the vector environment {self.name} {what}")


def _single_spec(env: VectorEnv[Any, Any, Any]) -> tuple[EnvSpec | None, str]:
    """What one environment of a vector environment is made from; None, and why there is nothing."""
    inside: Any = env
    while isinstance(inside, VectorWrapper):
        if not isinstance(inside, RecordEpisodeStatistics):
            return None, f"{type(inside).__name__} is around it, which single environments have not"
        inside = inside.env
    if env.spec is None or env.spec.entry_point is None:
        return None, "it has no specification with an entry_point"
    if env.spec.kwargs.get("wrappers"):
        return None, "wrappers were given to make_vec, whose arguments nobody knows"
    spec = deepcopy(env.spec)
    # What gymnasium.make_vec adds to the arguments of one environment, or takes from them.
    for name in ("num_envs", "vectorization_mode", "vector_kwargs", "wrappers"):
        spec.kwargs.pop(name, None)
    spec.max_episode_steps = spec.kwargs.pop("max_episode_steps", spec.max_episode_steps)
    return spec, ""


def _mode_of(env: VectorEnv[Any, Any, Any], name: str) -> AutoresetMode:
    """When a vector environment begins new episodes.

    Its own attribute counts first: some write their mode to the metadata of a class.
    """
    found = getattr(env.unwrapped, "autoreset_mode", None) or env.metadata.get("autoreset_mode")
    if found is None:
        raise ValueError(
            f"{name} does not say when it begins new episodes; set "
            'env.metadata["autoreset_mode"] = gymnasium.vector.AutoresetMode.SAME_STEP, or '
            "NEXT_STEP or DISABLED, as it does"
        )
    return checked_mode(found)
