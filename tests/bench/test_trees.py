"""Source trees, of commits and of folders."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import operant
from operant.bench import trees
from operant.bench.trees import other_tree, this_tree

NO_GIT = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two commits; `operant` seems to run from there. Its configuration would run programs."""
    root = tmp_path / "repository"
    package = root / "src" / "operant"
    (package / "envs").mkdir(parents=True)
    for text in ("first", "second"):
        (package / "__init__.py").write_text(text)
        (package / "envs" / "data.bin").write_bytes(b"\0\n" + text.encode() + b"\r\n\n")
        (root / "README.md").write_text("no part of the package")
        if text == "first":
            git(root, "init", "-q")
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", text)
    (root / ".gitattributes").write_text("* filter=trap")
    for name in ("filter.trap.smudge", "filter.trap.clean", "core.fsmonitor"):
        git(root, "config", name, f"touch {tmp_path / 'ran'}")
    monkeypatch.setattr(operant, "__file__", str(package / "__init__.py"))
    return root


def git(root: Path, *arguments: str) -> str:
    name = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    command = ["git", "-C", str(root), *name, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def text_of(tree: trees.Tree) -> str:
    return (tree.source / "operant" / "__init__.py").read_text()


@NO_GIT
def test_a_commit(repository: Path, tmp_path: Path) -> None:
    old = other_tree("HEAD~1")
    assert old.name == git(repository, "rev-parse", "HEAD~1")
    assert old.is_commit
    assert text_of(old) == "first"
    assert (old.source / "operant/envs/data.bin").read_bytes() == b"\0\nfirst\r\n\n"
    assert sorted(path.name for path in old.source.rglob("*") if path.is_file()) == [
        "__init__.py",
        "data.bin",
    ]
    assert other_tree(old.name[:8]) == old
    assert not (tmp_path / "ran").exists()  # nothing that the repository names was run


@NO_GIT
@pytest.mark.parametrize("name", ["nothing", "--help", "-n", "HEAD~9", "HEAD:src", "a\nb", ""])
def test_what_is_neither_a_commit_nor_a_folder(repository: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"is neither a commit of .* nor a source tree$"):
        other_tree(name)


@NO_GIT
def test_a_commit_without_the_package(repository: Path) -> None:
    git(repository, "rm", "-rq", "--cached", "src")
    git(repository, "commit", "-qm", "gone")
    with pytest.raises(ValueError, match="the commit HEAD has no src/operant"):
        other_tree("HEAD")


@NO_GIT
def test_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operant, "__file__", str(tmp_path / "operant" / "__init__.py"))
    (tmp_path / "operant").mkdir()
    monkeypatch.setenv("GIT_DIR", str(Path(__file__).parents[2] / ".git"))  # not that one
    with pytest.raises(ValueError, match="does not run from a git repository, so 'HEAD' cannot"):
        other_tree("HEAD")


def test_no_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"cannot run git .*; give --against a folder"):
        other_tree("HEAD")


def test_a_folder(tmp_path: Path) -> None:
    for layout in ("src/operant", "operant"):
        package = tmp_path / layout.replace("/", "-") / layout
        (package / "__pycache__").mkdir(parents=True)
        (package / "__init__.py").write_text(layout)
        (package / "__pycache__" / "old.pyc").write_text("")
        tree = other_tree(str(tmp_path / layout.replace("/", "-")))
        assert text_of(tree) == layout
        assert not list(tree.source.rglob("*.pyc"))
    with pytest.raises(ValueError, match=r"there is no src/operant/__init__.py in the folder"):
        other_tree(str(tmp_path))


def test_this_tree_is_a_copy_that_is_found_again(home: Path) -> None:
    one = this_tree()
    file = one.source / "operant" / "__init__.py"
    assert file.read_bytes() == Path(operant.__file__).read_bytes()
    assert one.source.is_relative_to(home)
    (one.folder / "home").mkdir()
    assert this_tree() == one
    assert (one.folder / "home").is_dir()  # with what it compiled
    file.write_text("changed")
    assert this_tree() == one
    assert file.read_bytes() == Path(operant.__file__).read_bytes()
    assert list(home.joinpath("compare").iterdir()) == [one.folder]


def test_old_copies_are_removed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "_KEPT", 3)
    made = []
    for k in range(5):
        made.append(trees._stored(str(k), {"__init__.py": str(k).encode()}).folder)
        for age, folder in enumerate(reversed(made)):
            if folder.exists():
                os.utime(folder, (1e9 - age, 1e9 - age))
    assert [folder.exists() for folder in made] == [False, False, True, True, True]
