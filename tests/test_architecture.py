"""docs/architecture.md: the journeys are those of the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import operant
from operant.toolchain import paths

PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
PACKAGE = Path(operant.__file__).parent
TRACE = """
    import contextlib, json, os, sys
    import numpy as np
    import operant
    from operant.cli import main

    root, entered = os.path.dirname(operant.__file__) + os.sep, set()

    def note(frame, event, argument):  # only calls: it asks for no line of them
        if frame.f_code.co_filename.startswith(root):
            entered.add(frame.f_code.co_filename.removeprefix(root))

    sys.settrace(note)
    with contextlib.suppress(SystemExit):
        if sys.argv[1] == "train":
            short = ["--device", "cpu", "--set", "run.total_steps=8192"]
            sys.argv[1:] = ["train", "CartPole-v1", *short]
            main()
        else:
            batch = operant.make("CartPole-v1", 4, backend="cpu")
            batch.reset(seed=1)
            batch.step(np.zeros(4, np.int64))
    sys.settrace(None)
    print(json.dumps(sorted(entered)))
"""


def journeys() -> dict[str, tuple[int, int, list[str]]]:
    """Of each heading: the number of files and of crossings that the page says, and the files."""
    found = {}
    for section in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]:
        stated = re.search(r"^(\d+) files, (\d+) crossings", section, re.MULTILINE)
        assert stated is not None, section[:40]
        files = re.findall(r"^\d+\. `([\w/]+\.py)`: ", section, re.MULTILINE)
        found[section.splitlines()[0]] = (int(stated[1]), int(stated[2]), files)
    return found


def entered(journey: str, home: Path, environ: dict[str, str]) -> set[str]:
    """The files of the package in which a function is called."""
    command = [sys.executable, "-c", textwrap.dedent(TRACE), journey]
    if journey == "train":  # its journey is the same where the kernels are compiled already
        kernels = paths.home() / "kernels"
        kernels.mkdir(parents=True, exist_ok=True)
        (home / "kernels").symlink_to(kernels)
    environ |= {"OPERANT_HOME": str(home)}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("title", journeys())
def test_files_and_crossings_are_counted(title: str) -> None:
    number, crossings, files = journeys()[title]
    assert len(files) == len(set(files)) == number
    packages = [file.partition("/")[0] for file in files]
    assert sum(a != b for a, b in pairwise(packages)) == crossings


def test_every_file_named_exists() -> None:
    named = re.findall(r"`((?:\w+/)+[\w.]+\.py)`", PAGE)
    assert len(named) > 40
    assert [name for name in named if not (PACKAGE / name).is_file()] == []
    folders = re.findall(r"`((?:\w+/)+)`", PAGE)
    assert [
        name for name in folders if "FAMILY" not in name and not (PACKAGE / name).is_dir()
    ] == []


@pytest.mark.parametrize(
    ("journey", "title"),
    [("make", "A class becomes a CPU kernel"), ("train", "`operant train CartPole-v1`")],
)
def test_every_file_of_a_journey_is_entered(
    journey: str, title: str, tmp_path: Path, unmeasured: Callable[[], dict[str, str]]
) -> None:
    _, _, files = journeys()[title]
    found = entered(journey, tmp_path, unmeasured())
    assert [file for file in files if file not in found] == []


def test_the_picture_has_every_package() -> None:
    picture = PAGE.partition("```text\n")[2].partition("```")[0]
    packages = {file.parent.name for file in PACKAGE.glob("*/__init__.py")}
    assert {name for name in packages if not re.search(rf"\b{name}\b", picture)} == set()
