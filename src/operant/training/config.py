"""The configuration of a training run: frozen records, one comment a field, checked when made.

A configuration is a dataclass of sections, which are the tables of a TOML file. Those of every
algorithm are here: ``env``, ``policy``, ``run``. An algorithm or an add-on adds one of its own:

    @dataclass(frozen=True)
    class CuriosityConfig(Section, table="curiosity"):
        weight: float = option(0.1, "of the intrinsic reward", least=0.0)

    @dataclass(frozen=True)
    class Config(operant.Config):
        curiosity: CuriosityConfig = field(default_factory=CuriosityConfig)
"""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast, get_origin

from operant.models.names import (
    ACTIVATION_NAMES,
    CHANNEL_NAMES,
    IMAGE_NAMES,
    LOG_STD_RANGE,
    VALUE_HEADS,
)
from operant.training.advice import ALIASES, known_as
from operant.training.section import Section, converted, kinds_of, option

SCHEDULES = ("constant", "linear", "cosine")
MODES = ("sync", "async")
ENGINES = ("auto", "eager", "graph", "fused")
COMPILE = ("auto", "off", "on", "max")
PRECISIONS = ("auto", "fp32", "tf32", "bf16", "fp16")
IMPLEMENTATIONS = ("auto", "reference", "native")
BACKENDS = (
    *("auto", "reference", "cpu", "cuda", "native"),
    *("serial", "threads", "processes", "vector"),  # of what operant does not compile
)


@dataclass(frozen=True)
class EnvConfig(Section, table="env"):
    """Which environment, and how many."""

    elsewhere = {
        "env_id": "id",
        "env_impl": "impl",
        "env_kwargs": "params",
        "n_envs": "num_envs",
        "num_env": "num_envs",
        "num_workers": "workers",
    }

    id: str = option("", "environment: an id, file.py:name or libgame.so")
    num_envs: int = option(64, "environments that step together", least=1)
    backend: str = option("auto", "what runs them", choices=BACKENDS)
    impl: str = option(
        "auto", "reference: plain Python; native: compiled, on any backend", choices=IMPLEMENTATIONS
    )
    workers: int = option(
        0, "threads or processes that step them; 0: 1 thread, a process a core", least=0
    )
    max_episode_steps: int = option(0, "truncate after so many; 0: the environment's own", least=0)
    params: Mapping[str, Any] = option({}, "parameters of the environment")
    wrappers: tuple[str, ...] = option(
        (), "of Gymnasium, around what operant does not compile: module:Class"
    )
    frame_stack: int = option(1, "observations that are seen at once; likewise", least=1, most=1024)
    on_worker_death: str = option(
        "raise", "a killed process ends training, or begins again", choices=("raise", "restart")
    )
    step_timeout: float = option(60.0, "seconds after which a step in a process hangs", above=0.0)


@dataclass(frozen=True)
class PolicyConfig(Section, table="policy"):
    """The networks."""

    elsewhere = {
        "activation_fn": "activation",
        "hidden_sizes": "hidden",
        "net_arch": "hidden",
        "norm_obs": "normalize_obs",
        "policy_kwargs": "hidden: options of the network are options like all others: hidden, "
        "activation",
    }

    hidden: tuple[int, ...] = option((64, 64), "sizes of the hidden layers", least=1)
    activation: str = option("tanh", "after each hidden layer", choices=ACTIVATION_NAMES)
    shared: bool = option(False, "one trunk for actor and critic")
    image: str = option("auto", "what encodes images; flat: as numbers", choices=IMAGE_NAMES)
    channels: str = option("auto", "of images: first or last axis", choices=CHANNEL_NAMES)
    embedding: int = option(
        32, "numbers for a value of a Discrete with more than 1024", least=1, most=4096
    )
    normalize_obs: bool = option(True, "normalise Box observations by running statistics")
    log_std: float = option(
        0.0,
        "Box actions: log of the standard deviation at the start",
        least=LOG_STD_RANGE[0],
        most=LOG_STD_RANGE[1],
    )
    squash: bool = option(False, "Box actions: tanh onto the bounds instead of clipping")
    value_head: str = option("linear", "popart: follows the targets' scale", choices=VALUE_HEADS)


@dataclass(frozen=True)
class RunConfig(Section, table="run"):
    """How long, where, and what is kept."""

    elsewhere = {
        "max_timesteps": "total_steps",
        "n_jobs": "threads",
        "n_timesteps": "total_steps",
        "num_threads": "threads",
        "num_timesteps": "total_steps",
        "random_state": "seed",
        "tensorboard_log": "tensorboard: true or false; the events go to the run's folder",
        "timesteps": "total_steps",
        "total_timesteps": "total_steps",
    }

    total_steps: int = option(1_000_000, "environment steps in all", least=1)
    seed: int = option(0, "the same seed gives the same run", least=0, most=2**63 - 1)
    device: str = option("auto", "auto, cpu, cuda or cuda:N")
    engine: str = option("auto", "how the loop is executed", choices=ENGINES)
    mode: str = option(
        "sync", "async: collect the next rollouts while one is trained on", choices=MODES
    )
    max_lag: int = option(
        1, "async: updates that weights which act may be behind, at most", least=0, most=64
    )
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
    shards: int = option(
        0,
        "parts that the sums of all ranks are made of; 0: one a rank",
        least=0,
    )
    rank_timeout: float = option(
        300.0, "seconds after which a rank that others wait for hangs", above=0.0
    )
    nan_guard: bool = option(True, "stop at the first number that is not finite")
    tensorboard: bool = option(False, "also write TensorBoard events")
    wandb: bool = option(False, "also log to Weights & Biases")

    @property
    def rollouts(self) -> int:
        """Rollouts that there is memory for."""
        return self.max_lag + 1 if self.mode == "async" else 1


class BaseConfig:
    """Everything a run depends on: a frozen dataclass, each field a `Section` of that name."""

    env: EnvConfig
    policy: PolicyConfig
    run: RunConfig
    is_shipped: ClassVar[bool] = False
    """Whether ``training`` of environments' classes has values for this algorithm."""
    fixed: ClassVar[tuple[str, ...]] = (
        *("env.", "policy.", "run.seed", "run.shards"),
        *("run.mode", "run.max_lag"),  # rollouts may be under way
    )
    """Beginnings of the names that a run is made of: they cannot change when it is resumed."""

    def __post_init__(self) -> None:
        """Raise ValueError where sections, or options of one, contradict each other."""
        impl, backend = self.env.impl, self.env.backend
        if "auto" not in (impl, backend) and (impl == "reference") != (backend == "reference"):
            raise ValueError(
                f"env.impl is {impl!r}, but env.backend is {backend!r}: leave one of them 'auto'"
            )

    # Names ----------------------------------------------------------------------------------
    @classmethod
    def sections(cls) -> dict[str, type[Section]]:
        """The sections by name.

        Raises:
            TypeError: a field that is not a section, or a section of another name.
        """
        return _sections(cls)

    @classmethod
    def option_names(cls) -> dict[str, str]:
        """Every dotted name and its help text."""
        return {
            f"{section}.{one.name}": one.metadata["help"]
            for section, kind in cls.sections().items()
            for one in dataclasses.fields(cast(Any, kind))
        }

    @classmethod
    def elsewhere(cls) -> dict[str, str]:
        """Names of options in other libraries, and ours: dotted, a note may follow a colon."""
        return {
            theirs: f"{section}.{ours}"
            for section, kind in cls.sections().items()
            for theirs, ours in kind.elsewhere.items()
        }

    @classmethod
    def dotted_name(cls, key: str) -> str:
        """The dotted name of an option, from that or from its last part alone, if that is unique.

        ``env.params.NAME`` is a name too, whatever NAME is: only the environment knows. So is an
        entry of any other table. A name of `ALIASES` is accepted with a warning.

        Raises:
            ValueError: ambiguous (the message has all it could mean), or unknown; the message has
                what it is called here, or the nearest one.
        """
        names = cls.option_names()
        if key in names or cls.table_of(key):
            return key
        shortened = {section for section, kind in cls.sections().items() if kind.short_names}
        short = {name: name.partition(".")[2] for name in names if name.split(".")[0] in shortened}
        meant = [name for name, last in short.items() if last == key]
        if len(meant) > 1:
            raise ValueError(f"the option {key!r} could be {' or '.join(meant)}; name its section")
        if meant:
            return meant[0]
        if key in ALIASES:
            warnings.warn(f"{key} is called {ALIASES[key]} here", stacklevel=2)
            return ALIASES[key]
        theirs = known_as(key, cls.elsewhere())
        if theirs is not None:
            raise ValueError(f"there is no option {key!r}; {theirs}")
        longer = {last: name for name, last in short.items()}
        near = difflib.get_close_matches(key, [*names, *longer], 1, 0.5)
        near = near or difflib.get_close_matches(key.rpartition(".")[2], list(longer), 1, 0.5)
        if near:
            meant_name = longer.get(near[0], near[0])
            raise ValueError(f"there is no option {key!r}; did you mean {meant_name}?")
        raise ValueError(f"there is no option {key!r}; `operant config ENV` lists them all")

    @classmethod
    def table_of(cls, name: str) -> str:
        """The option that `name` is an entry of, such as ``env.params`` of ``env.params.gravity``;
        empty if it is none."""
        section, _, rest = name.partition(".")
        key, _, entry = rest.partition(".")
        kind = cls.sections().get(section)
        is_table = entry and kind is not None and get_origin(kinds_of(kind).get(key)) is Mapping
        return f"{section}.{key}" if is_table else ""

    @classmethod
    def flattened(cls, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Values by dotted name.

        Raises:
            ValueError: a section that does not exist or is not a table.
        """
        values: dict[str, Any] = {}
        sections = cls.sections()
        for section, table in tables.items():
            if section not in sections:
                if not isinstance(table, Mapping):
                    name = cls.dotted_name(section)  # unknown: raises, and names what was meant
                    home = name.partition(".")[0]
                    raise ValueError(f"{section!r} belongs in a section: [{home}]")
                near = difflib.get_close_matches(section, sections, 1, 0.5)
                hint = f"did you mean [{near[0]}]?" if near else f"known: {', '.join(sections)}"
                raise ValueError(f"there is no section [{section}]; {hint}")
            if not isinstance(table, Mapping):
                raise ValueError(f"[{section}] must be a section, got {table!r}")
            for key, value in table.items():
                values[f"{section}.{key}"] = value
        return values

    # Values ---------------------------------------------------------------------------------
    def replaced(self, values: Mapping[str, Any]) -> Self:
        """A copy with values replaced by dotted name, such as ``{"ppo.clip": 0.1}``.

        ``"env.params"`` replaces all parameters of the environment, ``"env.params.gravity"`` one.

        Raises:
            ValueError: an unknown name (the message has the nearest one), or a bad value.
        """
        changed: Self = dataclasses.replace(cast(Any, self), **self.replaced_sections(values))
        return changed

    def replaced_sections(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The sections that `replaced` would change, by name; it alone checks that they agree.

        Raises:
            ValueError: see `replaced`.
        """
        changed: dict[str, dict[str, Any]] = {}
        entries: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            full = self.dotted_name(name)
            if full != name:  # a bare name, where a dotted one is expected
                raise ValueError(f"there is no option {name!r}; did you mean {full}?")
            table = self.table_of(name)
            if table:
                entries.setdefault(table, {})[name.removeprefix(f"{table}.")] = value
            else:
                section, _, key = name.partition(".")
                changed.setdefault(section, {})[key] = value
        for table, new in entries.items():
            section, _, key = table.partition(".")
            others = changed.setdefault(section, {})
            whole = others.get(key, getattr(getattr(self, section), key))
            others[key] = {**converted(table, whole, Mapping), **new}
        return {
            section: dataclasses.replace(getattr(self, section), **new)
            for section, new in changed.items()
        }

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Plain numbers, strings, lists and dicts, by section."""
        return {
            section: {
                one.name: _plain(getattr(getattr(self, section), one.name))
                for one in dataclasses.fields(cast(Any, kind))
            }
            for section, kind in self.sections().items()
        }

    @classmethod
    def from_dict(cls, tables: Mapping[str, Any]) -> Self:
        """The configuration of nested tables, as a TOML file has them; what is missing has its
        default.

        Raises:
            ValueError: an unknown name or a bad value.
        """
        return cls().replaced(cls.flattened(tables))


def _sections(config: type[BaseConfig]) -> dict[str, type[Section]]:
    found: dict[str, type[Section]] = {}
    for one in dataclasses.fields(cast(Any, config)):
        kind = one.default_factory
        if not (isinstance(kind, type) and issubclass(kind, Section) and kind.table == one.name):
            raise TypeError(
                f"{config.__qualname__}.{one.name} must be a field(default_factory=...) of a "
                f"Section with table={one.name!r}, got {kind!r}"
            )
        found[one.name] = kind
    return found


@dataclass(frozen=True)
class AgentConfig(BaseConfig):
    """What is known of any run, whichever algorithm trained it: sections of others are left out."""

    env: EnvConfig = field(default_factory=EnvConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    run: RunConfig = field(default_factory=RunConfig)

    @classmethod
    def flattened(cls, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Values by dotted name; see `BaseConfig.flattened`."""
        known = cls.sections()
        kept = {n: t for n, t in tables.items() if n in known or not isinstance(t, Mapping)}
        return super().flattened(kept)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value
