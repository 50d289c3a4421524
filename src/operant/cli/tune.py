"""``operant tune``: the sizes that train fastest on this machine, and still learn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from operant.cli.compile_status import compile_status
from operant.cli.duration import seconds_of
from operant.cli.meter import follow, training_mistakes
from operant.cli.screen import UserError, errors, literal, mistakes, output, short

if TYPE_CHECKING:
    from operant.bench.grid import Axis
    from operant.bench.tune import Measured
    from operant.bench.verify import Verification
    from operant.lang.env import Env
    from operant.ppo.config import Config

EXAMPLE = (
    "Example:  operant tune CartPole-v1 --grid num_envs=64,256 --grid rollout_steps=32,128 "
    "--budget 60s"
)


def tune(
    env: Annotated[
        str, Argument(metavar="ENV", help="An id, path/to/file.py:Class or libgame.so.")
    ],
    grid: Annotated[
        list[str] | None,
        Option(
            metavar="NAME=V,V,...",
            help="Values to try: num_envs, num_workers, rollout_steps, num_minibatches; repeatable."
            " Default: 3 x 2 x 2 x 2 of them.",
        ),
    ] = None,
    budget: Annotated[str, Option(metavar="TIME", help="To measure for: 120s, 5m.")] = "120s",
    most_spread: Annotated[
        float, Option("--max-spread", min=0.0, help="IQR / median above which a cell is noisy.")
    ] = 0.1,
    config: Annotated[Path | None, Option(metavar="FILE", help="TOML file to start from.")] = None,
    settings: Annotated[
        list[str] | None, Option("--set", metavar="NAME=VALUE", help="One value; repeatable.")
    ] = None,
    device: Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")] = "",
    verify_seeds: Annotated[
        int, Option(min=1, max=100, metavar="N", help="Trainings of each candidate.")
    ] = 2,
    verify_steps: Annotated[
        str, Option(metavar="N", help="Steps of a training; default: run.total_steps.")
    ] = "",
    verify: Annotated[
        bool, Option("--verify/--no-verify", help="Train the winner to see that it converges.")
    ] = True,
    out: Annotated[
        Path | None, Option(metavar="DIR", help="Default: a new folder in artifacts/tuning.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print the report instead of tables.")] = False,
) -> None:
    """Find the sizes that train fastest here, and check that the winner still converges.

    Writes a report, a heat map, and the chosen configuration for `operant train --config`.
    Exit codes: 0 something was chosen, 1 nothing was stable or converged, 2 something to correct.
    """
    from operant.bench.grid import parsed_grid

    with mistakes():
        seconds = seconds_of(budget, "--budget")
        axes = parsed_grid(grid or [])
        cls, base = _base(env, config, settings or [], device)
        steps = _steps(verify_steps, base)
    _tune(cls, base, axes, seconds, most_spread, out, as_json, (verify, steps, verify_seeds))


def _steps(text: str, base: Config) -> int:
    if not text:
        return base.run.total_steps
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        raise UserError(f"--verify-steps must be a number, got {text!r}") from None
    return base.replaced({"run.total_steps": number}).run.total_steps


def _base(
    env: str, file: Path | None, settings: list[str], device: str
) -> tuple[type[Env], Config]:
    """The environment, and the configuration that tuning starts from."""
    from operant.cli.target import env_name, load_compiled
    from operant.ppo.config_file import parsed_settings, read_config, resolved

    values = {} if file is None else read_config(file)
    values |= parsed_settings(settings)
    if device:
        values["run.device"] = device
    env = env_name(env)
    cls = load_compiled(env, "tune")
    return cls, resolved(env, values, {"env.id": env})


def _tune(
    cls: type[Env],
    base: Config,
    axes: list[Axis],
    budget_s: float,
    most_spread: float,
    out: Path | None,
    as_json: bool,
    plan: tuple[bool, int, int],
) -> None:
    with errors.status("starting: loading PyTorch"):
        from operant.bench import tune_report
        from operant.bench.artifact import Run
        from operant.bench.grid import cells
        from operant.bench.training import TimedTrainer
        from operant.bench.tune import check_budget, measure, ranked
    verify, steps, seeds = plan
    run = Run.start(base.env.id)
    folder = out or tune_report.FOLDER / run.name
    with training_mistakes(), _new_folder(folder):
        grid = cells(base, axes)
        check_budget(grid, budget_s)
        with compile_status("starting: compiling (once for each definition)"):
            TimedTrainer(cls, base).close()
        measuring = measure(grid, budget_s, most_spread, lambda config: TimedTrainer(cls, config))
        everyone = follow(measuring, 6 * len(grid))
        best = ranked(everyone)
        verification = _verified(cls, base, best, steps, seeds) if verify and best else None
    budget = {"seconds": budget_s, "max_spread": most_spread, "verify_steps": steps}
    frame = {**run.record(), "budget": budget}
    found = tune_report.report(axes, everyone, verification, base, frame)
    with mistakes():
        files = tune_report.write_files(folder, axes, everyone, verification, found)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _print_cells(axes, everyone)
        _print_choice(found, files)
    if found["chosen"] is None:
        _regret(found, verification)


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """Make a folder now, while a mistake in its name costs nothing; an error leaves none behind."""
    from operant.toolchain.files import make_folder

    make_folder(folder)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # something was in it before
            folder.rmdir()
        raise


def _verified(
    cls: type[Env], base: Config, best: list[Measured], steps: int, seeds: int
) -> Verification:
    from operant.bench.verify import verify

    numbers = [base.run.seed + k for k in range(seeds)]
    return follow(verify(cls, base, best, steps, numbers), 10 * seeds)


def _print_cells(axes: list[Axis], everyone: list[Measured]) -> None:
    """The cells, the fastest first; those that were skipped last."""
    from operant.cli.bench import print_figures

    order = sorted(everyone, key=lambda one: -one.sps.median if one.sps else 0.0)
    rows, skipped = [], []
    for one in order:
        values = [str(one.cell.values[axis.name]) for axis in axes]
        if one.sps is None or one.reason:
            skipped.append(f"skipped: {one.cell.label}: {one.reason}")
            continue
        status = one.status + (", base" if one.cell.is_base else "")
        figures = [short(one.sps.median), f"{one.sps.relative_iqr:.0%}", str(len(one.rounds))]
        rows.append([status, values[0], *values[1:], *figures])
    print_figures(["", *(axis.name for axis in axes), "steps/s", "iqr", "rounds"], rows)
    for text in skipped:
        output.print(literal(text), style="dim", highlight=False, soft_wrap=True)


def _print_choice(found: dict[str, Any], files: dict[str, str]) -> None:
    """What was tried, what was chosen, and where it is."""
    verification = found["verification"]
    for trial in verification["trials"] if verification else []:
        returns = ", ".join("none" if x is None else f"{x:.4g}" for x in trial["returns"])
        word = "[green]converges[/green]" if trial["converged"] else "[yellow]fails[/yellow]"
        text = literal(f"{_named(trial['values'])}: return {trial['problem'] or returns or 'none'}")
        output.print(f"{word}: {text}", highlight=False, soft_wrap=True)
    if verification:
        output.print(f"needed: {literal(verification['needed'])}", style="dim", highlight=False)
    chosen = found["chosen"]
    if chosen is not None:
        times = "" if chosen["speedup"] is None else f", {chosen['speedup']:.2f} x the base"
        text = f"{_named(chosen['values'])}: {short(chosen['sps']['median'])} steps/s{times}"
        output.print(f"[bold]chosen[/bold]: {literal(text)}", highlight=False, soft_wrap=True)
    for file in files.values():
        output.print(literal(file), highlight=False, soft_wrap=True)
    if "config" in files:
        text = f"next: operant train --config {literal(files['config'])}"
        output.print(text, style="dim", highlight=False, soft_wrap=True)


def _named(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _regret(found: dict[str, Any], verification: Verification | None) -> None:
    """Say why nothing was chosen, and exit with 1."""
    if verification is None:
        spread = found["budget"]["max_spread"]
        text = f"nothing was chosen: no cell has an IQR below {spread:.0%} of its median; give a "
        text += "larger --budget, or allow more with --max-spread"
    else:
        text = f"nothing was chosen: {len(verification.trials)} tried, none converged in "
        text += f"{found['budget']['verify_steps']:,} steps; give more --verify-steps"
    errors.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(1)
