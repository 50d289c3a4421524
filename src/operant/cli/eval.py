"""``operant eval``: how good is a trained policy?"""

from __future__ import annotations

import json
from typing import Annotated

from typer import Argument, Option

from operant.cli.agent import open_agent
from operant.cli.screen import errors, literal, mistakes, output

EXAMPLE = "Example:  operant eval latest --episodes 100 --deterministic --json"


def evaluate(
    run: Annotated[
        str, Argument(metavar="RUN", help="A run's name, 'latest', or a path to a checkpoint.")
    ],
    episodes: Annotated[int, Option(min=1, help="Episodes to play.")] = 100,
    deterministic: Annotated[
        bool,
        Option("--deterministic/--stochastic", help="The most probable actions, or samples."),
    ] = True,
    seed: Annotated[int, Option(min=0, help="Which episodes.")] = 1_000_003,
    max_episode_steps: Annotated[
        int | None, Option(min=1, metavar="N", help="Another time limit than the environment's.")
    ] = None,
    checkpoint: Annotated[
        str, Option(metavar="STEP", help="Which checkpoint: a step, 'best' or 'latest'.")
    ] = "latest",
    env: Annotated[
        str, Option(metavar="file.py:Class", help="Code of an environment that is not registered.")
    ] = "",
    as_json: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Play whole episodes with a trained policy, many at once, and report the returns."""
    from operant.ppo.evaluate import evaluate as played

    with errors.status("loading"):
        opened = open_agent(run, checkpoint, env)
    name = literal(opened.config.env.id)
    with errors.status(f"playing {episodes} episodes of {name}"), mistakes():
        found = played(
            opened.agent,
            opened.env,
            opened.config.env,
            episodes=episodes,
            deterministic=deterministic,
            seed=seed,
            max_episode_steps=max_episode_steps,
        )
    report = {
        "run": run,
        "env": opened.config.env.id,
        "checkpoint": opened.checkpoint.name,
        "episodes": len(found.returns),
        "deterministic": deterministic,
        "seed": seed,
        "mean_return": found.mean_return,
        "std_return": found.std_return,
        "min_return": float(found.returns.min()),
        "max_return": float(found.returns.max()),
        "mean_length": found.mean_length,
    }
    if as_json:
        print(json.dumps(report))
        return
    output.print(
        f"{name}, {report['episodes']} episodes: return "
        f"[bold]{found.mean_return:.2f}[/bold] +- {found.std_return:.2f} "
        f"({report['min_return']:.1f} to {report['max_return']:.1f}), "
        f"length {found.mean_length:.1f}",
        highlight=False,
        soft_wrap=True,
    )
