"""The journal: what several processes write, and what a killed or a hostile one leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import optuna
import pytest

from operant.sweep.journal import Journal, JournalError, held
from operant.toolchain.child import python_command, python_environment

ENTRY = {"op_code": 0, "worker_id": "a", "study_name": "x", "directions": [1]}


def test_entries_are_read_back_from_any_number_on(tmp_path: Path) -> None:
    one, other = Journal(tmp_path / "j"), Journal(tmp_path / "j")
    one.append_logs([ENTRY | {"k": 0}, ENTRY | {"k": 1}])
    other.append_logs([ENTRY | {"k": 2}])
    for start in (0, 1, 2, 3):
        assert [entry["k"] for entry in one.read_logs(start)] == [0, 1, 2][start:]
    assert [entry["k"] for entry in Journal(tmp_path / "j").read_logs(2)] == [2]


def test_half_a_line_is_not_read_and_is_cut_off(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.append_logs([ENTRY])
    whole = (tmp_path / "j").read_bytes()
    for half in (b'{"op_code":', b"x" * 5000):
        (tmp_path / "j").write_bytes(whole + half)
        assert list(journal.read_logs(0)) == [ENTRY]
        Journal(tmp_path / "j").append_logs([ENTRY])
        assert (tmp_path / "j").read_bytes() == whole + whole


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"nonsense\n", "line 2 is not JSON"),
        (b"\xff\xfe\n", "line 2 is not JSON"),
        (b"[" * 100_000 + b"\n", "line 2 is not JSON"),
        (b"[]\n", "line 2 is no entry of Optuna's"),
        (b'{"op_code": 77, "worker_id": "a"}\n', "line 2 is no entry"),
        (b'{"op_code": "0", "worker_id": "a"}\n', "line 2 is no entry"),
        (b'{"op_code": 0}\n', "line 2 is no entry"),
        (b"1" * (1 << 20) + b"\n", "line 2 is too long"),
    ],
)
def test_a_line_that_is_no_entry(tmp_path: Path, line: bytes, why: str) -> None:
    path = tmp_path / "j"
    path.write_bytes(json.dumps(ENTRY).encode() + b"\n" + line)
    with pytest.raises(JournalError, match="is damaged") as caught:
        list(Journal(path).read_logs(0))
    assert why in str(caught.value)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / "j").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        Journal(tmp_path / "j")


def test_optuna_replays_it_and_nothing_is_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("something was unpickled")

    monkeypatch.setattr("pickle.loads", refuse)
    monkeypatch.setattr("pickle.load", refuse)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        study_name="x", storage=optuna.storages.JournalStorage(Journal(tmp_path / "j"))
    )
    study.optimize(lambda trial: trial.suggest_float("a", 0, 1), n_trials=3)
    again = optuna.load_study(
        study_name="x", storage=optuna.storages.JournalStorage(Journal(tmp_path / "j"))
    )
    assert [one.value for one in again.trials] == [one.value for one in study.trials]


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    code = (
        "from operant.sweep.journal import held\nfrom pathlib import Path\nimport time\n"
        f"with held(Path({str(tmp_path / 'lock')!r})):\n print('held', flush=True)\n"
        " while True: time.sleep(60)"
    )
    command = python_command("-c", code)
    with subprocess.Popen(command, env=python_environment(), stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with held(tmp_path / "lock", wait=False) as mine:
            assert not mine
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
    with held(tmp_path / "lock", wait=False) as mine:
        assert mine
