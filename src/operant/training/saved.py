"""Where trainers are saved and found by name, and copies of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch import nn

from operant.lang.env import Env
from operant.runs.checkpoint import Checkpoint, CheckpointError
from operant.runs.directory import find_run, list_runs
from operant.training.add_on import AddOn
from operant.training.config import BaseConfig
from operant.training.snapshot import locate, restored, snapshot
from operant.vector.copies import env_of

if TYPE_CHECKING:
    from operant.training.trainer import Trainer

T = TypeVar("T", bound="Trainer")
_LATEST = "latest"
_FILES = (".zip", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".onnx", ".safetensors", ".h5")
"""How files are called that other libraries save to."""


def folder_for(path: str | Path) -> Path:
    """The folder that `Trainer.save` writes to.

    Raises:
        ValueError: a name for a file, or one that `find_saved` takes for something else.
    """
    if path == _LATEST:
        raise ValueError("'latest' is the last run to load(); save to './latest' or another name")
    path = Path(path)
    if path.suffix.lower() in _FILES:
        name = str(path.with_suffix(""))
        raise ValueError(f"save() writes a folder, not a {path.suffix} file: save({name!r})")
    return path.resolve() if path.is_symlink() else path


def find_saved(path: str | Path) -> Path:
    """The checkpoint meant by a path (see `locate`), the name of a run, or ``"latest"``.

    Raises:
        CheckpointError, ValueError: there is none.
    """
    if path == _LATEST:
        return locate(find_run(_LATEST).path)
    where = Path(path)
    if where.is_file():
        raise CheckpointError(f"{where} is a file; a checkpoint is a folder, as save() writes it")
    saved = any((where / name).exists() for name in ("manifest.json", "latest", "checkpoints"))
    if not saved and isinstance(path, str):
        if any(run.id == path for run in list_runs()):
            return locate(find_run(path).path)
        if not where.exists() and "/" not in path:
            try:
                find_run(path)
            except ValueError as error:  # it knows the nearest name
                raise CheckpointError(f"there is no folder {path!r} here, and {error}") from None
    return locate(where)


def description(trainer: Trainer, key: type[Env] | str) -> tuple[Any, ...]:
    """All that `made_again` needs to know of a trainer; `key` stands for its environment class."""
    kinds = type(trainer), type(trainer.config)
    return kinds, key, trainer.policy, tuple(trainer.add_ons), *snapshot(trainer)


def made_again(
    kinds: tuple[type[T], type[BaseConfig]],
    key: type[Env] | str,
    policy: nn.Module,
    add_ons: Sequence[AddOn],
    arrays: dict[str, Any],
    facts: dict[str, Any],
) -> T:
    """The trainer that `description` describes, with a batch of its own."""
    checkpoint = Checkpoint(Path("a copy of a trainer"), facts["steps"], arrays, facts)
    cls, config = kinds
    return restored(cls, checkpoint, env_of(key), policy, {}, add_ons, config)
