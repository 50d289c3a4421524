"""The configuration of a training run: frozen records, one comment a field, checked when made.

``Config`` has four sections, which are the tables of a TOML file: ``env``, ``policy``, ``ppo``,
``run``.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, get_type_hints

from operant.models.names import ACTIVATION_NAMES, LOG_STD_RANGE
from operant.ppo.advice import ALIASES, known_as

SCHEDULES = ("constant", "linear", "cosine")
ENGINES = ("auto", "eager", "graph", "fused")
COMPILE = ("auto", "off", "on", "max")
PRECISIONS = ("auto", "fp32", "tf32", "bf16", "fp16")
IMPLEMENTATIONS = ("auto", "reference", "native")
BACKENDS = ("auto", "reference", "cpu", "cuda", "native")
_PARAMS = "env.params."


def option(
    default: Any,
    help: str,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A field with its help text and the values it may have."""
    limits = {"help": help, "least": least, "most": most, "above": above, "choices": choices}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=limits)
    return field(default=default, metadata=limits)


class _Checked:
    """Checks types and limits of a dataclass's fields when one is made."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for one in dataclasses.fields(self):  # type: ignore[arg-type]
            name = f"{_SECTION_OF[type(self)]}.{one.name}"
            value = _converted(name, getattr(self, one.name), hints[one.name])
            _check_limits(name, value, one.metadata)
            object.__setattr__(self, one.name, value)


@dataclass(frozen=True)
class EnvConfig(_Checked):
    """Which environment, and how many."""

    id: str = option("", "environment: an id, file.py:Class or libgame.so")
    num_envs: int = option(64, "environments that step together", least=1)
    backend: str = option("auto", "what runs them", choices=BACKENDS)
    impl: str = option(
        "auto", "reference: plain Python; native: compiled, on any backend", choices=IMPLEMENTATIONS
    )
    workers: int = option(1, "threads that step them", least=1)
    max_episode_steps: int = option(0, "truncate after so many; 0: the environment's own", least=0)
    params: Mapping[str, Any] = option({}, "parameters of the environment")


@dataclass(frozen=True)
class PolicyConfig(_Checked):
    """The networks."""

    hidden: tuple[int, ...] = option((64, 64), "sizes of the hidden layers", least=1)
    activation: str = option("tanh", "after each hidden layer", choices=ACTIVATION_NAMES)
    shared: bool = option(False, "one trunk for actor and critic")
    normalize_obs: bool = option(True, "normalise Box observations by running statistics")
    log_std: float = option(
        0.0,
        "Box actions: log of the standard deviation at the start",
        least=LOG_STD_RANGE[0],
        most=LOG_STD_RANGE[1],
    )
    squash: bool = option(False, "Box actions: tanh onto the bounds instead of clipping")


@dataclass(frozen=True)
class PPOConfig(_Checked):
    """The algorithm.

    The defaults were chosen by what they reach in a million steps on environments without a
    configuration of their own; `benchmarks/defaults.py` repeats the table of docs/training.md.
    """

    num_steps: int = option(64, "steps of each environment in a rollout", least=1)
    epochs: int = option(4, "passes over a rollout", least=1, most=2**16 - 1)
    minibatches: int = option(8, "updates in a pass", least=1)
    learning_rate: float = option(2e-3, "Adam's step size", above=0.0)
    learning_rate_schedule: str = option("linear", "towards 0 at the end", choices=SCHEDULES)
    gamma: float = option(0.99, "discount", least=0.0, most=1.0)
    gae_lambda: float = option(0.95, "decay of the advantage's trace", least=0.0, most=1.0)
    clip: float = option(0.2, "how far the probability ratio counts", above=0.0)
    clip_schedule: str = option("constant", "towards 0 at the end", choices=SCHEDULES)
    value_clip: float = option(0.0, "how far a value may move in an update; 0: any", least=0.0)
    value_coef: float = option(0.5, "weight of the value loss", least=0.0)
    entropy_coef: float = option(0.01, "weight of the entropy bonus", least=0.0)
    max_grad_norm: float = option(0.5, "gradients are scaled down to this; 0: never", least=0.0)
    normalize_advantage: bool = option(True, "per minibatch: mean 0, deviation 1")
    normalize_reward: bool = option(True, "divide rewards by the running deviation of returns")
    target_kl: float = option(0.0, "no further pass once the policy moved so far; 0: off", least=0)
    adam_eps: float = option(1e-5, "Adam's epsilon", above=0.0)


@dataclass(frozen=True)
class RunConfig(_Checked):
    """How long, where, and what is kept."""

    total_steps: int = option(1_000_000, "environment steps in all", least=1)
    seed: int = option(0, "the same seed gives the same run", least=0, most=2**63 - 1)
    device: str = option("auto", "auto, cpu, cuda or cuda:N")
    engine: str = option("auto", "how the loop is executed", choices=ENGINES)
    precision: str = option(
        "auto", "of the networks on a GPU: what the engine prefers, or one", choices=PRECISIONS
    )
    compile: str = option(
        "auto", "torch.compile in the engine graph: off, on, max, or what pays", choices=COMPILE
    )
    threads: int = option(
        0, "threads that train on a CPU; 0: as many as prove fastest", least=0, most=1024
    )
    checkpoint_seconds: float = option(
        30.0, "time between checkpoints; 0: after each iteration", least=0.0
    )
    keep: int = option(3, "checkpoints kept, besides the best", least=1)
    eval_episodes: int = option(100, "episodes of an evaluation; 0: none at the end", least=0)
    eval_every: int = option(0, "steps between evaluations while training; 0: never", least=0)
    nan_guard: bool = option(True, "stop at the first number that is not finite")
    tensorboard: bool = option(False, "also write TensorBoard events")
    wandb: bool = option(False, "also log to Weights & Biases")


@dataclass(frozen=True)
class Config:
    """Everything a run depends on."""

    env: EnvConfig = field(default_factory=EnvConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        batch = self.env.num_envs * self.ppo.num_steps
        if batch > 2**31:
            raise ValueError(
                f"a rollout of env.num_envs {self.env.num_envs} x ppo.num_steps "
                f"{self.ppo.num_steps} samples is too large; 2**31 is the most"
            )
        if batch < self.ppo.minibatches:
            raise ValueError(
                f"ppo.minibatches is {self.ppo.minibatches}, but a rollout has only {batch} "
                f"samples (env.num_envs {self.env.num_envs} x ppo.num_steps {self.ppo.num_steps})"
            )
        impl, backend = self.env.impl, self.env.backend
        if "auto" not in (impl, backend) and (impl == "reference") != (backend == "reference"):
            raise ValueError(
                f"env.impl is {impl!r}, but env.backend is {backend!r}: leave one of them 'auto'"
            )

    def replaced(self, values: Mapping[str, Any]) -> Config:
        """A copy with values replaced by dotted name, such as ``{"ppo.clip": 0.1}``.

        ``"env.params"`` replaces all parameters of the environment, ``"env.params.gravity"`` one.

        Raises:
            ValueError: an unknown name (the message has the nearest one), or a bad value.
        """
        return dataclasses.replace(self, **self.replaced_sections(values))

    def replaced_sections(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The sections that `replaced` would change, by name; it alone checks that they agree.

        Raises:
            ValueError: see `replaced`.
        """
        changed: dict[str, dict[str, Any]] = {}
        params: dict[str, Any] = {}
        for name, value in values.items():
            section, key = _known(name)
            if name.startswith(_PARAMS):
                params[name.removeprefix(_PARAMS)] = value
            else:
                changed.setdefault(section, {})[key] = value
        if params:
            env = changed.setdefault("env", {})
            whole = _converted("env.params", env.get("params", self.env.params), Mapping)
            env["params"] = {**whole, **params}
        return {
            section: dataclasses.replace(getattr(self, section), **new)
            for section, new in changed.items()
        }

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Plain numbers, strings, lists and dicts, by section."""
        return {
            section: {
                one.name: _plain(getattr(getattr(self, section), one.name))
                for one in dataclasses.fields(SECTIONS[section])
            }
            for section in SECTIONS
        }

    @classmethod
    def from_dict(cls, tables: Mapping[str, Any]) -> Config:
        """The configuration of nested tables, as a TOML file has them; what is missing has its
        default.

        Raises:
            ValueError: an unknown name or a bad value.
        """
        return cls().replaced(flattened(tables))


SECTIONS: dict[str, type] = {
    "env": EnvConfig,
    "policy": PolicyConfig,
    "ppo": PPOConfig,
    "run": RunConfig,
}
_SECTION_OF = {cls: name for name, cls in SECTIONS.items()}


def option_names() -> dict[str, str]:
    """Every dotted name and its help text."""
    return {
        f"{section}.{one.name}": one.metadata["help"]
        for section, cls in SECTIONS.items()
        for one in dataclasses.fields(cls)
    }


def dotted_name(key: str) -> str:
    """The dotted name of a field, from that or from its last part alone (these are unique).

    ``env.params.NAME`` is a name too, whatever NAME is: only the environment knows. A name of
    `ALIASES` is accepted with a warning.

    Raises:
        ValueError: unknown; the message has what it is called here, or the nearest one.
    """
    names = option_names()
    if key in names or (key.startswith(_PARAMS) and key != _PARAMS):
        return key
    for name in names:
        if name.partition(".")[2] == key:
            return name
    if key in ALIASES:
        warnings.warn(f"{key} is called {ALIASES[key]} here", stacklevel=2)
        return ALIASES[key]
    elsewhere = known_as(key)
    if elsewhere is not None:
        raise ValueError(f"there is no option {key!r}; {elsewhere}")
    short = {name.partition(".")[2]: name for name in names}
    near = difflib.get_close_matches(key, [*names, *short], 1, 0.5) or difflib.get_close_matches(
        key.rpartition(".")[2], list(short), 1, 0.5
    )
    if near:
        raise ValueError(f"there is no option {key!r}; did you mean {short.get(near[0], near[0])}?")
    raise ValueError(f"there is no option {key!r}; `operant config ENV` lists them all")


def flattened(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted name.

    Raises:
        ValueError: a section that does not exist or is not a table.
    """
    values: dict[str, Any] = {}
    for section, table in tables.items():
        if section not in SECTIONS:
            if not isinstance(table, Mapping):
                name = dotted_name(section)  # unknown: raises, and names what was meant
                raise ValueError(f"{section!r} belongs in a section: [{name.partition('.')[0]}]")
            near = difflib.get_close_matches(section, SECTIONS, 1, 0.5)
            hint = f"did you mean [{near[0]}]?" if near else f"known: {', '.join(SECTIONS)}"
            raise ValueError(f"there is no section [{section}]; {hint}")
        if not isinstance(table, Mapping):
            raise ValueError(f"[{section}] must be a section, got {table!r}")
        for key, value in table.items():
            values[f"{section}.{key}"] = value
    return values


def _known(name: str) -> tuple[str, str]:
    full = dotted_name(name)
    if full != name:  # a bare name, where a dotted one is expected
        raise ValueError(f"there is no option {name!r}; did you mean {full}?")
    section, _, key = full.partition(".")
    return section, key


def _converted(name: str, value: Any, kind: Any) -> Any:
    """`value` as the field's type; whole floats are ints where an int is wanted."""
    if kind is bool:
        if isinstance(value, bool):
            return value
        raise ValueError(f"{name} must be true or false, got {value!r}")
    if kind is str:
        return _text(name, value)
    if kind is int:
        return _whole(name, value)
    if kind is float:
        number = _number(value)
        if number is not None and math.isfinite(number):
            return float(number)
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    if kind == tuple[int, ...]:
        if isinstance(value, list | tuple):
            return tuple(_whole(name, item) for item in value)
        raise ValueError(f"{name} must be a list of integers, got {value!r}")
    if not isinstance(value, Mapping) or not all(isinstance(key, str) and key for key in value):
        raise ValueError(f"{name} must be a table of parameters, got {value!r}")
    return {
        _text(f"{name}: a name", key): _parameter(f"{name}.{key}", item)
        for key, item in value.items()
    }


def _number(value: Any) -> int | float | None:
    """A real number as Python's own int or float, so that it is written as such; None if it is not
    one, or an integer that no float holds."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return int(value) if isinstance(value, Integral) else number


def _whole(name: str, value: Any) -> int:
    number = _number(value)
    if isinstance(number, int) or (number is not None and number.is_integer()):
        whole = int(number)
        if -(2**63) <= whole < 2**63:
            return whole
        raise ValueError(f"{name} must have at most 64 bits, got {value!r}")
    raise ValueError(f"{name} must be an integer, got {value!r}")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {value!r}")
    try:
        return value.encode().decode()  # a plain str, also from a subclass
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be Unicode text, got {value!r}") from None


def _parameter(name: str, value: Any) -> bool | int | float | str:
    """A parameter of an environment. Infinity may be one, NaN cannot: it equals nothing."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(name, value)
    number = _number(value)
    if isinstance(number, int):
        return _whole(name, number)
    if number is None or math.isnan(number):
        raise ValueError(f"{name} must be a number, a string or a flag, got {value!r}")
    return number


def _check_limits(name: str, value: Any, limits: Mapping[str, Any]) -> None:
    if limits["choices"] and value not in limits["choices"]:
        near = difflib.get_close_matches(value, limits["choices"], 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"{name} must be one of {', '.join(limits['choices'])}, got {value!r}{hint}"
        )
    for one in value if isinstance(value, tuple) else (value,):
        if limits["least"] is not None and one < limits["least"]:
            raise ValueError(f"{name} must be at least {limits['least']}, got {one}")
        if limits["most"] is not None and one > limits["most"]:
            raise ValueError(f"{name} must be at most {limits['most']}, got {one}")
        if limits["above"] is not None and one <= limits["above"]:
            raise ValueError(f"{name} must be above {limits['above']:g}, got {one}")


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value
