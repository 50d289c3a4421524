"""``operant train``: from a name to a trained policy."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer import Option

from operant.cli.compile_status import compile_status
from operant.cli.interrupts import arrived
from operant.cli.launch_ranks import launch
from operant.cli.screen import (
    Interrupted,
    UserError,
    errors,
    file_trouble,
    literal,
    mistakes,
    output,
    printable,
)
from operant.cli.train_again import replayed, resumed
from operant.cli.train_ranks import (
    be_quiet,
    depend_on_others,
    follow,
    note_run,
    own_rank,
    rank_errors,
    run_of_restart,
    session_type,
    telling_others,
)
from operant.cli.train_report import Advice, print_report, saved
from operant.cli.train_signals import Signals

if TYPE_CHECKING:
    from operant.ppo.session import Session
    from operant.training.evaluate import Evaluated
    from operant.training.init_from import Origin

EXAMPLE = (
    "Example:  operant train CartPole --seed 1 --num-envs 64 --learning-rate 1e-3;  "
    "operant train LunarLander-v3 --mode async;  operant train --replay latest;  "
    "operant train CartPole --ranks 2 --restarts 3"
)
_SHORT_FOR = {
    "seed": "run.seed",
    "total-steps": "run.total_steps",
    "num-envs": "env.num_envs",
    "learning-rate": "ppo.learning_rate",
    "threads": "run.threads",
    "eval-every": "run.eval_every",
    "device": "run.device",
    "engine": "run.engine",
    "mode": "run.mode",
}
"""Switches that are another name of an option."""


def train(
    env: Annotated[
        str, typer.Argument(metavar="[ENV]", help="An id, path/to/file.py:name or libgame.so.")
    ] = "",
    config: Annotated[
        Path | None, Option(metavar="FILE", help="TOML file; see `operant config ENV`.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="One value, such as ppo.clip=0.1; repeatable."),
    ] = None,
    seed: Annotated[int | None, Option(help="The same seed gives the same run.")] = None,
    seeds: Annotated[
        int | None,
        Option(min=2, max=1000, metavar="N", help="N runs with seeds of their own."),
    ] = None,
    total_steps: Annotated[
        str,
        Option(
            "--total-steps", "--timesteps", metavar="N", help="Environment steps in all: 1e6, say."
        ),
    ] = "",
    num_envs: Annotated[
        int | None, Option(metavar="N", help="Environments that step together.")
    ] = None,
    learning_rate: Annotated[float | None, Option(metavar="X", help="Adam's step size.")] = None,
    threads: Annotated[
        int | None, Option(metavar="N", help="That train on a CPU; 0: what proves fastest.")
    ] = None,
    eval_every: Annotated[
        str, Option(metavar="N", help="Steps between evaluations while it trains.")
    ] = "",
    device: Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")] = "",
    engine: Annotated[str, Option(help="auto, eager, graph or fused.")] = "",
    mode: Annotated[
        str, Option(help="async: collect the next rollouts while it trains on the last.")
    ] = "",
    ranks: Annotated[
        int | None, Option(min=1, max=1024, metavar="N", help="Processes that train together.")
    ] = None,
    restarts: Annotated[
        int, Option(min=0, metavar="K", help="With --ranks: how often to go on after a failure.")
    ] = 0,
    run_id: Annotated[str, Option(metavar="NAME", help="Name of the new run.")] = "",
    init_from: Annotated[
        str, Option(metavar="RUN", help="Start from the weights of a run, or of a checkpoint.")
    ] = "",
    resume: Annotated[
        str, Option(metavar="RUN", help="Continue a run: its name, or 'latest'.")
    ] = "",
    replay: Annotated[
        str, Option(metavar="RUN", help="Repeat a run of --mode async: the same weights again.")
    ] = "",
    checkpoint: Annotated[
        str, Option(metavar="STEP", help="With --resume or --init-from: this one; also 'best'.")
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

    Ctrl-C finishes the iteration and saves; a second one stops at once.
    Exit code 3: a number was not finite (NaN); the last good checkpoint is kept.
    """
    words = (seed, total_steps, num_envs, learning_rate, threads, eval_every, device, engine, mode)
    short_for = dict(zip(_SHORT_FOR, words, strict=True))
    typed = {name: word for name, word in short_for.items() if word not in (None, "")}
    given = Given(env, config, settings or [], typed, init_from, checkpoint, replay)
    with mistakes():
        values = given.values()
    _check(given, values, seeds, run_id, resume)
    _check_ranks(ranks, restarts, seeds, detach or watch)
    if detach or watch:
        several = Several(ranks, restarts)
        _in_background(given, several, run_id, resume, seeds, watch, as_json)
        return
    if ranks is not None and ranks > 1:
        with mistakes():
            arguments = _rank_arguments(given, run_id, resume)
        launch([*arguments, *(["--json"] if as_json else [])], ranks, restarts)
        return
    with rank_errors():
        _train(given, values, seeds, run_id, resume, as_json)


def _train(
    given: Given,
    values: dict[str, Any],
    seeds: int | None,
    run_id: str,
    resume: str,
    as_json: bool,
) -> None:
    """Train here, in one process or as one of several."""
    rank = own_rank()
    if rank is not None:
        depend_on_others()
    if rank:
        be_quiet()
    with errors.status("starting: loading PyTorch"):
        from operant.ppo.session import Following  # seconds, the first time
    if seeds is not None:
        from operant.cli.train_seeds import train_seeds

        train_seeds(given, values, seeds, run_id, as_json)
        return
    if rank is not None and (again := run_of_restart(run_id)):
        given = given._replace(init_from="", checkpoint="latest")
        run_id, resume = "", again
    with telling_others():
        session = opened(given, values, run_id, resume)
    if isinstance(session, Following):
        follow(session)
        return
    if rank is not None:
        note_run(session.run)
    advice = Advice.of(session, given.target(values), resume)
    report = trained(session, advice).report
    if as_json:
        print(json.dumps(report))
    else:
        print_report(report, advice, session.evaluator is not None)


class Several(NamedTuple):
    """Processes that train together, and how often they are started again."""

    ranks: int | None
    restarts: int

    def arguments(self) -> list[str]:
        """The same as a command line."""
        return (
            [] if self.ranks is None else [f"--ranks={self.ranks}", f"--restarts={self.restarts}"]
        )


class Given(NamedTuple):
    """What the user typed about a run: to be read, or to be typed again."""

    env: str
    config: Path | None
    settings: list[str]
    typed: dict[str, Any]
    """Switches of `_SHORT_FOR`, by name."""
    init_from: str
    checkpoint: str
    replay: str = ""

    def values(self) -> dict[str, Any]:
        """By dotted name; switches win over --set, --set over the file.

        Raises:
            ValueError: an unknown name or a bad value.
        """
        from operant.ppo.config_file import parsed_settings, read_config

        values = {} if self.config is None else read_config(self.config)
        values |= parsed_settings(self.settings)
        for name, word in self.typed.items():
            values[_SHORT_FOR[name]] = word
            if name in ("total-steps", "eval-every"):  # 1e6 and 1_000_000 too
                try:
                    values[_SHORT_FOR[name]] = float(word.replace("_", ""))
                except ValueError:
                    raise ValueError(
                        f"--{name} must be a number, such as 1e5, got {word!r}"
                    ) from None
        return values

    def target(self, values: dict[str, Any]) -> str:
        """The environment that was named, in full; empty if none was."""
        from operant.cli.target import env_name

        return env_name(self.env or str(values.get("env.id", "")))

    def arguments(self) -> list[str]:
        """The same as a command line."""
        words = [self.env] if self.env else []
        named: dict[str, Any] = {} if self.config is None else {"config": self.config}
        named |= self.typed
        if self.init_from:
            named["init-from"] = self.init_from
        if self.checkpoint != "latest":
            named["checkpoint"] = self.checkpoint
        if self.replay:
            named["replay"] = self.replay
        words += [f"--{name}={value}" for name, value in named.items()]
        return words + [word for setting in self.settings for word in ("--set", setting)]


def _check(
    given: Given, values: dict[str, Any], seeds: int | None, run_id: str, resume: str
) -> None:
    """Raise UserError for switches that do not go together."""
    again = resume or given.init_from or given.replay
    if not given.env and not again and "env.id" not in values:
        raise UserError("name an environment, such as CartPole-v1, or a run to --resume")
    if resume and run_id:
        raise UserError("--run-id names a new run; --resume continues one under its own name")
    if resume and given.init_from:
        raise UserError("--resume continues a run, --init-from starts a new one; choose one")
    for name, used in (("--resume", resume), ("--init-from", given.init_from), ("--seeds", seeds)):
        if given.replay and used:
            raise UserError(f"--replay repeats a run as it was; leave out {name}")
    if resume and seeds is not None:
        raise UserError("--seeds starts new runs; --resume continues one: leave out one of them")
    if given.checkpoint != "latest" and not resume and not given.init_from:
        raise UserError(
            "--checkpoint says where to go on with --resume or --init-from; name the run"
        )


def _check_ranks(ranks: int | None, restarts: int, seeds: int | None, background: bool) -> None:
    """Raise UserError for switches that do not go together with several ranks."""
    started = own_rank() is not None
    if started and ranks is not None:
        raise UserError("torchrun has started the ranks already; leave out --ranks")
    if started and background:
        raise UserError(
            "--detach and --monitor start processes, and so did torchrun; leave them out"
        )
    if seeds is not None and (started or (ranks or 1) > 1):
        raise UserError("--seeds trains one run after the other, each in one process, not on ranks")
    if restarts and (ranks or 1) < 2:
        raise UserError(
            f"--restarts is for several processes: --ranks 2 --restarts {restarts}; one process "
            "is continued with --resume"
        )


def _rank_arguments(given: Given, run_id: str, resume: str) -> list[str]:
    """The command line of each rank. A new run has its name from here, for a restart to know."""
    from operant.runs.directory import check_run_id, find_run, new_run_id

    if resume:
        return [
            *given.arguments(),
            f"--resume={find_run(resume).id if resume == 'latest' else resume}",
        ]
    run_id = run_id or new_run_id(given.target(given.values()) or given.init_from or "run")
    check_run_id(run_id)
    return [*given.arguments(), f"--run-id={run_id}"]


def _in_background(
    given: Given,
    several: Several,
    run_id: str,
    resume: str,
    seeds: int | None,
    watch: bool,
    as_json: bool,
) -> None:
    """Train in a process of its own; show the monitor, if asked."""
    from operant.cli.detach import start_detached
    from operant.cli.train_seeds import seeded_names
    from operant.runs.directory import Run, check_run_id, find_run, new_run_id, runs_folder

    with mistakes():
        if resume:
            run = find_run(resume)
            arguments = [*given.arguments(), f"--resume={resume}"]
        else:
            first = run_id = run_id or new_run_id(given.target({}) or "run")
            arguments = [*given.arguments(), f"--run-id={run_id}"]
            if seeds is not None:
                first = next(iter(seeded_names(run_id, given.values(), seeds).values()))
                arguments.append(f"--seeds={seeds}")
            check_run_id(first)
            run = Run(runs_folder() / first)
        start_detached([*arguments, *several.arguments()], run)
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
        now = "latest" if seeds is not None else literal(name)  # one run follows the other
        errors.print(
            f"training in the background; watch it: operant monitor {now}, "
            f"end it: operant stop {now}",
            style="dim",
            highlight=False,
            soft_wrap=True,
        )


def opened(given: Given, values: dict[str, Any], run_id: str, resume: str = "") -> Any:
    """The session that was asked for, compiled and ready; of a rank that follows a `Following`.

    Raises:
        UserError: something does not exist or does not fit.
    """
    text = "starting: compiling the environment (once for each definition)"
    with compile_status(text), mistakes():
        if given.replay:
            return replayed(given, values, given.replay, run_id)
        return resumed(given, values, resume) if resume else _started(given, values, run_id)


def _started(given: Given, values: dict[str, Any], run_id: str) -> Any:
    from operant.check.plays import try_in_python
    from operant.cli.target import is_registered, load_env, load_wrappers
    from operant.ppo.config_file import resolved
    from operant.runs.directory import check_run_id
    from operant.vector.foreign_env import ForeignEnv

    if run_id:
        check_run_id(run_id)
    env, origin = given.target(values), None
    if given.init_from:
        origin = _origin(given)
        env = env or _env_of(origin)
    found = load_env(env)
    env = found.name if isinstance(found, ForeignEnv) else env  # with the version it has
    config = resolved(env, origin.networks if origin else {}, values, {"env.id": env})
    load_wrappers(config.env.wrappers)
    if isinstance(found, type) and not is_registered(env):
        try_in_python(found, **config.env.params)
    return session_type().start(config, found, run_id, init_from=origin)


def _origin(given: Given) -> Origin:
    from operant.cli.agent import find_policy
    from operant.training.init_from import Origin

    run, path = find_policy(given.init_from, given.checkpoint)
    return Origin.read(path, run)


def _env_of(origin: Origin) -> str:
    """The environment of a run whose weights are taken, where none was named."""
    from operant.cli.target import code_to_name, is_registered

    env = origin.config.env.id
    if is_registered(env):
        return env
    raise UserError(
        f"the environment {env!r} of {origin.name} is not registered; its code is not run unless "
        f"you name it; if you trust it: operant train {code_to_name(env)} --init-from "
        f"{shlex.quote(origin.name)}"
    )


class Outcome(NamedTuple):
    """What became of a session."""

    report: dict[str, Any]
    asked_to_stop: bool


def trained(session: Session, advice: Advice, briefly: bool = False) -> Outcome:
    """Train to the end, show it, and evaluate. `briefly`: its engine was named before.

    Raises:
        UserError, typer.Exit, Interrupted: it could not be finished; something was said about it.
    """
    try:
        _introduce(session, briefly)
        with Signals(session) as signals:
            _learn(session, advice)
            evaluation = _evaluation(session, signals)
        return Outcome(session.report(evaluation), signals.asked)
    except KeyboardInterrupt:  # before or after the time in which signals are handled
        arrived()
        raise Interrupted(f"interrupted; {saved(session)}; {advice.resume}") from None


def _introduce(session: Session, briefly: bool) -> None:
    from operant.training.foreign import how_it_runs

    run, ppo = session.run, session.ppo
    where = f"{ppo.config.env.id} on {ppo.device}, {ppo.config.env.num_envs} environments"
    begin = "" if session.resumed is None else f", from step {session.resumed:,}"
    errors.print(
        f"[bold]{literal(run.id)}[/bold]: {literal(where)}{begin}", highlight=False, soft_wrap=True
    )
    origin = run.origin()
    dim: dict[str, Any] = {"highlight": False, "style": "dim"}
    if origin is not None and session.resumed is None and not briefly:
        text = f"weights of {origin['run']} at step {origin['step']:,}"
        errors.print(literal(text), soft_wrap=True, **dim)
    if not briefly:
        errors.print(f"engine {ppo.engine.name}: {literal(ppo.engine_reason)}", **dim)
        if (how := how_it_runs(ppo.env, ppo.config.env)) is not None:
            errors.print(f"environments {literal(how)}", **dim)
    for note in session.notes:
        errors.print(literal(note), highlight=False, style="yellow", soft_wrap=True)


def _learn(session: Session, advice: Advice) -> None:
    from operant.backends.author_mistake import env_mistake
    from operant.cli.progress import TrainProgress
    from operant.training.guard import NonFiniteError
    from operant.training.ranks import RankError

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
    except RankError as error:
        text = printable(f"operant: {error}; {saved(session)}; {advice.resume}")
        errors.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(3 if error.not_finite else 1) from None
    except OSError as error:  # a full disk, say
        text = f"{file_trouble(error)}; {saved(session)}; {advice.resume}"
        raise UserError(text) from error
    except Exception as error:
        mistake = env_mistake(error)
        if mistake is None:
            raise
        raise UserError(f"{mistake}; {saved(session)}; correct it and {advice.resume}") from error


def _evaluation(session: Session, signals: Signals) -> Evaluated | None:
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
