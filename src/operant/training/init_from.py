"""Starting a new run from the weights of a policy that was trained before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium import spaces

from operant.runs.checkpoint import Checkpoint, load_checkpoint
from operant.spaces.rows import ObsLayout
from operant.training.config import AgentConfig
from operant.training.foreign import check_wrappers
from operant.training.snapshot import (
    TRAINING_ONLY,
    check_finite,
    config_of,
    load_weights,
    spaces_of,
)
from operant.vector.targets import find_env

if TYPE_CHECKING:
    from operant.training.trainer import Trainer

_SHAPING = (
    "hidden",
    "activation",
    "shared",
    "image",
    "channels",
    "embedding",
    "normalize_obs",
    "squash",
    "value_head",
)
"""Options of ``[policy]`` that weights depend on; ``log_std`` is itself one of the weights."""


@dataclass(frozen=True)
class Origin:
    """A policy to start from: a checkpoint, read and verified, and what it is called."""

    name: str
    checkpoint: Checkpoint
    config: AgentConfig

    @classmethod
    def read(cls, path: Path, name: str = "") -> Origin:
        """The policy of the checkpoint at `path`.

        Raises:
            CheckpointError: damaged, or not a checkpoint; the message names the file.
        """
        checkpoint = load_checkpoint(path)
        return cls(name or str(path), checkpoint, config_of(checkpoint, AgentConfig))

    @property
    def networks(self) -> dict[str, Any]:
        """The options of ``[policy]`` by dotted name: a layer below what the user says."""
        table = self.config.to_dict()["policy"]
        return {f"policy.{name}": value for name, value in table.items()}

    def record(self) -> dict[str, Any]:
        """For ``info.json``."""
        path = self.checkpoint.path.resolve()
        return {"run": self.name, "step": self.checkpoint.step, "path": str(path)}


def take_weights(trainer: Trainer, origin: Origin) -> None:
    """Give a new trainer the weights and normalisers of `origin`; nothing else of it.

    Raises:
        CheckpointError, ValueError: networks or spaces differ, or a weight is not finite.
    """
    _check_networks(trainer, origin)
    _check_spaces(trainer, origin)
    arrays = origin.checkpoint.arrays.get("model", {})
    wanted = {name: tuple(tensor.shape) for name, tensor in trainer.policy.state_dict().items()}
    for name in set(arrays) & set(wanted):
        if arrays[name].shape != wanted[name]:
            raise ValueError(
                f"the policy of {origin.name} ({origin.config.env.id}) does not fit "
                f"{trainer.config.env.id}: observations or actions have other sizes ({name} is "
                f"{list(arrays[name].shape)}, needed {list(wanted[name])})"
            )
    load_weights(trainer.policy, origin.checkpoint, optional=TRAINING_ONLY)
    if trainer.config.run.nan_guard:
        check_finite(trainer.policy, origin.checkpoint)


def _check_networks(trainer: Trainer, origin: Origin) -> None:
    theirs, ours = origin.config.to_dict()["policy"], trainer.config.to_dict()["policy"]
    for name in _SHAPING:
        if theirs[name] != ours[name]:
            raise ValueError(
                f"{origin.name} has policy.{name} = {theirs[name]}, this run {ours[name]}; "
                f"leave policy.{name} out to take over the network as it is"
            )


def _check_spaces(trainer: Trainer, origin: Origin) -> None:
    """Compare kinds and shapes, where the environment that it was trained on is known."""
    try:
        check_wrappers(origin.config.env, None)
        theirs = spaces_of(find_env(origin.config.env.id, import_modules=False), origin.config)
    except (ValueError, TypeError):  # not registered, or its parameters changed since
        return
    ours = trainer.env.single_observation_space, trainer.env.single_action_space
    for what, before, now in zip(("observations", "actions"), theirs, ours, strict=True):
        if type(before) is not type(now) or _sizes(before) != _sizes(now):
            raise ValueError(
                f"the {what} differ: {origin.name} was trained on {origin.config.env.id} with "
                f"{_short(before)}, {trainer.config.env.id} has {_short(now)}"
            )


def _sizes(space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return [(leaf.path, _sizes(leaf.space)) for leaf in ObsLayout.of(space).leaves]
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    return space.nvec.tolist() if isinstance(space, spaces.MultiDiscrete) else space.shape


def _short(space: spaces.Space[Any]) -> str:
    sizes = _sizes(space)
    return f"{type(space).__name__}({sizes if isinstance(sizes, int) else list(sizes)})"
