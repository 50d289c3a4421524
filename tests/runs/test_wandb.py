"""Weights & Biases, offline: a real run's files, in the folder given."""

from __future__ import annotations

import json
import math
import os
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from operant.runs import trackers
from operant.runs.logs import WandbLog


@pytest.fixture(autouse=True)
def no_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODE", "API_KEY", "IDENTITY_TOKEN_FILE", "BASE_URL"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)
    for name in ("ERROR_REPORTING", "INIT_TIMEOUT", "FINISH_TIMEOUT"):  # set, and put back
        monkeypatch.setenv(f"WANDB_{name}", "")
        monkeypatch.delenv(f"WANDB_{name}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "data"))


def records(file: Path) -> list[Any]:
    """What a run's file holds: protocol buffers in LevelDB's log format, after seven bytes."""
    from wandb.proto import wandb_internal_pb2

    data, at, block = file.read_bytes(), 7, 32768
    found, pending = [], b""
    while at + 7 <= len(data):
        if block - at % block < 7:  # padding: a header does not span blocks
            at += block - at % block
            continue
        _, size, part = struct.unpack_from("<IHB", data, at)
        if at + 7 + size > len(data):
            break  # still being written
        pending += data[at + 7 : at + 7 + size]
        at += 7 + size
        if part in (1, 4):  # whole, or the last piece
            found.append(wandb_internal_pb2.Record.FromString(pending))
            pending = b""
    return found


def kind(record: Any) -> str:
    return str(record.WhichOneof("record_type"))


def test_offline(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    log = WandbLog(folder, "run-7", {"gamma": 0.99, "env": {"id": "CartPole-v1"}}, "cart")
    log.write({"steps": 10, "reward": 1.5, "loss": math.nan})
    log.write({"steps": 20, "reward": 2.5, "loss": 0.5})
    log.close()
    log.close()
    found: list[Any] = []
    end = time.monotonic() + 20  # W&B's own process writes the file, after `close` has returned
    while "exit" not in map(kind, found):
        assert time.monotonic() < end
        time.sleep(0.05)
        for file in folder.glob("wandb/offline-run-*/run-run-7.wandb"):
            found = records(file)
    (run,) = (r.run for r in found if kind(r) == "run")
    assert (run.run_id, run.project) == ("run-7", "cart")
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert (config["gamma"], config["env"]) == (0.99, {"id": "CartPole-v1"})
    rows = [
        {item.key or item.nested_key[0]: json.loads(item.value_json) for item in r.history.item}
        for r in found
        if kind(r) == "history"
    ]
    kept = [{k: v for k, v in row.items() if k in ("steps", "reward", "loss")} for row in rows]
    assert kept == [{"steps": 10, "reward": 1.5}, {"steps": 20, "reward": 2.5, "loss": 0.5}]
    assert [row["_step"] for row in rows] == [10, 20]
    assert capfd.readouterr() == ("", "")


def test_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trackers._wandb_mode() == "offline"
    (tmp_path / "netrc").write_text("machine example.org login user password x\n")
    assert trackers._wandb_mode() == "offline"
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password x\n")
    assert trackers._wandb_mode() is None
    monkeypatch.setenv("WANDB_BASE_URL", "https://example.org/")
    assert trackers._wandb_mode() == "offline"
    (tmp_path / "netrc").write_text("nonsense")
    assert trackers._wandb_mode() == "offline"
    for name in ("MODE", "API_KEY"):
        with monkeypatch.context() as patch:
            patch.setenv(f"WANDB_{name}", "disabled")
            assert trackers._wandb_mode() is None


def test_a_resumed_run_keeps_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    asked: dict[str, Any] = {}
    monkeypatch.setattr(wandb, "init", lambda **options: asked.update(options) or SimpleNamespace())
    monkeypatch.setenv("WANDB_MODE", "online")
    WandbLog(tmp_path / "a" / "b", "run-7", {})
    chosen = {key: asked[key] for key in ("id", "resume", "mode", "dir", "project")}
    assert chosen == {
        "id": "run-7",
        "resume": "allow",
        "mode": None,
        "dir": str(tmp_path / "a" / "b"),
        "project": "operant",
    }
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("file", ["wandb/settings", ".wandb/settings", "run/wandb/settings"])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_settings_that_may_be_anyones_are_refused(
    file: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    monkeypatch.setattr(wandb, "init", lambda **options: pytest.fail("it was started"))
    place = tmp_path / file
    place.parent.mkdir(parents=True)
    if kind == "file":
        place.write_text("[default]\nbase_url = http://127.0.0.1:9\n")
    else:
        place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"W&B would obey .*settings, which may send your key"):
        WandbLog(tmp_path / "run", "run-7", {})


@pytest.mark.parametrize("name", ["wandb", ".wandb"])
def test_a_link_is_not_followed(name: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path)
    with pytest.raises(OSError, match="is a symbolic link"):
        WandbLog(tmp_path / "run", "run-7", {})


def test_no_network_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    asked: list[str | None] = []

    def init(mode: str | None, **options: Any) -> Any:
        asked.append(mode)
        if mode != "offline":
            raise wandb.errors.CommError("no route\nto the host")
        return SimpleNamespace()

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setattr(wandb, "teardown", lambda: asked.append("teardown"))
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    log = WandbLog(tmp_path, "run-7", {})
    assert asked == [None, "teardown", "offline"]
    assert log.problem.startswith("W&B cannot be reached (no route to the host); rows are kept in ")


@pytest.mark.parametrize("asked", ["", "true"])
def test_nothing_is_reported_unless_asked_for(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if asked:
        monkeypatch.setenv("WANDB_ERROR_REPORTING", asked)
    trackers._set_wandb_variables(offline=False)
    assert os.environ["WANDB_ERROR_REPORTING"] == (asked or "false")
    assert float(os.environ["WANDB_INIT_TIMEOUT"]) <= 30
    trackers._set_wandb_variables(offline=True)
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"
