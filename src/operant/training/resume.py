"""The trainer of a run that goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import nn

from operant.lang.env import Env
from operant.runs.checkpoint import find_checkpoint, list_checkpoints, load_checkpoint
from operant.runs.directory import Run
from operant.training.add_on import AddOn
from operant.training.config import BaseConfig
from operant.training.config_file import read_run_config
from operant.training.foreign import check_wrappers
from operant.training.ranks import check_ranks
from operant.training.snapshot import chosen_env, config_of, restored
from operant.training.trainer import Trainer
from operant.vector.foreign_env import ForeignEnv

T = TypeVar("T", bound=Trainer)
_FREE = ("env.workers", "env.on_worker_death", "env.step_timeout")


@dataclass(frozen=True)
class Resumed(Generic[T]):
    """A trainer, the step it continues from (None: the beginning), and what the user should know,
    a sentence each."""

    trainer: T
    step: int | None
    notes: list[str]


def resumed_trainer(
    kind: type[T],
    run: Run,
    env: str | type[Env] | ForeignEnv | None,
    changes: dict[str, Any],
    policy: nn.Module | None,
    checkpoint: str,
    add_ons: Sequence[AddOn],
) -> Resumed[T]:
    """The trainer of `run`, as one of its checkpoints has it; see `Session.resume`.

    Raises:
        CheckpointError: the checkpoint is damaged; the message names the file.
        ValueError: `changes` has something that cannot change in the middle of a run.
    """
    origin, config_type = run.origin(), kind.config_type
    if not list_checkpoints(run.checkpoints) and checkpoint == "latest":
        config = config_type().replaced(read_run_config(config_type, run.config_file))
        if origin:
            raise ValueError(
                f"{run.id} was to start from the weights of {origin['run']} and never came "
                "to save any; start it again with --init-from"
            )
        notes = _check_changes(config, changes)
        check_ranks(config.run.shards, config.run.rank_timeout)
        chosen, changed = chosen_env(config, env), config.replaced(changes)
        check_wrappers(config.env, changes.get("env.wrappers"))
        make: Any = kind
        return Resumed(make(chosen, changed, policy=policy, add_ons=add_ons), None, notes)
    found = load_checkpoint(find_checkpoint(run.checkpoints, checkpoint))
    notes = _check_changes(config_of(found, config_type), changes)
    trainer = restored(kind, found, env, policy, changes, add_ons)
    return Resumed(trainer, trainer.steps, notes)


def _check_changes(config: BaseConfig, changes: dict[str, Any]) -> list[str]:
    """Raise ValueError if something would change that a run is made of.

    Adds to `changes` what is not taken over from a run unasked, and says so in sentences.
    """
    if changes.get("run.shards") == 0:  # one a process: no wish for another number than it has
        del changes["run.shards"]
    for name, value in changes.items():
        fixed = name.startswith(config.fixed) and not name.startswith(_FREE)
        if fixed and config.replaced({name: value}) != config:
            raise ValueError(f"{name} cannot change when a run is resumed; start a new run")
    every = changes.get("run.eval_every", config.run.eval_every)
    if bool(every) != bool(config.run.eval_every):  # metrics.csv has columns for it, or has none
        raise ValueError(
            "run.eval_every can change when a run is resumed, but not from or to 0; start a new "
            "run, with --init-from to keep the weights"
        )
    if not config.run.wandb or "run.wandb" in changes:
        return []
    changes["run.wandb"] = False
    return [
        "the run's own configuration asks for W&B, which a run cannot switch on; "
        "to go on logging there, resume it with --set run.wandb=true"
    ]
