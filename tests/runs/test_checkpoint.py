"""Checkpoints: what goes in comes out, to the bit; what is kept, found and replaced."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from operant.runs.checkpoint import (
    CheckpointError,
    find_checkpoint,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    mark_best,
    prune_checkpoints,
    read_best,
    save_checkpoint,
    verify_checkpoint,
)

DTYPES = ("bool", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")


def save(folder: Path, step: int, value: float = 0.0) -> Path:
    return save_checkpoint(folder, step, {"model": {"w": np.full(3, value)}}, {"value": value})


def steps(folder: Path) -> list[int]:
    return [int(path.name) for path in list_checkpoints(folder)]


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def assert_same(one: np.ndarray, two: np.ndarray) -> None:
    assert (one.dtype, one.shape, one.tobytes()) == (two.dtype, two.shape, two.tobytes())


@pytest.mark.parametrize("kind", DTYPES)
def test_arrays_come_back_to_the_bit(tmp_path: Path, kind: str) -> None:
    raw = np.random.default_rng(0).bytes(24 * 8)  # every bit pattern, NaNs with payloads included
    dtype = np.dtype(kind)
    flat = np.frombuffer(raw, dtype)[:24] if kind != "bool" else np.frombuffer(raw, "u1") % 2 == 0
    cube = flat[:24].reshape(2, 3, 4)
    arrays = {
        "cube": cube,
        "none": cube[:0],
        "none_wide": np.empty((3, 0, 2), dtype),
        "scalar": cube[1, 2, 3].reshape(()),
        "transposed": cube.T,
        "strided": cube[:, ::2, ::-1],
        "broadcast": np.broadcast_to(cube[0, 0], (3, 4)),
        "fortran": np.asfortranarray(cube),
    }
    path = save_checkpoint(tmp_path, 0, {"environment": arrays}, {})
    loaded = load_checkpoint(path).arrays["environment"]
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert_same(loaded[name], np.array(array, order="C"))
        assert loaded[name].flags.writeable
        assert loaded[name].flags.aligned


@pytest.mark.parametrize("kind", [k for k in DTYPES if k[-1] in "248"])
def test_foreign_byte_order_keeps_its_values(tmp_path: Path, kind: str) -> None:
    array = np.arange(6).astype(f">{kind}").reshape(2, 3)
    path = save_checkpoint(tmp_path, 0, {"model": {"a": array}}, {})
    assert_same(load_checkpoint(path).arrays["model"]["a"], array.astype(f"={kind}"))


def test_groups_facts_and_step(tmp_path: Path) -> None:
    facts: dict[str, Any] = {
        "seed": 2**127 + 1,
        "name": "ä\x1b[0m \ud800",
        "deep": [{"a": [1.5e-300, -0.0, True, None]}],
        "": "",
    }
    arrays = {"model": {"w": np.ones(2)}, "optimizer": {}, "random": {"torch/π": np.zeros(1, "u1")}}
    path = save_checkpoint(tmp_path / "deep" / "folder", 4096, arrays, facts)
    assert path == tmp_path / "deep" / "folder" / "000000004096"
    loaded = load_checkpoint(path)
    assert (loaded.path, loaded.step) == (path, 4096)
    assert repr(loaded.facts) == repr(facts)
    assert list(loaded.arrays) == list(arrays)
    assert [list(group) for group in loaded.arrays.values()] == [["w"], [], ["torch/π"]]
    verify_checkpoint(path)


def test_the_directory_is_plain_files(tmp_path: Path) -> None:
    path = save(tmp_path, 7)
    assert sorted(p.name for p in path.iterdir()) == [
        "facts.json",
        "manifest.json",
        "model.safetensors",
    ]
    manifest = json.loads((path / "manifest.json").read_text())
    assert (manifest["format"], manifest["version"], manifest["step"]) == (
        "operant checkpoint",
        1,
        7,
    )
    assert (tmp_path / "latest").read_text() == "000000000007\n"
    assert sorted(os.listdir(tmp_path)) == ["000000000007", "latest"]
    assert path.stat().st_mode & 0o777 == 0o777 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize(
    ("arrays", "facts", "message"),
    [
        ({"Model": {}}, {}, r"must match \[a-z_\]\+, got 'Model'"),
        ({"../model": {}}, {}, "must match"),
        ({"model": {"a": np.zeros(1, "c8")}}, {}, "array 'a' of 'model' is complex64"),
        ({"model": {"a": np.array([None])}}, {}, "is object"),
        ({"model": {"a": np.array(["x"])}}, {}, "is <U1"),
        ({"model": {"__metadata__": np.zeros(1)}}, {}, "__metadata__"),
        ({}, {"a": [1, float("nan")]}, r"facts\['a'\]\[1\] is nan"),
        ({}, {"a": float("-inf")}, "is -inf"),
        ({}, {"a": {1: 2}}, r"facts\['a'\] has the key 1: keys must be text"),
        ({}, {"a": (1, 2)}, r"facts\['a'\] is a tuple"),
        ({}, {"a": np.int64(1)}, "is a int64"),
        ({}, {"a": "x" * 2**26}, "at most 67108864 allowed"),
    ],
)
def test_what_would_not_come_back_is_refused(
    tmp_path: Path, arrays: Any, facts: Any, message: str
) -> None:
    save(tmp_path, 1)
    with pytest.raises(ValueError, match=message):
        save_checkpoint(tmp_path, 2, arrays, facts)
    assert sorted(os.listdir(tmp_path)) == ["000000000001", "latest"]


@pytest.mark.parametrize("step", [-1, 10**12])
def test_steps_have_twelve_digits(tmp_path: Path, step: int) -> None:
    with pytest.raises(ValueError, match=r"step must be 0 to 999999999999, got"):
        save(tmp_path, step)


def test_everything_is_synced_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)
    events: list[str] = []
    inodes: dict[int, str] = {}
    fsync, rename, replace = os.fsync, os.rename, os.replace

    def note_sync(descriptor: int) -> None:
        fsync(descriptor)
        name = os.readlink(f"/proc/self/fd/{descriptor}").removeprefix(str(tmp_path))
        parts = name.strip("/").split("/")
        events.append("sync " + "/".join("tmp" if p.startswith(".tmp-") else p for p in parts))
        inodes[os.fstat(descriptor).st_ino] = events[-1]

    def note_rename(source: Any, target: Any) -> None:
        rename(source, target)
        events.append(f"rename {Path(target).name}")

    def note_replace(source: Any, target: Any) -> None:
        replace(source, target)
        events.append(f"replace {Path(target).name}")

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "rename", note_rename)
    monkeypatch.setattr(os, "replace", note_replace)
    path = save(tmp_path, 2)
    assert events == [
        "sync tmp/model.safetensors",
        "sync tmp/facts.json",
        "sync tmp/manifest.json",
        "sync tmp",
        "rename 000000000002",
        "sync ",
        "sync tmp",
        "replace latest",
        "sync ",
    ]
    synced = {p.stat().st_ino for p in (path, *path.iterdir(), tmp_path, tmp_path / "latest")}
    assert synced == inodes.keys()


def test_list_is_by_step_and_knows_complete_names_only(tmp_path: Path) -> None:
    assert list_checkpoints(tmp_path / "missing") == []
    for step in (30, 4, 200):
        save(tmp_path, step)
    for name in (".tmp-000000000005-1-ab", "5", "0000000000005", "latest2", "00000000000x"):
        (tmp_path / name).mkdir()
    (tmp_path / "000000000006").touch()
    (tmp_path / "000000000007").symlink_to(tmp_path / "000000000004")
    (tmp_path / "٠٠٠٠٠٠٠٠٠٠٠٨").mkdir()  # digits, but not ours
    assert steps(tmp_path) == [4, 30, 200]


def test_latest_is_what_latest_names(tmp_path: Path) -> None:
    save(tmp_path, 8)
    path = save(tmp_path, 4)  # a run that went on from an older checkpoint
    assert latest_checkpoint(tmp_path) == path
    assert find_checkpoint(tmp_path, "latest") == path


@pytest.mark.parametrize(
    "content",
    [None, b"", b"junk", b"\xff\xfe", b"000000000099\n", b"0" * 5000, b"../../etc", b"4\n"],
)
def test_without_a_usable_latest_the_newest_good_one(tmp_path: Path, content: bytes | None) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    damage(tmp_path / "000000000003" / "model.safetensors")
    (tmp_path / "latest").unlink()
    if content is not None:
        (tmp_path / "latest").write_bytes(content)
    assert latest_checkpoint(tmp_path).name == "000000000002"


def test_latest_may_not_be_a_link(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "elsewhere").write_text("000000000001\n")
    save(tmp_path, 2)
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").symlink_to(tmp_path / "elsewhere")
    assert latest_checkpoint(tmp_path).name == "000000000002"


def test_damaged_latest_offers_the_newest_good_one_before_it(tmp_path: Path) -> None:
    for step in (1024, 4096, 6000, 8192, 9000):
        save(tmp_path, step)
    (tmp_path / "latest").write_text("000000008192\n")
    damage(tmp_path / "000000008192" / "model.safetensors")
    damage(tmp_path / "000000006000" / "facts.json")
    with pytest.raises(CheckpointError) as caught:
        latest_checkpoint(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/000000008192/model.safetensors: is damaged: its SHA-256 is not the one in "
        "manifest.json; the newest good one before it is step 4096: --checkpoint 4096"
    )


def test_damaged_latest_with_none_before_it(tmp_path: Path) -> None:
    damage(save(tmp_path, 1) / "facts.json")
    with pytest.raises(CheckpointError, match=r"facts\.json: is damaged.*no good one before it"):
        latest_checkpoint(tmp_path)


def test_no_checkpoint_at_all(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(CheckpointError, match="no good checkpoint; there is none"):
            latest_checkpoint(folder)


def test_find(tmp_path: Path) -> None:
    for step in (5, 10):
        save(tmp_path, step)
    assert find_checkpoint(tmp_path, "5") == tmp_path / "000000000005"
    assert find_checkpoint(tmp_path, "000000000010") == tmp_path / "000000000010"
    with pytest.raises(CheckpointError, match="no checkpoint of step 7; there is 5, 10"):
        find_checkpoint(tmp_path, "7")
    with pytest.raises(CheckpointError, match="no best checkpoint is marked; there is 5, 10"):
        find_checkpoint(tmp_path, "best")
    with pytest.raises(CheckpointError, match=r"or the number of a step, got '\.\./5'"):
        find_checkpoint(tmp_path, "../5")
    for step in range(20, 31):
        (tmp_path / f"{step:012d}").mkdir()
    with pytest.raises(CheckpointError, match=r"the newest of 13: 21, 22, .*, 30$"):
        find_checkpoint(tmp_path, "7")


def test_best(tmp_path: Path) -> None:
    assert read_best(tmp_path) is None
    for step in (1, 2, 3):
        save(tmp_path, step)
    mark_best(tmp_path, 3, 2)
    mark_best(tmp_path, 2, 3.5)
    assert read_best(tmp_path) == (2, 3.5)
    assert find_checkpoint(tmp_path, "best") == tmp_path / "000000000002"
    with pytest.raises(CheckpointError, match="no checkpoint of step 9"):
        mark_best(tmp_path, 9, 1.0)
    with pytest.raises(ValueError, match="must be finite, got nan"):
        mark_best(tmp_path, 3, float("nan"))
    assert read_best(tmp_path) == (2, 3.5)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"step": 1}',
        b'{"step": true, "score": 1.0}',
        b'{"step": -1, "score": 1.0}',
        b'{"step": 1, "score": NaN}',
        b'{"step": 1, "score": "high"}',
        b'{"step": 1, "score": 1e999}',
        b"[" * 4000,
        b" " * 5000,
        b"\xff",
    ],
)
def test_damaged_best_is_an_error_and_prunes_nothing(tmp_path: Path, content: bytes) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    (tmp_path / "best").write_bytes(content)
    with pytest.raises(CheckpointError, match=f"^{tmp_path}/best: "):
        find_checkpoint(tmp_path, "best")
    prune_checkpoints(tmp_path, 1)
    assert steps(tmp_path) == [1, 2, 3]


def test_prune_keeps_newest_best_and_latest(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4, 5, 6):
        save(tmp_path, step)
    mark_best(tmp_path, 1, 0.5)
    save(tmp_path, 3)
    prune_checkpoints(tmp_path, 2)
    assert steps(tmp_path) == [1, 3, 5, 6]
    assert sorted(os.listdir(tmp_path)) == [
        *(f"{step:012d}" for step in (1, 3, 5, 6)),
        "best",
        "latest",
    ]
    prune_checkpoints(tmp_path, 2)
    assert steps(tmp_path) == [1, 3, 5, 6]


def test_prune_without_latest_spares_the_newest_good_one(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    for step in (3, 4):
        damage(tmp_path / f"{step:012d}" / "model.safetensors")
    (tmp_path / "latest").unlink()
    prune_checkpoints(tmp_path, 1)
    assert steps(tmp_path) == [2, 4]
    damage(tmp_path / "000000000002" / "model.safetensors")
    prune_checkpoints(tmp_path, 1)
    assert steps(tmp_path) == [2, 4]  # none is good: a person may still want to look


def test_prune_sweeps_dead_writes(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / ".tmp-000000000002-7-ab").mkdir()
    (tmp_path / ".tmp-000000000002-7-ab" / "model.safetensors").write_bytes(b"half")
    (tmp_path / ".tmp-latest-7-ab").write_bytes(b"0000")
    (tmp_path / ".tmp-link").symlink_to(tmp_path / "000000000001")
    (tmp_path / "notes.txt").write_text("mine")
    prune_checkpoints(tmp_path, 1)
    assert sorted(os.listdir(tmp_path)) == ["000000000001", "latest", "notes.txt"]
    verify_checkpoint(tmp_path / "000000000001")


def test_prune_of_nothing(tmp_path: Path) -> None:
    prune_checkpoints(tmp_path / "missing", 3)
    prune_checkpoints(tmp_path, 3)
    with pytest.raises(ValueError, match="keep must be at least 1, got 0"):
        prune_checkpoints(tmp_path, 0)


def test_a_step_saved_again_is_replaced(tmp_path: Path) -> None:
    save(tmp_path, 1, 1.0)
    path = save(tmp_path, 1, 2.0)
    assert load_checkpoint(path).facts == {"value": 2.0}
    assert sorted(os.listdir(tmp_path)) == ["000000000001", "latest"]


def test_the_same_content_stays_where_it_is(tmp_path: Path) -> None:
    before = save(tmp_path, 1, 1.0).stat().st_ino
    (tmp_path / "latest").unlink()
    assert save(tmp_path, 1, 1.0).stat().st_ino == before
    assert sorted(os.listdir(tmp_path)) == ["000000000001", "latest"]


@pytest.mark.parametrize("kind", ["damaged", "file", "link"])
def test_whatever_has_the_name_is_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "000000000001"
    if kind == "damaged":
        damage(save(tmp_path, 1) / "model.safetensors")
    elif kind == "file":
        path.write_text("?")
    else:
        (tmp_path / "elsewhere").mkdir()
        path.symlink_to(tmp_path / "elsewhere")
    save(tmp_path, 1)
    assert latest_checkpoint(tmp_path) == path
    assert not path.is_symlink()


def test_a_replacement_cut_short_is_found_and_finished(tmp_path: Path) -> None:
    """Between the two renames of a replacement only ``.old-<step>`` is there."""
    save(tmp_path, 1)
    path = save(tmp_path, 2, 2.0)
    old = tmp_path / ".old-000000000002"
    path.rename(old)
    assert latest_checkpoint(tmp_path) == old
    assert find_checkpoint(tmp_path, "2") == old
    assert load_checkpoint(old).step == 2
    assert steps(tmp_path) == [1]
    (tmp_path / "latest").unlink()
    assert latest_checkpoint(tmp_path) == old
    save(tmp_path, 3)
    assert steps(tmp_path) == [1, 2, 3]
    assert load_checkpoint(path).facts == {"value": 2.0}

    path.rename(old)
    save(tmp_path, 4)
    prune_checkpoints(tmp_path, 9)
    (tmp_path / ".old-000000000003").mkdir()  # both: the new one is in place, the old one can go
    assert find_checkpoint(tmp_path, "3") == tmp_path / "000000000003"
    prune_checkpoints(tmp_path, 9)
    assert sorted(os.listdir(tmp_path)) == [*(f"{s:012d}" for s in (1, 2, 3, 4)), "latest"]
