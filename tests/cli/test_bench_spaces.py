"""``operant bench spaces`` as a user types it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from operant.cli import main

Bench = Callable[..., tuple[int, str, str]]
SHORT = ["--rows", "8", "--repeats", "2", "--seconds", "0.001"]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Runs the command; its exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["operant", "bench", "spaces", *arguments])
        monkeypatch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), *capsys.readouterr()

    return run


def test_table_and_frame(bench: Bench, tmp_path: Path) -> None:
    target = tmp_path / "spaces.json"
    code, out, err = bench(*SHORT, "--json", str(target))
    assert code == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["system", "operation", "rows", "us", "+-", "x", "gym", "x", "copy"]
    named = [(line[0], line[1]) for line in lines[1:8]]
    operations = ("flatten", "unflatten", "both")
    expected = [(system, one) for system in ("operant", "gymnasium") for one in operations]
    assert named == [*expected, ("copy", "copy")]
    data = json.loads(target.read_text())
    assert set(data) == {"machine", "commit", "date", "results"}
    assert [(one["system"], one["operation"]) for one in data["results"]] == named
    assert {one["repeats"] for one in data["results"]} == {2}


def test_json_alone_on_standard_output(bench: Bench) -> None:
    code, out, _ = bench(*SHORT, "--json", "-")
    assert code == 0
    assert len(json.loads(out)["results"]) == 7


def test_mistakes_are_a_sentence(bench: Bench, tmp_path: Path) -> None:
    code, _, err = bench("--rows", "0")
    assert code == 2
    assert "Traceback" not in err
    code, _, err = bench(*SHORT, "--json", str(tmp_path))
    assert code == 2
    assert "cannot write" in err


def test_help_shows_an_example(bench: Bench) -> None:
    code, out, _ = bench("--help")
    assert code == 0
    assert "operant bench spaces --rows 1024" in out
