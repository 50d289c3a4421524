"""The rules of an environment, recorded: what every compiled backend starts from."""

from __future__ import annotations

import difflib
import typing
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from operant.compiler.env_functions import (
    arguments,
    entry_points,
    name_bound,
    part_place,
    place,
    written_function,
)
from operant.compiler.env_functions import call as call
from operant.compiler.recording.recorder import Recorder, is_named_tuple
from operant.compiler.recording.side_effects import drawing_place, refuse_side_effects
from operant.compiler.recording.trace import BOOL, FLOAT, INT, Program
from operant.compiler.spec.attributes import check_fields, check_functions, check_values
from operant.compiler.spec.layouts import Layout
from operant.compiler.spec.parts import check_complete
from operant.lang.advice import LanguageError
from operant.lang.arrays import Arrays

_READ: weakref.WeakSet[type[Any]] = weakref.WeakSet()
"""Environments whose text has been looked through: it does not change."""
NUMPY_DTYPES: dict[str, Any] = {FLOAT: np.float32, INT: np.int32, BOOL: np.bool_}
_MAX_FLOAT = float(np.finfo(np.float32).max)


class Memory(NamedTuple):
    """What a field of the state takes for one environment."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rules:
    """An environment class with its parameters fixed, and checked: what a backend starts from.

    `TracedRules` for a state of numbers, `compiler.spec.array_rules.ArrayRules` for one of arrays,
    `compiler.spec.native_rules.NativeRules` for a compiled library.
    """

    env: type[Any]
    params: Any
    float_params: tuple[str, ...]
    """Parameters that can change without compiling again."""
    memory: dict[str, Memory]
    """The fields of the state."""
    observation: Layout
    action: Layout
    mask_size: int = 0
    """Truth values in the mask of one environment; 0 without a mask."""

    @classmethod
    def of(cls, env: type[Any], overrides: Mapping[str, Any] | None = None) -> Rules:
        """Check `env` at its default parameters, but for `overrides`.

        Raises:
            LanguageError: a function does what cannot be compiled.
            TypeError: a parameter is unknown or of the wrong type, or the definition is incomplete.
        """
        if hasattr(env, "native_library"):
            from operant.compiler.spec.native_rules import NativeRules

            return NativeRules.read(env, overrides or {})
        check_complete(env)
        check_values(env)
        check_functions(env)
        check_fields(env)
        state = env.State
        own_time_limit(env, {})  # refuses one that is not what the class says
        if isinstance(state, type) and issubclass(state, Arrays):
            from operant.compiler.spec.array_rules import ArrayRules

            return ArrayRules.read(env, overrides or {})
        return TracedRules.record(env, overrides or {})

    @property
    def max_episode_steps(self) -> int | None:
        """The environment's own time limit, at these parameters."""
        env = self.env
        limit: int | None = env.max_episode_steps
        return limit if env.time_limit is None else int(env.time_limit(self.params))

    def param_values(self) -> np.ndarray:
        """The float parameters as a float32 array, in the order of `float_params`."""
        return np.array([getattr(self.params, name) for name in self.float_params], np.float32)


@dataclass(frozen=True, kw_only=True)
class TracedRules(Rules):
    """The rules of an environment whose state is a tuple of numbers, recorded.

    `reset`, `step`, `observe` and `mask` are programs over the inputs ``s_<field>``, ``a_<k>``,
    ``u_<k>`` and ``p_<parameter>``; outputs are the state's fields, then for `step` the reward and
    the termination flag, for `observe` the observation's components, and for `mask` whether each
    action is allowed, component by component. Without ``action_mask`` there is no `mask`.
    """

    fields: dict[str, str]
    """The type of each field: "float", "int" or "bool"."""
    reset: Program
    step: Program
    observe: Program
    mask: Program | None = None

    @classmethod
    def record(cls, env: type[Any], overrides: Mapping[str, Any]) -> TracedRules:
        """See `Rules.of`."""
        params = resolve_params(env, overrides)
        with name_bound(env):
            recorder = Recorder(env, params)
            if env not in _READ:
                refuse_side_effects(entry_points(env))
                _READ.add(env)
            programs, again = recorder.programs(), recorder.programs()
        for name, program in programs.items():
            if program.signature() != again[name].signature():
                raise _changing(env, name)
        mask = programs.get("action_mask")
        fields = recorder.fields
        return cls(
            env=env,
            params=params,
            float_params=recorder.float_params,
            memory={name: Memory(np.dtype(NUMPY_DTYPES[kind])) for name, kind in fields.items()},
            observation=recorder.observation,
            action=recorder.action,
            mask_size=0 if mask is None else len(mask.outputs),
            fields=fields,
            reset=programs["reset"],
            step=programs["step"],
            observe=programs["observe"],
            mask=mask,
        )

    @property
    def step_draws(self) -> int:
        """Uniform numbers each step consumes: 0 unless ``step`` takes ``random``."""
        return self.env.random_numbers if "random" in arguments(self.env.step) else 0


def traced(rules: Rules) -> TracedRules:
    """`rules`, if their state is a tuple of numbers.

    Raises:
        ValueError: it is made of arrays, which Triton kernels cannot hold.
    """
    if not isinstance(rules, TracedRules):
        raise ValueError(
            f"the state of {rules.env.__qualname__} is made of arrays; Triton kernels keep numbers"
        )
    return rules


def _changing(env: type[Any], name: str) -> LanguageError:
    """The refusal of a function that computes something else when it is called again."""
    function = written_function(getattr(env, name))
    drawn = "" if function is None else drawing_place([function])
    if drawn:
        return LanguageError(
            f"{drawn} draws once, when the class is defined, and not in each episode; write "
            "uniform(random[0], low, high), randint(random[0], n) or normal(random[0], random[1])"
        )
    return LanguageError(
        f"{place(getattr(env, name))}: {name}() gives another program each time it is called; it "
        "must not keep or draw anything (use `random`)"
    )


def own_time_limit(env: type[Any], overrides: Mapping[str, Any]) -> int | None:
    """Steps after which the environment truncates an episode by itself, at its default parameters
    but for `overrides`; None for no limit.

    Raises:
        LanguageError: its `time_limit` and its `max_episode_steps` disagree at the defaults.
        TypeError: a parameter is unknown or of the wrong type.
    """
    if env.time_limit is None:
        return env.max_episode_steps  # type: ignore[no-any-return]
    limit: int = env.time_limit(resolve_params(env, overrides))
    if not overrides and limit != env.max_episode_steps:
        raise LanguageError(
            f"{place(env.time_limit)}: {env.__qualname__}.time_limit(params) returns {limit!r} at "
            f"the default parameters and max_episode_steps is {env.max_episode_steps!r}; write "
            f"max_episode_steps = {limit!r}"
        )
    return limit


def resolve_params(env: type[Any], overrides: Mapping[str, Any]) -> Any:
    """The environment's parameters with `overrides` put in, each of the declared type."""
    if not is_named_tuple(env.Params):
        found = env.Params
        got = f"the class {found.__name__}" if isinstance(found, type) else repr(found)
        raise LanguageError(
            f"{part_place(env, 'Params')}{env.__qualname__}.Params must be a NamedTuple, got {got}"
            "; write class Params(NamedTuple): with fields such as gravity: float = 9.8"
        )
    hints = typing.get_type_hints(env.Params)
    for name in overrides:
        if name not in hints:
            near = difflib.get_close_matches(name, hints, 1)
            advice = f"; did you mean {near[0]!r}?" if near else ""
            known = ", ".join(hints) or "none"
            raise TypeError(
                f"{env.__qualname__} has no parameter {name!r}{advice} (it has: {known})"
            )
    try:
        params = env.Params(**overrides)
    except TypeError:
        lacking = [name for name in hints if name not in env.Params._field_defaults]
        raise LanguageError(
            f"{part_place(env, 'Params', lacking[0])}{env.__qualname__}.Params needs a default for "
            f"each field; write {lacking[0]}: {_spelt(hints[lacking[0]])} = ..."
        ) from None
    values = {
        name: _checked(env, name, kind, getattr(params, name)) for name, kind in hints.items()
    }
    return env.Params(**values)


def _checked(env: type[Any], name: str, kind: Any, value: Any) -> Any:
    if kind not in (float, int, bool, str):
        raise LanguageError(
            f"{part_place(env, 'Params', name)}{env.__qualname__}.Params.{name}: use float, int, "
            f"bool or str, got {_spelt(kind)}"
        )
    if isinstance(value, np.generic):
        value = value.item()
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        raise TypeError(
            f"parameter {name!r} of {env.__qualname__} must be {kind.__name__}, got {value!r}"
        )
    if kind is float and not abs(value) <= _MAX_FLOAT:
        raise ValueError(
            f"parameter {name!r} of {env.__qualname__} must be a finite float32, got {value!r}"
        )
    return value


def _spelt(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
