"""``operant train``: from a name to a trained policy."""

from __future__ import annotations

import json
import os
import shlex
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer import Option

from operant.cli.compile_status import compile_status
from operant.cli.interrupts import arrived
from operant.cli.screen import (
    Interrupted,
    UserError,
    errors,
    file_trouble,
    literal,
    mistakes,
    output,
    printable,
    short,
)

if TYPE_CHECKING:
    from operant.ppo.evaluate import Evaluation
    from operant.ppo.session import Session

EXAMPLE = "Example:  operant train CartPole-v1 --seed 1 --set ppo.learning_rate=1e-3"
_SHOW_CURSOR = "\x1b[?25h"


def train(
    env: Annotated[
        str, typer.Argument(metavar="[ENV]", help="An id, path/to/file.py:Class or libgame.so.")
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
    detach: Annotated[
        bool, Option("--detach", help="Train in the background; print the run's name.")
    ] = False,
    watch: Annotated[
        bool, Option("--monitor", help="Train in the background and show the monitor here.")
    ] = False,
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
    if checkpoint != "latest" and not resume:
        raise UserError("--checkpoint says where to go on with --resume; name the run to resume")
    if detach or watch:
        given = _Given(env, config, settings or [], seed, total_steps, device, engine, checkpoint)
        _in_background(given, run_id, resume, watch, as_json)
        return
    with errors.status("starting: loading PyTorch"):
        import operant.ppo.session  # noqa: F401  (seconds, the first time)
    text = "starting: compiling the environment (once for each definition)"
    with compile_status(text), mistakes():
        session = _open(env, values, run_id, resume, checkpoint)
        advice = _Advice.of(session, env or str(values.get("env.id", "")), resume)
    try:
        _train(session, advice, as_json)
    except KeyboardInterrupt:  # before or after the time in which signals are handled
        arrived()
        raise Interrupted(f"interrupted; {_saved(session)}; {advice.resume}") from None


class _Given(NamedTuple):
    """What the user typed, to be typed again."""

    env: str
    config: Path | None
    settings: list[str]
    seed: int | None
    total_steps: str
    device: str
    engine: str
    checkpoint: str

    def arguments(self) -> list[str]:
        words = [self.env] if self.env else []
        named = {"config": self.config, "seed": self.seed, "total-steps": self.total_steps}
        named |= {"device": self.device, "engine": self.engine}
        if self.checkpoint != "latest":
            named["checkpoint"] = self.checkpoint
        words += [f"--{name}={value}" for name, value in named.items() if value not in (None, "")]
        return words + [word for setting in self.settings for word in ("--set", setting)]


def _in_background(given: _Given, run_id: str, resume: str, watch: bool, as_json: bool) -> None:
    """Train in a process of its own; show the monitor, if asked."""
    from operant.cli.detach import start_detached
    from operant.runs.directory import Run, check_run_id, find_run, new_run_id, runs_folder

    with mistakes():
        if resume:
            run = find_run(resume)
            arguments = [*given.arguments(), f"--resume={resume}"]
        else:
            run_id = run_id or new_run_id(given.env or "run")
            check_run_id(run_id)
            run = Run(runs_folder() / run_id)
            arguments = [*given.arguments(), f"--run-id={run_id}"]
        start_detached(arguments, run)
    name = run.id if resume in ("", "latest") else resume  # a path stays one
    if watch:
        from operant.cli.monitor import show

        show(name)
    if as_json:
        print(json.dumps({"run_id": run.id, "path": str(run.path)}))
    elif watch:
        from operant.monitor.source import Source

        view = Source(run).read()
        state = "goes on" if view.live else f"is {view.status}"
        output.print(
            f"{literal(run.id)} {state}; watch it again: operant monitor {literal(name)}",
            highlight=False,
        )
    else:
        output.print(literal(run.id), highlight=False)
        errors.print(
            f"training in the background; watch it: operant monitor {literal(name)}, "
            f"end it: operant stop {literal(name)}",
            style="dim",
            highlight=False,
            soft_wrap=True,
        )


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
    from operant.runs.summary import summary

    if resume:
        run = find_run(resume)
        chosen = load_env(env) if env else None
        try:
            return Session.resume(run, chosen, values, checkpoint=checkpoint)
        except ValueError:
            named = summary(run).env
            if chosen is not None or named is None or _is_registered(named):
                raise
            raise UserError(
                f"the environment {named!r} of {resume} is not registered; its code is not run "
                f"unless you name it: operant train file.py:Class --resume {shlex.quote(resume)}"
            ) from None
    if run_id:
        check_run_id(run_id)
    env = env or str(values["env.id"])
    cls = load_env(env)
    return Session.start(resolved(env, values, {"env.id": env}), cls, run_id)


def _is_registered(env_id: str) -> bool:
    from operant.envs.registry import get_env

    try:
        get_env(env_id)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class _Advice:
    """What to type next."""

    resume: str
    evaluate: str

    @classmethod
    def of(cls, session: Session, env: str, resume: str) -> _Advice:
        """From what the user typed: `resume` may be a path, `env` code that must be named again."""
        run = shlex.quote(session.run.id if resume in ("", "latest") else resume)
        env = "" if not env or _is_registered(env) else shlex.quote(env)
        return cls(
            f"continue with: operant train {env and env + ' '}--resume {run}",
            f"next: operant eval {run}{env and ' --env ' + env}",
        )


def _saved(session: Session) -> str:
    return f"{session.run.id} is saved up to step {session.recorder.saved_step or 0:,}"


def _train(session: Session, advice: _Advice, as_json: bool) -> None:
    run, ppo = session.run, session.ppo
    where = f"{ppo.config.env.id} on {ppo.device}, {ppo.config.env.num_envs} environments"
    begin = "" if session.resumed is None else f", from step {session.resumed:,}"
    errors.print(
        f"[bold]{literal(run.id)}[/bold]: {literal(where)}{begin}", highlight=False, soft_wrap=True
    )
    errors.print(
        f"engine {ppo.engine.name}: {literal(ppo.engine_reason)}", highlight=False, style="dim"
    )
    for note in session.notes:
        errors.print(literal(note), highlight=False, style="yellow", soft_wrap=True)
    with _Signals(session) as signals:
        _learn(session, advice)
        evaluation = _evaluation(session, signals)
    report = session.report(evaluation)
    if as_json:
        print(json.dumps(report))
    else:
        _print_report(report, evaluation, advice)


def _learn(session: Session, advice: _Advice) -> None:
    from operant.cli.progress import TrainProgress
    from operant.ppo.guard import NonFiniteError
    from operant.vector.author_mistake import env_mistake

    try:
        with TrainProgress(session.ppo) as progress:
            session.train([progress])
    except NonFiniteError as error:
        plain: dict[str, Any] = {"markup": False, "highlight": False, "soft_wrap": True}
        errors.print(printable(f"operant: {error}"), style="red", **plain)
        good = session.recorder.saved_step or 0
        text = f"the checkpoint at step {good:,} is the last good one: {session.run.id}"
        errors.print(printable(text), **plain)
        raise typer.Exit(3) from None
    except OSError as error:  # a full disk, say
        text = f"{file_trouble(error)}; {_saved(session)}; {advice.resume}"
        raise UserError(text) from error
    except Exception as error:
        mistake = env_mistake(error)
        if mistake is None:
            raise
        raise UserError(f"{mistake}; {_saved(session)}; correct it and {advice.resume}") from error


def _evaluation(session: Session, signals: _Signals) -> Evaluation | None:
    """The final evaluation; None where there is none, or a signal ended it."""
    if signals.asked or not session.finished:
        return None
    try:
        signals.evaluating = True
        with errors.status("evaluating"), mistakes():
            return session.evaluate()
    except KeyboardInterrupt:
        return None
    finally:
        signals.evaluating = False


def _print_report(report: dict[str, Any], evaluation: Evaluation | None, advice: _Advice) -> None:
    speed = (
        f"{report['steps']:,} steps in {report['seconds']:.1f} s ({short(report['sps'])} steps/s)"
    )
    if not report["finished"]:
        output.print(f"[yellow]stopped[/yellow] and saved: {speed}", highlight=False)
        output.print(literal(advice.resume), highlight=False, soft_wrap=True)
        return
    if evaluation is not None:
        reached = (
            f"return {evaluation.mean_return:.1f} +- {evaluation.std_return:.1f} "
            f"over {len(evaluation.returns)} episodes"
        )
    elif report["mean_return"] is not None:
        reached = f"not evaluated; mean return {report['mean_return']:.1f} of the last episodes"
    else:
        reached = "not evaluated; no episode has ended"
    if report["solved"] is not None:
        needed = f" ({report['reward_threshold']:g} needed)"
        word = "[green]solved[/green]" if report["solved"] else "[yellow]not solved[/yellow]"
        reached = f"{word}: {reached}{needed}"
    output.print(f"{reached}; {speed}", highlight=False, soft_wrap=True)
    output.print(literal(advice.evaluate), style="dim", highlight=False, soft_wrap=True)


class _Signals:
    """SIGINT and SIGTERM finish the iteration and save; a second SIGINT stops at once.

    During the evaluation, when everything is saved, the first raises KeyboardInterrupt.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._before: dict[int, Any] = {}
        self.asked = False
        self.evaluating = False

    def __enter__(self) -> _Signals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked and number == signal.SIGINT:
            saved = f"saved up to step {self._session.recorder.saved_step or 0:,}"
            with suppress(OSError):
                self._session.run.log(f"stopped at once; {saved}")
            show_cursor = _SHOW_CURSOR if os.isatty(2) else ""  # the bar hid it
            _say(f"{show_cursor}operant: stopped at once; {saved}")
            os._exit(130)
        first, self.asked = not self.asked, True
        if self.evaluating:
            if first:
                _say("leaving out the evaluation; everything is saved")
                raise KeyboardInterrupt
            return
        self._session.ppo.stop()
        _say("finishing the iteration, then saving (Ctrl-C again: stop at once)")


def _say(text: str) -> None:
    """Straight to standard error: a signal may interrupt a print, which would keep it back."""
    with suppress(OSError):  # nobody listens
        os.write(2, f"\n{text}\n".encode())
