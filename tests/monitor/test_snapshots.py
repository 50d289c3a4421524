"""Whole screens, compared with how they looked when somebody looked at them.

``OPERANT_UPDATE_SNAPSHOTS=1`` writes them anew; look at the difference before you keep it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from textual.pilot import Pilot

from operant.monitor.app import MonitorApp
from operant.ppo.ppo import METRICS
from operant.runs import metrics_file
from operant.runs.directory import Run
from operant.runs.logs import CsvLog
from operant.runs.metrics_file import MetricsWriter
from operant.runs.metrics_layout import Status

SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.fixture(autouse=True)
def _same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    monkeypatch.setattr(metrics_file.platform, "node", lambda: "host")


def made(name: str, seed: int, rows: int = 400) -> Run:
    """A run that learned, with noise that is the same every time."""
    run = Run.create(name, '[env]\nid = "CartPole-v1"\n\n[run]\ntotal_steps = 2000000\n')
    run.write_info({"env": "CartPole-v1", "engine": "fused", "device": "cpu"})
    run.log_file.write_text("2026-01-01 00:00:00  started: CartPole-v1, seed 1\n")
    random = np.random.default_rng(seed)
    log = CsvLog(run.csv_file, METRICS)
    with MetricsWriter(run.mmap_file, METRICS, run_id=name) as live:
        for k in range(1, rows + 1):
            learned = 500 / (1 + np.exp((120 - k) / 25)) + random.normal(0, 12)
            row = {metric: float(random.normal()) / k for metric in METRICS}
            row |= {"iteration": k, "steps": 4096 * k, "seconds": k / 70, "episodes": 20 * k}
            row |= {"mean_return": learned, "sps": 290_000 + random.normal(0, 9000)}
            row |= {"return_min": learned - 50, "return_max": learned + 50, "return_std": 21.5}
            row |= {"collect_seconds": 2e-3, "advantages_seconds": 1e-4, "update_seconds": 1e-2}
            log.write(row)
            live.append([row[metric] for metric in METRICS])
        live.say(Status.FINISHED)
    log.close()
    return run


async def screen(size: tuple[int, int], run: Run | None, keys: tuple[str, ...], wanted: str) -> str:
    """What is shown after the keys, as soon as it is as wanted; in the end, as it is."""
    async with MonitorApp(run).run_test(size=size) as pilot:
        await _until(lambda: "cartpole" in _shown(pilot))  # a run, or the list of them, is read
        await pilot.press(*keys)
        await _until(lambda: _shown(pilot) == wanted)
        return _shown(pilot)


def _shown(pilot: Pilot[None]) -> str:
    lines = pilot.app.screen._compositor.render_strips()
    seen = "\n".join("".join(segment.text for segment in line).rstrip() for line in lines)
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2026-01-01 00:00:00", seen) + "\n"


async def _until(true: Callable[[], bool], seconds: float = 10) -> None:
    for _ in range(round(seconds / 0.02)):
        if true():
            break
        await asyncio.sleep(0.02)


CASES: dict[str, tuple[tuple[int, int], bool, tuple[str, ...]]] = {
    "run-80x24": ((80, 24), True, ()),
    "run-200x60": ((200, 60), True, ("s",)),
    "compare-120x36": ((120, 36), True, ("c",)),
    "log-80x24": ((80, 24), True, ("l",)),
    "help-80x24": ((80, 24), True, ("question_mark",)),
    "list-80x24": ((80, 24), False, ("space",)),
}


@pytest.mark.parametrize("name", CASES)
def test_screens_look_as_they_did(name: str) -> None:
    size, one, keys = CASES[name]
    made("other", 2, 250)
    run = made("cartpole", 1)
    path = SNAPSHOTS / f"{name}.txt"
    wanted = path.read_text() if path.exists() else ""
    seen = asyncio.run(screen(size, run if one else None, keys, wanted))
    if os.environ.get("OPERANT_UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(seen)
        wanted = seen
    assert seen == wanted
