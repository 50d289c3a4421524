"""Configurations of PPO as TOML; see `operant.training.config_file`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from operant.ppo.config import Config
from operant.training import config_file
from operant.training.config_file import to_toml

__all__ = ["parsed_settings", "read_config", "resolved", "shipped_config", "to_toml"]


def read_config(path: Path) -> dict[str, Any]:
    """Values of a TOML file, by dotted name.

    Raises:
        ValueError: see `operant.training.config_file.read_config`.
    """
    return config_file.read_config(Config, path)


def shipped_config(env_id: str) -> dict[str, Any]:
    """The tuned values for an environment, by dotted name; empty where there are none."""
    return config_file.shipped_config(Config, env_id)


def resolved(env_id: str, *layers: Mapping[str, Any]) -> Config:
    """Defaults, then the shipped values of the environment, then each layer in turn.

    Raises:
        ValueError: an unknown name or a bad value.
    """
    return config_file.resolved(Config, env_id, *layers)


def parsed_settings(settings: Iterable[str]) -> dict[str, Any]:
    """``["ppo.clip=0.1", ...]`` as values by dotted name.

    Raises:
        ValueError: not ``name=value``, or an unknown name.
    """
    return config_file.parsed_settings(Config, settings)
