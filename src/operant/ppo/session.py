"""A session of training with PPO in a run directory; see `operant.training.session`."""

from __future__ import annotations

from operant.ppo.ppo import PPO
from operant.training import session


class Session(session.Session[PPO]):
    """One process's share of a run of PPO. `ppo` is the trainer."""

    trainer_type = PPO

    @property
    def ppo(self) -> PPO:
        """The trainer."""
        return self.trainer
