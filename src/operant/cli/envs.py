"""``operant envs``: what there is to run."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from operant.cli.screen import output

EXAMPLE = "Example:  operant envs --json"


def envs(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the environments with their spaces, time limits and backends."""
    from operant.compiler.spec.rules import Rules
    from operant.vector.choose_backend import available_backends
    from operant.vector.registry import env_ids, get_env, params_of

    rows = []
    for env_id in env_ids():
        rules = Rules.of(get_env(env_id))
        rows.append(
            {
                "id": env_id,
                "observation_space": str(rules.observation.space),
                "observation_shape": list(rules.observation.shape),
                "action_space": str(rules.action.space),
                "max_episode_steps": rules.env.max_episode_steps,
                "reward_threshold": rules.env.reward_threshold,
                "params": params_of(rules.env),
                "backends": available_backends(),
            }
        )
    if as_json:
        print(json.dumps({"envs": rows}, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for name in ("id", "observations", "actions", "steps", "backends"):
        table.add_column(name, no_wrap=name == "id")
    for row in rows:
        shape = "x".join(str(n) for n in row["observation_shape"]) or "1"
        table.add_row(
            f"[bold]{row['id']}[/bold]",
            f"{str(row['observation_space']).split('(')[0]} {shape}",
            str(row["action_space"]).replace(", float32", ""),
            str(row["max_episode_steps"] or "-"),
            ", ".join(row["backends"]),
        )
    output.print(table)
