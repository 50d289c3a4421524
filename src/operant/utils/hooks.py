"""Methods that look like hooks of a base class and are none: nothing would ever call them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType

_CLOSE = 0.8
_BEFORE, _AFTER = "do that before learn()", "do that after learn()"
_ELSEWHERE = {
    "_init_callback": _BEFORE,
    "_on_rollout_end": "on_rollout",
    "_on_rollout_start": "on_update",
    "_on_step": "on_rollout",
    "_on_training_end": _AFTER,
    "_on_training_start": _BEFORE,
    "on_epoch_end": "on_update",
    "on_episode_end": "on_episodes",
    "on_step": "on_rollout",
    "on_train_end": _AFTER,
    "on_train_start": _BEFORE,
    "on_training_end": _AFTER,
    "on_training_start": _BEFORE,
}
"""Hooks of other libraries: which of `Callback`'s comes nearest, or what to do instead."""


def refuse_unknown_hooks(kind: type, base: type) -> None:
    """Refuse a method of a subclass that is meant to be a hook and is none of `base`, or that does
    not take what a hook is given.

    That is every ``on_...``, a hook of another library's, and what is much like a hook's name. A
    method that is mentioned in another one of the class is the author's own.

    Raises:
        TypeError: which, with file and line.
    """
    hooks = [name for name in vars(base) if name[0] != "_" and callable(getattr(base, name))]
    inherited = {name for parent in kind.__mro__[1:] for name in vars(parent)}
    methods = {name: one for name, one in vars(kind).items() if isinstance(one, FunctionType)}
    for name in methods.keys() & {*hooks}:
        _check_arguments(kind, methods[name], getattr(base, name))
    for name in methods.keys() - inherited:
        near = difflib.get_close_matches(name, hooks, 1, _CLOSE) if name[0] != "_" else []
        meant = name.startswith("on_") or name in _ELSEWHERE or near
        code = methods[name].__code__
        others = [one.__code__ for one in methods.values() if one.__code__ is not code]
        if not meant or any(name in _names(other) for other in others):
            continue
        advice = f"did you mean {near[0]}?" if near else ""
        known = _ELSEWHERE.get(name, "")
        if known and (known in hooks or not known.startswith("on_")):
            advice = f"write {known}" if known in hooks else known
        raise TypeError(
            f"{code.co_filename}:{code.co_firstlineno}: nothing calls {kind.__qualname__}.{name}()"
            f", {base.__name__} has {', '.join(hooks)}{'; ' if advice else ''}{advice}"
        )


def _check_arguments(kind: type, method: FunctionType, hook: FunctionType) -> None:
    """Refuse a hook that cannot be called with the arguments of the one it replaces."""
    wanted = list(inspect.signature(hook).parameters)
    try:
        inspect.signature(method).bind(*wanted)
    except TypeError:
        taken = ", ".join(inspect.signature(method).parameters)
        code, head = method.__code__, f"{method.__name__}({', '.join(wanted)})"
        raise TypeError(
            f"{code.co_filename}:{code.co_firstlineno}: {kind.__qualname__}.{method.__name__}() "
            f"takes ({taken}) and is called with more or less; write def {head}"
        ) from None


def _names(code: CodeType) -> Iterator[str]:
    """What a function, and those within it, mention."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _names(part)
