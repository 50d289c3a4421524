"""The grid of ``operant tune``: which options, which values, and which of their combinations."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operant.ppo.config import Config, dotted_name
from operant.ppo.config_file import parsed_settings
from operant.toolchain.machine import usable_cores

NAMES = {
    "num_envs": "env.num_envs",
    "num_workers": "run.threads",
    "rollout_steps": "ppo.num_steps",
    "num_minibatches": "ppo.minibatches",
}
"""Names of a grid's axes, and the options they stand for."""
OTHERS = ("env.workers", "ppo.epochs", "run.engine", "run.precision", "run.compile")
"""Options that may be axes too."""
MOST_CELLS = 200


@dataclass(frozen=True)
class Axis:
    """An option and the values to try."""

    name: str
    key: str
    """Dotted name of the option."""
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Cell:
    """One combination. Either it has a configuration, or a reason why there is none."""

    values: Mapping[str, Any]
    """By axis."""
    config: Config | None
    reason: str = ""
    is_base: bool = False
    """Whether it is the configuration that tuning starts from."""

    @property
    def label(self) -> str:
        """For displays: ``num_envs 64, rollout_steps 32``."""
        return ", ".join(f"{name} {value}" for name, value in self.values.items())


def default_grid() -> list[Axis]:
    """What is tried if nothing is said."""
    return [
        Axis("num_envs", "env.num_envs", (64, 256, 1024)),
        Axis("num_workers", "run.threads", tuple(sorted({1, usable_cores()}))),
        Axis("rollout_steps", "ppo.num_steps", (32, 128)),
        Axis("num_minibatches", "ppo.minibatches", (2, 4)),
    ]


def parsed_grid(texts: Sequence[str]) -> list[Axis]:
    """``["num_envs=64,256", ...]`` as axes; the default grid for none.

    Raises:
        ValueError: not of that form, an option that is no axis, a bad value, an axis named twice,
            or too many combinations.
    """
    axes = [_parsed_axis(text) for text in texts] or default_grid()
    for key in {axis.key for axis in axes}:
        if sum(axis.key == key for axis in axes) > 1:
            raise ValueError(f"--grid names {key} twice; list all its values once")
    count = 1
    for axis in axes:
        count *= len(axis.values)
    if count > MOST_CELLS:
        raise ValueError(f"the grid has {count} cells, {MOST_CELLS} at most; leave some values out")
    return axes


def _parsed_axis(text: str) -> Axis:
    name, equals, listed = text.partition("=")
    name = name.strip()
    items = [item.strip() for item in listed.split(",") if item.strip()]
    if not equals or not items:
        raise ValueError(f"--grid takes name=value,value, such as num_envs=64,256, got {text!r}")
    key = NAMES.get(name) or dotted_name(name)
    known = {option: alias for alias, option in NAMES.items()}
    if key not in known and key not in OTHERS:
        raise ValueError(
            f"{name} cannot be tuned for speed; axes are {', '.join([*NAMES, *OTHERS])}"
        )
    section, _, option = key.partition(".")
    values = []
    for item in items:
        sections = Config().replaced_sections(parsed_settings([f"{key}={item}"]))
        values.append(getattr(sections[section], option))
    return Axis(known.get(key, option), key, tuple(dict.fromkeys(values)))


def cells(base: Config, axes: Sequence[Axis]) -> list[Cell]:
    """Every combination of the axes' values on top of `base`, then `base` if it is none of them."""
    found = []
    for combination in itertools.product(*(axis.values for axis in axes)):
        values = {axis.name: value for axis, value in zip(axes, combination, strict=True)}
        config, reason = _combined(base, axes, combination)
        found.append(Cell(values, config, reason, config == base))
    if not any(cell.is_base for cell in found):
        found.append(Cell({axis.name: value_of(base, axis.key) for axis in axes}, base, "", True))
    return found


def value_of(config: Config, key: str) -> Any:
    """The value of an option, by its dotted name."""
    section, _, option = key.partition(".")
    return getattr(getattr(config, section), option)


def _combined(
    base: Config, axes: Sequence[Axis], combination: Sequence[Any]
) -> tuple[Config | None, str]:
    try:
        changes = {axis.key: value for axis, value in zip(axes, combination, strict=True)}
        config = base.replaced(changes)
    except ValueError as error:
        return None, str(error)
    batch, parts = config.env.num_envs * config.ppo.num_steps, config.ppo.minibatches
    if batch % parts:
        return None, f"{parts} minibatches do not divide a rollout of {batch} steps"
    return config, ""
