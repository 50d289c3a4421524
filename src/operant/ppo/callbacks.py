"""Callbacks: code of the user's that runs between the parts of an iteration, on whole batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from operant.buffers.rollout import RolloutBuffer
    from operant.ppo.job import Episodes
    from operant.ppo.trainer import PPO


class Callback:
    """Override what you need. ``ppo.stop()`` ends training after the iteration."""

    def on_rollout(self, ppo: PPO, buffer: RolloutBuffer) -> None:
        """A rollout was collected. The buffer may be changed: rewards, for instance, before
        advantages are computed from them."""

    def on_episodes(self, ppo: PPO, episodes: Episodes) -> None:
        """Episodes finished in this rollout: arrays, one entry each. Not called for none."""

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        """An iteration is complete; `metrics` has a figure for each name in `METRICS`. Whatever is
        added to it reaches the callbacks after this one."""
