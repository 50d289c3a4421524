"""Environments by name."""

from __future__ import annotations

import difflib
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

import gymnasium

from operant.vector.gymnasium_ids import RULES, TRAINABLE, bare_name, is_gymnasiums

if TYPE_CHECKING:
    from operant.lang.env import Env

_NAMESPACE = "operant/"
_BUILT_IN = {
    "CartPole-v1": ("classic.cartpole", "CartPole"),
    "MountainCar-v0": ("classic.mountain_car", "MountainCar"),
    "MountainCarContinuous-v0": ("classic.mountain_car_continuous", "MountainCarContinuous"),
    "Pendulum-v1": ("classic.pendulum", "Pendulum"),
    "Acrobot-v1": ("classic.acrobot", "Acrobot"),
    "Prospector-v0": ("prospector.prospector", "Prospector"),
}
_REGISTERED: dict[str, type[Env]] = {}


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

    if not isinstance(env_id, str) or not re.fullmatch(r"[\w.-]+-v\d+", env_id):
        raise ValueError(f"an environment's id looks like 'Catch-v0', got {env_id!r}")
    if not (isinstance(env, type) and issubclass(env, Env) and hasattr(env, "State")):
        raise TypeError(
            f"register() takes a class of operant.Env with {RULES} (docs/environments.md), got "
            f"{env!r}"
        )
    known = _REGISTERED.get(env_id)
    same = known is not None and known.__qualname__ == env.__qualname__
    if env_id in _BUILT_IN or (known is not None and not same):  # the same name again: a notebook
        raise ValueError(f"{env_id!r} is already registered for another environment")
    _REGISTERED[env_id] = env
    _register_with_gymnasium(env_id, env.max_episode_steps, env.reward_threshold)


def env_ids() -> list[str]:
    """All known ids: the built-in ones, then the registered ones."""
    return [*_BUILT_IN, *_REGISTERED]


def get_env(env_id: str) -> type[Env]:
    """The environment class of an id, with or without the prefix ``operant/``.

    Raises:
        ValueError: unknown; the message names the nearest known ids, or says that it is one of
            Gymnasium's.
    """
    name = env_id.removeprefix("operant:").removeprefix(_NAMESPACE)
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name in _BUILT_IN:
        module, cls = _BUILT_IN[name]
        env: type[Env] = getattr(import_module(f"operant.envs.{module}"), cls)
        return env
    names = env_ids()
    if is_gymnasiums(name) and bare_name(name) not in map(bare_name, names):
        raise ValueError(
            f"{env_id!r} is one of Gymnasium's own environments, which cannot be made or trained "
            f"yet; {TRAINABLE}."
        )
    lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), lower, 3, 0.5)  # the nearest first
    if near:
        meant = " or ".join(lower[known] for known in near)
        raise ValueError(f"unknown environment {env_id!r}; did you mean {meant}?")
    raise ValueError(
        f"unknown environment {env_id!r}; there are {', '.join(names)}; other environments of "
        "Gymnasium's cannot be made or trained yet."
    )


def id_of(env: type[Env]) -> str | None:
    """The id of an environment class; None if it has none."""
    for env_id in env_ids():
        module, cls = _BUILT_IN.get(env_id, ("", ""))
        if _REGISTERED.get(env_id) is env or (
            env.__module__ == f"operant.envs.{module}" and env.__qualname__ == cls
        ):
            return env_id
    return None


def register_built_in() -> None:
    """Tell Gymnasium the built-in environments. Loads none of them."""
    limits: dict[str, tuple[int, float | None]] = {
        "CartPole-v1": (500, 475.0),
        "MountainCar-v0": (200, -110.0),
        "MountainCarContinuous-v0": (999, 90.0),
        "Pendulum-v1": (200, None),
        "Acrobot-v1": (500, -100.0),
        "Prospector-v0": (240, 45.0),
    }
    for env_id, (max_steps, threshold) in limits.items():
        _register_with_gymnasium(env_id, max_steps, threshold)


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
