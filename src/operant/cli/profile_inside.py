"""``operant profile --flame``, ``--trace``, ``--memory``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.table import Table

from operant.cli.bench_run import figure
from operant.cli.compile_status import compile_status
from operant.cli.meter import training_mistakes
from operant.cli.screen import errors, literal, mistakes, output

if TYPE_CHECKING:
    from operant.bench.profile import Job
    from operant.ppo.ppo import PPO


class Inside(NamedTuple):
    """What is to be looked at."""

    flame: Path | None
    trace: Path | None
    memory: bool

    def __bool__(self) -> bool:
        return self.memory or self.flame is not None or self.trace is not None


def look_inside(job: Job, wish: Inside, as_json: bool) -> None:
    """Train for about ``job.seconds`` once more for each thing that is looked at."""
    from operant.bench.inside.memory import memory_record, process_bytes
    from operant.bench.training import TimedTrainer

    before = process_bytes()
    with training_mistakes():
        with compile_status("starting: compiling (once for each definition)"):
            trainer = TimedTrainer(job.env, job.config)
            seconds = trainer.warm_up()
        ppo, steps = trainer.ppo, trainer.rollout * trainer.iterations_for(job.seconds, seconds)
        trainer.close_clock()
        found: dict[str, Any] = {"env": job.config.env.id, "steps": steps}
        if wish.flame is not None:
            found["flame"] = _flame(ppo, steps, wish.flame)
        if wish.trace is not None:
            found["trace"] = _trace(ppo, steps, wish.trace)
        if wish.memory:
            found["memory"] = memory_record(ppo, before)
        ppo.env.close()
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _print(found)


def _flame(ppo: PPO, steps: int, path: Path) -> dict[str, str]:
    from operant.bench.inside.flame import record_flame
    from operant.toolchain.files import exporting

    def train() -> None:
        ppo.learn(ppo.steps + steps, progress=False)

    with mistakes(), errors.status("looking at a training"), exporting(path) as staged:
        who = record_flame(train, staged, ppo.config.env.id)
    return {"file": str(path), "by": who}


def _trace(ppo: PPO, steps: int, path: Path) -> dict[str, Any]:
    from operant.bench.inside.trace import record_trace
    from operant.toolchain.files import exporting

    with mistakes(), errors.status("tracing a training"), exporting(path) as staged:
        events = record_trace(ppo, steps, staged)
    return {"file": str(path), "events": events}


def _print(found: dict[str, Any]) -> None:
    if "flame" in found:
        file, who = literal(found["flame"]["file"]), found["flame"]["by"]
        output.print(f"{file}: open it in speedscope; sampled by {literal(who)}", soft_wrap=True)
    if "trace" in found:
        file, events = literal(found["trace"]["file"]), found["trace"]["events"]
        output.print(f"{file}: {events:,} events; open it in Perfetto", soft_wrap=True)
    if "memory" not in found:
        return
    memory = found["memory"]
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for k, head in enumerate(("memory", "all", "an environment")):
        table.add_column(head, justify="right" if k else "left", no_wrap=True)
    for part in memory["parts"]:
        each = part["bytes_per_env"]
        shown = figure(each, "B") if each else ""
        table.add_row(part["name"], figure(part["bytes"], "B"), shown)
    names = {
        "process_before": "process, before",
        "process_now": "process, now",
        "process_peak": "process, at most",
        "gpu_now": "GPU, now",
        "gpu_peak": "GPU, at most",
    }
    for key, name in names.items():
        if key in memory:
            table.add_row(name, figure(memory[key], "B"), "")
    output.print(table)
