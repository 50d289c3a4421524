"""``operant train``: from a name to a trained policy."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from typer import Option

from operant.cli.screen import UserError, errors, mistakes, output, short

if TYPE_CHECKING:
    from operant.ppo.session import Session

EXAMPLE = "Example:  operant train CartPole-v1 --seed 1 --set ppo.learning_rate=1e-3"


def train(
    env: Annotated[
        str, typer.Argument(metavar="[ENV]", help="An id, or path/to/file.py:Class.")
    ] = "",
    config: Annotated[
        Path | None, Option(metavar="FILE", help="TOML file; see `operant config ENV`.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="One value, such as ppo.clip=0.1; repeatable."),
    ] = None,
    seed: Annotated[int | None, Option(help="The same seed gives the same run.")] = None,
    total_steps: Annotated[
        str, Option(metavar="N", help="Environment steps in all, such as 1e6.")
    ] = "",
    device: Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")] = "",
    engine: Annotated[str, Option(help="auto, eager, graph or fused.")] = "",
    run_id: Annotated[str, Option(metavar="NAME", help="Name of the new run.")] = "",
    resume: Annotated[
        str, Option(metavar="RUN", help="Continue a run: its name, or 'latest'.")
    ] = "",
    checkpoint: Annotated[
        str, Option(metavar="STEP", help="With --resume: from this one; also 'best'.")
    ] = "latest",
    as_json: Annotated[bool, Option("--json", help="End with one JSON object.")] = False,
) -> None:
    """Train a policy with PPO: a run directory with metrics and checkpoints, then an evaluation.

    Ctrl-C finishes the iteration and saves; a second one stops at once. Exit code 3: a number was
    not finite (NaN); the last good checkpoint is kept.
    """
    with mistakes():
        values = _values(config, settings or [], seed, total_steps, device, engine)
    if not env and not resume and "env.id" not in values:
        raise UserError("name an environment, such as CartPole-v1, or a run to --resume")
    if resume and run_id:
        raise UserError("--run-id names a new run; --resume continues one under its own name")
    with errors.status("starting: loading PyTorch"):
        import operant.ppo.session  # noqa: F401  (seconds, the first time)
    text = "starting: compiling the environment (once for each definition)"
    with errors.status(text), mistakes():
        session = _open(env, values, run_id, resume, checkpoint)
    _train(session, as_json)


def _values(
    config: Path | None,
    settings: list[str],
    seed: int | None,
    total_steps: str,
    device: str,
    engine: str,
) -> dict[str, Any]:
    """What the command line says, by dotted name; options win over --set, --set over the file."""
    from operant.ppo.config_file import parsed_settings, read_config

    values = {} if config is None else read_config(config)
    values |= parsed_settings(settings)
    if seed is not None:
        values["run.seed"] = seed
    if total_steps:
        try:
            values["run.total_steps"] = float(total_steps.replace("_", ""))
        except ValueError:
            raise ValueError(f"--total-steps must be a number, got {total_steps!r}") from None
    if device:
        values["run.device"] = device
    if engine:
        values["run.engine"] = engine
    return values


def _open(env: str, values: dict[str, Any], run_id: str, resume: str, checkpoint: str) -> Session:
    from operant.cli.target import load_env
    from operant.ppo.config_file import resolved
    from operant.ppo.session import Session
    from operant.runs.directory import check_run_id, find_run

    if resume:
        run = find_run(resume)
        return Session.resume(run, load_env(env) if env else None, values, checkpoint=checkpoint)
    if run_id:
        check_run_id(run_id)
    env = env or values["env.id"]
    chosen = load_env(env)
    return Session.start(resolved(env, values, {"env.id": env}), chosen, run_id)


def _train(session: Session, as_json: bool) -> None:
    from operant.cli.progress import TrainProgress
    from operant.ppo.guard import NonFiniteError

    run, ppo = session.run, session.ppo
    where = f"{ppo.config.env.id} on {ppo.device}, {ppo.config.env.num_envs} environments"
    begin = "" if session.resumed is None else f", from step {session.resumed:,}"
    errors.print(f"[bold]{escape(run.id)}[/bold]: {escape(where)}{begin}", highlight=False)
    errors.print(
        f"engine {ppo.engine.name}: {escape(ppo.engine_reason)}", highlight=False, style="dim"
    )
    try:
        with TrainProgress(ppo) as progress, _signals(session):
            session.train([progress])
    except NonFiniteError as error:
        errors.print(f"operant: {error}", style="red", markup=False, highlight=False)
        good = session.recorder.saved_step
        errors.print(
            f"the checkpoint at step {good:,} is the last good one: {run.id}", markup=False
        )
        raise typer.Exit(3) from None
    evaluation = None
    if session.finished:
        with errors.status("evaluating"), mistakes():
            evaluation = session.evaluate()
    report = session.report(evaluation)
    if as_json:
        print(json.dumps(report))
    else:
        _print_report(report, evaluation)


def _print_report(report: dict[str, Any], evaluation: Any) -> None:
    speed = (
        f"{report['steps']:,} steps in {report['seconds']:.1f} s ({short(report['sps'])} steps/s)"
    )
    if not report["finished"]:
        output.print(f"[yellow]stopped[/yellow] and saved: {speed}", highlight=False)
        output.print(f"continue with: operant train --resume {report['run_id']}", highlight=False)
        return
    if evaluation is None:
        reached = f"mean return {report['mean_return']} of the last episodes"
    else:
        reached = (
            f"return {evaluation.mean_return:.1f} +- {evaluation.std_return:.1f} "
            f"over {len(evaluation.returns)} episodes"
        )
    if report["solved"] is not None:
        needed = f" ({report['reward_threshold']:g} needed)"
        word = "[green]solved[/green]" if report["solved"] else "[yellow]not solved[/yellow]"
        reached = f"{word}: {reached}{needed}"
    output.print(f"{reached}; {speed}", highlight=False, soft_wrap=True)
    output.print(f"next: operant eval {report['run_id']}", style="dim", highlight=False)


@contextmanager
def _signals(session: Session) -> Iterator[None]:
    """SIGINT and SIGTERM finish the iteration and save; a second SIGINT stops at once."""
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            saved = f"stopped at once; saved up to step {session.recorder.saved_step or 0:,}"
            session.run.log(saved)
            _say(f"operant: {saved}")
            os._exit(130)
        asked = True
        session.ppo.stop()
        _say("finishing the iteration, then saving (Ctrl-C again: stop at once)")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    """Straight to standard error: a signal may interrupt a print, which would keep it back."""
    os.write(2, f"\n{text}\n".encode())
