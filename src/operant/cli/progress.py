"""What a user sees while a policy trains."""

from __future__ import annotations

from operant.cli.screen import errors
from operant.ppo import progress
from operant.ppo.trainer import PPO


class TrainProgress(progress.TrainProgress):
    """A bar on standard error; plain lines where that is no terminal."""

    def __init__(self, ppo: PPO) -> None:
        super().__init__(ppo, errors)
