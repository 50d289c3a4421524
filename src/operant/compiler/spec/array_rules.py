"""The rules of an environment whose state is made of arrays, checked and ready to be printed."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from operant.compiler.emit.dialects import Dialect, PythonText
from operant.compiler.env_functions import nearest, part_place
from operant.compiler.outer import plain_function
from operant.compiler.parsing.functions import Compiled, Library
from operant.compiler.parsing.kinds import BOOL, FLOAT, INT, NOTHING, PARAMS, RANDOM, STATE, Array
from operant.compiler.spec.layouts import Layout, action_layout, observation_layout, space_of
from operant.compiler.spec.rules import Memory, Rules, resolve_params
from operant.lang.advice import LanguageError

ENTRY_POINTS = {
    "reset": ("state", "random", "params"),
    "step": ("state", "action", "random", "params"),
    "observe": ("state", "obs", "params"),
    "action_mask": ("state", "mask", "params"),
}
"""The functions an author writes, and the arguments each may name."""

_NO_SELF = ": leave it out, what an environment remembers is in `state`"


@dataclass(frozen=True, kw_only=True)
class ArrayRules(Rules):
    """See `Rules`. `functions` are the author's, by name."""

    functions: dict[str, FunctionType]

    @classmethod
    def read(cls, env: type[Any], overrides: Mapping[str, Any]) -> ArrayRules:
        """See `Rules.of`."""
        params = resolve_params(env, overrides)
        hints = typing.get_type_hints(env.Params)
        action = action_layout(space_of(env, "action_space", params), env)
        masked = getattr(env, "action_mask", None) is not None
        if masked and action.dtype != INT:
            raise LanguageError(
                f"{env.__qualname__}.action_mask() chooses among the actions of a Discrete, "
                f"MultiDiscrete or MultiBinary action_space, got {action.space}"
            )
        rules = cls(
            env=env,
            params=params,
            float_params=tuple(name for name, kind in hints.items() if kind is float),
            memory={name: Memory(*field) for name, field in env.State.fields.items()},
            observation=observation_layout(space_of(env, "observation_space", params), env),
            action=action,
            mask_size=sum(action.choices) if masked else 0,
            functions={name: _function(env, name) for name in ENTRY_POINTS if _has(env, name)},
        )
        library, _ = rules.library(PythonText())  # refuses what cannot be compiled, decorators too
        if not library.shown.any():
            raise LanguageError(
                f"{part_place(env, 'observe')}observe() never writes to `obs`, so every observation"
                " is 0; write def observe(state, obs): obs[0] = ..."
            )
        if masked and not library.masks:
            raise LanguageError(
                f"{part_place(env, 'action_mask')}action_mask() never writes to `mask`, so every "
                "action is allowed; write mask[0] = False where action 0 is not"
            )
        for name, function in rules.functions.items():
            if getattr(env, name) is not function:
                code = function.__code__
                raise LanguageError(
                    f"{code.co_filename}:{code.co_firstlineno}: {env.__qualname__}.{name} is "
                    f"wrapped around {function.__name__}(); write a plain function"
                )
        return rules

    def library(self, dialect: Dialect, strided: bool = False) -> tuple[Library, dict[str, Any]]:
        """The functions as source for a compiler, and what each entry point is called.

        `strided`: the elements of an environment's arrays are not neighbours in memory.
        """
        state = {
            name: Array(memory.dtype.name, memory.shape, f"state.{name}", strided)
            for name, memory in self.memory.items()
        }
        shown = np.zeros(self.observation.shape or (1,), np.bool_)
        library = Library(dialect, state, self.params, self.float_params, shown)
        compiled: dict[str, Compiled] = {}
        kinds = self._kinds()
        for name, function in self.functions.items():
            code = function.__code__
            place = f"{code.co_filename}:{code.co_firstlineno}"
            wanted = (FLOAT, BOOL) if name == "step" else NOTHING
            given = [kinds[argument] for argument in arguments(function)]
            library.look_only(name in ("observe", "action_mask"))
            compiled[name] = library.compile(function, given, place, wanted)
        return library, compiled

    def _kinds(self) -> dict[str, Any]:
        obs = self.observation
        action = {INT: INT, FLOAT: FLOAT}[self.action.dtype]
        return {
            "state": STATE,
            "random": RANDOM,
            "params": PARAMS,
            "action": action if self.action.scalar else (action,) * self.action.size,
            "obs": Array(_obs_dtype(obs), obs.shape or (1,), "obs"),
            "mask": Array("bool", (self.mask_size,), "mask"),
        }


def _obs_dtype(layout: Layout) -> str:
    return "float32" if layout.dtype == FLOAT else "int64"


def _has(env: type[Any], name: str) -> bool:
    return getattr(env, name, None) is not None


def _function(env: type[Any], name: str) -> FunctionType:
    function = plain_function(getattr(env, name))
    if function is None:
        thing = getattr(env, name)
        code = getattr(getattr(thing, "__func__", None), "__code__", None)
        place = f"{code.co_filename}:{code.co_firstlineno}: " if code is not None else ""
        raise LanguageError(
            f"{place}{env.__qualname__}.{name} must be a plain function written with def, without "
            f"@classmethod, got a {type(thing).__name__}"
        )
    for argument in arguments(function):
        if argument not in ENTRY_POINTS[name]:
            code = function.__code__
            raise LanguageError(
                f"{code.co_filename}:{code.co_firstlineno}: {name}() of a state of arrays takes "
                f"any of {', '.join(ENTRY_POINTS[name])}; got the argument {argument!r}"
                f"{_NO_SELF if argument == 'self' else nearest(argument, ENTRY_POINTS[name])}"
            )
    return function


def arguments(function: FunctionType) -> tuple[str, ...]:
    """The names of a function's arguments."""
    return tuple(inspect.signature(function).parameters)
