"""``operant bench spaces``: how fast samples become rows of memory, and rows samples."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Option

from operant.cli.options import JsonFile
from operant.cli.screen import mistakes, output

EXAMPLE = "Example:  operant bench spaces --rows 1024 --json spaces.json"


def spaces(
    rows: Annotated[int, Option(min=1, help="Samples in the batch.")] = 1024,
    repeats: Annotated[int, Option(min=1, help="Rounds; the median counts.")] = 15,
    seconds: Annotated[
        float, Option(min=0.001, help="Seconds that each contender works in a round, about.")
    ] = 0.05,
    json_file: JsonFile = "",
) -> None:
    """A Dict of six leaves as rows and back: ours, Gymnasium's, and copying the rows once."""
    from operant.bench.spaces import contenders, measure, records
    from operant.cli.bench import write_results
    from operant.cli.meter import follow

    with mistakes():
        everyone = contenders(rows)

        def doing() -> Any:
            yield from measure(everyone, repeats, seconds)

        follow(doing(), len(everyone) * (repeats + 1))
    found = records(everyone, rows)
    if json_file != "-":
        _print_table(found)
    write_results(json_file, found)


def _print_table(found: list[dict[str, Any]]) -> None:
    from operant.cli.bench import print_figures

    heads = ["system", "operation", "rows", "us", "+-", "x gym", "x copy"]
    lines = []
    for row in found:
        spread = (row["us_max"] - row["us_min"]) / row["us"] / 2 if row["us"] else 0.0
        cells = [row["system"], row["operation"], str(row["rows"]), f"{row['us']:.1f}"]
        cells += [
            f"{spread:.0%}",
            "" if row["speed_ratio"] is None else f"{row['speed_ratio']:.0f}",
        ]
        lines.append([*cells, "" if row["copy_ratio"] is None else f"{row['copy_ratio']:.2f}"])
    print_figures(heads, lines)
    output.print("x gym: times faster than gymnasium.spaces.utils", style="dim")
    text = f"x copy: time over that of copying the rows' bytes once ({found[0]['row_bytes']} each)"
    output.print(text, style="dim")
