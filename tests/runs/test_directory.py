"""Names of runs: one process gets each, whoever else looks for one at the same moment."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from operant.runs.directory import Run, RunTakenError, runs_folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))


def test_many_at_once_get_names_of_their_own() -> None:
    together = threading.Barrier(8)

    def create(k: int) -> str:
        together.wait()
        return Run.create_free("game", f"number = {k}").id

    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(create, range(8)))
    assert sorted(names) == ["game", *(f"game-{k}" for k in range(2, 9))]
    for k, name in enumerate(names):
        assert Run(runs_folder() / name).config_file.read_text() == f"number = {k}"
    assert sorted(path.name for path in runs_folder().iterdir()) == sorted(names)


@pytest.mark.parametrize("there", ["a run", "a file"])
def test_a_name_that_is_taken_meanwhile(there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process was faster between the look and the rename."""
    if there == "a run":
        Run.create("game")
    else:
        runs_folder().mkdir()
        (runs_folder() / "game").write_text("")
    monkeypatch.setattr(Path, "exists", lambda self: False)
    with pytest.raises(RunTakenError, match="there is a run 'game' already; choose another"):
        Run.create("game")
    assert Run.create_free("game").id == "game-2"
    assert sorted(path.name for path in runs_folder().iterdir()) == ["game", "game-2"]
