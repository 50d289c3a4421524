"""What a sweep may change: ranges of options by dotted name, from a TOML file.

learning_rate = { low = 1e-4, high = 1e-2, log = true }
epochs = { low = 2, high = 10, step = 2 }
ppo.clip = { choices = [0.1, 0.2, 0.3] }

[fixed]
num_envs = 64
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from operant.ppo.config import Config
from operant.runs.safe_toml import LARGEST_BYTES, parse_toml
from operant.training.config_file import toml_value
from operant.training.section import kinds_of

MOST_CHOICES = 1000
_INTERVAL, _CHOICES = ("low", "high", "log", "step"), ("choices",)
_EXECUTION = ("env.backend", "env.impl", "env.workers", "env.on_worker_death", "env.step_timeout")
_TASK = ("env.params", "env.max_episode_steps", "env.wrappers")


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, both included; every `step`-th of them, if that is not 0."""

    low: float
    high: float
    log: bool = False
    step: float = 0
    whole: bool = False
    """Integers."""

    def contains(self, value: Any) -> bool:
        """Whether a sweep could choose `value`."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not self.low <= value <= self.high:
            return False
        steps = (value - self.low) / self.step if self.step else 0.0
        return abs(steps - round(steps)) < 1e-6

    def record(self) -> dict[str, Any]:
        """As in the file."""
        found: dict[str, Any] = {"low": self.low, "high": self.high}
        if self.log:
            found["log"] = True
        if self.step:
            found["step"] = self.step
        return found


@dataclass(frozen=True)
class Choices:
    """One of several values."""

    values: tuple[Any, ...]

    def contains(self, value: Any) -> bool:
        """Whether a sweep could choose `value`."""
        return value in self.values

    def record(self) -> dict[str, Any]:
        """As in the file."""
        return {"choices": list(self.values)}


Range = Interval | Choices


@dataclass(frozen=True)
class Space:
    """Ranges, and values that every trial has, by dotted name."""

    ranges: Mapping[str, Range]
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def to_toml(self) -> str:
        """As a file that `parse_space` reads as an equal space."""
        lines = [f"{_key(name)} = {_inline(one.record())}" for name, one in self.ranges.items()]
        if self.fixed:
            lines += ["", "[fixed]"]
            lines += [f"{_key(name)} = {toml_value(value)}" for name, value in self.fixed.items()]
        return "\n".join(lines) + "\n"


def read_space(path: Path, change_task: bool = False) -> Space:
    """The space in a file; see `parse_space`.

    Raises:
        ValueError: it cannot be read, and as `parse_space`.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # a name that no file can have
        raise ValueError(f"cannot read {str(path)!r}: {error}") from None
    return parse_space(data, str(path), change_task)


def parse_space(data: bytes, name: str, change_task: bool = False) -> Space:
    """The space that a TOML text describes; `name` is what errors call it.

    Args:
        change_task: options that change the task itself may have ranges too.

    Raises:
        ValueError: not TOML, an unknown option, a bad value or range, or a range over an option
            that would make the results of two trials no longer comparable.
    """
    tables = parse_toml(data, name)
    try:
        fixed_table = tables.pop("fixed", {})
        if not isinstance(fixed_table, dict):
            raise ValueError("[fixed] must be a section of options with values")
        fixed: dict[str, Any] = {}
        for option, value in _options(fixed_table):
            _new(option, fixed)
            fixed[option] = checked(option, value)
        ranges: dict[str, Range] = {}
        for option, value in _options(tables):
            _new(option, ranges)
            if option in fixed:
                raise ValueError(f"{option} has a range and is in [fixed]; leave one of them out")
            _check_role(option, change_task)
            ranges[option] = _range(option, value)
        if not ranges:
            raise ValueError(
                "there is no range to search, such as "
                "learning_rate = { low = 1e-4, high = 1e-2, log = true }"
            )
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply for a space") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return Space(ranges, fixed)


def default_space(base: Config) -> Space:
    """What is searched where no space is given: rates, discounts, coefficients and the sizes of
    rollout and minibatches, around the values of `base`; the network stays."""
    ppo, batch = base.ppo, base.env.num_envs * base.ppo.num_steps
    rate, lam, clip = ppo.learning_rate, ppo.gae_lambda, ppo.clip
    parts = [2**k for k in range(6) if batch >= 2**k]
    return Space(
        {
            "ppo.learning_rate": Interval(rate / 8, rate * 4, log=True),
            "ppo.gamma": _choices(ppo.gamma, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999),
            "ppo.gae_lambda": Interval(min(0.8, lam), max(1.0, lam)),
            "ppo.entropy_coef": _choices(ppo.entropy_coef, 0.0, 0.001, 0.003, 0.01, 0.03),
            "ppo.clip": Interval(min(0.1, clip), max(0.4, clip)),
            "ppo.epochs": Interval(1, max(10, ppo.epochs), whole=True),
            "ppo.num_steps": _choices(
                ppo.num_steps, max(1, ppo.num_steps // 2), 2 * ppo.num_steps, 4 * ppo.num_steps
            ),
            "ppo.minibatches": _choices(ppo.minibatches, *parts),
        }
    )


def checked(option: str, value: Any) -> Any:
    """A value of an option as the configuration has it.

    Raises:
        ValueError: unknown, or a bad value.
    """
    section, _, key = option.partition(".")
    changed = getattr(Config().replaced_sections({option: value})[section], key.split(".")[0])
    table = Config.table_of(option)
    return changed[option.removeprefix(f"{table}.")] if table else changed


def value_of(config: Config, option: str) -> Any:
    """What a configuration has for an option; None for a parameter that it does not set."""
    section, _, key = option.partition(".")
    table = Config.table_of(option)
    if table:
        parameters = getattr(getattr(config, section), table.partition(".")[2])
        return parameters.get(option.removeprefix(f"{table}."))
    return getattr(getattr(config, section), key)


def _choices(*values: Any) -> Choices:
    return Choices(tuple(sorted(set(values))))


def _options(tables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Dotted names and what is given for them; sections and tables of parameters are gone into.

    Raises:
        ValueError: an unknown name.
    """
    sections = Config.sections()
    for key, value in tables.items():
        if key not in sections:
            yield from _entries(Config.dotted_name(key), value)
        elif isinstance(value, dict):
            for name, inner in value.items():
                yield from _entries(Config.dotted_name(f"{key}.{name}"), inner)
        else:
            raise ValueError(f"[{key}] must be a section, got {value!r}")


def _entries(option: str, value: Any) -> Iterator[tuple[str, Any]]:
    """An option, or each entry of one that is a table of parameters."""
    if not Config.table_of(f"{option}.entry"):
        yield option, value
    elif isinstance(value, dict):
        yield from ((f"{option}.{entry}", one) for entry, one in value.items())
    else:
        raise ValueError(f"{option} must be a table of parameters, got {value!r}")


def _new(option: str, known: Mapping[str, Any]) -> None:
    if option in known:
        raise ValueError(f"{option} is there twice")


def _check_role(option: str, change_task: bool) -> None:
    """Refuse ranges over what is not learned from: how a run is executed, and what it is about."""
    if option == "run.seed":
        raise ValueError("run.seed is luck, not a setting; --seeds N trains each trial N times")
    if option == "run.total_steps":
        raise ValueError("run.total_steps is the same for every trial; put it into [fixed]")
    if option.startswith("run.") or option in _EXECUTION:
        raise ValueError(
            f"{option} does not change what is learnt, only how it is run; put it into [fixed]"
            " (`operant tune` chooses for speed)"
        )
    if option == "env.id":
        raise ValueError("a sweep is about one environment; env.id has no range")
    if option.startswith(_TASK) and not change_task:
        raise ValueError(
            f"{option} changes the task, so that results of two trials mean different things; put "
            "it into [fixed], or say --change-task if it is meant"
        )


def _range(option: str, value: Any) -> Range:
    if not isinstance(value, dict):
        raise ValueError(
            f"{option} needs a range such as {{ low = 0.1, high = 0.3 }} or "
            f"{{ choices = [0.1, 0.2] }}, got {value!r}; a value for every trial goes into [fixed]"
        )
    for key in value:
        if key not in (*_INTERVAL, *_CHOICES):
            raise ValueError(
                f"the range of {option} has {key!r}; it takes low, high, log and step, or choices"
            )
    if "choices" in value:
        if len(value) > 1:
            raise ValueError(f"{option} has choices and an interval; leave one of them out")
        return _given_choices(option, value["choices"])
    return _interval(option, value)


def _given_choices(option: str, values: Any) -> Choices:
    if not isinstance(values, list) or not 2 <= len(values) <= MOST_CHOICES:
        raise ValueError(f"choices of {option} must be a list of 2 to {MOST_CHOICES} values")
    found = tuple(checked(option, value) for value in values)
    if len({toml_value(value) for value in found}) < len(found):
        raise ValueError(f"choices of {option} has a value twice")
    return Choices(found)


def _interval(option: str, value: Mapping[str, Any]) -> Interval:
    for key in ("low", "high"):
        if key not in value:
            raise ValueError(f"the range of {option} has no {key!r}")
    low, high = (_end(option, key, value[key]) for key in ("low", "high"))
    log, step = value.get("log", False), value.get("step", 0)
    whole = isinstance(low, int) and isinstance(high, int)
    if not isinstance(log, bool):
        raise ValueError(f"log of {option} must be true or false, got {log!r}")
    if not low < high:
        raise ValueError(f"low of {option} must be below high, got {low:g} and {high:g}")
    if log and low <= 0:
        raise ValueError(f"{option} is searched by its logarithm: low must be above 0, got {low:g}")
    if "step" in value:
        _check_step(option, step, whole)
        if log:
            raise ValueError(f"{option} has log and step; leave one of them out")
        if abs((high - low) / step - round((high - low) / step)) > 1e-6:
            raise ValueError(f"{option}: from {low:g} to {high:g} is no whole number of steps")
    return Interval(low, high, log, step, whole)


def _check_step(option: str, step: Any, whole: bool) -> None:
    number = isinstance(step, int | float) and not isinstance(step, bool)
    if not number or not math.isfinite(step) or step <= 0:
        raise ValueError(f"step of {option} must be a number above 0, got {step!r}")
    if whole and not isinstance(step, int):
        raise ValueError(f"step of {option} must be an integer, got {step!r}")


def _end(option: str, key: str, value: Any) -> int | float:
    """An end of an interval: a number that the option may have."""
    kind = _kind(option)
    if kind not in (int, float, None):
        raise ValueError(f"{option} is not a number; give choices = [...]")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{key} of {option} must be a finite number, got {value!r}")
    if abs(value) > 2**53:
        raise ValueError(f"{key} of {option} must be within 2**53, got {value!r}")
    found = checked(option, value)
    return int(found) if kind is int else found


def _kind(option: str) -> Any:
    """The type of an option; None for a parameter, which may be anything."""
    section, _, key = option.partition(".")
    return None if Config.table_of(option) else kinds_of(Config.sections()[section])[key]


def _key(name: str) -> str:
    """A dotted name as a key: what TOML takes only in quotes is in quotes."""
    table = Config.table_of(name)
    if not table:
        return name
    return f"{table}.{toml_value(name.removeprefix(f'{table}.'))}"


def _inline(record: Mapping[str, Any]) -> str:
    inside = ", ".join(f"{key} = {toml_value(value)}" for key, value in record.items())
    return f"{{ {inside} }}"
