"""The rules of an environment, recorded: what every compiled backend starts from."""

from __future__ import annotations

import difflib
import inspect
import math
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from gymnasium import spaces

from operant.lang.advice import LanguageError
from operant.lang.trace import BOOL, FLOAT, INT, Program, as_symbol, cast

_DTYPES = {float: FLOAT, int: INT, bool: BOOL}
NUMPY_DTYPES: dict[str, Any] = {FLOAT: np.float32, INT: np.int32, BOOL: np.bool_}
MAX_FIELDS = 100
_MAX_RANDOM = 64
_MAX_FLOAT = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Layout:
    """How a space's values are laid out in a batch buffer of shape ``[num_envs, *shape]``.

    `dtype` is "float" or "int". `scalar` says that one bare number stands for a value, not a tuple.
    For integer actions the component k must lie in ``low[k] <= value < high[k]``.
    """

    space: spaces.Space[Any]
    dtype: str
    shape: tuple[int, ...]
    scalar: bool
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Numbers in one value."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Rules:
    """An environment class with its parameters fixed, checked and recorded.

    `reset`, `step` and `observe` are programs over the inputs ``s_<field>``, ``a<k>``, ``u<k>`` and
    ``p_<parameter>``; outputs are the state's fields, then for `step` the reward and the
    termination flag, and for `observe` the observation's components.
    """

    env: type[Any]
    params: Any
    float_params: tuple[str, ...]
    fields: dict[str, str]
    observation: Layout
    action: Layout
    reset: Program
    step: Program
    observe: Program

    @classmethod
    def of(cls, env: type[Any], overrides: Mapping[str, Any] | None = None) -> Rules:
        """Check and record `env`.

        Raises:
            LanguageError: a function does what cannot be compiled.
            TypeError: a parameter is unknown or of the wrong type, or the definition is incomplete.
        """
        params = resolve_params(env, overrides or {})
        with _name_bound(env):
            recorder = _Recorder(env, params)
            programs = [recorder.programs(), recorder.programs()]
        for name, first, second in zip(("reset", "step", "observe"), *programs, strict=True):
            if first.signature() != second.signature():
                raise LanguageError(
                    f"{_place(getattr(env, name))}: {name}() gives another program each time it is "
                    "called; it must not keep or draw anything (use `random`)"
                )
        reset, step, observe = programs[0]
        return cls(
            env,
            params,
            recorder.float_params,
            recorder.fields,
            recorder.observation,
            recorder.action,
            reset,
            step,
            observe,
        )

    @property
    def step_draws(self) -> int:
        """Uniform numbers each step consumes: 0 unless ``step`` takes ``random``."""
        return self.env.random_numbers if "random" in _arguments(self.env.step) else 0

    def param_values(self) -> np.ndarray:
        """The float parameters as a float32 array, in the order of `float_params`."""
        return np.array([getattr(self.params, name) for name in self.float_params], np.float32)


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
    names = ("reset", "step", "observe", "observation_space", "action_space")
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


def space_of(env: type[Any], attribute: str, params: Any) -> spaces.Space[Any]:
    """The environment's observation or action space at these parameters."""
    space = getattr(env, attribute)
    if not isinstance(space, spaces.Space) and callable(space):
        space = space(params)
    if not isinstance(space, spaces.Space):
        raise TypeError(
            f"{env.__qualname__}.{attribute} must be a gymnasium space, or a function of the "
            f"parameters that returns one, got {space!r}"
        )
    return space


def observation_layout(space: spaces.Space[Any], env: type[Any]) -> Layout:
    """The layout of an observation space: Box of float32, Discrete or MultiDiscrete."""
    match space:
        case spaces.Box(dtype=np.float32):
            return Layout(space, FLOAT, space.shape, scalar=space.shape == ())
        case spaces.Discrete():
            return Layout(space, INT, (), scalar=True)
        case spaces.MultiDiscrete():
            return Layout(space, INT, space.shape, scalar=False)
    raise TypeError(
        f"{env.__qualname__}.observation_space must be a float32 Box, a Discrete or a "
        f"MultiDiscrete, got {space}"
    )


def action_layout(space: spaces.Space[Any], env: type[Any]) -> Layout:
    """The layout of an action space: Discrete, MultiDiscrete, MultiBinary or a Box of float32."""
    match space:
        case spaces.Discrete():
            low = int(space.start)
            return Layout(space, INT, (), True, (low,), (low + int(space.n),))
        case spaces.MultiDiscrete():
            lows = tuple(int(v) for v in np.ravel(space.start))
            sizes = [int(n) for n in np.ravel(space.nvec)]
            highs = tuple(low + n for low, n in zip(lows, sizes, strict=True))
            return Layout(space, INT, space.shape, False, lows, highs)
        case spaces.MultiBinary():
            size = math.prod(space.shape)
            return Layout(space, INT, space.shape, False, (0,) * size, (2,) * size)
        case spaces.Box(dtype=np.float32):
            return Layout(space, FLOAT, space.shape, scalar=space.shape == ())
    raise TypeError(
        f"{env.__qualname__}.action_space must be a Discrete, MultiDiscrete, MultiBinary or "
        f"float32 Box, got {space}"
    )


def _is_named_tuple(value: object) -> TypeGuard[type[Any]]:
    return isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields")


class _Recorder:
    """Records the three functions of one environment class at fixed parameters."""

    def __init__(self, env: type[Any], params: Any) -> None:
        self.env = env
        self.params = params
        hints = typing.get_type_hints(env.Params)
        self.float_params = tuple(name for name, kind in hints.items() if kind is float)
        self.fields = self._state_fields()
        self.observation = observation_layout(space_of(env, "observation_space", params), env)
        self.action = action_layout(space_of(env, "action_space", params), env)
        for name, allowed in (
            ("reset", ("random", "params")),
            ("step", ("state", "action", "random", "params")),
            ("observe", ("state", "params")),
        ):
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

    def programs(self) -> tuple[Program, Program, Program]:
        return self._reset(), self._step(), self._observe()

    def _inputs(self, program: Program, *groups: str) -> dict[str, Any]:
        """Symbols for the function's arguments, declared as the program's inputs in order."""
        values: dict[str, Any] = {}
        if "state" in groups:
            values["state"] = self.env.State(
                *[program.input(f"s_{name}", dtype) for name, dtype in self.fields.items()]
            )
        if "action" in groups:
            actions = [program.input(f"a{k}", self.action.dtype) for k in range(self.action.size)]
            values["action"] = actions[0] if self.action.scalar else tuple(actions)
        if "random" in groups:
            values["random"] = tuple(
                program.input(f"u{k}", FLOAT) for k in range(self.env.random_numbers)
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
