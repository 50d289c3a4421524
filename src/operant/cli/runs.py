"""``operant runs``: what was trained here."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from operant.cli.options import AsJson
from operant.cli.screen import UserError, literal, mistakes, output, short, verb

if TYPE_CHECKING:
    from operant.runs.summary import Summary

app = typer.Typer(
    help="List the runs, or remove some.",
    invoke_without_command=True,
    epilog="Example:  operant runs --json",
)


@app.callback()
@verb
def runs(
    context: typer.Context,
    as_json: AsJson = False,
) -> None:
    """List the runs, the newest last: environment, state, steps, return."""
    if context.invoked_subcommand is not None:
        return
    from operant.runs.directory import list_runs, runs_folder
    from operant.runs.summary import summary

    found = [summary(run) for run in list_runs()]
    if as_json:
        print(json.dumps({"runs": [one.to_dict() for one in found]}, indent=2))
        return
    if not found:
        where = literal(runs_folder())
        output.print(f"no runs yet in {where}; start one: operant train CartPole-v1")
        return
    from operant.cli.bench import print_whole

    shown = _COLUMNS[print_whole(*(_table(found, columns) for columns in _COLUMNS))]
    left_out = [name for name in _COLUMNS[0] if name not in shown]
    if left_out:
        text = f"in a wider terminal, and with --json: {', '.join(left_out)}"
        output.print(text, style="dim", highlight=False)


_COLUMNS = (
    ("run", "env", "state", "steps", "return", "seconds"),
    ("run", "env", "state", "steps", "return"),
    ("run", "state", "steps", "return"),  # its name begins with the environment, as a rule
    ("run", "state", "return"),
    ("run", "state"),
)
"""What there may be room for: names stay whole, to be copied."""
_COLOURS = {"running": "cyan", "starting": "cyan", "saving": "cyan", "finished": "green"}
_COLOURS |= {"failed": "red", "stale": "yellow"}


def _table(found: list[Summary], columns: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in columns:
        right = name in ("steps", "return", "seconds")
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for one in found:
        colour = _COLOURS.get(one.state or "", "default")
        cells = {
            "run": f"[bold]{literal(one.run_id)}[/bold]",
            "env": literal(one.env or "?"),
            "state": f"[{colour}]{one.state or '?'}[/{colour}]",
            "steps": "-" if one.steps is None else short(one.steps),
            "return": "-" if one.mean_return is None else f"{one.mean_return:.1f}",
            "seconds": "-" if one.seconds is None else f"{one.seconds:.1f}",
        }
        table.add_row(*(cells[name] for name in columns))
    return table


@app.command("rm", epilog="Example:  operant runs rm cartpole-v1-20261115-060000")
@verb
def remove(
    names: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs by name.")],
    force: Annotated[
        bool, typer.Option("--force", help="Also one that is still being trained.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove runs with everything in them."""
    from operant.runs.directory import list_runs
    from operant.runs.summary import summary
    from operant.toolchain.paths import home

    names = list(dict.fromkeys(names))
    known = {run.id: run for run in list_runs()}
    for name in names:
        if name not in known:
            raise UserError(f"there is no run {name!r}; `operant runs` lists them")
        if summary(known[name]).state in ("running", "starting", "saving") and not force:
            raise UserError(f"{name} is being trained; stop it first, or pass --force")
    for name in names:
        with mistakes():
            known[name].remove()
        with suppress(OSError):
            (home() / "detached" / f"{name}.log").unlink()  # see `start_detached`
        if not as_json:
            output.print(f"removed {literal(name)}", highlight=False)
    if as_json:
        print(json.dumps({"removed": names}))
