"""`AgentReturns`: what each agent of a multi-agent environment reached lately."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from operant.training.episodes import Episodes
from operant.training.recent import Recent

MOST_AGENTS = 32
"""Environments with more agents have no figures for each."""


class AgentReturns:
    """Returns of the last episodes of each agent; a metric ``return/NAME`` for each, their mean.

    Args:
        agents: see `Description.agents`; none, or more than `MOST_AGENTS`: there are no metrics.
        most: episodes of an agent to look back on.
    """

    def __init__(self, agents: Sequence[str], most: int) -> None:
        self._every = len(agents)
        names = agents if len(agents) <= MOST_AGENTS else ()
        self.recent = {name: Recent(most) for name in names}
        """Return and length of the last episodes, by agent."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the figures."""
        return tuple(f"return/{name}" for name in self.recent)

    def add(self, episodes: Episodes) -> None:
        """Add finished episodes, by their rows."""
        if self.recent and len(episodes):
            who = np.asarray(episodes.env_index) % self._every
            for k, recent in enumerate(self.recent.values()):
                recent.add(episodes.returns[who == k], episodes.lengths[who == k])

    def figures(self) -> dict[str, float]:
        """Means by metric; NaN before an agent's first episode has ended."""
        means = (recent.spread().mean_return for recent in self.recent.values())
        return dict(zip(self.metrics, means, strict=True))
