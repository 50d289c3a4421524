"""Artifacts: their names, and what is read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from operant.bench import artifact
from operant.bench.artifact import Run, env_slug, fingerprint, read_artifact, read_folder

Sample = Callable[..., dict[str, Any]]


def test_a_runs_name_has_date_commit_environment_and_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact, "commit", lambda: "0a1b2c3d4e-dirty")
    run = Run.start("operant/CartPole-v1")
    date, commit, env, number = run.name.split("_")
    assert (commit, env, number) == ("0a1b2c3-dirty", "cartpole-v1", run.id)
    assert date == run.date[:19].replace(":", "-")
    assert len(run.id) == 8
    assert run.env == "CartPole-v1"
    monkeypatch.setattr(artifact, "commit", lambda: None)
    assert Run.start("x").name.split("_")[1] == Run.start("x").commit == "none"


@pytest.mark.parametrize(
    ("env", "slug"),
    [
        ("CartPole-v1", "cartpole-v1"),
        ("../a/My Env.py:Lander_2", "lander-2"),
        ("..", "env"),
        ("x" * 300, "x" * 60),
    ],
)
def test_names_of_environments_become_harmless(env: str, slug: str) -> None:
    assert env_slug(env) == slug


def test_the_machine_is_known_by_what_speed_depends_on() -> None:
    found, versions = artifact.this_machine()
    assert found["fingerprint"] == fingerprint(found)
    assert versions["python"].startswith("3.")
    assert {"python", "versions"}.isdisjoint(found)
    for key in ("cpu", "cores", "usable_cores", "system", "gpu"):
        assert fingerprint({**found, key: "another"}) != found["fingerprint"]
    assert fingerprint({**found, "memory_gib": 1.0}) == found["fingerprint"]


def test_infinite_parameters_become_strings() -> None:
    found = artifact.plain({"a": [float("inf"), 1.5], "b": (float("nan"), True)})
    assert found == {"a": ["inf", 1.5], "b": ["nan", True]}


def test_what_was_written_is_read_back(tmp_path: Path, sample: Sample) -> None:
    data = sample(modes=artifact_modes())
    path = artifact.write_artifact(tmp_path, Run.start("CartPole-v1"), data)
    assert read_artifact(path) == data
    assert list(tmp_path.iterdir()) == [path]


def artifact_modes() -> tuple[str, ...]:
    return ("env_only", "trainer", "trainer_eval")


def put(place: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Changes the entry at a place such as ``modes.0.sps.median``."""

    def change(data: Any) -> None:
        *path, last = [int(part) if part.isdecimal() else part for part in place.split(".")]
        for part in path:
            data = data[part]
        data[last] = value

    return change


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        ("schema", "operant/throughput/2", 'schema must be "operant/throughput/1"'),
        ("id", "../../x", "id must look like"),
        ("date", "yesterday", "date must look like"),
        ("commit", "main", "commit must look like"),
        ("extra", 1, 'it has an unknown entry "extra"'),
        ("machine.cpu", None, "machine.cpu must be a string, got null"),
        ("machine.fingerprint", "zz", "machine.fingerprint must look like"),
        ("modes", [], "modes must have at least 1 entries"),
        ("modes.0.mode", "sleep", "modes[0].mode must be one of"),
        ("modes.0.sps.median", 0, "modes[0].sps.median must be above 0, got 0"),
        ("modes.0.sps.rounds", [100.0, "x"], "modes[0].sps.rounds[1] must be a number"),
        ("modes.0.split.env", 0.3, "modes[0].split sums to 1.2, not to 1"),
        ("modes.0.sps.min", 105.0, "modes[0].sps.median is not between min and max"),
        ("config.run", [], "config.run must be an object"),
        ("target.steps_per_sec", "1e5", "target.steps_per_sec must be a number"),
    ],
)
def test_nothing_in_a_file_is_trusted(
    written: Callable[..., Path], place: str, value: Any, sentence: str
) -> None:
    path = written(put(place, value))
    with pytest.raises(ValueError, match="is not a throughput artifact") as error:
        read_artifact(path)
    assert sentence in str(error.value)


def test_a_mode_is_there_once(written: Callable[..., Path]) -> None:
    path = written(lambda data: data["modes"].append(data["modes"][0]))
    with pytest.raises(ValueError, match="a mode is there twice"):
        read_artifact(path)


def test_a_folder_is_read_by_date(written: Callable[..., Path], tmp_path: Path) -> None:
    for day in (3, 1, 2):
        written(put("date", f"2026-11-0{day}T00:00:00+00:00"))
    (tmp_path / "trend.png").write_bytes(b"not looked at")
    assert [one["date"][9] for one in read_folder(tmp_path)] == ["1", "2", "3"]


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no artifact in"):
        read_folder(tmp_path)
    with pytest.raises(ValueError, match=r"cannot read .*nowhere: No such file"):
        read_folder(tmp_path / "nowhere")
    (tmp_path / "a.json").write_text(json.dumps({"schema": "else"}))
    with pytest.raises(ValueError, match=r"a\.json is not a throughput artifact"):
        read_folder(tmp_path)
