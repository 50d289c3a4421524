"""Environments of Gymnasium's own: how a name is recognised as one of them."""

from __future__ import annotations

import gymnasium

TRAINABLE = (
    "operant trains what `operant envs` lists, your own classes of operant.Env, and games in C"
)
"""What there is to train today."""
RULES = "a State, and reset(random), step(state, action) and observe(state) as functions of values"
"""What a class of operant.Env is written with."""


def instead_of_gymnasiums(env: type, where: str = "") -> str:
    """What to write instead of an author's own class of gymnasium.Env."""
    return (
        f"{env.__name__}{where} is a gymnasium.Env, whose methods run one environment in Python; "
        f"operant compiles a class of operant.Env instead: {RULES} (docs/environments.md)"
    )


def bare_name(env_id: str) -> str:
    """An id without its module and version, in small letters: what people remember of it."""
    name, version, number = env_id.rpartition(":")[2].rpartition("-v")
    return (name if version and number.isdecimal() else env_id.rpartition(":")[2]).lower()


def is_gymnasiums(env_id: str) -> bool:
    """Whether Gymnasium has an environment of this name, in whatever version."""
    wanted = bare_name(env_id)
    return any(
        bare_name(known) == wanted and not known.startswith("operant/")
        for known in gymnasium.registry
    )
