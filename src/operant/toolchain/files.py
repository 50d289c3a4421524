"""Files that are there whole or not at all, and reads that trust nothing."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

_PREFIX = ".tmp-"


def temporary_name(name: str) -> str:
    """A fresh name to stage `name` under; what looks for files by name cannot match it.

    Of a long name the beginning: a name may have 255 bytes, four a character.
    """
    return f"{_PREFIX}{name[:50]}-{os.getpid()}-{secrets.token_hex(4)}"


def write_synced(path: Path, data: bytes | bytearray) -> None:
    """Create `path`, which must not exist; the bytes are on the disk when this returns."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Names in `folder` as they are now survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create `folder` and its parents where missing; a new name is on the disk afterwards."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A sibling to create, which becomes `path` at the end, or goes if the body raises.

    A reader, or a kill, finds the old file or the new one. To outlast a power cut as well, see
    `replace_file`.
    """
    staged = path.with_name(temporary_name(path.name))
    try:
        yield staged
        os.replace(staged, path)
    except BaseException:
        with suppress(OSError):
            staged.unlink()
        raise


def replace_file(path: Path, data: bytes | bytearray) -> None:
    """Give `path` new content, which is on the disk when this returns."""
    with replacing(path) as staged:
        write_synced(staged, data)
    sync_folder(path.parent)


@contextmanager
def exporting(path: Path) -> Iterator[Path]:
    """As `replacing`, for a name that a user chose; its folder is made where it is missing.

    The sibling is there, empty, before the body begins, which may take an hour.

    Raises:
        ValueError: `path` is a folder, or stands where nothing can be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(path.stat().st_mode):
                raise IsADirectoryError(errno.EISDIR, "it is a folder")
    except OSError as error:
        raise _unwritable(path, error) from error
    with replacing(path) as staged:
        try:
            staged.touch()
        except OSError as error:
            raise _unwritable(path, error) from error
        yield staged


def export_file(path: Path, data: bytes | bytearray) -> None:
    """Write a file that a user asked for; missing folders are made.

    Raises:
        ValueError: as `exporting`, or the disk is full.
    """
    with exporting(path) as staged:
        try:
            staged.write_bytes(data)
        except OSError as error:
            raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> ValueError:
    return ValueError(
        f"cannot write {path}: {error.strerror}; give a file name in a writable folder"
    )


def discard(path: Path) -> None:
    """Remove a file or a tree: its name goes first, so a kill cannot leave half a tree under it."""
    doomed = path.with_name(temporary_name(path.name))
    os.rename(path, doomed)
    sync_folder(path.parent)
    _delete(doomed)


def sweep(folder: Path) -> None:
    """Remove what killed writes left in `folder`. For its one writer, between writes."""
    for name in os.listdir(folder):
        if name.startswith(_PREFIX):
            _delete(folder / name)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def open_plain(path: Path) -> BufferedReader:
    """Open for reading; the caller closes it. `path` may be anything a stranger put there.

    Raises:
        OSError: not readable, a symbolic link, or not a plain file.
    """
    return os.fdopen(plain_descriptor(path, os.O_RDONLY), "rb")


def plain_descriptor(path: Path, flags: int) -> int:
    """As `os.open`, for a plain file alone; the caller closes it. Never waits, follows no link.

    Raises:
        OSError: it cannot be opened, a symbolic link, or not a plain file.
    """
    # Opening a named pipe would wait for its other end for ever, but for O_NONBLOCK.
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link", str(path)) from error
        if error.errno in (errno.ENXIO, errno.EISDIR):  # a pipe without a reader, or a socket
            raise OSError(errno.EINVAL, "is not a plain file", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is not a plain file", str(path))
    return descriptor


def check_plain(path: Path) -> None:
    """Refuse what stands where a file should and is no plain one. A missing one is fine.

    Raises:
        OSError: a symbolic link, or not a plain file.
    """
    with suppress(FileNotFoundError):
        open_plain(path).close()


def check_folder(folder: Path) -> None:
    """Refuse what stands where a folder should and is none. A missing one is fine.

    For the folders inside a run: through a link there, one would write into and delete from a
    folder that is somebody else's.

    Raises:
        OSError: a symbolic link, or not a folder.
    """
    try:
        mode = os.lstat(folder).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "is a symbolic link", str(folder))
    if not stat.S_ISDIR(mode):
        raise OSError(errno.ENOTDIR, "is not a folder", str(folder))


def read_bounded(path: Path, limit: int) -> bytes:
    """The bytes of a plain file of at most `limit` bytes.

    Raises:
        OSError: as `open_plain`, or the file is larger.
    """
    with open_plain(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"is larger than {limit} bytes", str(path))
    return data
