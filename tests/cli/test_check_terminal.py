"""`operant check` in a terminal of 80 columns: what stands on the screen when it is done."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from rich.console import Console

from operant.check.finding import Finding
from operant.cli import check as verb
from operant.cli import screen

SNAKE = """
from typing import NamedTuple
from gymnasium.spaces import Box, Discrete
import operant

class Snake(operant.Env):
    class State(NamedTuple):
        x: float
    observation_space = Box(-1.0, 1.0, (1,))
    action_space = Discrete(2)
    def reset(random):
        return Snake.State(random[0])
    def step(state, action):
        return Snake.State(state.x * 0.5), 1.0, state.x < 0.1
    def observe(state):
        return (state.x,)
"""
LONG = "a sentence that is longer than the sixty columns which are left to it on a screen of eighty"


def shown(written: str) -> str:
    """What a terminal shows after this was written to it."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", written):
        if part == "\r":
            column = 0
        elif part == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A") and part[0] == "\x1b":
            row = max(0, row - int(part[2:-1] or 1))
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part[0] != "\x1b":
            line = lines[row].ljust(column)
            lines[row] = line[:column] + part + line[column + len(part) :]
            column += len(part)
    return "\n".join(line.rstrip() for line in lines).rstrip("\n")


def console_on(file: io.StringIO) -> Console:
    return screen._Screen(
        file=file, force_terminal=True, force_interactive=True, width=80, emoji=False
    )


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Standard output and standard error, on one screen."""
    both = io.StringIO()
    for name in ("output", "errors"):
        monkeypatch.setattr(verb, name, console_on(both))
    return both


def findings(terminal: io.StringIO) -> Iterator[Finding]:
    for k in range(3):
        length = len(terminal.getvalue())
        while len(terminal.getvalue()) == length:  # until the spinner turns
            time.sleep(0.01)
        yield Finding(f"check{k}", k != 1, LONG if k == 1 else "fine,\n as   it is", note=k == 2)


def test_lines_and_the_spinner_do_not_meet(
    terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "snake.py"
    file.write_text(SNAKE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("operant.check.env_check.check_env", lambda env: findings(terminal))
    with pytest.raises(typer.Exit) as end:
        verb.check(["snake.py:Snake"], as_json=False, speed=False)
    assert end.value.exit_code == 1
    assert "checking snake.py:Snake: whole episodes" in terminal.getvalue()  # no emoji
    assert shown(terminal.getvalue()) == (
        "snake.py:Snake\n"
        "  ok   definition   Snake keeps to the language\n"
        "  ok   check0       fine, as it is\n"
        "  FAIL check1       a sentence that is longer than the sixty columns which are\n"
        "                    left to it on a screen of eighty\n"
        "  note check2       fine, as it is\n"
        "  1 failed"
    )


def test_a_spinner_shows_names_as_they_are() -> None:
    written = io.StringIO()
    with console_on(written).status("playing :snake: and [bold]Snake[/bold]"):
        pass
    assert "playing :snake: and " in written.getvalue()
    assert "[bold]" not in written.getvalue()
