"""``operant bench compare``: whether this source tree is as fast as another, or as a baseline."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from rich.table import Table
from typer import Argument, Exit, Option

from operant.cli.bench_run import Noisy, figure, suite_run
from operant.cli.options import JsonFile
from operant.cli.screen import UserError, errors, literal, mistakes, output, short

EXAMPLE = (
    "Example:  operant bench compare --against HEAD~5 --only env-cartpole,ppo-fused;  "
    "operant bench compare before --fail-below 0.95"
)
DEFAULT_LEAST = 0.95


def compare(
    name: Annotated[
        str, Argument(metavar="[NAME]", help="A baseline: see operant bench save, or its file.")
    ] = "",
    against: Annotated[
        str,
        Option(metavar="COMMIT|FOLDER", help="Or the old side: a commit, another source tree."),
    ] = "",
    only: Annotated[str, Option(help="Rows or cases, comma-separated. Default: all.")] = "",
    rounds: Annotated[
        int,
        Option(
            min=0,
            help="Of a baseline: 9, unless given. Else new processes of each side: 12; 11 or more "
            "give a verdict.",
        ),
    ] = 0,
    seconds: Annotated[
        float,
        Option(min=0.0, help="That a row takes a round. Default: the baseline's; 0.3 of a side."),
    ] = 0.0,
    fail_below: Annotated[
        float,
        Option(min=0.0, max=1.0, help="Exit with 1 where clearly slower. Of a baseline 0.95."),
    ] = 0.0,
    num_envs: Annotated[
        int, Option(min=0, help="Environments of a row that steps or trains. Default: its own.")
    ] = 0,
    device: Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    threads: Annotated[int, Option(min=1, help="Of a step and of a training on a CPU.")] = 1,
    clock: Annotated[
        str,
        Option(help="wall, or cpu: of the cores; auto: cpu for one thread of a CPU."),
    ] = "auto",
    noisy: Noisy = False,
    json_file: JsonFile = "",
) -> None:
    """Speed of this source tree over that of another one, both taking turns; or over a baseline."""
    from operant.bench.suite.baseline import machine_ratio, regressions
    from operant.cli.bench import write_results

    if bool(name) == bool(against):
        raise UserError(
            "say what to compare with: the NAME of a baseline, or --against COMMIT|FOLDER"
        )
    if name:
        least = fail_below or DEFAULT_LEAST
        then, now, found = _with_baseline(name, only, rounds or 9, seconds, device, noisy)
        slower = regressions(found, least)
        if json_file != "-":
            _print_changes(found, then, machine_ratio(then, now))
    else:
        found = _with_tree(
            against, only, rounds or 12, seconds or 0.3, num_envs, device, threads, clock
        )
        slower = _slower_rows(found, fail_below)
        if json_file != "-":
            _print_table(found)
    write_results(json_file, found)
    for sentence in slower:
        errors.print(literal(sentence), style="red", soft_wrap=True)
    if slower:
        raise Exit(1)


def _with_baseline(
    name: str, only: str, rounds: int, seconds: float, device: str, noisy: bool
) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Run again what the baseline has; that, this, and the changes."""
    from operant.bench.suite.baseline import changes, load_baseline

    with mistakes():
        then = load_baseline(name)
    names = only or ",".join(row["name"] for row in then["results"] if "median" in row)
    place = then["device"] if device == "auto" else device
    now = suite_run(then["suite"], names, rounds, seconds or then["seconds"], place, noisy)
    with mistakes():
        return then, now, changes(then, now)


def _slower_rows(found: list[dict[str, Any]], least: float) -> list[str]:
    return [
        f"{row['name']} is at {row['ratio']:.3f} of {row['old']} ({row['low']:.3f} to "
        f"{row['high']:.3f})"
        for row in found
        if "ratio" in row and row["ratio"] < least and row["verdict"].startswith("slower")
    ]


def _with_tree(
    against: str,
    only: str,
    rounds: int,
    seconds: float,
    num_envs: int,
    device: str,
    threads: int,
    clock: str,
) -> list[dict[str, Any]]:
    from operant.bench.sides import Side
    from operant.bench.trees import other_tree, this_tree
    from operant.bench.turns import measure, resized, usual_rows
    from operant.cli.meter import follow
    from operant.ppo.engines.choose import choose_device

    with mistakes():
        rows = usual_rows(str(choose_device(device)), threads, clock)
        rows = resized(_chosen(rows, only) if only else rows, num_envs)
        new, old = this_tree(), other_tree(against)
        total = (rounds + 1) * (len([row for row in rows if row.kind != "start"]) + 2)
        measuring = measure(rows, partial(Side, old), partial(Side, new), rounds, seconds)
        return [one.record(old.name, new.name) for one in follow(measuring, total)]


def _chosen(rows: list[Any], only: str) -> list[Any]:
    known = {row.name: row for row in rows}
    names = [name.strip() for name in only.split(",") if name.strip()]
    if not names:
        raise UserError(f"--only names no row; known: {', '.join(known)}")
    for name in names:
        if name not in known:
            raise UserError(f"there is no row {name!r}; known: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]


def _print_changes(found: list[dict[str, Any]], then: dict[str, Any], machine: float) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for k, head in enumerate(("case", "then", "now", "ratio", "interval")):
        table.add_column(head, justify="right" if k else "left", no_wrap=k > 0, overflow="fold")
    for one in found:
        figures = (figure(one["then"], one["unit"]), figure(one["now"], one["unit"]))
        interval = f"{one['low']:.3f} to {one['high']:.3f}"
        table.add_row(one["name"], *figures, f"{one['ratio']:.3f}", interval)
    output.print(table)
    output.print(
        f"ratio: above 1 is better than {literal(then['date'][:16])}; the machine itself is at "
        f"{machine:.3f} of its speed then, which is divided out",
        style="dim",
        soft_wrap=True,
    )


def _print_table(found: list[dict[str, Any]]) -> None:
    from operant.bench.paired import FEWEST, LEVEL

    output.print(f"old: {literal(found[0]['old'])}\nnew: {literal(found[0]['new'])}\n")
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    enough = max(len(row.get("rounds", ())) for row in found) >= FEWEST
    interval = f"{LEVEL:.1%} interval" if enough else "range"
    for k, head in enumerate(("row", "old", "new", "new/old", interval, "verdict")):
        table.add_column(head, justify="right" if 0 < k < 5 else "left", no_wrap=True)
    for row in found:
        if "trouble" in row:
            table.add_row(row["name"], "", "", "", "", "not measured")
            continue
        figures = [_figure(row[key], row["unit"]) for key in ("old_figure", "new_figure")]
        interval = f"{row['low']:.3f} to {row['high']:.3f}"
        table.add_row(row["name"], *figures, f"{row['ratio']:.3f}", interval, row["verdict"])
    output.print(table)
    for row in found:
        if "trouble" in row:
            output.print(f"{row['name']}: {literal(row['trouble'])}", style="yellow")
    note = f"new/old: of the speed, by the {found[0]['clock']} clock; above 1 is faster"
    output.print(note, style="dim")


def _figure(value: float, unit: str) -> str:
    return f"{value:.3g} s" if unit == "s" else f"{short(value)}/s"
