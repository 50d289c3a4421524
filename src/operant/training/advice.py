"""What people type who know other libraries, and what it is called here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LEARN = {
    "callback": "callbacks=...",
    "n_timesteps": "total_steps=...",
    "num_timesteps": "total_steps=...",
    "progress_bar": "progress=True or False",
    "steps": "total_steps=...",
    "timesteps": "total_steps=...",
    "total_timesteps": "total_steps=...",
    "verbose": "progress=True or False",
}
ALIASES = {"ppo_env_impl": "env.impl"}
"""Options of other libraries that mean the same as ours, value for value: accepted, with a
warning."""


def known_as(key: str, elsewhere: Mapping[str, str]) -> str | None:
    """What an option of another library is called here, in words; None if nobody knows it.

    `elsewhere` has their names and ours; see `BaseConfig.elsewhere`.

    >>> ours = {"lr": "ppo.learning_rate"}
    >>> known_as("ppo.lr", ours), known_as("lr", ours)
    ('here it is ppo.learning_rate', 'here it is learning_rate (ppo.learning_rate)')
    """
    _, dot, name = key.lower().replace("-", "_").rpartition(".")
    if name == "verbose":
        return "learn(progress=False) is silent"
    if name not in elsewhere:
        return None
    ours, colon, note = elsewhere[name].partition(":")
    if dot:
        return f"here it is {ours}{colon}{note}"
    return f"here it is {ours.partition('.')[2]} ({ours}){colon}{note}"


def refuse_arguments(
    unknown: Mapping[str, Any], trainer: str, elsewhere: Mapping[str, str]
) -> None:
    """Raise TypeError for arguments that ``learn`` of a `trainer` does not have, with what to
    write."""
    for name, value in unknown.items():
        if name == "reset_num_timesteps":
            text = "learn() goes on where it stopped: total_steps counts the earlier steps too"
        elif name in _LEARN:
            text = f"learn() takes {_LEARN[name]}"
        elif name in elsewhere:
            ours = elsewhere[name].partition(":")[0].partition(".")[2]
            text = f"options are {trainer}'s: {trainer}(env, {ours}=...)"
        else:
            text = "learn() takes total_steps, callbacks and progress"
        raise TypeError(f"{text}; got {name}={value!r}")
