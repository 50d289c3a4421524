"""What is not an environment, and what to pass instead, in words."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from operant.vector.registry import env_ids, id_of


def not_an_env(value: Any) -> str:
    """Why `value` cannot be run as an environment, and what to pass instead."""
    from operant.vector.base import BaseVecEnv
    from operant.vector.single import SingleEnv

    got = (
        "env must be an id, a subclass of operant.Env or a function that makes environments, "
        f"got {_shown(value)}"
    )
    inside = getattr(value, "unwrapped", None)
    if isinstance(inside, BaseVecEnv):
        what = "a batch already" if value is inside else "a batch in a wrapper"
        return f"{got}, {what}; PPO takes the batch itself, env.unwrapped"
    if isinstance(inside, SingleEnv):
        name = id_of(inside.env_class) or inside.env_class.__qualname__
        return f"{got}, one environment in a wrapper; to run many pass {name!r}"
    if isinstance(value, gymnasium.Env):
        theirs = getattr(value.spec, "id", None)
        if theirs is None:
            cls = type(value.unwrapped).__name__
            return f"{got}, one environment; to run many pass what makes it: lambda: {cls}(...)"
        name = f"gymnasium:{theirs}" if theirs in env_ids() else theirs
        return f"{got}, one environment; to run many pass its id, {name!r}, or a function"
    if isinstance(value, VectorEnv):
        return f"{got}, a vector environment; PPO takes it as it is: PPO(env)"
    if isinstance(value, type) and issubclass(value, gymnasium.Env):
        return f"{got}; operant.make runs classes of gymnasium.Env, VecEnv compiled ones alone"
    return got


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
