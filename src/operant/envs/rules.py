"""The rules of an environment, recorded: what every compiled backend starts from."""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from operant.envs.layouts import Layout, action_layout, observation_layout, space_of
from operant.lang.advice import LanguageError
from operant.lang.arrays import Arrays
from operant.lang.trace import BOOL, FLOAT, INT, Program, as_symbol, cast

_DTYPES = {float: FLOAT, int: INT, bool: BOOL}
NUMPY_DTYPES: dict[str, Any] = {FLOAT: np.float32, INT: np.int32, BOOL: np.bool_}
MAX_FIELDS = 100
_MAX_RANDOM = 64
_ARGUMENTS = {
    "reset": ("random", "params"),
    "step": ("state", "action", "random", "params"),
    "observe": ("state", "params"),
    "action_mask": ("state", "params"),
}
_MAX_FLOAT = float(np.finfo(np.float32).max)


class Memory(NamedTuple):
    """What a field of the state takes for one environment."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rules:
    """An environment class with its parameters fixed, and checked: what a backend starts from.

    `TracedRules` for a state of numbers, `operant.envs.array_rules.ArrayRules` for one of arrays,
    `operant.envs.native_rules.NativeRules` for a compiled library.
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
        state = getattr(env, "State", None)
        if hasattr(env, "native_library"):
            from operant.envs.native_rules import NativeRules

            return NativeRules.read(env, overrides or {})
        if isinstance(state, type) and issubclass(state, Arrays):
            from operant.envs.array_rules import ArrayRules

            return ArrayRules.read(env, overrides or {})
        return TracedRules.record(env, overrides or {})

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
        with _name_bound(env):
            recorder = _Recorder(env, params)
            programs, again = recorder.programs(), recorder.programs()
        for name, program in programs.items():
            if program.signature() != again[name].signature():
                raise LanguageError(
                    f"{_place(getattr(env, name))}: {name}() gives another program each time it is "
                    "called; it must not keep or draw anything (use `random`)"
                )
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
        return self.env.random_numbers if "random" in _arguments(self.env.step) else 0


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


def call(function: Callable[..., Any], **available: Any) -> Any:
    """Call an author's function with those of the available arguments that it names."""
    return function(**{name: available[name] for name in _arguments(function)})


def _arguments(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


@contextmanager
def _name_bound(env: type[Any]) -> Iterator[None]:
    """Let the functions say ``MyEnv.State`` although the class statement has not ended yet.

    Python binds a class's name after its body and ``__init_subclass__`` have run. Until then the
    name is missing from the module, or the cell of a class made inside a function is empty.
    """
    missing = object()
    name = env.__name__
    places = {id(f.__globals__): f.__globals__ for f in _functions(env)}.values()
    before = [namespace.get(name, missing) for namespace in places]
    for function in _functions(env):
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        if name in cells:
            cells[name].cell_contents = env
    for namespace in places:
        namespace[name] = env
    try:
        yield
    finally:
        for namespace, old in zip(places, before, strict=True):
            if old is missing:
                del namespace[name]
            else:
                namespace[name] = old


def _functions(env: type[Any]) -> list[Any]:
    names = ("reset", "step", "observe", "action_mask", "observation_space", "action_space")
    values: list[Any] = [getattr(env, name, None) for name in names]
    return [value for value in map(inspect.unwrap, values) if hasattr(value, "__globals__")]


def _place(function: Callable[..., Any]) -> str:
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def resolve_params(env: type[Any], overrides: Mapping[str, Any]) -> Any:
    """The environment's parameters with `overrides` put in, each of the declared type."""
    if not _is_named_tuple(env.Params):
        raise TypeError(f"{env.__qualname__}.Params must be a NamedTuple, got {env.Params!r}")
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
    except TypeError as error:
        raise TypeError(
            f"{env.__qualname__}.Params needs a default for each field: {error}"
        ) from None
    values = {
        name: _checked(env, name, kind, getattr(params, name)) for name, kind in hints.items()
    }
    return env.Params(**values)


def _checked(env: type[Any], name: str, kind: Any, value: Any) -> Any:
    if kind not in (float, int, bool, str):
        raise TypeError(
            f"{env.__qualname__}.Params.{name}: use float, int, bool or str, got {kind}"
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


def _is_named_tuple(value: object) -> TypeGuard[type[Any]]:
    return isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields")


class _Recorder:
    """Records the functions of one environment class at fixed parameters."""

    def __init__(self, env: type[Any], params: Any) -> None:
        self.env = env
        self.params = params
        hints = typing.get_type_hints(env.Params)
        self.float_params = tuple(name for name, kind in hints.items() if kind is float)
        self.fields = self._state_fields()
        self.observation = observation_layout(space_of(env, "observation_space", params), env)
        self.action = action_layout(space_of(env, "action_space", params), env)
        self.masked = getattr(env, "action_mask", None) is not None
        for name, allowed in _ARGUMENTS.items():
            if name == "action_mask" and not self.masked:
                continue
            for argument in _arguments(getattr(env, name)):
                if argument not in allowed:
                    raise LanguageError(
                        f"{_place(getattr(env, name))}: {name}() takes any of "
                        f"{', '.join(allowed)}; got the argument {argument!r}"
                    )
        if not 0 <= env.random_numbers <= _MAX_RANDOM:
            raise TypeError(
                f"{env.__qualname__}.random_numbers must be 0 to {_MAX_RANDOM}, "
                f"got {env.random_numbers}"
            )
        limit = env.max_episode_steps
        if limit is not None and (not isinstance(limit, int) or limit < 1):
            raise TypeError(
                f"{env.__qualname__}.max_episode_steps must be at least 1, got {limit!r}"
            )

    def _state_fields(self) -> dict[str, str]:
        state = getattr(self.env, "State", None)
        if not _is_named_tuple(state):
            raise TypeError(f"{self.env.__qualname__}.State must be a NamedTuple, got {state!r}")
        fields = {}
        for name, kind in typing.get_type_hints(state).items():
            if kind not in _DTYPES:
                raise TypeError(
                    f"{self.env.__qualname__}.State.{name}: use float, int or bool, got {kind}"
                )
            fields[name] = _DTYPES[kind]
        if not 1 <= len(fields) <= MAX_FIELDS:
            raise TypeError(
                f"{self.env.__qualname__}.State needs 1 to {MAX_FIELDS} fields, got {len(fields)}"
            )
        return fields

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
            values["action"] = actions[0] if self.action.scalar else tuple(actions)
        if "random" in groups:
            values["random"] = tuple(
                program.input(f"u_{k}", FLOAT) for k in range(self.env.random_numbers)
            )
        values["params"] = self.params._replace(
            **{name: program.input(f"p_{name}", FLOAT) for name in self.float_params}
        )
        return values

    def _run(self, name: str, inputs: dict[str, Any]) -> Any:
        function = getattr(self.env, name)
        try:
            return call(function, **inputs)
        except LanguageError:
            raise
        except Exception as error:
            place = _place(function)
            trace = error.__traceback__
            while trace is not None:  # the innermost line of the author's own file
                if trace.tb_frame.f_code.co_filename == place.rpartition(":")[0]:
                    place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
                trace = trace.tb_next
            hint = ""
            if isinstance(error, NameError):
                hint = " (the functions run when the class is defined: put helpers above it)"
            if "unpack" in str(error) and "random" in inputs:
                hint = f" (random holds random_numbers = {self.env.random_numbers} numbers)"
            raise LanguageError(f"{place}: {type(error).__name__}: {error}{hint}") from error

    def _output(self, program: Program, name: str, what: str, value: Any, dtype: str) -> None:
        """Add one output, converted from int to float where that loses nothing."""
        try:
            symbol = as_symbol(program, value)
        except LanguageError as error:
            message = str(error).partition(": ")[2]  # after the place, which is here
            raise LanguageError(
                f"{_place(getattr(self.env, name))}: {name}() must give a {dtype} for {what}; "
                f"{message}"
            ) from None
        if symbol.dtype == INT and dtype == FLOAT:
            symbol = cast(symbol, FLOAT)
        if symbol.dtype != dtype:
            advice = {FLOAT: "to_float(x)", INT: "to_int(x)", BOOL: "a comparison"}[dtype]
            raise LanguageError(
                f"{_place(getattr(self.env, name))}: {name}() must give a {dtype} for {what}, "
                f"got a {symbol.dtype}; write {advice}"
            )
        program.outputs.append(symbol.index)

    def _state_outputs(self, program: Program, name: str, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != len(self.fields):
            raise LanguageError(
                f"{_place(getattr(self.env, name))}: {name}() must return "
                f"{self.env.__qualname__}.State with {len(self.fields)} fields, got {state!r}"
            )
        for (field, dtype), value in zip(self.fields.items(), state, strict=True):
            self._output(program, name, f"State.{field}", value, dtype)

    def _reset(self) -> Program:
        program = Program()
        self._state_outputs(program, "reset", self._run("reset", self._inputs(program, "random")))
        return program

    def _step(self) -> Program:
        program = Program()
        groups = ["state", "action"] + ["random"] * ("random" in _arguments(self.env.step))
        result = self._run("step", self._inputs(program, *groups))
        if not isinstance(result, tuple) or len(result) != 3:
            raise LanguageError(
                f"{_place(self.env.step)}: step() must return (State, reward, terminated), "
                f"got {result!r}"
            )
        state, reward, terminated = result
        self._state_outputs(program, "step", state)
        self._output(program, "step", "the reward", reward, FLOAT)
        self._output(program, "step", "terminated", terminated, BOOL)
        return program

    def _observe(self) -> Program:
        program = Program()
        values = self._run("observe", self._inputs(program, "state"))
        if self.observation.scalar:
            values = (values,)
        if not isinstance(values, tuple | list) or len(values) != self.observation.size:
            got = len(values) if isinstance(values, tuple | list) else repr(values)
            raise LanguageError(
                f"{_place(self.env.observe)}: observe() must return {self.observation.size} "
                f"components for {self.observation.space}, got {got}"
            )
        for k, value in enumerate(values):
            self._output(program, "observe", f"component {k}", value, self.observation.dtype)
        return program

    def _action_mask(self) -> Program:
        program = Program()
        place = _place(self.env.action_mask)
        if self.action.dtype != INT:
            raise LanguageError(
                f"{place}: action_mask() chooses among the actions of a Discrete, MultiDiscrete or "
                f"MultiBinary action_space, got {self.action.space}"
            )
        names = [
            f"action {self.action.low[component] + k}"
            + ("" if self.action.scalar else f" of component {component}")
            for component, count in enumerate(self.action.choices)
            for k in range(count)
        ]
        values = self._run("action_mask", self._inputs(program, "state"))
        if not isinstance(values, tuple | list) or len(values) != len(names):
            got = len(values) if isinstance(values, tuple | list) else repr(values)
            raise LanguageError(
                f"{place}: action_mask() must return {len(names)} truth values, one for each "
                f"action of {self.action.space}, got {got}"
            )
        for name, value in zip(names, values, strict=True):
            self._output(program, "action_mask", name, value, BOOL)
        return program
