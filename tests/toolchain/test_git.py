"""The commit of a repository whose configuration is hostile: it is told, and nothing is run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from operant.runs.directory import Run
from operant.toolchain.git import git_commit, is_tracked
from operant.training.session import _info

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=n", "-c", "user.email=e", "-c", "protocol.file.allow=always"]
    command = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "-b", "main", ".")
    (root / "file.txt").write_text("one\n")
    (root / ".gitattributes").write_text("*.txt filter=evil diff=evil\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


def head(root: Path) -> str:
    return git(root, "rev-parse", "HEAD")


def make_hostile(root: Path, marker: Path, settings: tuple[str, ...]) -> None:
    """Let each setting of a repository run a program that writes `marker`."""
    program = marker.with_name("program")
    program.write_text(f"#!/bin/sh\necho $0 >> {marker}\ncat\n")
    program.chmod(0o755)
    for name in settings:
        git(root, "config", name, str(program))


def test_clean_changed_and_new(repository: Path) -> None:
    assert git_commit(repository) == head(repository)
    (repository / "new").touch()
    assert git_commit(repository) == f"{head(repository)}-dirty"
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "exclude").write_text("new\n")
    assert git_commit(repository) == head(repository)
    (repository / "file.txt").write_text("another\n")
    assert git_commit(repository) == f"{head(repository)}-dirty"


def test_refs_may_be_packed_and_working_trees_many(repository: Path, tmp_path: Path) -> None:
    git(repository, "pack-refs", "--all")
    assert git_commit(repository) == head(repository)
    other = tmp_path / "other"
    git(repository, "worktree", "add", "-q", "-b", "side/branch", str(other))
    git(other, "commit", "-q", "--allow-empty", "-m", "second")
    (other / "inner").mkdir()
    assert git_commit(other / "inner") == head(other) != head(repository)
    git(repository, "checkout", "-q", "--detach")
    assert git_commit(repository) == head(repository)


def test_a_file_is_tracked_or_not(repository: Path, tmp_path: Path) -> None:
    (repository / "new").touch()
    (tmp_path / "outside").touch()
    assert is_tracked(repository / "file.txt")
    assert not is_tracked(repository / "new")
    assert not is_tracked(tmp_path / "outside")


def test_nothing_in_the_configuration_is_run(repository: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q", ".")
    git(inner, "commit", "-q", "--allow-empty", "-m", "inner")
    git(repository, "submodule", "--quiet", "add", str(inner), "sub")
    git(repository, "commit", "-qm", "with a submodule")
    commit = head(repository)
    git(repository, "update-index", "--force-remove", ".gitattributes")  # the index is dirty too
    programs = ("core.fsmonitor", "filter.evil.clean", "filter.evil.process", "diff.external")
    make_hostile(repository, marker, (*programs, "diff.evil.textconv", "core.sshCommand"))
    make_hostile(repository / "sub", marker, ("core.fsmonitor",))
    for name in ("post-index-change", "query-watchman"):
        hook = repository / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_bytes((tmp_path / "program").read_bytes())
        hook.chmod(0o755)
    (repository / "file.txt").write_text("other\n")  # as long as before: git must read it
    index = (repository / ".git" / "index").read_bytes()
    (repository / ".git" / "index.lock").touch()
    assert git_commit(repository) == f"{commit}-dirty"
    assert is_tracked(repository / "file.txt")
    assert not marker.exists()
    assert (repository / ".git" / "index").read_bytes() == index
    (repository / ".git" / "index.lock").unlink()
    subprocess.run(["git", "-C", str(repository), "status"], capture_output=True)
    assert marker.exists()  # it was a trap


@pytest.mark.parametrize("name", ["HEAD", "index", "packed-refs", "refs/heads/main", "objects"])
def test_what_is_no_repository_is_told_as_such(
    name: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operant.toolchain.git._TIMEOUT_S", 0.5)
    commit = head(repository)
    if name == "packed-refs":
        (repository / ".git" / "refs" / "heads" / "main").unlink()
    path = repository / ".git" / name
    if path.exists():
        path.rename(path.with_name("away"))
    os.mkfifo(path)
    assert git_commit(repository) in (None, f"{commit}-dirty")
    path.unlink()
    path.write_bytes(b"\xff\x00 nonsense")
    assert git_commit(repository) in (None, f"{commit}-dirty")


def test_a_ref_stays_inside(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("0" * 40)
    for name in ("refs/../../../secret", str(tmp_path / "secret"), "refs/heads/../../secret"):
        (repository / ".git" / "HEAD").write_text(f"ref: {name}\n")
        assert git_commit(repository) is None


def test_no_commit_and_no_repository(tmp_path: Path) -> None:
    assert git_commit(tmp_path) is None
    git(tmp_path, "init", "-q", ".")
    assert git_commit(tmp_path) is None


def test_a_run_folder_is_not_asked(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repository / "inner").mkdir()
    monkeypatch.chdir(repository / "inner")
    assert _info(Run(repository.parent / "run"))["git"] == f"{head(repository)}"
    assert _info(Run(Path("..")))["git"] is None
    assert _info(Run(repository / "inner"))["git"] is None
