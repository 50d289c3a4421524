"""`Batch`: what training may know of environments.

Trainer, engines, evaluation and checkpoints use this and nothing else, so that whatever implements
it can be trained: the compiled batches of `operant.make`, and batches of anything else. Engines
that step compiled environments themselves ask `compiled_batch` for more.

A batch has ``num_envs`` rows. An environment of several agents is so many rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorWrapper

from operant.lang.env import Env

if TYPE_CHECKING:
    import torch

    from operant.vector.base import BaseVecEnv


class StepMemory(NamedTuple):
    """Where the results of a step are written; the caller's. Arrays in main memory, or tensors on
    the batch's device."""

    obs: Any
    """``[num_envs, *shape]`` of the `ObsLayout` of ``single_observation_space``."""
    reward: Any
    """float32 ``[num_envs]``."""
    terminated: Any
    """bool ``[num_envs]``."""
    truncated: Any
    """bool ``[num_envs]``."""


class Ends(NamedTuple):
    """Episodes that ended in a step; arrays ``[K]`` in main memory, the caller's."""

    env_index: np.ndarray
    """int64: which rows, in order."""
    returns: np.ndarray
    """float32: sums of their rewards, undiscounted."""
    lengths: np.ndarray
    """int32: their steps."""
    truncated: np.ndarray
    """bool: ended by a time limit, and not by the rules."""
    final_obs: Any
    """``[num_envs, *shape]``, as in `StepMemory`: the last observations of these episodes, in their
    rows alone. The batch's memory, which the next step overwrites; a tensor on the batch's device,
    if that is another's. None where the observations of the step are the last ones, which they are
    not in SAME_STEP mode alone."""


@dataclass(frozen=True)
class Description:
    """What run files say of a batch."""

    name: str
    """An id, or the name of a class."""
    backend: str
    workers: int = 1
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the environment: numbers, truth values and strings."""
    max_episode_steps: int | None = None
    """The time limit in force."""
    own_limit: int | None = None
    """The time limit that the environment has by itself."""
    reward_threshold: float | None = None
    """Mean return from which on the environment counts as solved."""
    agents: tuple[str, ...] = ()
    """Names of the agents of one environment, if it has several: row r is agent ``r % len(agents)``
    of environment ``r // len(agents)``."""

    @property
    def evaluation_limit(self) -> int | None:
        """The time limit of episodes that are played for their return: the environment's own, if
        it has one; None: one might never end."""
        return self.own_limit or self.max_episode_steps


@runtime_checkable
class Batch(Protocol):
    """``num_envs`` environments that step together; to ask whether something is one, see
    `is_batch`."""

    num_envs: int
    single_observation_space: spaces.Space[Any]
    single_action_space: spaces.Space[Any]
    autoreset_mode: AutoresetMode
    """When a row begins its next episode. Training needs SAME_STEP."""
    backend: str
    """What runs it: ``"reference"``, ``"cpu"``, ``"native"``, ``"cuda"``, or another's own name."""

    @property
    def device(self) -> torch.device:
        """Where observations and results are."""

    @property
    def mask_size(self) -> int:
        """Entries of a row's action mask; 0 without masks."""

    @property
    def why_not_saved(self) -> str | None:
        """Why `get_state` cannot be called, as a sentence for the user; None: it can."""

    def reset(self, *, seed: int | None = None) -> Any:
        """Begin new episodes in all rows; the same ones for the same seed."""

    def write_obs(self, out: Any) -> None:
        """Write the observations that the next actions answer to `out`, as in `StepMemory`."""

    def write_step(self, actions: Any, out: StepMemory) -> Ends | None:
        """Step every row and write what came of it to `out`; the episodes that ended, None if none
        did. On a GPU this waits for it.

        Args:
            actions: ``[num_envs, ...]``, as ``single_action_space`` has them.
            out: may be strided; nothing of it is kept.

        Raises:
            ValueError, TypeError: actions of a wrong shape or kind; nothing was stepped.
        """

    def action_masks(self) -> Any:
        """Which actions are allowed now, bool ``[num_envs, mask_size]``, until the next step; None
        without masks."""

    def live_rows(self) -> Any:
        """The rows whose next action counts, bool ``[num_envs]``, until the next step; None, before
        the first reset too: always all of them.

        A row rests after its episode has ended, if the next one cannot begin yet: the agent that it
        stands for is out until the others are, or the environment spends a step on its reset. What
        it is given then is ignored, and what comes of it is no sample: observations are finite,
        rewards 0, every action is allowed, and no episode ends."""

    def get_state(self) -> dict[str, np.ndarray]:
        """Everything the future depends on, as copies. Not called where `why_not_saved`."""

    def set_state(self, state: Mapping[str, Any]) -> Any:
        """Continue from what `get_state` gave, in a batch made alike.

        Raises:
            ValueError: it does not fit.
        """

    def describe(self) -> Description:
        """What run files say of it."""

    def for_evaluation(self, num_envs: int, max_episode_steps: int | None = None) -> Batch:
        """Another batch of these environments, in main memory, to play whole episodes on, with
        `Description.evaluation_limit` unless a limit is given. Its rows may begin their next
        episode in the same step or in the next, and may be a few more, if environments have several
        agents."""

    def close(self) -> Any:
        """Give back what it holds."""


def is_batch(value: object) -> TypeGuard[Batch]:
    """Whether `value` is a batch that can be trained on; one inside a wrapper of Gymnasium is not,
    although the wrapper passes on its attributes."""
    return isinstance(value, Batch) and not isinstance(value, VectorWrapper | type)


def compiled_batch(batch: object) -> BaseVecEnv | None:
    """The batch, if it is one of environments that operant compiles, with their `rules`; for
    engines and tools that look inside. None for any other."""
    from operant.vector.base import BaseVecEnv

    return batch if isinstance(batch, BaseVecEnv) else None


def reported_ends(terminated: Any, truncated: Any, info: Mapping[str, Any]) -> Ends | None:
    """The episodes that the ``info`` of a step reports as Gymnasium does: ``episode`` with ``r``
    and ``l``, ``_episode``, in SAME_STEP mode ``final_obs``; arrays, or tensors on any device."""
    index = np.flatnonzero(_on_host(info["_episode"]))
    if not len(index):
        return None
    report, final_obs = info["episode"], info.get("final_obs")
    return Ends(
        index,
        _on_host(report["r"])[index],
        _on_host(report["l"])[index],
        _on_host(truncated & ~terminated)[index],
        None if final_obs is None else _on_host(final_obs),
    )


def _on_host(values: Any) -> np.ndarray:
    """A tensor on any device as an array; an array as it is."""
    array: np.ndarray = values.cpu().numpy() if hasattr(values, "cpu") else values
    return array


def fix_parameters(batch: Batch, why: str) -> None:
    """Refuse to have parameters of a batch set from now on, where it has such; `why` says it."""
    ours = compiled_batch(batch)
    if ours is not None:
        ours.fix_parameters(why)


def env_class(batch: Batch) -> type[Env]:
    """The class that a batch was made of, for a copy of its trainer.

    Raises:
        TypeError: it was made of something else.
    """
    ours = compiled_batch(batch)
    if ours is None:
        raise TypeError(
            f"a trainer of {batch.describe().name} cannot be copied or pickled: its batch was not "
            "made by operant.make; use ppo.save(folder), and PPO.load(folder, env=...)"
        )
    return ours.rules.env
