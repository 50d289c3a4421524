"""Parameters of an environment as attributes of a batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from operant.compiler.spec.layouts import space_of
from operant.compiler.spec.rules import Rules, resolve_params

_OPTIONS = {
    "max_steps": "max_episode_steps",
    "n_envs": "num_envs",
    "n_workers": "workers",
    "nenvs": "num_envs",
    "num_env": "num_envs",
    "num_workers": "workers",
}
"""What options of a batch are called elsewhere, and here."""


def refuse_foreign_options(env: type[Any], names: Iterable[str]) -> None:
    """Raise TypeError for an option by the name it has in other libraries, with ours.

    An environment may have a parameter of that name.
    """
    for name in names:
        if name in _OPTIONS and name not in getattr(env.Params, "_fields", ()):
            raise TypeError(
                f"{env.__qualname__} has no parameter {name!r}; write {_OPTIONS[name]}=..."
            )


def is_parameter(batch: object, name: str) -> bool:
    """Whether an attribute of a batch is a parameter: of that name, and nothing else is."""
    return name in vars(batch).get("_parameters", ())


def with_parameter(rules: Rules, name: str, value: Any, fixed: str = "") -> Rules:
    """`rules` with another value of a parameter; the same programs.

    Raises:
        ValueError, TypeError: a bad value, one that needs a new batch, or they are `fixed`, and
            why.
    """
    again = f"make a new batch with {name}={value!r}"
    if fixed:
        raise ValueError(f"{name} cannot be set: {fixed}; {again}")
    if name not in rules.float_params:
        raise ValueError(f"{name} cannot be set, it is a constant of the compiled code; {again}")
    params = resolve_params(rules.env, {**rules.params._asdict(), name: value})
    for kind, layout in (("observation", rules.observation), ("action", rules.action)):
        if space_of(rules.env, f"{kind}_space", params) != layout.space:
            raise ValueError(f"{name} cannot be set, the {kind} space depends on it; {again}")
    return dataclasses.replace(rules, params=params)
