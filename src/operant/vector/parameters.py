"""Parameters of an environment as attributes of a batch."""

from __future__ import annotations

import dataclasses
from typing import Any

from operant.envs.layouts import space_of
from operant.envs.rules import Rules, resolve_params


def is_parameter(batch: object, name: str) -> bool:
    """Whether an attribute of a batch would be a parameter: of that name, and nothing else is."""
    own = vars(batch)
    rules = own.get("rules")
    return (
        rules is not None
        and name in rules.params._fields
        and name not in own
        and not hasattr(type(batch), name)
    )


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
