"""``operant bench run``, ``save`` and ``compare NAME`` as a user types them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from operant.bench.suite import machine_noise
from operant.cli import main
from operant.toolchain import paths

Bench = Callable[..., tuple[int, str, str]]
FEW = ("--only", "gae_compute,buffer_add,train/fused", "--seconds", "0.001", "--device", "cpu")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Runs ``operant bench``; its exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["operant", "bench", *arguments])
        monkeypatch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), *capsys.readouterr()

    return run


@pytest.fixture
def baselines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, with the kernels of the tests."""
    kernels = paths.home() / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (tmp_path / "kernels").symlink_to(kernels)
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    return tmp_path / "baselines"


def test_saved_compared_and_found_slower(bench: Bench, baselines: Path, tmp_path: Path) -> None:
    code, out, err = bench("save", "before", *FEW, "--rounds", "2", "--noisy")
    assert code == 0, err
    assert "next: operant bench compare before" in out
    for name in ("gae_compute/numba", "buffer_add/CartPole-v1", "train/fused/cpu"):
        assert name in out
    file, found = baselines / "before.json", tmp_path / "changes.json"
    data = json.loads(file.read_text())
    for row in data["results"]:  # a baseline of another world: all was a thousand times as fast
        for key in ("median", "low", "high"):
            row[key] *= 1000
    file.write_text(json.dumps(data))
    code, out, err = bench("compare", "before", "--rounds", "2", "--noisy", "--json", str(found))
    assert code == 1
    assert err.count("of the baseline") == 3
    assert "gae_compute/numba is at 0.00" in err
    assert "above 1 is better" in out
    changes = json.loads(found.read_text())["results"]
    assert [0 < one["ratio"] < 0.1 for one in changes] == [True] * 3
    for row in data["results"]:
        for key in ("median", "low", "high"):
            row[key] /= 1e6
    file.write_text(json.dumps(data))
    code, out, err = bench("compare", "before", "--rounds", "2", "--noisy", "--json", "-")
    assert code == 0, err
    assert [one["ratio"] > 10 for one in json.loads(out)["results"]] == [True] * 3


def test_a_busy_machine(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_noise, "MOST_BUSY", -1.0)
    few = ("run", "--only", "gae_compute", "--rounds", "1", "--seconds", "0.001")
    code, out, err = bench(*few)
    assert (code, out) == (2, "")
    assert "cores of this machine while it was measured" in err
    assert "or say --noisy" in err
    code, out, err = bench(*few, "--noisy")
    assert code == 0
    assert "gae_compute/numba" in out
    assert "read these figures with care" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compare",), "the NAME of a baseline, or --against COMMIT|FOLDER"),
        (("compare", "a", "--against", "HEAD"), "the NAME of a baseline, or --against"),
        (("compare", "never-saved"), "no baseline is called 'never-saved'"),
        (("save", "../a"), "a baseline's name has letters"),
        (("run", "--only", "gae"), "no case of the quick suite is called 'gae'"),
        (("run", "--suite", "slow"), "the suite must be quick or full, got 'slow'"),
    ],
)
def test_mistakes(bench: Bench, baselines: Path, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = bench(*arguments)
    assert (code, out) == (2, "")
    assert words in " ".join(err.split())
    assert "Traceback" not in err
