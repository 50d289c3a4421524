"""What one checkpoint's directory holds, written and read back: a manifest, arrays, facts.

``manifest.json`` lists every other file with its size and SHA-256. Nothing is pickled, and reading
trusts nothing: whatever is wrong with a file is a `CheckpointError` that names it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_safetensors
from safetensors.numpy import save as format_safetensors

from operant.toolchain.files import open_plain, read_bounded, write_synced

FORMAT = "operant checkpoint"
VERSION = 1
MAX_STEP = 10**12 - 1  # twelve digits
MANIFEST = "manifest.json"
FACTS = "facts.json"
MAX_MANIFEST_BYTES = 2**20
MAX_FACTS_BYTES = 2**26

_ARRAYS = re.compile(r"([a-z_]{1,64})\.safetensors")
_STEP_NAME = re.compile(r"(?:\.old-)?([0-9]{12})")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DTYPES = {
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64"),
}


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message names the damaged file and the damage."""


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint, read and verified. The arrays are the caller's own, and writable."""

    path: Path
    step: int
    arrays: dict[str, dict[str, np.ndarray]]  # by file, then by name
    facts: dict[str, Any]  # plain JSON


class FileEntry(NamedTuple):
    """What the manifest says of one file."""

    size: int
    sha256: str


class Manifest(NamedTuple):
    """A manifest whose every entry has the right kind and bounds."""

    step: int
    files: dict[str, FileEntry]


def write_files(
    folder: Path,
    step: int,
    arrays: Mapping[str, Mapping[str, np.ndarray]],
    facts: Mapping[str, Any],
) -> None:
    """Fill the new directory `folder`; every file is on the disk when this returns.

    Raises:
        ValueError: an array or a fact that would not come back as it is.
        OSError: the disk is full, say; `folder` is then left as far as it got.
    """
    _check_plain(dict(facts), "facts")
    files: dict[str, dict[str, int | str]] = {}

    def write(name: str, data: bytes) -> None:
        write_synced(folder / name, data)
        files[name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    for group, members in arrays.items():
        name = f"{group}.safetensors"
        if not _ARRAYS.fullmatch(name):
            raise ValueError(f"the name of a group of arrays must match [a-z_]+, got {group!r}")
        write(name, _format_arrays(group, members))
    data = json.dumps(facts, indent=1).encode()
    if len(data) > MAX_FACTS_BYTES:
        raise ValueError(f"facts take {len(data)} bytes as JSON, at most {MAX_FACTS_BYTES} allowed")
    write(FACTS, data)
    manifest = {"format": FORMAT, "version": VERSION, "step": step, "files": files}
    write_synced(folder / MANIFEST, json.dumps(manifest, indent=1).encode())


def _format_arrays(group: str, arrays: Mapping[str, np.ndarray]) -> bytes:
    ready = {}
    for name, value in arrays.items():
        array = np.asarray(value)
        if array.dtype.name not in _DTYPES:
            raise ValueError(f"array {name!r} of {group!r} is {array.dtype}, which is not stored")
        if name == "__metadata__":
            raise ValueError(f"array of {group!r} may not be called '__metadata__'")
        # safetensors writes memory as it lies: a transposed array would come back scrambled.
        # (Not ascontiguousarray: that gives a 0-d array a dimension.)
        ready[name] = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
    return format_safetensors(ready)


def _check_plain(value: object, where: str) -> None:
    """Raise ValueError unless JSON gives `value` back equal: no tuples, no NaN, text keys."""
    if isinstance(value, dict):
        for key, member in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{where} has the key {key!r}: keys must be text")
            _check_plain(member, f"{where}[{key!r}]")
    elif isinstance(value, list):
        for index, member in enumerate(value):
            _check_plain(member, f"{where}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}, which JSON cannot hold")
    elif not (value is None or isinstance(value, str | int | float)):
        raise ValueError(
            f"{where} is a {type(value).__name__}; "
            "facts are dict, list, str, int, float, bool or None"
        )


def verify_files(path: Path) -> Manifest:
    """Check the manifest of the directory `path`, and size and hash of every file it lists.

    Raises:
        CheckpointError: anything amiss.
    """
    manifest = _read_manifest(path)
    for name, entry in manifest.files.items():
        with blaming(path / name), open_plain(path / name) as file:
            _check_size(os.fstat(file.fileno()).st_size, entry)
            digest = hashlib.file_digest(file, "sha256")
            _check_digest(digest.hexdigest(), entry)
    return manifest


def read_files(path: Path) -> Checkpoint:
    """Everything in the directory `path`. The bytes that were hashed are the bytes that are parsed.

    Raises:
        CheckpointError: anything amiss.
    """
    manifest = _read_manifest(path)
    arrays: dict[str, dict[str, np.ndarray]] = {}
    facts: dict[str, Any] = {}
    for name, entry in manifest.files.items():
        with blaming(path / name):
            data = _read_file(path / name, entry)
            if name == FACTS:
                facts = parse_object(data)
            else:
                arrays[name.removesuffix(".safetensors")] = _parse_arrays(data)
    return Checkpoint(path, manifest.step, arrays, facts)


@contextmanager
def blaming(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong inside into a `CheckpointError` that names `path`."""
    try:
        yield
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error
    except RecursionError as error:
        raise CheckpointError(f"{path}: is nested too deeply") from error
    except MemoryError as error:
        raise CheckpointError(f"{path}: does not fit into memory") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def parse_object(data: bytes) -> dict[str, Any]:
    """A JSON object, by the letter: finite numbers, no key twice, UTF-8.

    Raises:
        ValueError: it is not.
        RecursionError: nested too deeply.
    """
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_finite,
            parse_float=_finite,
        )
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"must hold a JSON object, got a {type(value).__name__}")
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("has an object with the same key twice")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"has the number {text[:40]}, which is not finite")
    return value


def _read_manifest(path: Path) -> Manifest:
    with blaming(path):
        if path.is_symlink() or not path.is_dir():
            raise ValueError("is not a directory" if os.path.lexists(path) else "is missing")
    with blaming(path / MANIFEST):
        manifest = _check_manifest(parse_object(read_bounded(path / MANIFEST, MAX_MANIFEST_BYTES)))
        named = _STEP_NAME.fullmatch(path.name)
        if named and int(named[1]) != manifest.step:
            raise ValueError(f"is of step {manifest.step}, its directory of step {int(named[1])}")
    with blaming(path):
        found = set(os.listdir(path)) - {MANIFEST}
        for name in sorted(found ^ manifest.files.keys()):
            if name in found:
                raise ValueError(f"holds {name[:80]!r}, which {MANIFEST} does not list")
            raise CheckpointError(f"{path / name}: is missing")
    return manifest


def _check_manifest(data: dict[str, Any]) -> Manifest:
    if data.get("format") != FORMAT:
        raise ValueError("is not a checkpoint's manifest")
    version = data.get("version")
    if type(version) is not int or version < 1:
        raise ValueError("has no valid format version")
    if version > VERSION:
        raise ValueError(f"was written by a newer version {version}, this one reads {VERSION}")
    if data.keys() != {"format", "version", "step", "files"}:
        raise ValueError("must have just the keys format, version, step and files")
    step, files = data["step"], data["files"]
    if type(step) is not int or not 0 <= step <= MAX_STEP:
        raise ValueError("has no valid step")
    if not isinstance(files, dict) or FACTS not in files:
        raise ValueError(f"lists no {FACTS}")
    return Manifest(step, {name: _check_entry(name, entry) for name, entry in files.items()})


def _check_entry(name: str, entry: object) -> FileEntry:
    # Whole match of a plain name: no folders, no "..", nothing a terminal would act on.
    if name != FACTS and not _ARRAYS.fullmatch(name):
        raise ValueError(f"lists {name[:80]!r}, which is no name of a checkpoint's file")
    if not isinstance(entry, dict) or entry.keys() != {"size", "sha256"}:
        raise ValueError(f"must give size and sha256 of {name}")
    size, digest = entry["size"], entry["sha256"]
    if type(size) is not int or not 0 <= size < 2**63:
        raise ValueError(f"has no valid size of {name}")
    if name == FACTS and size > MAX_FACTS_BYTES:
        raise ValueError(f"gives {name} {size} bytes, at most {MAX_FACTS_BYTES} allowed")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError(f"has no valid sha256 of {name}")
    return FileEntry(size, digest)


def _read_file(path: Path, entry: FileEntry) -> bytes:
    with open_plain(path) as file:
        _check_size(os.fstat(file.fileno()).st_size, entry)
        data = file.read(entry.size)
    _check_digest(hashlib.sha256(data).hexdigest(), entry)
    return data


def _check_size(size: int, entry: FileEntry) -> None:
    if size != entry.size:
        kind = "is truncated" if size < entry.size else "is too long"
        raise ValueError(f"{kind}: {size} bytes, {MANIFEST} says {entry.size}")


def _check_digest(digest: str, entry: FileEntry) -> None:
    if digest != entry.sha256:
        raise ValueError(f"is damaged: its SHA-256 is not the one in {MANIFEST}")


def _parse_arrays(data: bytes) -> dict[str, np.ndarray]:
    try:
        arrays = parse_safetensors(data)
    except KeyError as error:
        raise ValueError(f"has an array of type {error}, which is not read") from None
    except SafetensorError as error:
        raise ValueError(f"is not a safetensors file: {str(error)[:200]!r}") from None
    for name, array in arrays.items():
        if array.dtype.name not in _DTYPES:
            raise ValueError(f"has an array of type {array.dtype}, which is not read")
        if array.dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:
            raise ValueError(f"has the bool array {name[:80]!r} with other bytes than 0 and 1")
    return dict(sorted(arrays.items()))
