"""``operant bench run`` and ``operant bench save``: the suite, and keeping what it found."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table
from typer import Option

from operant.cli.options import JsonFile
from operant.cli.screen import UserError, errors, literal, mistakes, output, short

RUN_EXAMPLE = "Example:  operant bench run --only vecenv_step,train --json now.json"
SAVE_EXAMPLE = "Example:  operant bench save before && operant bench compare before"

Suite = Annotated[str, Option(help="quick (minutes), or full: every environment, cold starts.")]
Only = Annotated[
    str, Option(help="Comma-separated: gae_compute, vecenv_step/CartPole-v1, '*/cpu'.")
]
Rounds = Annotated[int, Option(min=1, help="Times that each case is measured.")]
Seconds = Annotated[float, Option(min=0.001, help="That a case works in a round, about.")]
Device = Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")]
Noisy = Annotated[bool, Option("--noisy", help="Report even if the machine was too busy.")]


def run(
    suite: Suite = "quick",
    only: Only = "",
    rounds: Rounds = 9,
    seconds: Seconds = 0.2,
    device: Device = "auto",
    noisy: Noisy = False,
    json_file: JsonFile = "",
) -> None:
    """The whole suite: environments, spaces, buffers, policies, training, start-up, memory."""
    found = suite_run(suite, only, rounds, seconds, device, noisy)
    if json_file != "-":
        _print_results(found)
    write_to(json_file, found)


def save(
    name: Annotated[str, typer.Argument(help="What to call it.")],
    suite: Suite = "quick",
    only: Only = "",
    rounds: Rounds = 9,
    seconds: Seconds = 0.2,
    device: Device = "auto",
    noisy: Noisy = False,
    json_file: JsonFile = "",
) -> None:
    """Run the suite and keep what it found as a baseline, for `operant bench compare NAME`."""
    from operant.bench.suite.baseline import baseline_path, save_baseline

    with mistakes():
        baseline_path(name)  # before anything is measured
    found = suite_run(suite, only, rounds, seconds, device, noisy)
    with mistakes():
        path = save_baseline(name, found)
    if json_file != "-":
        _print_results(found)
        output.print(f"saved as {literal(path)}", soft_wrap=True)
        output.print(f"next: operant bench compare {literal(name)}")
    write_to(json_file, found)


def suite_run(
    suite: str, only: str, rounds: int, seconds: float, device: str, noisy: bool
) -> dict[str, Any]:
    """Run it, and show what is being done; the JSON of what was found.

    Raises:
        UserError: bad options, or a machine on which nothing can be said of speed.
    """
    from operant.bench.suite.baseline import result_frame
    from operant.bench.suite.cases import suite_cases
    from operant.bench.suite.measure import measure
    from operant.cli.meter import follow
    from operant.ppo.engines.choose import choose_device

    with mistakes():
        where = str(choose_device(device))
        names = [name.strip() for name in only.split(",") if name.strip()]
        cases = suite_cases(suite, where, names)
        steps = sum(1 + min(rounds, case.most_rounds) for case in cases)
        result = follow(measure(cases, rounds, seconds), steps)
    trouble = result.noise.trouble
    if trouble and not noisy:
        raise UserError(f"{trouble}: stop what else is running, or say --noisy")
    if trouble:
        errors.print(f"{trouble}: read these figures with care", style="yellow", soft_wrap=True)
    return result_frame(result, suite, where.partition(":")[0], seconds)


def write_to(json_file: str, found: dict[str, Any]) -> None:
    """Write JSON, if a file was asked for.

    Raises:
        UserError: it cannot be written.
    """
    from operant.bench.frame import write_json

    if json_file:
        try:
            write_json(json_file, found)
        except OSError as error:
            raise UserError(f"cannot write {json_file}: {error.strerror}") from None


def _print_results(found: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for k, head in enumerate(("case", "median", "95% interval", "p99")):
        table.add_column(head, justify="right" if k else "left", no_wrap=k > 0, overflow="fold")
    for row in found["results"]:
        if "trouble" in row:
            table.add_row(row["name"], "not measured", "", "")
            continue
        unit = row["unit"]
        several = len(row["rounds"]) > 1
        interval = f"{figure(row['low'], unit)} to {figure(row['high'], unit)}" if several else ""
        p99 = figure(row["p99"], unit) if "p99" in row else ""
        table.add_row(row["name"], figure(row["median"], unit), interval, p99)
    output.print(table)
    for row in found["results"]:
        if "trouble" in row:
            text = f"{literal(row['name'])}: {literal(row['trouble'])}"
            output.print(text, style="yellow", soft_wrap=True)


_SCALES: dict[str, tuple[tuple[float, str, float], ...]] = {
    "us": ((1e3, "us", 1.0), (1e6, "ms", 1e3), (float("inf"), "s", 1e6)),
    "s": ((1e-3, "us", 1e-6), (1.0, "ms", 1e-3), (float("inf"), "s", 1.0)),
    "B": ((2**10, "B", 1.0), (2**20, "KiB", 2**10), (float("inf"), "MiB", 2**20)),
}
"""By unit: below which figure, the name to show, and what it is divided by."""


def figure(value: float, unit: str) -> str:
    """A figure with its unit, short."""
    if unit not in _SCALES:
        return f"{short(value)}/s"
    _, name, scale = next(one for one in _SCALES[unit] if value < one[0])
    return f"{value / scale:.3g} {name}" if value / scale < 1000 else f"{value / scale:.0f} {name}"
