"""Environments by name: those that files of a package declare, and those that code registers."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import gymnasium

if TYPE_CHECKING:
    from operant.lang.env import Env

_NAMESPACE = "operant/"
RULES = "a State, and reset(random), step(state, action) and observe(state) as functions of values"
"""What a class of operant.Env is written with."""


@dataclass(frozen=True)
class Declaration:
    """What is known of an environment without importing its file."""

    env_id: str
    module: str
    """The dotted name of its file's module."""
    name: str
    """The class in it."""
    max_episode_steps: int | None = None
    reward_threshold: float | None = None


_DECLARED: dict[str, Declaration] = {}
_REGISTERED: dict[str, type[Env]] = {}


def declare(found: Iterable[Declaration]) -> None:
    """Make environments known whose files are imported when they are first asked for.

    Raises:
        ValueError: an id of another form.
    """
    for one in found:
        _check_id(one.env_id)
        _DECLARED[one.env_id] = one
        _register_with_gymnasium(one.env_id, one.max_episode_steps, one.reward_threshold)


def register(env_id: str, env: type[Env]) -> None:
    """Make an environment known to `operant.make`, the commands and Gymnasium.

    Args:
        env_id: a name with a version, such as ``"Catch-v0"``; Gymnasium gets
            ``"operant/Catch-v0"``.
        env: the environment class.

    Raises:
        ValueError: the name has another form, or belongs to another class.
        TypeError: `env` is not an environment class.
    """
    from operant.lang.env import Env

    _check_id(env_id)
    if not (isinstance(env, type) and issubclass(env, Env) and hasattr(env, "State")):
        raise TypeError(
            f"register() takes a class of operant.Env with {RULES} (docs/environments.md), got "
            f"{env!r}"
        )
    known = _REGISTERED.get(env_id)
    same = known is not None and known.__qualname__ == env.__qualname__
    if env_id in _DECLARED or (known is not None and not same):  # the same name again: a notebook
        raise ValueError(f"{env_id!r} is already registered for another environment")
    _REGISTERED[env_id] = env
    _register_with_gymnasium(env_id, env.max_episode_steps, env.reward_threshold)


def _check_id(env_id: object) -> None:
    if not isinstance(env_id, str) or not re.fullmatch(r"[\w.-]+-v\d+", env_id):
        raise ValueError(f"an environment's id looks like 'Catch-v0', got {env_id!r}")


def env_ids() -> list[str]:
    """All known ids: those that come with the library, then the registered ones."""
    return [*_DECLARED, *_REGISTERED]


def get_env(env_id: str) -> type[Env]:
    """The environment class of an id, with or without the prefix ``operant/``.

    Raises:
        ValueError: operant compiles none of this name; the message names the nearest ids.
    """
    env = known_env(env_id)
    if env is not None:
        return env
    name, names = env_id.removeprefix("operant:").removeprefix(_NAMESPACE), env_ids()
    lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), lower, 3, 0.5)  # the nearest first
    if near:
        meant = " or ".join(lower[known] for known in near)
        raise ValueError(f"unknown environment {env_id!r}; did you mean {meant}?")
    raise ValueError(f"unknown environment {env_id!r}; there are {', '.join(names)}")


def known_env(env_id: str) -> type[Env] | None:
    """As `get_env`, and None where that raises."""
    name = env_id.removeprefix("operant:").removeprefix(_NAMESPACE)
    declared = _DECLARED.get(name)
    if declared is None:
        return _REGISTERED.get(name)
    env: type[Env] = getattr(import_module(declared.module), declared.name)
    return env


def id_of(env: type[Env]) -> str | None:
    """The id of an environment class; None if it has none."""
    for env_id, one in _DECLARED.items():
        if (env.__module__, env.__qualname__) == (one.module, one.name):
            return env_id
    return next((env_id for env_id, known in _REGISTERED.items() if known is env), None)


def _register_with_gymnasium(
    env_id: str, max_episode_steps: int | None, reward_threshold: float | None
) -> None:
    full = _NAMESPACE + env_id
    gymnasium.registry.pop(full, None)  # registering twice would warn
    gymnasium.register(
        full,
        entry_point="operant.vector.make:make_single",
        vector_entry_point="operant.vector.make:make_for_gymnasium",
        max_episode_steps=max_episode_steps,
        reward_threshold=reward_threshold,
        kwargs={"env_id": env_id},
        disable_env_checker=True,
    )


def params_of(env: type[Env]) -> dict[str, Any]:
    """The environment's parameters and their defaults."""
    defaults: dict[str, Any] = env.Params()._asdict()
    return defaults
