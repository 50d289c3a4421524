"""`ForeignEnv`: an environment that operant does not compile, by the function that makes it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from types import FunctionType
from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit

from operant.backends.foreign.pettingzoo import as_parallel, is_pettingzoo, limited
from operant.lang.advice import LanguageError

_TRUSTED = ("gymnasium.wrappers", "minigrid.wrappers")
"""Their wrappers may be named by anyone: these modules are known, and do nothing else."""


@dataclass(frozen=True)
class ForeignEnv:
    """One environment of Gymnasium's or PettingZoo's API, and what to call it.

    It is called to make one: ``env(render_mode="rgb_array", gravity=-9.0)``.
    """

    name: str
    """As a configuration has it: ``LunarLander-v3``, ``file.py:make_env``, the name of a class."""
    make: Callable[..., Any]
    """Makes one; its keywords are the environment's parameters."""
    gymnasium_id: str = ""
    """The id under which Gymnasium knows it; empty for a function or a class."""

    def __call__(self, **params: Any) -> Any:
        """One environment."""
        return self.make(**params)

    @property
    def is_registered(self) -> bool:
        """Whether Gymnasium's registry has it, so that no code need be named to make it again."""
        return bool(self.gymnasium_id)


def as_foreign(value: object, name: str = "") -> ForeignEnv | None:
    """`value` as a foreign environment: a class of ``gymnasium.Env``, or a function that makes
    environments. None for anything else; environments themselves have no second copy.

    Raises:
        LanguageError: the functions of a class are those of an `operant.Env`.
    """
    if isinstance(value, ForeignEnv):
        return value
    if isinstance(value, type):
        _refuse_another_base(value)
    if not callable(value) or isinstance(value, gymnasium.Env | gymnasium.vector.VectorEnv):
        return None
    if isinstance(value, type) and not (hasattr(value, "reset") and hasattr(value, "step")):
        return None
    return ForeignEnv(name or _name_of(value), value)


def _refuse_another_base(env: type[Any]) -> None:
    """Refuse ``class Cart(gymnasium.Env)`` with ``def step(state, action)``."""
    for name in ("step", "reset", "observe"):
        function = vars(env).get(name)
        if not isinstance(function, FunctionType):
            continue
        code = function.__code__
        first = code.co_varnames[: code.co_argcount][:1]
        if first and first[0] in ("state", "random", "params"):
            raise LanguageError(
                f"{code.co_filename}:{code.co_firstlineno}: {name}({first[0]}, ...) is written as "
                f"for operant.Env, which {env.__name__} is not; write class "
                f"{env.__name__}(operant.Env), or def {name}(self, ...)"
            )


def _name_of(make: Any) -> str:
    while isinstance(make, partial):
        make = make.func
    found = getattr(make, "__qualname__", type(make).__name__)
    return "env" if "<lambda>" in found else str(found).replace("<locals>.", "")


@dataclass(frozen=True)
class Recipe:
    """How one environment of a batch is made: what workers are sent.

    Raises:
        ValueError: a wrapper that does not exist.
    """

    env: ForeignEnv
    params: Mapping[str, Any]
    wrappers: tuple[str, ...] = ()
    """See `wrapper_named`; the first is the innermost."""
    max_episode_steps: int | None = None
    """A time limit: of an id instead of its own, of others besides it; None: their own."""
    render_mode: str | None = None

    def __call__(self) -> Any:
        """One environment."""
        params = dict(self.params)
        if self.render_mode is not None:
            params["render_mode"] = self.render_mode
        limit = self.max_episode_steps
        if self.env.gymnasium_id and limit is not None:
            params["max_episode_steps"] = limit
        env = self.env(**params)
        for name in self.wrappers:
            env = wrapper_named(name)(env)
        if limit is None or self.env.gymnasium_id:
            return env
        if is_pettingzoo(env):
            return limited(as_parallel(env), limit)
        return TimeLimit(env, limit) if isinstance(env, gymnasium.Env) else env

    def rendered(self) -> Recipe:
        """The same with pictures."""
        return replace(self, render_mode="rgb_array")


def wrapper_named(text: str) -> Callable[[Any], Any]:
    """The wrapper that ``module:Class`` names, with arguments where there are some:
    ``gymnasium.wrappers:ResizeObservation(shape=[84, 84])``.

    Raises:
        ValueError: no such module or class, or arguments that are not plain values.
    """
    module, name, arguments = _parsed_wrapper(text)
    try:
        found = getattr(import_module(module), name)
    except ImportError as error:
        raise ValueError(f"env.wrappers: {text!r} cannot be imported: {error}") from None
    except AttributeError:
        raise ValueError(f"env.wrappers: {module} has no {name!r}") from None
    if not callable(found):
        raise ValueError(f"env.wrappers: {module}:{name} is no wrapper, got {found!r}")
    return partial(found, **arguments)


def untrusted_wrappers(wrappers: Sequence[str]) -> list[str]:
    """Those that name code other than Gymnasium's and MiniGrid's wrappers, for configurations that
    may come from anyone."""
    return [text for text in wrappers if _parsed_wrapper(text)[0] not in _TRUSTED]


def _parsed_wrapper(text: str) -> tuple[str, str, dict[str, Any]]:
    """Module, name and keyword arguments."""
    module, colon, call = text.partition(":")
    name, bracket, _ = call.partition("(")
    wanted = (
        "env.wrappers must be a list of module:Class, such as gymnasium.wrappers:ClipReward or "
        f"gymnasium.wrappers:ResizeObservation(shape=[84, 84]), got {text!r}"
    )
    if not colon or not name.isidentifier() or not module.replace(".", "").isidentifier():
        raise ValueError(wanted)
    if not bracket:
        return module, name, {}
    try:
        node = ast.parse(call, mode="eval").body
        if not isinstance(node, ast.Call) or node.args:
            raise ValueError(wanted)
        given = {str(one.arg): ast.literal_eval(one.value) for one in node.keywords}
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{wanted}; arguments have names and plain values") from None
    if "None" in given:  # **something
        raise ValueError(wanted)
    return module, name, given
