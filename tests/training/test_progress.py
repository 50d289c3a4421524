"""What a person sees while a policy trains."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from operant import PPO, Callback
from operant.cli import progress as on_the_command_line
from operant.training import progress

SMALL = {"num_envs": 8, "num_steps": 16, "hidden": (8,), "backend": "reference", "threads": 1}


class Stream(io.StringIO):
    """A terminal, or none."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")


def streams(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> tuple[Stream, Stream]:
    out, err = Stream(terminal), Stream(terminal)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    return out, err


def notebook(monkeypatch: pytest.MonkeyPatch, shell: str = "ZMQInteractiveShell") -> None:
    made = type(shell, (), {})()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: made))


def ppo(**options: Any) -> PPO:
    return PPO("CartPole-v1", total_steps=512, **SMALL, **options)


# `learn` ----------------------------------------------------------------------------------------
def test_a_terminal_gets_a_bar_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = streams(monkeypatch, terminal=True)
    ppo().learn(256)
    assert "100%" in err.getvalue()
    assert "256/256 steps" in err.getvalue()
    assert "steps/s, return" in err.getvalue()
    assert "\x1b[2K" not in err.getvalue().rpartition("100%")[2]  # the last line is not erased
    assert out.getvalue() == ""


@pytest.mark.parametrize("asked", [None, False])
def test_a_file_gets_nothing(monkeypatch: pytest.MonkeyPatch, asked: bool | None) -> None:
    out, err = streams(monkeypatch, terminal=False)
    ppo().learn(progress=asked)
    assert (out.getvalue(), err.getvalue()) == ("", "")


def test_a_file_gets_lines_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    out, err = streams(monkeypatch, terminal=False)
    ppo().learn(progress=True)
    lines = err.getvalue().splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("128/512 steps")
    assert lines[-2].endswith(" s left")
    assert lines[-1].startswith("512/512 steps")
    assert "\x1b" not in err.getvalue()
    assert out.getvalue() == ""


def test_silence_in_a_terminal_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = streams(monkeypatch, terminal=True)
    ppo().learn(progress=False)
    assert (out.getvalue(), err.getvalue()) == ("", "")


@pytest.mark.parametrize("shell", ["ZMQInteractiveShell", "Shell"])
def test_a_notebook_gets_lines_of_text(monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    out, err = streams(monkeypatch, terminal=False)
    notebook(monkeypatch, shell)
    if shell == "Shell":
        kind = type(sys.modules["IPython"].get_ipython())
        monkeypatch.setattr(kind, "__module__", "google.colab._shell")
    ppo().learn()
    assert out.getvalue().startswith("512/512 steps")
    assert out.getvalue().count("\n") == 1
    assert "\x1b" not in out.getvalue()
    assert err.getvalue() == ""


def test_ipython_in_a_pipe_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = streams(monkeypatch, terminal=False)
    notebook(monkeypatch, "TerminalInteractiveShell")
    ppo().learn()
    assert (out.getvalue(), err.getvalue()) == ("", "")


def test_no_standard_error_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert ppo().learn(128).steps == 128


def test_nothing_to_do_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, err = streams(monkeypatch, terminal=True)
    trained = ppo().learn(128, progress=False)
    trained.learn(128)
    assert err.getvalue() == ""


def test_a_bar_is_closed_when_training_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks(Callback):
        def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
            raise KeyboardInterrupt

    _, err = streams(monkeypatch, terminal=True)
    with pytest.raises(KeyboardInterrupt):
        ppo().learn(callbacks=Breaks())
    assert err.getvalue().count("\x1b[?25l") == err.getvalue().count("\x1b[?25h") == 1  # cursor


def test_it_does_not_keep_the_engine_waiting() -> None:
    from operant.training.callbacks import only_watches

    console = Console(file=io.StringIO())
    assert only_watches(progress.TrainProgress(ppo(), console))
    assert only_watches(on_the_command_line.TrainProgress(ppo()))


# The command line -------------------------------------------------------------------------------
def shown(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> str:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=120, color_system=None)
    monkeypatch.setattr(on_the_command_line, "errors", console)
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    _, err = streams(monkeypatch, terminal)
    trainer = ppo()
    with on_the_command_line.TrainProgress(trainer) as bar:
        trainer.learn(callbacks=[bar])
        if terminal:
            assert bar._bar is not None
            bar._bar.refresh()
    assert err.getvalue() == ""  # one of them is enough
    return screen.getvalue()


def test_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, terminal=True)
    assert "100%" in text
    assert "512/512 steps" in text
    assert "steps/s, return" in text


def test_a_file_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, terminal=False).splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("128/512 steps")
    assert lines[-1].endswith("0 s left")
    assert "\x1b" not in "".join(lines)
