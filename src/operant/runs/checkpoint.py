"""The checkpoints of a run: one directory per step, and two pointers, `latest` and `best`.

A checkpoint is staged under a name nothing looks for, synced, renamed into place, and only then
does `latest` name it: a kill at any moment leaves the old one or the new one. One process writes;
any number read. A folder of checkpoints that is a symbolic link is refused: through one in a run
that came from somebody else, the checkpoints of another run would be pruned.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from operant.runs import checkpoint_format as fmt
from operant.runs.checkpoint_format import Checkpoint, CheckpointError
from operant.toolchain.files import (
    check_folder,
    discard,
    make_folder,
    read_bounded,
    replace_file,
    sweep,
    sync_folder,
    temporary_name,
)

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "find_checkpoint",
    "latest_checkpoint",
    "list_checkpoints",
    "load_checkpoint",
    "mark_best",
    "prune_checkpoints",
    "read_best",
    "save_checkpoint",
    "verify_checkpoint",
]

_LATEST = "latest"
_BEST = "best"
_NAME = re.compile(r"[0-9]{12}")
_OLD = re.compile(r"\.old-([0-9]{12})")  # a step that is being replaced; see _publish
_MAX_POINTER_BYTES = 4096


def save_checkpoint(
    folder: Path,
    step: int,
    arrays: Mapping[str, Mapping[str, np.ndarray]],
    facts: Mapping[str, Any],
) -> Path:
    """Write the checkpoint of `step` into `folder` and let `latest` name it; its directory.

    `arrays` by file (``[a-z_]+``) and name: bool, (u)int8 to 64, float16 to 64, any shape, strides
    and byte order. `facts` must be plain JSON. A step that is there already is replaced.

    Raises:
        ValueError: something that would not come back as it is.
        OSError: `folder` is a symbolic link, or the disk is full, say; earlier checkpoints and
            `latest` are as they were.
    """
    if not 0 <= step <= fmt.MAX_STEP:
        raise ValueError(f"step must be 0 to {fmt.MAX_STEP}, got {step}")
    check_folder(folder)
    make_folder(folder)
    final = folder / f"{step:012d}"
    staged = folder / temporary_name(final.name)
    try:
        staged.mkdir()
        fmt.write_files(staged, step, arrays, facts)
        sync_folder(staged)
        _publish(staged, final)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    replace_file(folder / _LATEST, f"{final.name}\n".encode())
    return final


def load_checkpoint(path: Path) -> Checkpoint:
    """Read the directory `path`, verifying all of it.

    Raises:
        CheckpointError: anything amiss.
    """
    return fmt.read_files(path)


def verify_checkpoint(path: Path) -> None:
    """Check manifest, sizes and hashes of the directory `path` without parsing arrays.

    Raises:
        CheckpointError: anything amiss.
    """
    fmt.verify_files(path)


def list_checkpoints(folder: Path) -> list[Path]:
    """Directories of complete checkpoints, by step; not verified. None where `folder` is missing.

    Raises:
        CheckpointError: `folder` cannot be read.
    """
    return [path for path in _present(folder).values() if _NAME.fullmatch(path.name)]


def latest_checkpoint(folder: Path) -> Path:
    """What `latest` names; without a usable `latest`, the newest directory that verifies.

    Raises:
        CheckpointError: there is none, or the one that `latest` names is damaged: going on from an
            older one is for the user to decide, so the message says which one that would be.
    """
    present = _present(folder)
    step = _latest_step(folder)
    if step not in present:
        path = _newest_good(present)
        if path is None:
            raise CheckpointError(f"{folder}: no good checkpoint; {_inventory(present)}")
        return path
    try:
        verify_checkpoint(present[step])
    except CheckpointError as error:
        good = _newest_good({s: path for s, path in present.items() if s < step})
        if good is None:
            raise CheckpointError(f"{error}; there is no good one before it") from error
        number = _step_of(good)
        raise CheckpointError(
            f"{error}; the newest good one before it is step {number}: --checkpoint {number}"
        ) from error
    return present[step]


def find_checkpoint(folder: Path, which: str) -> Path:
    """The checkpoint `which`: ``"latest"``, ``"best"``, or a step as text. Only latest is verified.

    Raises:
        CheckpointError: there is no such one; the message lists what there is.
    """
    if which == _LATEST:
        return latest_checkpoint(folder)
    present = _present(folder)
    if which == _BEST:
        best = read_best(folder)
        if best is None:
            raise CheckpointError(f"{folder}: no best checkpoint is marked; {_inventory(present)}")
        step = best[0]
    elif re.fullmatch(r"[0-9]{1,12}", which):
        step = int(which)
    else:
        raise CheckpointError(
            f"expected 'latest', 'best' or the number of a step, got {which[:80]!r}; "
            f"{_inventory(present)}"
        )
    if step not in present:
        raise CheckpointError(f"{folder}: no checkpoint of step {step}; {_inventory(present)}")
    return present[step]


def mark_best(folder: Path, step: int, score: float) -> None:
    """Let `best` name the checkpoint of `step`.

    Raises:
        ValueError: the score is not finite.
        CheckpointError: there is no such checkpoint.
    """
    if not math.isfinite(score):
        raise ValueError(f"the score of the best checkpoint must be finite, got {score}")
    find_checkpoint(folder, str(step))
    replace_file(folder / _BEST, json.dumps({"step": step, "score": float(score)}).encode())


def read_best(folder: Path) -> tuple[int, float] | None:
    """Step and score that `best` holds; None if none was marked.

    Raises:
        CheckpointError: `best` is damaged.
    """
    with fmt.blaming(folder):
        check_folder(folder)
    path = folder / _BEST
    if not os.path.lexists(path):
        return None
    with fmt.blaming(path):
        data = fmt.parse_object(read_bounded(path, _MAX_POINTER_BYTES))
        step, score = data.get("step"), data.get("score")
        if type(step) is not int or not 0 <= step <= fmt.MAX_STEP:
            raise ValueError("has no valid step")
        if type(score) is not float:
            raise ValueError("has no valid score")
        return step, score


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep`, the best and the latest, and what killed writes left.

    For the writer, between saves. Where it cannot be known what is best or latest, nothing goes.

    Raises:
        ValueError: `keep` is less than 1.
        OSError: `folder` is a symbolic link, or something cannot be removed.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}")
    check_folder(folder)
    if not folder.is_dir():
        return
    _settle(folder)
    sweep(folder)
    present = _present(folder)
    needed = set(list(present)[-keep:])
    try:
        best = read_best(folder)
        latest = _latest_step(folder)
        if latest not in present:
            latest = _step_of(latest_checkpoint(folder))
    except CheckpointError:
        return
    needed |= {latest} if best is None else {latest, best[0]}
    for step, path in present.items():
        if step not in needed:
            discard(path)


def _publish(staged: Path, final: Path) -> None:
    """Rename `staged` to `final`, in place of what may be there.

    POSIX cannot exchange two directories. Between the two renames the old one is ``.old-<step>``,
    where every reader here looks if the step itself is missing, and from where the next save takes
    it back: no step that was there once is lost to a kill.
    """
    _settle(final.parent)
    if not os.path.lexists(final):
        os.rename(staged, final)
        sync_folder(final.parent)
    elif _same(staged, final):
        shutil.rmtree(staged)
    else:
        old = final.with_name(f".old-{final.name}")
        os.rename(final, old)
        try:
            os.rename(staged, final)
        except OSError:
            os.rename(old, final)
            raise
        sync_folder(final.parent)
        discard(old)


def _same(staged: Path, final: Path) -> bool:
    try:
        return fmt.verify_files(staged) == fmt.verify_files(final)
    except CheckpointError:
        return False


def _settle(folder: Path) -> None:
    """Finish a replacement that was cut short: back to its name, or away if there is a new one."""
    for name in os.listdir(folder):
        if old := _OLD.fullmatch(name):
            final = folder / old[1]
            if os.path.lexists(final):
                discard(folder / name)
            else:
                os.rename(folder / name, final)
                sync_folder(folder)


def _present(folder: Path) -> dict[int, Path]:
    """Directory of each step, ascending, a step that is just being replaced included."""
    found: dict[int, Path] = {}
    with fmt.blaming(folder):
        check_folder(folder)
        if not folder.is_dir():
            return found
        with os.scandir(folder) as entries:
            for entry in entries:
                old = _OLD.fullmatch(entry.name)
                if not old and not _NAME.fullmatch(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    step = int(old[1] if old else entry.name)
                    if not old or step not in found:
                        found[step] = Path(entry.path)
    return dict(sorted(found.items()))


def _latest_step(folder: Path) -> int:
    """The step that `latest` names; -1 if it is missing or unreadable."""
    try:
        text = read_bounded(folder / _LATEST, _MAX_POINTER_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return -1
    return int(text) if _NAME.fullmatch(text) else -1


def _newest_good(present: dict[int, Path]) -> Path | None:
    for path in reversed(present.values()):
        try:
            verify_checkpoint(path)
        except CheckpointError:
            continue
        return path
    return None


def _step_of(path: Path) -> int:
    return int(path.name[-12:])


def _inventory(present: Mapping[int, Path]) -> str:
    if not present:
        return "there is none"
    steps = ", ".join(str(step) for step in list(present)[-10:])
    return f"there is {steps}" if len(present) <= 10 else f"the newest of {len(present)}: {steps}"
