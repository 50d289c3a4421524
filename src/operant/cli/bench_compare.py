"""``operant bench compare``: whether this source tree is as fast as another one."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from rich.table import Table
from typer import Option

from operant.cli.options import JsonFile
from operant.cli.screen import UserError, literal, mistakes, output, short

EXAMPLE = "Example:  operant bench compare --against HEAD~5 --only env-cartpole,ppo-fused"


def compare(
    against: Annotated[
        str,
        Option(metavar="COMMIT|FOLDER", help="The old side: a commit, or another source tree."),
    ],
    only: Annotated[str, Option(help="Rows, comma-separated. Default: all.")] = "",
    rounds: Annotated[
        int, Option(min=1, help="New processes of each side; 11 or more give a verdict.")
    ] = 12,
    seconds: Annotated[
        float, Option(min=0.001, help="Seconds that a side works for a row in a round.")
    ] = 0.3,
    num_envs: Annotated[
        int, Option(min=0, help="Environments of a row that steps or trains. Default: its own.")
    ] = 0,
    device: Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    threads: Annotated[int, Option(min=1, help="Of a step and of a training on a CPU.")] = 1,
    clock: Annotated[
        str,
        Option(help="wall, or cpu: of the cores; auto: cpu for one thread of a CPU."),
    ] = "auto",
    json_file: JsonFile = "",
) -> None:
    """Speed of this source tree over that of another one, both taking turns in short slices."""
    from operant.bench.sides import Side
    from operant.bench.trees import other_tree, this_tree
    from operant.bench.turns import measure, resized, usual_rows
    from operant.cli.bench import write_results
    from operant.cli.meter import follow
    from operant.ppo.engines.choose import choose_device

    with mistakes():
        rows = usual_rows(str(choose_device(device)), threads, clock)
        rows = resized(_chosen(rows, only) if only else rows, num_envs)
        new, old = this_tree(), other_tree(against)
        total = (rounds + 1) * (len([row for row in rows if row.kind != "start"]) + 2)
        measuring = measure(rows, partial(Side, old), partial(Side, new), rounds, seconds)
        found = [one.record(old.name, new.name) for one in follow(measuring, total)]
    if json_file != "-":
        _print_table(found)
    write_results(json_file, found)


def _chosen(rows: list[Any], only: str) -> list[Any]:
    known = {row.name: row for row in rows}
    names = [name.strip() for name in only.split(",") if name.strip()]
    if not names:
        raise UserError(f"--only names no row; known: {', '.join(known)}")
    for name in names:
        if name not in known:
            raise UserError(f"there is no row {name!r}; known: {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]


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
