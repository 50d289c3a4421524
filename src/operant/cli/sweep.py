"""``operant sweep``: hyper-parameters searched for, and the winner trained on unseen seeds."""

from __future__ import annotations

import importlib.util
import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer import Argument, Option

from operant.cli.duration import seconds_of
from operant.cli.options import JsonFile
from operant.cli.screen import Interrupted, UserError, errors, literal, mistakes, output

if TYPE_CHECKING:
    from operant.lang.env import Env
    from operant.sweep.plan import Plan
    from operant.sweep.study import Study
    from operant.vector.foreign_env import ForeignEnv

EXAMPLE = (
    "Example:  operant sweep CartPole-v1 --trials 64 --budget 10m   then: "
    "operant train CartPole-v1 --config BEST.toml"
)
_TRIALS, _SEEDS = 64, 2


def sweep(
    env: Annotated[
        str, Argument(metavar="ENV", help="An id, path/to/file.py:Class or libgame.so.")
    ],
    space: Annotated[
        Path | None, Option(metavar="FILE", help="TOML file with ranges; default: built in.")
    ] = None,
    trials: Annotated[
        int | None, Option(min=1, max=1_000_000, metavar="N", help="To be finished; default 64.")
    ] = None,
    budget: Annotated[
        str, Option(metavar="TIME", help="End the search after: 600s, 10m, 1h.")
    ] = "",
    metric: Annotated[
        str, Option(metavar="NAME", help="return (default), seconds_to_threshold or both.")
    ] = "",
    study: Annotated[
        str, Option(metavar="NAME", help="Join, continue or name a sweep; default: a new name.")
    ] = "",
    jobs: Annotated[int, Option(min=1, max=1024, metavar="N", help="Processes here.")] = 1,
    seeds: Annotated[
        int | None, Option(min=1, max=100, metavar="N", help="Trainings of a trial; default 2.")
    ] = None,
    verify_seeds: Annotated[
        int, Option(min=1, max=100, metavar="N", help="Unseen seeds to train the winner on.")
    ] = 3,
    verify: Annotated[
        bool, Option("--verify/--no-verify", help="Train the winner on unseen seeds.")
    ] = True,
    config: Annotated[Path | None, Option(metavar="FILE", help="TOML file to start from.")] = None,
    settings: Annotated[
        list[str] | None, Option("--set", metavar="NAME=VALUE", help="One value; repeatable.")
    ] = None,
    device: Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")] = "",
    change_task: Annotated[
        bool, Option("--change-task", help="Let ranges change the task (env.params, time limit).")
    ] = False,
    json_file: JsonFile = "",
    job_of: Annotated[int, Option("--job-of", hidden=True, metavar="PID")] = 0,
) -> None:
    """Search for hyper-parameters, and train the best again on seeds that no trial had.

    A trial is a training, or one for each of --seeds; what does badly is given up early. Ctrl-C
    ends the search and shows what was found; --study continues it.
    Exit codes: 0 something was found, 1 no trial came to its end, 2 something to correct.
    """
    if importlib.util.find_spec("optuna") is None:
        raise UserError("operant sweep needs Optuna: pip install 'operant[sweep]'")
    with mistakes():
        asked = Asked(
            env, space, trials, metric, seeds, config, settings or [], device, change_task
        )
        ends = None if not budget else time.monotonic() + seconds_of(budget, "--budget")
        found, values = asked.load(study)
    with errors.status("starting: loading PyTorch and Optuna"):
        import operant.ppo.ppo
        import operant.sweep.study  # noqa: F401
    from operant.cli.sweep_run import Sweeping

    with ExitStack() as stack:
        with mistakes():
            opened = stack.enter_context(_opened(study, asked, found, values))
        sweeping = Sweeping(found, opened, ends, jobs, verify_seeds if verify else 0, asked)
        if job_of:
            sweeping.work(job_of)
            return
        report, interrupted = sweeping.run()
    if report is not None:
        _say(report, json_file)
    if interrupted:
        name = opened.folder.name
        again = f"continue with: operant sweep {env} --study {name}"
        raise Interrupted(f"interrupted; {again}")
    if report is not None and report["best"] is None:
        raise typer.Exit(1)


class Asked(NamedTuple):
    """What the user typed about a sweep; None and empty is what was not said."""

    env: str
    space: Path | None
    trials: int | None
    metric: str
    seeds: int | None
    config: Path | None
    settings: list[str]
    device: str
    change_task: bool

    def load(self, name: str) -> tuple[type[Env] | ForeignEnv, dict[str, Any]]:
        """The environment, and the values that were typed, by dotted name.

        Raises:
            UserError, ValueError: something does not exist, or cannot be.
        """
        from operant.cli.target import load_env, load_wrappers
        from operant.ppo.config_file import parsed_settings, read_config
        from operant.sweep.plan import METRICS, check_name

        if name:
            check_name(name)
        if self.metric and self.metric not in METRICS:
            raise UserError(f"--metric must be {', '.join(METRICS)}, got {self.metric!r}")
        values = {} if self.config is None else read_config(self.config)
        values |= parsed_settings(self.settings)
        if self.device:
            values["run.device"] = self.device
        found = load_env(self.env)
        load_wrappers(values.get("env.wrappers", ()))
        return found, values

    def plan(self, env: str, values: dict[str, Any]) -> Plan:
        """A new sweep's.

        Raises:
            ValueError: something does not fit.
        """
        from operant.cli.target import load_wrappers
        from operant.ppo.config_file import resolved
        from operant.sweep.plan import RETURN, Plan
        from operant.sweep.space import default_space, read_space

        space = None if self.space is None else read_space(self.space, self.change_task)
        base = resolved(env, values, space.fixed if space else {}, {"env.id": env})
        if base.env.id != env:
            raise UserError("a sweep is about one environment; leave env.id out of [fixed]")
        load_wrappers(base.env.wrappers)
        trials, seeds = self.trials or _TRIALS, self.seeds or _SEEDS
        space = space or default_space(base)
        return Plan(env, self.metric or RETURN, space, base, trials, seeds, self.change_task)


def _opened(
    name: str, asked: Asked, found: type[Env] | ForeignEnv, values: dict[str, Any]
) -> Study:
    """The sweep of that name, new if there is none.

    Raises:
        UserError, ValueError: it is about something else, or damaged.
    """
    from operant.cli.target import env_name
    from operant.sweep.plan import free_name
    from operant.sweep.study import Study, SweepTakenError, exists
    from operant.vector.foreign_env import ForeignEnv

    env = found.name if isinstance(found, ForeignEnv) else env_name(asked.env)
    if not (name and exists(name)):
        try:
            return Study.create(name or free_name(env), asked.plan(env, values))
        except SweepTakenError as taken:  # by a process that began at the same moment
            name = taken.name
    study = Study.open(name)
    try:
        _check_same(name, study.plan, env, asked, values)
        if asked.trials is not None and asked.trials != study.plan.trials:
            study.extend(asked.trials)
    except BaseException:
        study.close()
        raise
    return study


def _check_same(name: str, has: Plan, env: str, asked: Asked, values: dict[str, Any]) -> None:
    """Raise UserError where what was typed is not what the sweep is about."""
    from operant.sweep.space import read_space

    if has.env != env or has.base.env.id != env:
        raise UserError(f"the sweep {name!r} is about {has.env}, not {env}")
    if has.base.env.wrappers and "env.wrappers" not in values:
        wrappers = json.dumps(list(has.base.env.wrappers))
        raise UserError(
            f"env.wrappers of the sweep {name!r} names code, which is not run unless you name it "
            f"too; if you trust it, add --set 'env.wrappers={wrappers}'"
        )
    space = None if asked.space is None else read_space(asked.space, asked.change_task)
    others = {
        "--space": space not in (None, has.space),
        "--metric": asked.metric not in ("", has.metric),
        "--seeds": asked.seeds not in (None, has.seeds),
        "--config, --set or --device": has.base.replaced(values) != has.base,
    }
    for switch, differs in others.items():
        if differs:
            raise UserError(
                f"the sweep {name!r} was begun with another {switch}; leave it out to go on with "
                "that sweep, or begin one of another name"
            )


def _say(report: dict[str, Any], json_file: str) -> None:
    from operant.cli.sweep_report import print_report
    from operant.toolchain.files import export_file

    if json_file == "-":
        print(json.dumps(report))
        return
    if json_file:
        with mistakes():
            export_file(Path(json_file), (json.dumps(report, indent=2) + "\n").encode())
    print_report(report)
    if json_file:
        output.print(literal(json_file), highlight=False, soft_wrap=True)
