"""Artifacts to read, and cells that were never trained."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from operant.bench.artifact import fingerprint
from operant.bench.rounds import Rounds
from operant.ppo.config_file import resolved

Sample = Callable[..., dict[str, Any]]

MACHINE = {
    "cpu": "A fast processor",
    "cores": 4,
    "usable_cores": 2,
    "memory_gib": 8.0,
    "system": "Linux x86_64",
}
SPLIT = {"env": 0.1, "policy": 0.2, "advantages": 0.05, "update": 0.6, "other": 0.05}


def mode_record(mode: str, rounds: list[float]) -> dict[str, Any]:
    trained = mode != "env_only"
    split = SPLIT if trained else {**dict.fromkeys(SPLIT, 0.0), "env": 1.0}
    evaluated = mode == "trainer_eval"
    return {
        "mode": mode,
        "device": "cpu",
        "backend": "cpu",
        "engine": "fused" if trained else None,
        "num_envs": 8,
        "threads": 2,
        "sps": Rounds(tuple(rounds)).record(),
        "split": {**split, "eval": 0.0} if evaluated else split,
        "env_split": "measured",
        "evaluation": {"every_steps": 1000, "episodes": 10} if evaluated else None,
        "target": {"met": True, "delta": 0.5},
        "floor": None,
    }


@pytest.fixture
def sample() -> Sample:
    """Makes a valid artifact; keyword arguments replace entries of it."""

    def make(speed: float = 100.0, modes: tuple[str, ...] = ("trainer",), **changes: Any) -> Any:
        rounds = [0.9 * speed, speed, 1.1 * speed]
        found = {
            "schema": "operant/throughput/1",
            "id": "0123abcd",
            "date": "2026-11-15T18:30:00+00:00",
            "commit": "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
            "env": "CartPole-v1",
            "machine": {"fingerprint": fingerprint(MACHINE), **MACHINE},
            "versions": {"python": "3.12.0", "numpy": "2.4.6"},
            "config": resolved("CartPole-v1").to_dict(),
            "measurement": {"seconds": 1.0, "repeats": 3},
            "target": {"steps_per_sec": 1e5, "enforced": False, "met": True},
            "floor": None,
            "modes": [mode_record(mode, rounds) for mode in modes],
        }
        return copy.deepcopy({**found, **changes})

    return make


@pytest.fixture
def written(tmp_path: Path, sample: Sample) -> Callable[..., Path]:
    """Writes an artifact, changed by a function; the file."""

    def write(
        change: Callable[[dict[str, Any]], object] = lambda data: None, **entries: Any
    ) -> Path:
        data = sample(**entries)
        change(data)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps(data))
        return path

    return write
