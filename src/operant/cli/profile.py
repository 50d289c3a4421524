"""``operant profile``: steps per second, where the time goes, and whether that is enough."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer import Option

from operant.cli.compile_status import compile_status
from operant.cli.meter import follow, training_mistakes
from operant.cli.profile_inside import Inside, look_inside
from operant.cli.profile_tables import print_comparison, print_profile, print_trend
from operant.cli.screen import UserError, errors, mistakes, output, printable

if TYPE_CHECKING:
    from operant.bench.artifact import Run
    from operant.bench.floor import Floors
    from operant.bench.profile import Job, Mode, Result

EXAMPLE = "Example:  operant profile CartPole-v1 --mode trainer --enforce-target --floor floor.json"


def profile(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ENV",
            help="An id, path/to/file.py:Class or libgame.so. With --compare: two artifacts. With "
            "--trend: their folder.",
        ),
    ] = None,
    modes: Annotated[
        list[str] | None,
        Option("--mode", help="env_only, trainer or trainer_eval; repeatable. Default: all."),
    ] = None,
    seconds: Annotated[
        float, Option(min=0.001, max=3600, help="Least seconds of a mode in a round.")
    ] = 1.0,
    repeats: Annotated[
        int, Option(min=1, max=10_000, help="Rounds, taking turns; the median counts.")
    ] = 5,
    target: Annotated[
        float, Option("--target-steps-per-sec", help="What every mode should reach.")
    ] = 100_000,
    enforce: Annotated[
        bool,
        Option("--enforce-target", help="Exit code 1 below the target, or below a given floor."),
    ] = False,
    floor: Annotated[
        Path | None, Option(metavar="FILE", help="Speeds this machine is known to reach.")
    ] = None,
    calibrate: Annotated[
        bool, Option("--calibrate", help="Write this run's speeds, less a margin, to --floor.")
    ] = False,
    config: Annotated[Path | None, Option(metavar="FILE", help="TOML file, as for train.")] = None,
    settings: Annotated[
        list[str] | None, Option("--set", metavar="NAME=VALUE", help="One value; repeatable.")
    ] = None,
    num_envs: Annotated[int | None, Option(min=1, help="Short for env.num_envs.")] = None,
    device: Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")] = "",
    engine: Annotated[str, Option(help="auto, eager, graph or fused.")] = "",
    eval_every: Annotated[
        int,
        Option(
            min=0, metavar="N", help="Steps between evaluations; 0: a tenth of a run, 1e5 at most."
        ),
    ] = 0,
    eval_episodes: Annotated[
        int, Option(min=0, metavar="N", help="Episodes of each; 0: run.eval_episodes.")
    ] = 0,
    out: Annotated[
        Path | None, Option(metavar="DIR", help="Where the artifact, or the chart, goes.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print the artifact instead of a table.")] = (
        False
    ),
    compare: Annotated[bool, Option("--compare", help="Compare two artifacts.")] = False,
    trend: Annotated[bool, Option("--trend", help="Draw the artifacts of a folder.")] = False,
    flame: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Instead: sample a training, for speedscope. With py-spy, if it is installed.",
        ),
    ] = None,
    trace: Annotated[
        Path | None, Option(metavar="FILE", help="Instead: PyTorch's trace, for Perfetto.")
    ] = None,
    memory: Annotated[bool, Option("--memory", help="Instead: what takes memory.")] = False,
) -> None:
    """Measure steps per second: environments alone, PPO training, training with evaluations.

    Writes a JSON artifact to artifacts/throughput. With --floor, the floor is what --enforce-target
    enforces: where the target is out of reach, a machine is held to what it was seen to reach.
    Exit codes: 0 done, 1 what is enforced was missed, 2 something to correct.
    """
    given = targets or []
    if compare and trend:
        raise UserError("--compare and --trend are two things; choose one")
    if compare:
        _compare(given, as_json)
        return
    if trend:
        _trend(given, out, as_json)
        return
    if len(given) != 1:
        raise UserError("name one environment, such as CartPole-v1")
    if calibrate and floor is None:
        raise UserError("--calibrate writes a floor file; name it with --floor FILE")
    if not 0 < target < math.inf:
        raise UserError(f"--target-steps-per-sec must be a number above 0, got {target:g}")
    from operant.bench.profile import MODES, Evaluations

    job = _job(given[0], config, settings or [], num_envs, device, engine)
    with mistakes():
        job = replace(
            job,
            modes=tuple(dict.fromkeys(modes or MODES)),
            seconds=seconds,
            repeats=repeats,
            evaluations=Evaluations(eval_every, eval_episodes),
        )
    inside = Inside(flame, trace, memory)
    if inside:
        look_inside(job, inside, as_json)
        return
    _measure(job, _Wish(target, enforce, floor, calibrate), out, as_json)


class _Wish(NamedTuple):
    """What speeds are judged by."""

    target: float
    enforce: bool
    floor: Path | None
    calibrate: bool


def _job(
    env: str,
    config: Path | None,
    settings: list[str],
    num_envs: int | None,
    device: str,
    engine: str,
) -> Job:
    """What the command line asks for."""
    from operant.bench.profile import Job
    from operant.cli.target import env_name, load_env, load_wrappers
    from operant.ppo.config_file import parsed_settings, read_config, resolved
    from operant.vector.foreign_env import ForeignEnv

    with mistakes():
        values = {} if config is None else read_config(config)
        values |= parsed_settings(settings)
        named = {"env.num_envs": num_envs, "run.device": device, "run.engine": engine}
        values |= {name: value for name, value in named.items() if value}
        found = load_env(env)
        env = found.name if isinstance(found, ForeignEnv) else env_name(env)
        whole = resolved(env, values, {"env.id": env})
        load_wrappers(whole.env.wrappers)
        job = Job(found, whole)
    with errors.status("starting: loading PyTorch"):
        import operant.ppo.ppo  # noqa: F401  (seconds, the first time)
    return job


def _measure(job: Job, wish: _Wish, out: Path | None, as_json: bool) -> None:
    from operant.bench.artifact import FOLDER, Run, write_artifact
    from operant.bench.profile import measure
    from operant.toolchain.files import make_folder

    run = Run.start(job.config.env.id)
    with training_mistakes():
        floors = _floors(wish, run, job.modes)
        folder = FOLDER if out is None else out
        make_folder(folder)
        opened = _opened(job, None if wish.calibrate else floors, run)
        results = follow(measure(job, opened), len(job.modes) * job.repeats)
        if wish.calibrate:
            floors = _calibrated(wish, floors, results, job, run)
        found = _artifact(job, results, wish, floors, run)
        path = write_artifact(folder, run, found)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print_profile(found, path, wish.floor if wish.calibrate else None)
    _enforce(found)


def _floors(wish: _Wish, run: Run, modes: tuple[str, ...]) -> Floors | None:
    """The floors to compare with, or to add to; None if there are none yet."""
    from operant.bench.floor import Floors

    if wish.floor is None:
        return None
    if not wish.floor.exists():
        if wish.calibrate:
            return None
        raise UserError(f"there is no floor file {wish.floor}; write it with --calibrate")
    floors = Floors.read(wish.floor)
    if wish.calibrate:
        floors.check_new(run, modes)
    else:
        floors.check(run, modes)
    return floors


def _opened(job: Job, floors: Floors | None, run: Run) -> list[Mode]:
    """The modes, compiled and ready; their work is what the floors were calibrated with."""
    from operant.bench.floor import check_work, work_of
    from operant.bench.profile import open_mode

    with compile_status("starting: compiling (once for each definition)"):
        opened = []
        for name in job.modes:
            mode = open_mode(job, name)
            entry = None if floors is None else floors.find(run, name)
            if floors is not None and entry is not None:
                check_work(entry, work_of(job.config, mode.result), floors.path)
            opened.append(mode)
        for mode in opened:
            mode.prepare(job.seconds)
    return opened


def _calibrated(
    wish: _Wish, floors: Floors | None, results: list[Result], job: Job, run: Run
) -> Floors:
    """Write the floors of this run, beside those that are there."""
    from operant.bench.floor import Floors, calibrated, write_floors

    assert wish.floor is not None
    new = [calibrated(result, job.config, run) for result in results]
    entries = [*([] if floors is None else floors.entries), *new]
    write_floors(wish.floor, entries)
    return Floors(wish.floor, entries)


def _artifact(
    job: Job, results: list[Result], wish: _Wish, floors: Floors | None, run: Run
) -> dict[str, Any]:
    from operant.bench.artifact import SCHEMA, plain
    from operant.bench.floor import judged
    from operant.bench.profile import record

    modes = [
        judged(record(one), wish.target, None if floors is None else floors.find(run, one.mode))
        for one in results
    ]
    met = [all(mode[kind]["met"] for mode in modes if mode[kind]) for kind in ("target", "floor")]
    return {
        "schema": SCHEMA,
        **run.record(),
        "config": plain(job.config.to_dict()),
        "measurement": {"seconds": job.seconds, "repeats": job.repeats},
        "target": {"steps_per_sec": wish.target, "enforced": wish.enforce, "met": met[0]},
        "floor": None if floors is None else {"file": floors.path.name, "met": met[1]},
        "modes": modes,
    }


def _enforce(found: dict[str, Any]) -> None:
    """Say what was missed; exit with 1 if that is enforced."""
    from operant.bench.floor import missed, verdicts

    guilty = missed(found["modes"]) if found["target"]["enforced"] else []
    for text in verdicts(found["modes"], found["target"]["steps_per_sec"]):
        style = "red" if text.partition(":")[0] in guilty else "yellow"
        errors.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
    if guilty:
        raise typer.Exit(1)


def _compare(given: list[str], as_json: bool) -> None:
    from operant.bench.artifact import read_artifact
    from operant.bench.compare import compare

    if len(given) != 2:
        raise UserError("--compare takes two artifacts: operant profile --compare A.json B.json")
    with mistakes():
        found = compare(*(read_artifact(Path(name)) for name in given))
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print_comparison(found)


def _trend(given: list[str], out: Path | None, as_json: bool) -> None:
    from operant.bench.artifact import FOLDER, read_folder
    from operant.bench.compare import lines, trend_records
    from operant.bench.trend_chart import draw_trend
    from operant.render.chart import save_figure

    if len(given) > 1:
        raise UserError("--trend takes one folder of artifacts")
    folder = Path(given[0]) if given else FOLDER
    target = folder if out is None else out
    path = target if target.suffix in (".png", ".svg", ".pdf") else target / "trend.png"
    with errors.status("drawing"), mistakes():
        found = lines(read_folder(folder))
        save_figure(draw_trend(found), path)
    records = trend_records(found)
    if as_json:
        print(json.dumps({"file": str(path), "lines": records}, indent=2))
    else:
        print_trend(records)
        output.print(printable(str(path)), markup=False, highlight=False, soft_wrap=True)
