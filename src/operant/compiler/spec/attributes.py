"""The attributes of an environment class that are values, and the misspelt names of attributes."""

from __future__ import annotations

import ast
import difflib
import inspect
import linecache
import math
import numbers
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from operant.compiler.env_functions import arguments, part_place, place, source_files
from operant.lang.advice import LanguageError
from operant.lang.env import Env

MAX_RANDOM = 64
_CLOSE = 0.8
"""How much alike a misspelt name is: ``max_episode_step``, ``reward_treshold``."""
_KNOWN = {name.lower(): name for name in (*inspect.get_annotations(Env), "render")}
_ELSEWHERE = {
    "action_masks": "action_mask",
    "episode_length": "max_episode_steps",
    "fps": "render_fps",
    "max_episode_length": "max_episode_steps",
    "max_steps": "max_episode_steps",
    "max_timesteps": "max_episode_steps",
    "obs_space": "observation_space",
    "parameters": "Params",
    "valid_action_mask": "action_mask",
}
"""What other libraries call an attribute."""
_NOT_HERE = {
    "metadata": "render(state, canvas) draws, and render_fps = 30 is how fast it is shown",
    "render_mode": "render(state, canvas) draws, for `operant record` and `operant play`",
    "render_modes": "render(state, canvas) draws, for `operant record` and `operant play`",
}
"""Attributes of Gymnasium's classes that mean nothing here."""


def _is_whole(value: object, low: int, high: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_finite(value: object) -> bool:
    return (
        isinstance(value, numbers.Real)
        and not isinstance(value, bool)
        and math.isfinite(float(value))
    )


def _is_size(value: object) -> bool:
    pair = isinstance(value, tuple | list) and len(value) == 2
    return pair and all(_is_whole(part, 1) for part in value)  # type: ignore[attr-defined]


def _is_options(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "max_episode_steps": (
        lambda value: value is None or _is_whole(value, 1),
        "a whole number of at least 1, or None",
    ),
    "reward_threshold": (
        lambda value: value is None or _is_finite(value),
        "a finite number, such as 475.0, or None",
    ),
    "random_numbers": (lambda value: _is_whole(value, 0, MAX_RANDOM), f"0 to {MAX_RANDOM}"),
    "render_size": (_is_size, "width and height in pixels, such as (600, 400)"),
    "render_fps": (lambda value: _is_whole(value, 1), "a whole number of at least 1, such as 30"),
    "training": (_is_options, 'options by dotted name, such as {"ppo.gamma": 0.98}'),
    "time_limit": (
        lambda value: value is None or callable(value),
        "a function of the parameters (a number of steps is max_episode_steps)",
    ),
}
"""Whether a value is one, and what it must be, in words."""


def check_values(env: type[Any]) -> None:
    """Refuse what an attribute cannot be.

    Raises:
        LanguageError: which, and what came.
    """
    for name, (fits, wanted) in _VALUES.items():
        value = getattr(env, name)
        if not fits(value):
            raise LanguageError(
                f"{part_place(env, name)}{env.__qualname__}.{name} must be {wanted}, got {value!r}"
            )


def check_functions(env: type[Any]) -> None:
    """Refuse a space or a time limit that is a function of anything but the parameters.

    Raises:
        LanguageError: which, and how it is written.
    """
    for name in ("observation_space", "action_space", "time_limit"):
        function = getattr(env, name)
        if not isinstance(function, FunctionType):
            continue
        taken = arguments(function)
        if len(taken) != 1 or taken[0] in ("self", "state"):
            raise LanguageError(
                f"{place(function)}: {env.__qualname__}.{name} is a function of the parameters, "
                f"got {name}({', '.join(taken)}); write def {name}(params)"
            )


def check_fields(env: type[Any]) -> None:
    """Refuse a number of State or Params that is no field, since it has no type: ``x = 0.0``.
    Names in capitals are the author's constants.

    Raises:
        LanguageError: which, and how it is written.
    """
    for part in ("State", "Params"):
        holder = getattr(env, part)
        fields = getattr(holder, "_fields", None) if isinstance(holder, type) else None
        if fields is None:
            continue
        for name, value in vars(holder).items():
            plain = name[0] != "_" and not name.isupper() and name not in fields
            if plain and isinstance(value, bool | int | float | str):
                kind = type(value).__name__
                written = f"{name}: {kind}" + (f" = {value!r}" if part == "Params" else "")
                raise LanguageError(
                    f"{part_place(env, part, name)}{env.__qualname__}.{part}.{name} has no type, so"
                    f" it is no field; write {written}"
                )


def check_names(env: type[Any]) -> None:
    """Refuse a name that is much like an attribute's, where that is lacking and nothing in the
    author's file reads the name: ``max_steps = 200``. Constants that are read are the author's own.

    Raises:
        LanguageError: which, and what it was meant to be.
    """
    inherited = {name for base in env.__mro__[1:] if base is not Env for name in vars(base)}
    given = vars(env).keys() | (inherited - _VALUES.keys())
    lacking = {low: name for low, name in _KNOWN.items() if name not in given}
    for name in vars(env):
        if name.startswith("_") or name in _KNOWN.values():
            continue
        meant = _ELSEWHERE.get(name.lower(), "")
        if meant not in lacking.values():
            near = difflib.get_close_matches(name.lower(), lacking, 1, _CLOSE)
            meant = lacking[near[0]] if near else ""
        advice = f"did you mean {meant}?" if meant else _NOT_HERE.get(name, "")
        if advice and not _may_be_read(env, name):
            raise LanguageError(
                f"{part_place(env, name)}{env.__qualname__}.{name} is no attribute of an "
                f"environment, and nothing reads it; {advice}"
            )
    for name, kind in vars(env).get("__annotations__", {}).items():
        if name in _VALUES and name in lacking.values() and _is_value(kind):
            raise LanguageError(
                f"{part_place(env, name)}{env.__qualname__}.{name} gets no value from `:`; write "
                f"{name} = {kind}"
            )


def _may_be_read(env: type[Any], name: str) -> bool:
    """Whether the file of a class reads a name, or cannot be had."""
    texts = ["".join(linecache.getlines(file)) for file in source_files(env)]
    return not any(texts) or any(_reads(text, name) for text in texts)


def _reads(text: str, name: str) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return True
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=found) | ast.Name(id=found, ctx=ast.Load()) if found == name:
                return True
            case ast.Constant(value=str() as found) if found == name:  # getattr(Cart, "max_steps")
                return True
    return False


def _is_value(annotation: Any) -> bool:
    """Whether what stands behind a name and ``:`` is a value, no type."""
    if not isinstance(annotation, str):
        return isinstance(annotation, int | float | tuple)
    try:
        value = ast.literal_eval(annotation)
    except (SyntaxError, ValueError):
        return False
    return isinstance(value, int | float | tuple)
