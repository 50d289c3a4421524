"""``operant config``: what a run would use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from operant.cli.screen import mistakes

EXAMPLE = "Example:  operant config CartPole-v1 > ppo.toml"


def config(
    env: Annotated[
        str, typer.Argument(metavar="ENV", help="An id, path/to/file.py:Class or libgame.so.")
    ],
    file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="TOML file to start from.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change one value; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of TOML.")] = False,
) -> None:
    """Print the resolved configuration of an environment as TOML: edit it, pass it to train."""
    from operant.cli.target import env_name, load_env
    from operant.ppo.config_file import parsed_settings, read_config, resolved, to_toml
    from operant.vector.foreign_env import ForeignEnv

    with mistakes():
        known = load_env(env)
        env = known.name if isinstance(known, ForeignEnv) else env_name(env)
        values = {} if file is None else read_config(file)
        found = resolved(env, values, parsed_settings(settings or []), {"env.id": env})
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        print(to_toml(found), end="")
