"""What PPO adds to a policy."""

from __future__ import annotations

from typing import Any

from operant.buffers.normalizer import RunningNormalizer
from operant.ppo.config import Config


def add_return_normalizer(policy: Any, config: Config) -> None:
    """Give a policy a ``return_normalizer`` if `config` asks for one and it has none."""
    if config.ppo.normalize_reward and not hasattr(policy, "return_normalizer"):
        policy.return_normalizer = RunningNormalizer()
