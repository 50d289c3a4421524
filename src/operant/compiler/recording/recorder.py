"""Recording the functions of an environment whose state is a tuple of numbers."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from operant.compiler.env_functions import (
    arguments,
    call,
    nearest,
    part_place,
    place,
    return_place,
)
from operant.compiler.recording.explain import explain, hidden_refusal
from operant.compiler.recording.refusals import recording
from operant.compiler.recording.several import Several
from operant.compiler.recording.trace import (
    BOOL,
    FLOAT,
    INT,
    Program,
    Symbol,
    as_symbol,
    cast,
    described,
)
from operant.compiler.spec.layouts import action_layout, observation_layout, space_of
from operant.lang.advice import LanguageError
from operant.lang.arrays import ArrayField

_DTYPES = {float: FLOAT, int: INT, bool: BOOL}
MAX_FIELDS = 100
_ARGUMENTS = {
    "reset": ("random", "params"),
    "step": ("state", "action", "random", "params"),
    "observe": ("state", "params"),
    "action_mask": ("state", "params"),
}


def is_named_tuple(value: object) -> TypeGuard[type[Any]]:
    """Whether `value` is a class made by NamedTuple."""
    return isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields")


def state_fields(env: type[Any]) -> dict[str, str]:
    """The fields of a state of numbers and their types: "float", "int" or "bool".

    Raises:
        LanguageError: it is no NamedTuple of numbers.
    """
    state = getattr(env, "State", None)
    name = env.__qualname__
    if not is_named_tuple(state):
        got = f"the class {state.__name__}" if isinstance(state, type) else repr(state)
        arrays = (
            any(isinstance(part, ArrayField) for part in vars(state).values())
            if isinstance(state, type)
            else False
        )
        base, write = (
            ("a subclass of Arrays", "class State(Arrays): its fields are arrays")
            if arrays
            else ("a NamedTuple", "class State(NamedTuple): with fields such as x: float")
        )
        raise LanguageError(
            f"{part_place(env, 'State')}{name}.State must be {base}, got {got}; write {write}"
        )
    try:
        hints = typing.get_type_hints(state)
    except NameError as error:
        texts = {field: str(kind) for field, kind in state.__annotations__.items()}
        wrong = next((field for field, text in texts.items() if str(error.name) in text), "")
        where = part_place(env, "State", wrong)
        raise LanguageError(
            f"{where}{name}.State.{wrong}: {error}; use float, int or bool"
        ) from None
    fields = {}
    for field, kind in hints.items():
        if kind not in _DTYPES:
            got = kind if not isinstance(kind, type) else kind.__name__
            raise LanguageError(
                f"{part_place(env, 'State', field)}{name}.State.{field}: use float, int or bool, "
                f"got {got}{_field_advice(field, kind)}"
            )
        fields[field] = _DTYPES[kind]
        if field in state._field_defaults:
            _check_default(env, field, kind, state._field_defaults[field])
    if not 1 <= len(fields) <= MAX_FIELDS:
        more = "for many numbers write class State(operant.lang.Arrays)"
        raise LanguageError(
            f"{part_place(env, 'State')}{name}.State needs 1 to {MAX_FIELDS} fields, "
            f"got {len(fields)}; {more if fields else 'write one, such as x: float'}"
        )
    return fields


def _field_advice(field: str, kind: Any) -> str:
    origin = typing.get_origin(kind) or kind
    if origin in (list, tuple, dict, set, np.ndarray):
        return (
            "; write one field for each number (x0: float, x1: float), or a state of arrays: "
            f"class State(operant.lang.Arrays) with {field} = operant.lang.float32[8]"
        )
    if origin is str:
        return "; number the cases 0, 1, 2 and use an int"
    if isinstance(kind, type) and issubclass(kind, np.generic):
        return f"; write {'int' if issubclass(kind, np.integer) else 'float'} (32 bits)"
    return ""


def _check_default(env: type[Any], field: str, kind: type[Any], value: object) -> None:
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) is kind or (kind is float and type(value) is int):
        return
    raise LanguageError(
        f"{part_place(env, 'State', field)}{env.__qualname__}.State.{field}: the default must be "
        f"{'an int' if kind is int else f'a {kind.__name__}'}, got {value!r}; leave it out: "
        "reset() gives every field its first value"
    )


class Recorder:
    """Records the functions of one environment class at fixed parameters."""

    def __init__(self, env: type[Any], params: Any) -> None:
        self.env = env
        self.params = params
        hints = typing.get_type_hints(env.Params)
        self.float_params = tuple(name for name, kind in hints.items() if kind is float)
        self.fields = state_fields(env)
        self.observation = observation_layout(space_of(env, "observation_space", params), env)
        self.action = action_layout(space_of(env, "action_space", params), env)
        self.masked = getattr(env, "action_mask", None) is not None
        for name in _ARGUMENTS:
            if name != "action_mask" or self.masked:
                _check_arguments(env, name)

    def programs(self) -> dict[str, Program]:
        """The recorded functions by name; without an action_mask, none of that name."""
        programs = {"reset": self._reset(), "step": self._step(), "observe": self._observe()}
        return programs | {"action_mask": self._action_mask()} if self.masked else programs

    def _inputs(self, program: Program, *groups: str) -> dict[str, Any]:
        """Symbols for the function's arguments, declared as the program's inputs in order."""
        values: dict[str, Any] = {}
        if "state" in groups:
            values["state"] = self.env.State(
                *[program.input(f"s_{name}", dtype) for name, dtype in self.fields.items()]
            )
        if "action" in groups:
            actions = [program.input(f"a_{k}", self.action.dtype) for k in range(self.action.size)]
            more = f"the action_space is {self.action.space}"
            several = Several.of("action", actions, more)
            values["action"] = actions[0] if self.action.scalar else several
        if "random" in groups:
            numbers = [program.input(f"u_{k}", FLOAT) for k in range(self.env.random_numbers)]
            more = "write random_numbers = {count} in the class for more"
            values["random"] = Several.of("random", numbers, more)
        values["params"] = self.params._replace(
            **{name: program.input(f"p_{name}", FLOAT) for name in self.float_params}
        )
        return values

    def _run(self, name: str, inputs: dict[str, Any]) -> Any:
        function = getattr(self.env, name)
        file, _, first = place(function).rpartition(":")
        try:
            with recording(file):
                return call(function, **inputs)
        except LanguageError:
            raise
        except Exception as error:
            refusal = hidden_refusal(error)
            if refusal is not None:
                raise refusal from None
            at, said = explain(error, self.env, file)
            raise LanguageError(f"{at or f'{file}:{first}'}: {said}") from error

    def _output(self, program: Program, name: str, what: str, value: Any, dtype: str) -> None:
        """Add one output, converted from int to float where that loses nothing."""
        article = "an" if dtype == INT else "a"
        wanted = f"{name}() must give {article} {dtype} for {what}"
        if isinstance(value, tuple | list):
            one = f"one {dtype}, not {len(value)} values"
            raise self._returns(name, f"{wanted}, got {described(value)}; give {one}")
        try:
            symbol = as_symbol(program, value)
        except LanguageError as error:
            message = str(error).partition(": ")[2]  # after the place, which is here
            raise self._returns(name, f"{wanted}; {message}") from None
        if symbol.dtype == INT and dtype == FLOAT:
            symbol = cast(symbol, FLOAT)
        if symbol.dtype != dtype:
            advice = {FLOAT: "to_float(x)", INT: "to_int(x)", BOOL: "a comparison: x != 0"}[dtype]
            raise self._returns(name, f"{wanted}, got {described(symbol)}; write {advice}")
        program.outputs.append(symbol.index)

    def _returns(self, name: str, message: str) -> LanguageError:
        """The refusal of what a function returned."""
        return LanguageError(f"{return_place(getattr(self.env, name))}: {message}")

    def _state_outputs(self, program: Program, name: str, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != len(self.fields):
            fields = ", ".join(self.fields)
            raise self._returns(
                name,
                f"{name}() must return {self.env.__qualname__}.State({fields})"
                f"{', reward, terminated' if name == 'step' else ''}; got "
                f"{self._got(state)}{' for the state' if name == 'step' else ''}",
            )
        for (field, dtype), value in zip(self.fields.items(), state, strict=True):
            self._output(program, name, f"State.{field}", value, dtype)

    def _got(self, value: Any) -> str:
        """What a function returned, and a word on what it may come from."""
        if value is None:
            return "nothing: a `return` is missing"
        if inspect.isgenerator(value) or inspect.iscoroutine(value):
            value.close()
            return "a generator or coroutine: write a plain function, without yield and async"
        if isinstance(value, list):
            return f"{described(value)}, a list; write a tuple, without the brackets"
        last = value[-1] if isinstance(value, tuple) and value else None
        if isinstance(last, dict):
            return f"{described(value)}: leave out the info of Gymnasium's functions"
        return described(value)

    def _reset(self) -> Program:
        program = Program()
        self._state_outputs(program, "reset", self._run("reset", self._inputs(program, "random")))
        return program

    def _step(self) -> Program:
        program = Program()
        groups = ["state", "action"] + ["random"] * ("random" in arguments(self.env.step))
        result = self._run("step", self._inputs(program, *groups))
        plain = isinstance(result, tuple) and not isinstance(result, self.env.State)
        if not plain or len(result) != 3:
            got = self._got(result)
            if plain:
                got = f"{len(result)}: {got}"
                if len(result) > 3:
                    got += "; the library truncates episodes itself, at max_episode_steps"
            raise self._returns(
                "step", f"step() must return three values, (State, reward, terminated); got {got}"
            )
        state, reward, terminated = result
        self._state_outputs(program, "step", state)
        if _dtype(reward) == BOOL and _dtype(terminated) != BOOL:
            raise self._returns(
                "step", "reward and terminated are swapped: return State, reward, terminated"
            )
        self._output(program, "step", "the reward", reward, FLOAT)
        self._output(program, "step", "terminated", terminated, BOOL)
        return program

    def _observe(self) -> Program:
        program = Program()
        values = self._run("observe", self._inputs(program, "state"))
        size, space = self.observation.size, self.observation.space
        if self.observation.scalar:
            values = (values,)
        if not isinstance(values, tuple | list) or len(values) != size:
            numbers = f"{size} number{'s' * (size != 1)}"
            several = isinstance(values, tuple | list)
            got = f"{len(values)}" if several else self._got(values)
            if several and len(self.observation.shape) == 1 and self.observation.dtype == FLOAT:
                got += f"; write Box(low, high, ({len(values)},)), or return {size}"
            if isinstance(values, dict):
                got += "; return the numbers side by side: (a, b)"
            if size == 1 and isinstance(values, Symbol):
                got = "a bare number; write a comma after it: return x,"
            raise self._returns(
                "observe", f"observe() must return {numbers} for {space}, got {got}"
            )
        for k, value in enumerate(values):
            self._output(program, "observe", f"component {k}", value, self.observation.dtype)
        return program

    def _action_mask(self) -> Program:
        program = Program()
        if self.action.dtype != INT:
            raise LanguageError(
                f"{place(self.env.action_mask)}: action_mask() chooses among the actions of a "
                f"Discrete, MultiDiscrete or MultiBinary action_space, got {self.action.space}"
            )
        names = [
            f"action {self.action.low[component] + k}"
            + ("" if self.action.scalar else f" of component {component}")
            for component, count in enumerate(self.action.choices)
            for k in range(count)
        ]
        values = self._run("action_mask", self._inputs(program, "state"))
        if not isinstance(values, tuple | list) or len(values) != len(names):
            got = len(values) if isinstance(values, tuple | list) else self._got(values)
            raise self._returns(
                "action_mask",
                f"action_mask() must return {len(names)} truth values, one for each "
                f"action of {self.action.space}, got {got}",
            )
        for name, value in zip(names, values, strict=True):
            self._output(program, "action_mask", name, value, BOOL)
        return program


def _dtype(value: object) -> str | None:
    if isinstance(value, Symbol):
        return value.dtype
    return BOOL if isinstance(value, bool | np.bool_) else None


def _check_arguments(env: type[Any], name: str) -> None:
    function: Callable[..., Any] = getattr(env, name)
    allowed = _ARGUMENTS[name]
    for argument in arguments(function):
        if argument in allowed:
            continue
        advice = nearest(argument, allowed)
        if not advice:
            advice = f"; write def {name}({', '.join(allowed)}), or fewer"
        if argument in ("self", "cls"):
            advice = f"; it is no method, so write def {name}({', '.join(allowed)}), or fewer"
        raise LanguageError(
            f"{place(function)}: {name}() takes any of {', '.join(allowed)}; "
            f"got the argument {argument!r}{advice}"
        )
