"""`Following`: what the other ranks do while rank 0 writes the run; see `operant.training.session`.

Some things all ranks do together: collect what a checkpoint holds, agree on when to save. So this
has what a `Session` has, with nothing that reads or writes the run's files but its own log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from torch import nn

from operant.lang.env import Env
from operant.runs.directory import Run
from operant.training.add_on import AddOn
from operant.training.callbacks import Callback
from operant.training.config import BaseConfig
from operant.training.init_from import Origin, take_weights
from operant.training.ranks import first_says, gather_bytes
from operant.training.resume import resumed_trainer
from operant.training.snapshot import snapshot
from operant.training.trainer import Trainer
from operant.vector.foreign_env import ForeignEnv

T = TypeVar("T", bound=Trainer)


class Following(Generic[T]):
    """A rank's share of a run that rank 0 writes.

    Attributes:
        trainer: the trainer.
        log_file: where this rank may write what it has to say, in the run's directory.
    """

    trainer_type: type[T]

    def __init__(self, trainer: T) -> None:
        self.trainer, group = trainer, trainer.shards.group
        folder = Path(gather_bytes(group, b"")[0].decode())
        self.log_file = folder / f"rank_{group.rank}.log"
        self._helper = _Helper(trainer)

    @classmethod
    def start(
        cls,
        config: BaseConfig,
        env: str | type[Env] | ForeignEnv,
        run_id: str = "",
        policy: nn.Module | None = None,
        init_from: Origin | None = None,
        add_ons: Sequence[AddOn] = (),
    ) -> Self:
        """See `Session.start`."""
        make: Any = cls.trainer_type
        trainer: T = make(env, config, policy=policy, add_ons=add_ons)
        if init_from is not None:
            take_weights(trainer, init_from)
        return cls(trainer)

    @classmethod
    def resume(
        cls,
        run: Run,
        env: str | type[Env] | ForeignEnv | None = None,
        changes: Mapping[str, Any] | None = None,
        policy: nn.Module | None = None,
        checkpoint: str = "latest",
        add_ons: Sequence[AddOn] = (),
    ) -> Self:
        """See `Session.resume`."""
        made = resumed_trainer(
            cls.trainer_type, run, env, dict(changes or {}), policy, checkpoint, add_ons
        )
        return cls(made.trainer)

    def train(self) -> None:
        """Train to the end, with what `Session.train` does together with other ranks."""
        self.trainer.learn(callbacks=[self._helper], progress=False)
        if self._helper.saved_step != self.trainer.steps:
            self._helper.save(self.trainer)


class _Helper(Callback):
    """The other side of a `Recorder`."""

    def __init__(self, trainer: Trainer) -> None:
        self.save(trainer)

    def on_update(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        """Save if rank 0 does."""
        if first_says(trainer.shards.group, False):
            self.save(trainer)

    def save(self, trainer: Trainer) -> None:
        """Hand in this rank's part of a checkpoint."""
        snapshot(trainer)
        self.saved_step = trainer.steps
