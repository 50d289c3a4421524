"""``operant bench``: how fast, beside whom."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from typer import Option

from operant.cli import (
    bench_compare,
    bench_foreign,
    bench_ppo,
    bench_report,
    bench_run,
    bench_spaces,
)
from operant.cli.options import JsonFile
from operant.cli.screen import UserError, errors, mistakes, output, short, verb

if TYPE_CHECKING:
    from operant.lang.env import Env

app = typer.Typer(help="Measure speed, interleaved with peers.", no_args_is_help=True)


@app.callback()
def _bench() -> None:
    """Measure speed, interleaved with peers."""


@app.command(
    "env",
    epilog="Example:  operant bench env --env CartPole-v1 --num-envs 4096 --peers gymnasium",
)
@verb
def env(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ENV]...",
            help="An id, gymnasium:Id, file.py:Class or libgame.so. Default: CartPole-v1.",
        ),
    ] = None,
    env_ids: Annotated[
        list[str] | None, Option("--env", help="The same as an option; repeatable.")
    ] = None,
    num_envs: Annotated[
        list[int] | None,
        Option(min=1, help="Batch size; repeatable. Default: 4096; 64 of Gymnasium's."),
    ] = None,
    workers: Annotated[
        list[int] | None,
        Option(min=1, help="Threads, or processes of Gymnasium's; repeatable."),
    ] = None,
    backends: Annotated[
        list[str] | None,
        Option("--backend", help="Backend; repeatable. Default: the host's fastest."),
    ] = None,
    peers: Annotated[
        str,
        Option(
            help="Comma-separated: gymnasium, envpool. Of Gymnasium's: serial, gymnasium-sync, "
            "gymnasium-async, gymnasium-vector, sb3-subproc, envpool."
        ),
    ] = "",
    compute_us: Annotated[
        float,
        Option(min=0, help="Also a Gymnasium environment that computes for so many microseconds."),
    ] = 0.0,
    copy: Annotated[
        bool,
        Option(
            "--copy/--no-copy", help="Results that are yours to keep, or views of live buffers."
        ),
    ] = False,
    repeats: Annotated[int, Option(min=1, help="Rounds; the median counts.")] = 7,
    seconds: Annotated[
        float, Option(min=0.001, help="Seconds that each contender steps in a round.")
    ] = 0.2,
    json_file: JsonFile = "",
) -> None:
    """Environment steps per second: ours and others', taking turns, median of several rounds."""
    from operant.bench.env import contenders, measure, records
    from operant.cli.target import env_name, load_env
    from operant.vector.foreign_env import ForeignEnv

    asked = [env_name(name) for name in (*(targets or ()), *(env_ids or ()))]
    names = [peer for peer in peers.split(",") if peer]
    classes: dict[str, type[Env]] = {}
    foreign: list[ForeignEnv] = []
    with mistakes():
        for name in asked or ([] if compute_us else ["CartPole-v1"]):
            one = load_env(name)
            if isinstance(one, ForeignEnv):
                foreign.append(one)
            else:
                classes[name] = one
    if foreign or compute_us:
        if classes:
            raise UserError(
                f"operant compiles {', '.join(classes)}: measure others in a run of their own"
            )
        found = bench_foreign.bench_foreign(
            foreign,
            num_envs or [],
            workers or [],
            names,
            backends or [],
            compute_us,
            repeats,
            seconds,
        )
        if json_file != "-":
            bench_foreign.print_foreign(found)
        write_results(json_file, found)
        return
    with mistakes():
        everyone = contenders(
            list(classes),
            num_envs or [4096],
            workers or [1],
            names,
            backends or [],
            copy,
            classes,
        )
    show_progress(measure(everyone, repeats, seconds), len(everyone) * (repeats + 1))
    found = records(everyone)
    if json_file != "-":
        _print_table(found)
    write_results(json_file, found)


app.command("ppo", epilog=bench_ppo.EXAMPLE)(verb(bench_ppo.ppo))
app.command("spaces", epilog=bench_spaces.EXAMPLE)(verb(bench_spaces.spaces))
app.command("run", epilog=bench_run.RUN_EXAMPLE)(verb(bench_run.run))
app.command("save", epilog=bench_run.SAVE_EXAMPLE)(verb(bench_run.save))
app.command("report", epilog=bench_report.EXAMPLE)(verb(bench_report.report))
app.command("compare", epilog=bench_compare.EXAMPLE)(verb(bench_compare.compare))


def show_progress(measuring: Iterable[str], total: int) -> None:
    """Measure, and show what is being done; `total` is how many things there are to do."""
    text = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(), text, TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True) as progress, mistakes():
        task = progress.add_task("", total=total)
        for doing in measuring:
            progress.update(task, description=doing)
            progress.refresh()
            progress.advance(task)


def write_results(json_file: str, found: list[dict[str, Any]]) -> None:
    """The records in their frame, if a file was asked for.

    Raises:
        UserError: it cannot be written.
    """
    from operant.bench.frame import frame

    bench_run.write_to(json_file, frame(found))


def _print_table(found: list[dict[str, Any]]) -> None:
    peers = sorted({peer for row in found for peer in row["ratio_to"]})
    ratios = [f"x {peer.replace('gymnasium', 'gym').replace(' cartpole', 'CP')}" for peer in peers]
    heads = ["system", "env", "envs", "workers", "steps/s", "+-", *ratios]
    on_gpu = any("bandwidth_share" in row for row in found)
    heads += ["of bandwidth"] if on_gpu else []
    rows = []
    for row in found:
        spread = (row["sps_max"] - row["sps_min"]) / row["sps"] / 2
        shares = [row["ratio_to"].get(peer) for peer in peers]
        cells = [f"{row['system']} {row['backend']}", row["env"], str(row["num_envs"])]
        cells += [str(row["workers"]), short(row["sps"]), f"{spread:.0%}"]
        cells += ["" if share is None else f"{share:.1f}" for share in shares]
        share = row.get("bandwidth_share")
        rows.append(cells + (["" if share is None else f"{share:.0%}"] if on_gpu else []))
    print_figures(heads, rows)
    if on_gpu:
        output.print(
            "of bandwidth: bytes a step must move, against a copy on the same GPU", style="dim"
        )
    if "x gymCP" in ratios:
        output.print("x gymCP: against Gymnasium's NumPy CartPole of the same size", style="dim")


_MOST_ON_ITS_SIDE = 4


def print_figures(heads: list[str], rows: list[list[str]]) -> None:
    """A table of two columns of names, then figures; ours are bold.

    Where that is wider than the screen it lies on its side: a line a figure. No figure is cut.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for k, head in enumerate(heads):
        table.add_column(head, justify="left" if k < 2 else "right", no_wrap=True)
    for cells in rows:
        table.add_row(*cells, style="bold" if cells[0].startswith("operant") else "")
    on_its_side = Table(box=None, pad_edge=False, padding=(0, 1))
    for k, head in enumerate((heads[0], *(cells[0] for cells in rows))):
        on_its_side.add_column(head, justify="right" if k else "left", no_wrap=True)
    for k, head in enumerate(heads[1:], 1):
        on_its_side.add_row(head, *(cells[k] for cells in rows))
    if len(rows) <= _MOST_ON_ITS_SIDE:
        print_whole(table, on_its_side)
    else:
        print_whole(table)


def print_whole(*tables: Table) -> int:
    """Print the first of the tables that fits the screen; which one that was.

    If none does, the last goes beyond it. Where there is no screen, the first is printed.
    """
    needed = [Console(width=10_000).measure(table).maximum for table in tables]
    fitting = (k for k, width in enumerate(needed) if width <= output.width)
    chosen = next(fitting, len(tables) - 1) if output.is_terminal else 0
    screen = output if needed[chosen] <= output.width else Console(width=needed[chosen])
    screen.print(tables[chosen])
    return chosen
