"""Configurations as TOML: the shipped ones, a user's file, and ``--set`` on the command line.

`kind` is the configuration of an algorithm, which has its sections.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from operant.envs.others import training_of
from operant.runs.safe_toml import LARGEST_BYTES, parse_toml
from operant.toolchain.files import read_bounded
from operant.training.config import BaseConfig
from operant.vector.registry import known_env

C = TypeVar("C", bound=BaseConfig)
_COLUMNS, _COMMENTS_AT = 80, 35


def read_config(kind: type[BaseConfig], path: Path) -> dict[str, Any]:
    """Values of a TOML file, by dotted name.

    Raises:
        ValueError: the file is missing or unreadable, not TOML, or has an unknown name or a bad
            value; the message has the file's name.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # a name that no file can have
        raise ValueError(f"cannot read {str(path)!r}: {error}") from None
    return parsed_config(kind, data, str(path))


def read_run_config(kind: type[BaseConfig], path: Path) -> dict[str, Any]:
    """As `read_config`, for the file in a run directory, which may come from anyone.

    Raises:
        ValueError: as `read_config`, or it is a symbolic link or not a plain file.
    """
    try:
        return parsed_config(kind, read_bounded(path, LARGEST_BYTES), str(path))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None


def parsed_config(kind: type[BaseConfig], data: bytes, name: str) -> dict[str, Any]:
    """Values of a TOML text, by dotted name; see `read_config`.

    Values are checked one by one: whether they agree shows when all layers are there.
    """
    tables = parse_toml(data, name)
    try:
        values = kind.flattened(tables)
        kind().replaced_sections(values)
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply for a configuration") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return values


def shipped_config(kind: type[BaseConfig], env_id: str) -> dict[str, Any]:
    """The tuned values for an environment, by dotted name: ``training`` of its class, or of
    another library's `operant.envs.others`.

    Empty where there are none, also for an unknown id, for what a class inherits, and for an
    algorithm that they were not chosen for.

    Raises:
        ValueError: an unknown name or a bad value; the message has the environment's.
    """
    env = known_env(env_id) if kind.is_shipped else None
    if env is None:
        return training_of(env_id) if kind.is_shipped else {}
    values = vars(env).get("training", {})
    try:
        if not isinstance(values, Mapping):
            raise ValueError(f"training must be a dict such as {{'ppo.gamma': 0.98}}, got {values}")
        kind().replaced_sections(values)
    except ValueError as error:
        raise ValueError(f"the shipped configuration of {env_id}: {error}") from None
    return dict(values)


def resolved(kind: type[C], env_id: str, *layers: Mapping[str, Any]) -> C:
    """Defaults, then the shipped values of the environment, then each layer in turn.

    Values are by dotted name. Later ones win, entries of tables such as ``env.params`` one by one.

    Raises:
        ValueError: an unknown name or a bad value.
    """
    values: dict[str, Any] = {}
    for layer in (shipped_config(kind, env_id), {"env.id": env_id}, *layers):
        whole = {}
        for name, value in layer.items():
            if isinstance(value, Mapping) and kind.table_of(f"{name}.entry"):
                values |= {f"{name}.{key}": entry for key, entry in value.items()}
            else:
                whole[name] = value
        values |= whole
    return kind().replaced(values)


def parsed_settings(kind: type[BaseConfig], settings: Iterable[str]) -> dict[str, Any]:
    """``["ppo.clip=0.1", ...]`` as values by dotted name; values are written as in TOML, and a bare
    word is a string.

    Raises:
        ValueError: not ``name=value``, or an unknown name.
    """
    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set takes name=value, such as ppo.clip=0.1, got {setting!r}")
        value = _parsed_value(text.strip())
        if isinstance(value, str) and re.fullmatch(r"\[[\w\s,.:'\"-]+\]", text.strip()):
            words = [word.strip(" '\"") for word in text.strip("[] ").split(",")]
            listed = ", ".join(f'"{word}"' for word in words)
            raise ValueError(
                f"lists are written as in TOML, words in quotes: --set '{name}=[{listed}]', got "
                f"{text.strip()}"
            )
        values[kind.dotted_name(name.strip())] = value
    return values


def _parsed_value(text: str) -> Any:
    with suppress(ValueError, RecursionError):  # of a value that is not TOML, or nested too deeply
        table = tomllib.loads(f"value = {text}")
        if len(table) == 1:  # else there was a line more
            return table["value"]
    return text


def to_toml(config: BaseConfig, comments: bool = True) -> str:
    """The configuration as TOML; reading it gives an equal one.

    Not with tomlkit: the comments' column, their wrapping and ``1_000_000`` would still be ours.
    """
    help_texts = config.option_names()
    lines: list[str] = []
    for section, table in config.to_dict().items():
        lines += ["", f"[{section}]"] if lines else [f"[{section}]"]
        for key, value in table.items():
            line = f"{key} = {toml_value(value)}"
            lines += _commented(line, help_texts[f"{section}.{key}"]) if comments else [line]
    return "\n".join(lines) + "\n"


def _commented(line: str, help_text: str) -> list[str]:
    """A line with its comment beside it, and below where that has no room in 80 columns."""
    texts = textwrap.wrap(help_text, _COLUMNS - _COMMENTS_AT - 2) if help_text else [""]
    first, *rest = [f"# {text}" for text in texts]
    return [f"{line:<{_COMMENTS_AT - 1}} {first}", *(" " * _COMMENTS_AT + text for text in rest)]


def toml_value(value: Any) -> str:
    """A value as TOML: a flag, a number, a string, a list or tuple, or a table in one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _toml_string(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        items = (f"{_toml_string(key)} = {toml_value(item)}" for key, item in value.items())
        inside = ", ".join(items)
        return "{ " + inside + " }" if inside else "{}"
    if isinstance(value, int):
        return f"{value:_}" if value >= 10_000 else str(value)
    return repr(value)


def _toml_string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    plain = (c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped)
    return '"' + "".join(plain) + '"'
