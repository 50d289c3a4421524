"""What a user sees while a policy trains."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from operant.cli import progress
from operant.models import PPO

SMALL = {"num_envs": 8, "num_steps": 16, "hidden": (8,), "backend": "reference", "threads": 1}


def shown(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> str:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=120, color_system=None)
    monkeypatch.setattr(progress, "errors", console)
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    ppo = PPO("CartPole-v1", total_steps=512, **SMALL)
    with progress.TrainProgress(ppo) as bar:
        ppo.learn(callbacks=[bar])
        if terminal:
            assert bar._bar is not None
            bar._bar.refresh()
    return screen.getvalue()


def test_a_terminal_shows_a_bar(monkeypatch):
    text = shown(monkeypatch, terminal=True)
    assert "100%" in text
    assert "512/512 steps" in text
    assert "steps/s, return" in text


def test_a_file_gets_lines(monkeypatch):
    lines = shown(monkeypatch, terminal=False).splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("128/512 steps")
    assert lines[-1].endswith("0 s left")
    assert "\x1b" not in "".join(lines)
