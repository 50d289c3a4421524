"""``operant eval``: how good is a trained policy?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from operant.cli.agent import open_agent
from operant.cli.options import AsJson, EnvCode, RunOrCheckpoint, Step, TimeLimit, Wrappers
from operant.cli.screen import errors, literal, mistakes, output

if TYPE_CHECKING:
    from operant.training.evaluate import Evaluation

EXAMPLE = "Example:  operant eval latest --episodes 100 --json"


def evaluate(
    run: RunOrCheckpoint,
    episodes: Annotated[int, Option(min=1, metavar="N", help="Episodes to play.")] = 100,
    greedy: Annotated[
        bool, Option("--greedy", "--deterministic", help="Only the most probable actions.")
    ] = False,
    sampled: Annotated[
        bool, Option("--sampled", "--stochastic", help="Only sampled actions. Default: both.")
    ] = False,
    seed: Annotated[int, Option(min=0, metavar="N", help="Which episodes.")] = 1_000_003,
    max_episode_steps: TimeLimit = None,
    checkpoint: Step = "latest",
    env: EnvCode = "",
    wrappers: Wrappers = None,
    as_json: AsJson = False,
) -> None:
    """Play whole episodes with a trained policy, many at once, and report the returns."""
    from operant.training.evaluate import evaluate as played

    with errors.status("loading"):
        opened = open_agent(run, checkpoint, env, wrappers)
    name = literal(opened.config.env.id)
    found: dict[str, dict[str, float]] = {}
    with errors.status(f"playing {episodes} episodes of {name}"), mistakes():
        for how in (True, False) if greedy == sampled else (greedy,):
            result = played(
                opened.agent,
                opened.env,
                opened.config.env,
                episodes=episodes,
                deterministic=how,
                seed=seed,
                max_episode_steps=max_episode_steps,
            )
            found["greedy" if how else "sampled"] = _figures(result)
    if as_json:
        known: dict[str, Any] = {
            "run": run,
            "env": opened.config.env.id,
            "checkpoint": opened.checkpoint.name,
        }
        known |= {"episodes": episodes, "seed": seed, "deterministic": "greedy" in found}
        print(json.dumps(_report(known, found)))
        return
    output.print(
        f"{name}, {episodes} episodes, checkpoint {literal(opened.checkpoint.name)}",
        highlight=False,
        soft_wrap=True,
    )
    for how_named, figures in found.items():
        output.print(_line(how_named, figures), highlight=False, soft_wrap=True)


def _figures(found: Evaluation) -> dict[str, float]:
    return {
        "mean_return": found.mean_return,
        "std_return": found.std_return,
        "min_return": float(found.returns.min()),
        "max_return": float(found.returns.max()),
        "mean_length": found.mean_length,
    }


def _report(known: dict[str, Any], found: dict[str, dict[str, float]]) -> dict[str, Any]:
    """The figures of the greedy policy first, if it was asked for; the sampled one beside it."""
    first, *other = found.values()
    return {**known, **first, "sampled": other[0] if other else None}


def _line(how: str, figures: dict[str, float]) -> str:
    return (
        f"{how:<8} return [bold]{figures['mean_return']:.2f}[/bold] "
        f"+- {figures['std_return']:.2f} "
        f"({figures['min_return']:.1f} to {figures['max_return']:.1f}), "
        f"length {figures['mean_length']:.1f}"
    )
