"""Files appear whole or not at all; what a stranger put there is not followed nor waited for."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from operant.toolchain.files import (
    check_folder,
    export_file,
    exporting,
    open_plain,
    plain_descriptor,
    read_bounded,
    replace_file,
    replacing,
)


def place(kind: str, path: Path) -> None:
    """Put something that is no plain file at `path`."""
    if kind == "link":
        path.with_name("elsewhere").write_bytes(b"x")
        path.symlink_to("elsewhere")
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))


REFUSED = r"is a symbolic link|is not a plain file"
KINDS = ("link", "dangling link", "pipe", "folder", "device", "socket")


@pytest.mark.parametrize("kind", KINDS)
def test_only_plain_files_are_opened(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    path = Path("file")
    place(kind, path)
    with pytest.raises(OSError, match=REFUSED):
        open_plain(path)
    with pytest.raises(OSError, match=REFUSED):
        read_bounded(path, 10)
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND):
        with pytest.raises(OSError, match=REFUSED):
            plain_descriptor(path, flags | os.O_CREAT)
    assert not Path("nowhere").exists()


def test_a_plain_file_is_made_and_kept_from_children(tmp_path: Path) -> None:
    descriptor = plain_descriptor(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    try:
        os.write(descriptor, b"12")
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)
    assert read_bounded(tmp_path / "file", 2) == b"12"
    with pytest.raises(OSError, match="larger than 1 bytes"):
        read_bounded(tmp_path / "file", 1)


def test_folders(tmp_path: Path) -> None:
    check_folder(tmp_path)
    check_folder(tmp_path / "missing")
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "file").touch()
    for name, words in (("link", "symbolic"), ("dangling", "symbolic"), ("file", "not a folder")):
        with pytest.raises(OSError, match=words):
            check_folder(tmp_path / name)


@pytest.mark.parametrize("writing", [replacing, exporting])
def test_a_file_is_replaced_in_the_end_or_not_at_all(writing, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with writing(path) as staged:
        staged.write_bytes(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"

    def break_off(error: type[BaseException]) -> None:
        with writing(path) as staged:
            staged.write_bytes(b"half")
            raise error

    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error):
            break_off(error)
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("letter", ["x", "é", "木", "🎈"])
def test_the_longest_name_there_can_be(letter: str, tmp_path: Path) -> None:
    path = tmp_path / (letter * (255 // len(letter.encode())))
    replace_file(path, b"1")
    assert path.read_bytes() == b"1"
    export_file(path, b"2")
    assert path.read_bytes() == b"2"


def test_where_a_user_may_not_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, why in (
        (tmp_path, "it is a folder"),
        (tmp_path / "file" / "x", "File exists"),
        (Path("/proc/x"), "No such file"),
        (tmp_path / "missing" / ("x" * 256), "File name too long"),
    ):
        with pytest.raises(ValueError, match=f"cannot write .*: {why}.*; give a file name in a"):
            export_file(path, b"")
    assert sorted(os.listdir(tmp_path)) == ["file", "missing"]
