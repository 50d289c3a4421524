"""``operant bench compare`` as a user types it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from operant.bench.trees import this_tree
from operant.cli import main
from operant.toolchain import paths
from operant.toolchain.machine import commit

Compare = Callable[..., tuple[int, str, str]]


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Compare:
    """Runs the command; its exit code, standard output and standard error."""
    for name in os.environ:
        if name.startswith("COVERAGE_PROCESS_"):  # it would be slow, and see copies
            monkeypatch.delenv(name)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["operant", "bench", "compare", *arguments])
        monkeypatch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), *capsys.readouterr()

    return run


def _share_kernels() -> None:
    """Let the copy of this tree use what the tests compiled."""
    kernels, home = paths.home() / "kernels", this_tree().home
    kernels.mkdir(parents=True, exist_ok=True)
    home.mkdir(exist_ok=True)
    with suppress(FileExistsError):
        (home / "kernels").symlink_to(kernels)


def test_a_tree_with_itself(compare: Compare, tmp_path: Path) -> None:
    root, file = Path(__file__).parents[2], tmp_path / "found.json"
    _share_kernels()
    rows = ("--only", "env-cartpole", "--rounds", "1", "--seconds", "0.01")
    code, out, err = compare("--against", str(root), *rows, "--device", "cpu", "--json", str(file))
    assert code == 0, err
    assert f"old: {root}" in out.replace("\n", "")
    assert "range" in out  # one round has no interval
    assert all(len(line) <= 80 for line in out.splitlines() if str(root) not in line)
    (env,) = json.loads(file.read_text())["results"]
    assert (env["name"], env["verdict"]) == ("env-cartpole", "too few rounds")
    assert env["old_figure"] > 1e5
    assert 0 < env["low"] <= env["ratio"] <= env["high"]


@pytest.mark.skipif(shutil.which("git") is None or commit() is None, reason="not a git checkout")
def test_the_last_commit(compare: Compare) -> None:
    rows = ("--only", "import", "--rounds", "1", "--clock", "cpu", "--json", "-")
    code, out, err = compare("--against", "HEAD", *rows)
    assert code == 0, err
    (imports,) = json.loads(out)["results"]
    assert imports["old"] == (commit() or "").removesuffix("-dirty")
    assert (imports["clock"], len(imports["rounds"])) == ("cpu", 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--against", "no-such-commit"], "'no-such-commit' "),
        (["--against", "."], "there is no src/operant/__init__.py in the folder ."),
        (["--against", "HEAD", "--only", "env-chess"], "there is no row 'env-chess'; known: env-"),
        (["--against", "HEAD", "--only", ","], "--only names no row"),
        (["--against", "HEAD", "--clock", "sun"], "the clock must be auto, wall or cpu, got 'sun'"),
        (["--against", "HEAD", "--device", "cuda:77"], "cuda"),
    ],
)
def test_mistakes(
    compare: Compare,
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    device = [] if "--device" in arguments else ["--device", "cpu"]
    code, out, err = compare(*arguments, *device)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_a_side_that_does_not_start(compare: Compare, tmp_path: Path) -> None:
    package = tmp_path / "src" / "operant"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise OSError('broken')")
    code, _, err = compare("--against", str(tmp_path), "--only", "import", "--device", "cpu")
    assert code == 2
    assert "OSError: broken" in err
