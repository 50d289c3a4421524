"""The script that resolves the constraints: what it says of what uv answers."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from ..modules import load

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load(ROOT / "tools" / "resolve_constraints.py")
    monkeypatch.setattr(module.shutil, "which", lambda *_, **__: "uv")
    return module


def everything() -> str:
    return (ROOT / "constraints.txt").read_text()


def test_all_resolve(tool, monkeypatch, capsys) -> None:
    monkeypatch.setattr(tool, "resolve", lambda *_: (everything(), ""))
    assert tool.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "all resolve"
    assert len(lines) == 1 + 3 * 3 * 4 + 2  # header; systems, Pythons, extras; the last word
    assert lines[1].split()[:3] == ["x86_64-unknown-linux-gnu", "3.11", "none"]


def test_one_that_does_not_resolve_is_told(tool, monkeypatch, capsys) -> None:
    def resolve(uv: str, system: str, python: str, extras: str) -> tuple[str, str]:
        return ("", "torch needs another triton") if "apple" in system else (everything(), "")

    monkeypatch.setattr(tool, "resolve", resolve)
    assert tool.main() == 1
    told = capsys.readouterr().out
    assert told.count("no solution") == 12
    assert told.count("torch needs another triton") == 1


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda text: text + "left-pad==1.0\n", "not pinned: left-pad"),
        (lambda text: text.replace("rich==", "poor=="), "not pinned: poor"),
        (lambda text: text.replace("rich==", "#"), "pinned, and nothing needs it: rich"),
    ],
)
def test_pins_that_lack_and_pins_that_are_too_many(
    answer, sentence: str, tool, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(tool, "resolve", lambda *_: (answer(everything()), ""))
    assert tool.main() == 1
    assert sentence in capsys.readouterr().out.splitlines()


def test_settings_of_this_machine_do_not_reach_uv(tool, monkeypatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    monkeypatch.setenv("UV_INDEX_URL", "elsewhere")
    monkeypatch.setenv("HOME", "/home")
    given = tool.environment()
    assert given["HOME"] == "/home"
    assert not {name for name in given if name.startswith(("PIP_", "UV_"))}


def test_without_uv_it_says_how_to_get_it(tool, monkeypatch, capsys) -> None:
    monkeypatch.setattr(tool.shutil, "which", lambda *_, **__: None)
    assert tool.main() == 1
    assert "pip install uv" in capsys.readouterr().err
