"""What a user sees while a policy trains."""

from __future__ import annotations

from operant.cli.screen import errors
from operant.training import progress
from operant.training.trainer import Trainer


class TrainProgress(progress.TrainProgress):
    """A bar on standard error; plain lines where that is no terminal."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer, errors)
