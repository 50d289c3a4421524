"""Damaged, malformed and malicious checkpoints: one clear error, never anything else."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operant.runs.checkpoint import (
    CheckpointError,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    save_checkpoint,
    verify_checkpoint,
)

ARRAYS = {
    "model": {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "on": np.array([True, False])},
    "random": {"state": np.arange(4, dtype=np.uint64)},
}
FACTS = {"iteration": 3, "rng": {"state": 2**100}, "names": ["a", "b"]}
NAMES = ("manifest.json", "facts.json", "model.safetensors", "random.safetensors")


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("damage"), 4096, ARRAYS, FACTS)


@pytest.fixture
def checkpoint(original: Path, tmp_path: Path) -> Path:
    path = tmp_path / original.name
    shutil.copytree(original, path)
    return path


def manifest(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads((path / "manifest.json").read_text())
    change(data)
    (path / "manifest.json").write_text(json.dumps(data))


def put(path: Path, name: str, data: bytes) -> None:
    """A file that the manifest vouches for: whoever can write the one can write the other."""
    (path / name).write_bytes(data)
    entry = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest(path, lambda m: m["files"].update({name: entry}))


def tensors(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def refused(path: Path, file: str, reason: str) -> None:
    for read in (verify_checkpoint, load_checkpoint):
        refused_by(read, path, file, reason)


def refused_by(read: Callable[[Path], object], path: Path, file: str, reason: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read(path)
    message = str(caught.value)
    assert message.startswith(f"{path / file if file else path}: ")
    assert reason in message
    assert message.isprintable()
    assert len(message) < 600


def test_the_original_is_good(checkpoint: Path) -> None:
    verify_checkpoint(checkpoint)
    same(load_checkpoint(checkpoint))
    copied = checkpoint.with_name("copied by hand")  # a name without a step is fine
    checkpoint.rename(copied)
    assert load_checkpoint(copied).step == 4096


def same(loaded: Any) -> None:
    assert loaded.step == 4096
    assert loaded.facts == FACTS
    assert loaded.arrays.keys() == ARRAYS.keys()
    for group, members in ARRAYS.items():
        assert loaded.arrays[group].keys() == members.keys()
        for name, array in members.items():
            found = loaded.arrays[group][name]
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            assert found.tobytes() == array.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_missing_file(checkpoint: Path, name: str) -> None:
    (checkpoint / name).unlink()
    refused(checkpoint, name, "No such file" if name == "manifest.json" else "is missing")


def test_missing_directory(tmp_path: Path) -> None:
    refused(tmp_path / "000000000001", "", "is missing")


def test_a_file_or_a_link_for_a_directory(checkpoint: Path) -> None:
    file, link = checkpoint.with_name("000000000001"), checkpoint.with_name("000000000002")
    file.touch()
    link.symlink_to(checkpoint)
    refused(file, "", "is not a directory")
    refused(link, "", "is not a directory")


def test_extra_file(checkpoint: Path) -> None:
    (checkpoint / "x\x1b[2J.py").touch()
    refused(checkpoint, "", r"holds 'x\x1b[2J.py', which manifest.json does not list")


@pytest.mark.parametrize("name", NAMES[1:])
def test_truncated_file(checkpoint: Path, name: str) -> None:
    size = (checkpoint / name).stat().st_size
    os.truncate(checkpoint / name, size - 1)
    refused(checkpoint, name, f"is truncated: {size - 1} bytes, manifest.json says {size}")
    os.truncate(checkpoint / name, 0)
    refused(checkpoint, name, "is truncated: 0 bytes")
    os.truncate(checkpoint / name, 10**12)  # sparse
    refused(checkpoint, name, "is too long")


@pytest.mark.parametrize("name", NAMES[1:])
def test_flipped_bit(checkpoint: Path, name: str) -> None:
    data = bytearray((checkpoint / name).read_bytes())
    data[len(data) // 2] ^= 4
    (checkpoint / name).write_bytes(data)
    refused(checkpoint, name, "is damaged: its SHA-256 is not the one in manifest.json")


@pytest.mark.parametrize("name", NAMES)
def test_links_pipes_and_folders_for_files(
    checkpoint: Path, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = checkpoint / name
    elsewhere = tmp_path_factory.mktemp("elsewhere") / name
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    refused(checkpoint, name, "is a symbolic link")
    path.unlink()
    os.mkfifo(path)  # opening one would wait for ever
    refused(checkpoint, name, "is not a plain file")
    path.unlink()
    path.mkdir()
    refused(checkpoint, name, "is not a plain file")


def test_no_permission(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in for `os.open`: the superuser may read anything."""
    whole = os.open

    def deny(path: Any, *rest: Any, **more: Any) -> int:
        if Path(path).name == "random.safetensors":
            raise PermissionError(13, "Permission denied", str(path))
        return whole(path, *rest, **more)

    monkeypatch.setattr(os, "open", deny)
    refused(checkpoint, "random.safetensors", "Permission denied")


def test_no_permission_for_the_folder(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", deny)
    monkeypatch.setattr(os, "scandir", deny)
    refused(checkpoint, "", "Permission denied")
    for read in (list_checkpoints, latest_checkpoint):
        refused_by(read, checkpoint.parent, "", "Permission denied")


MANIFESTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "newer": (
        lambda m: m.update(version=7, extra=1),
        "was written by a newer version 7, this one reads 1",
    ),
    "version 0": (lambda m: m.update(version=0), "has no valid format version"),
    "version text": (lambda m: m.update(version="1"), "has no valid format version"),
    "version true": (lambda m: m.update(version=True), "has no valid format version"),
    "no version": (lambda m: m.pop("version"), "has no valid format version"),
    "format": (lambda m: m.update(format="other"), "is not a checkpoint's manifest"),
    "no format": (lambda m: m.pop("format"), "is not a checkpoint's manifest"),
    "extra key": (lambda m: m.update(extra=1), "must have just the keys"),
    "no files": (lambda m: m.pop("files"), "must have just the keys"),
    "step differs": (lambda m: m.update(step=4097), "is of step 4097, its directory of step 4096"),
    "step negative": (lambda m: m.update(step=-1), "has no valid step"),
    "step huge": (lambda m: m.update(step=10**12), "has no valid step"),
    "step float": (lambda m: m.update(step=4096.0), "has no valid step"),
    "files list": (lambda m: m.update(files=["facts.json"]), "lists no facts.json"),
    "no facts": (lambda m: m["files"].pop("facts.json"), "lists no facts.json"),
    "entry": (lambda m: m["files"].update({"facts.json": 3}), "must give size and sha256"),
    "entry keys": (lambda m: m["files"]["facts.json"].pop("size"), "must give size and sha256"),
    "size negative": (lambda m: m["files"]["facts.json"].update(size=-1), "no valid size"),
    "size huge": (lambda m: m["files"]["facts.json"].update(size=10**400), "no valid size"),
    "size float": (lambda m: m["files"]["facts.json"].update(size=1.5), "no valid size"),
    "size true": (lambda m: m["files"]["facts.json"].update(size=True), "no valid size"),
    "size NaN": (lambda m: m["files"]["facts.json"].update(size=float("nan")), "not finite"),
    "size over": (lambda m: m["files"]["facts.json"].update(size=2**26 + 1), "at most 67108864"),
    "hash": (lambda m: m["files"]["facts.json"].update(sha256="A" * 64), "no valid sha256"),
    "hash kind": (lambda m: m["files"]["facts.json"].update(sha256=5), "no valid sha256"),
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_malformed_manifest(checkpoint: Path, case: str) -> None:
    change, reason = MANIFESTS[case]
    manifest(checkpoint, change)
    refused(checkpoint, "manifest.json", reason)


@pytest.mark.parametrize(
    "name",
    [
        "../model.safetensors",
        "/etc/passwd",
        "..",
        "",
        "a/b.safetensors",
        "model.safetensors\n",
        "model.pkl",
        "manifest.json",
        "other.json",
        "MODEL.safetensors",
        "x" * 5000 + ".safetensors",
        "\x1b]0;owned\x07.safetensors",
        "a\x00.safetensors",
        "\ud800.safetensors",
    ],
)
def test_names_that_lead_elsewhere(checkpoint: Path, name: str) -> None:
    entry = {"size": 0, "sha256": "0" * 64}
    manifest(checkpoint, lambda m: m["files"].update({name: entry}))
    refused(checkpoint, "manifest.json", "which is no name of a checkpoint's file")


JSON = {
    b"": "is not JSON",
    b"\x80\x04N.": "is not UTF-8 text",
    b"null": "must hold a JSON object, got a NoneType",
    b"[1]": "must hold a JSON object, got a list",
    b'{"a": 1, "a": 2}': "the same key twice",
    b'{"a": {"b": 1, "b": 1}}': "the same key twice",
    b'{"a": NaN}': "the number NaN, which is not finite",
    b'{"a": -Infinity}': "not finite",
    b'{"a": 1e999}': "the number 1e999, which is not finite",
    b'{"a": ' + b"9" * 5000 + b"}": "Exceeds the limit",
    b"[" * 100_000: "is nested too deeply",
    b'{"a":' * 100_000: "is nested too deeply",
    b"{} {}": "is not JSON",
    b"{}\x00": "is not JSON",
    b"\xef\xbb\xbf{}": "is not JSON",
}


@pytest.mark.parametrize("data", JSON, ids=[str(data[:20]) for data in JSON])
def test_malformed_json(checkpoint: Path, data: bytes) -> None:
    put(checkpoint, "facts.json", data)
    verify_checkpoint(checkpoint)
    refused_by(load_checkpoint, checkpoint, "facts.json", JSON[data])
    (checkpoint / "manifest.json").write_bytes(data)
    refused(checkpoint, "manifest.json", JSON[data])


def test_too_large_a_manifest_is_not_parsed(checkpoint: Path) -> None:
    data = (checkpoint / "manifest.json").read_bytes()
    (checkpoint / "manifest.json").write_bytes(data.ljust(2**20))
    verify_checkpoint(checkpoint)
    (checkpoint / "manifest.json").write_bytes(data.ljust(2**20 + 1))
    refused(checkpoint, "manifest.json", "is larger than 1048576 bytes")


def one(dtype: str, shape: list[int], size: int) -> dict[str, Any]:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}}


SAFETENSORS = {
    "empty": (b"", "is not a safetensors file"),
    "short": (b"abc", "is not a safetensors file"),
    "huge header": (struct.pack("<Q", 2**63) + b"{}", "header too large"),
    "header beyond the end": (struct.pack("<Q", 1000) + b"{}", "is not a safetensors file"),
    "100 MB header": (struct.pack("<Q", 10**8 + 1) + b"{}", "header too large"),
    "nested": (tensors(b'{"a":' * 100_000), "is not a safetensors file"),
    "offsets": (tensors(one("F32", [2], 4), b"1234"), "is not a safetensors file"),
    "hole": (tensors(one("U8", [1], 1), b"123"), "is not a safetensors file"),
    "bfloat16": (tensors(one("BF16", [1], 2), b"12"), "type 'BF16', which is not read"),
    "complex": (tensors(one("C64", [1], 8), b"12345678"), "complex64, which is not read"),
    "dimensions": (tensors(one("U8", [1] * 100, 1), b"1"), "dimension"),
    "too big": (tensors(one("F32", [0, 2**62, 2**62], 0)), "too big"),
    "overflow": (tensors(one("F32", [0, 2**64 - 1], 0)), ""),
    "bool": (tensors(one("BOOL", [2], 2), b"\x01\x02"), "other bytes than 0 and 1"),
    "escapes": (tensors(b'{"\\u001b[2J": 1}'), "is not a safetensors file"),
}


@pytest.mark.parametrize("case", SAFETENSORS)
def test_malformed_safetensors(checkpoint: Path, case: str) -> None:
    data, reason = SAFETENSORS[case]
    put(checkpoint, "model.safetensors", data)
    verify_checkpoint(checkpoint)
    refused_by(load_checkpoint, checkpoint, "model.safetensors", reason)


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", NAMES)
def test_a_pickle_does_not_run(checkpoint: Path, tmp_path: Path, name: str) -> None:
    payload = pickle.dumps(Bomb(tmp_path / "ran"))
    if name == "manifest.json":
        (checkpoint / name).write_bytes(payload)
    else:
        put(checkpoint, name, payload)
    refused_by(load_checkpoint, checkpoint, name, "is not")
    assert not (tmp_path / "ran").exists()
    pickle.loads(payload)
    assert (tmp_path / "ran").exists()  # it is live


def test_out_of_memory(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(_: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr("operant.runs.checkpoint_format.parse_safetensors", parse)
    refused_by(load_checkpoint, checkpoint, "model.safetensors", "does not fit into memory")


@st.composite
def damages(draw: st.DrawFn) -> tuple[str, Callable[[bytes], bytes]]:
    name = draw(st.sampled_from(NAMES))
    kind = draw(st.sampled_from(("flip", "cut", "junk", "splice")))
    place = draw(st.floats(0, 1, exclude_max=True))
    junk = draw(st.binary(max_size=40))
    bit = draw(st.integers(0, 7))

    def damage(data: bytes) -> bytes:
        at = int(place * len(data))
        if kind == "flip":
            return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        if kind == "cut":
            return data[:at]
        if kind == "junk":
            return junk
        return data[:at] + junk + data[at + len(junk) :]

    return name, damage


@settings(max_examples=200, deadline=None)
@given(damages(), st.booleans())
def test_fuzz(original: Path, damage: tuple[str, Callable[[bytes], bytes]], vouch: bool) -> None:
    """An error or the original; where the manifest vouches for the damage, an error or any load."""
    name, change = damage
    before = {n: (original / n).read_bytes() for n in NAMES}
    vouch &= name != "manifest.json"
    complaint, loaded = "", None
    try:
        if vouch:
            put(original, name, change(before[name]))
        else:
            (original / name).write_bytes(change(before[name]))
        loaded = load_checkpoint(original)
        verify_checkpoint(original)
    except CheckpointError as error:
        complaint = str(error)
    finally:
        for n, data in before.items():
            (original / n).write_bytes(data)
    assert complaint.isprintable()
    assert bool(complaint) != bool(loaded)
    if loaded and not vouch:
        same(loaded)
