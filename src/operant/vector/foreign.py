"""What is not an environment of ours, and what to do instead, in words."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from operant.vector.gymnasium_ids import TRAINABLE, instead_of_gymnasiums
from operant.vector.registry import env_ids, id_of


def not_an_env(value: Any) -> str:
    """Why `value` cannot be run as an environment, and what to pass instead."""
    from operant.vector.base import BaseVecEnv
    from operant.vector.single import SingleEnv

    got = f"env must be an id or a subclass of operant.Env, got {_shown(value)}"
    inside = getattr(value, "unwrapped", None)
    if isinstance(inside, BaseVecEnv):
        what = "a batch already" if value is inside else "a batch in a wrapper"
        return f"{got}, {what}; PPO takes the batch itself, env.unwrapped"
    if isinstance(inside, SingleEnv):
        name = id_of(inside.env_class) or inside.env_class.__qualname__
        return f"{got}, one environment in a wrapper; to run many pass {name!r}"
    theirs = getattr(getattr(value, "spec", None), "id", None)
    if theirs in env_ids():
        return f"{got}, which is Gymnasium's; operant has one of its own: pass {theirs!r}"
    kinds = (gymnasium.Env, VectorEnv)
    if isinstance(value, kinds) or (isinstance(value, type) and issubclass(value, kinds)):
        kind = value if isinstance(value, type) else type(inside)
        if issubclass(kind, gymnasium.Env) and kind.__module__.partition(".")[0] != "gymnasium":
            return f"{got}; {instead_of_gymnasiums(kind)}"
        return f"{got}; Gymnasium's own environments cannot be made or trained yet; {TRAINABLE}"
    if callable(value) and not isinstance(value, type):
        return f"{got}; pass the class or its id, not a function that makes one; {TRAINABLE}"
    return got


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
