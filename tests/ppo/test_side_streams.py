"""What waits for what, with streams that only note it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest
import torch

from operant.ppo.engines.side_streams import SideStreams


class FakeStream:
    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes = name, notes

    def wait_stream(self, other: FakeStream) -> None:
        self.notes.append(f"{self.name} waits for {other.name}")


def test_a_side_waits_for_what_came_before_and_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes: list[str] = []
    made = iter(FakeStream(f"side {k}", notes) for k in range(2))

    @contextmanager
    def on(stream: FakeStream) -> Any:
        notes.append(f"to {stream.name}")
        yield
        notes.append("back")

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: next(made))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream("main", notes))
    monkeypatch.setattr(torch.cuda, "stream", on)
    streams = SideStreams(torch.device("cuda"))
    with streams.beside(1):
        notes.append("launch")
    streams.join()
    streams.join()
    assert notes == [
        "side 1 waits for main",
        "to side 1",
        "launch",
        "back",
        "main waits for side 1",
    ]
    notes.clear()
    with streams.beside():
        pass
    with streams.beside(1):
        pass
    streams.join()
    assert sorted(notes[-2:]) == ["main waits for side 0", "main waits for side 1"]


def test_on_a_cpu_everything_is_done_in_order() -> None:
    streams, done = SideStreams(torch.device("cpu")), []
    with streams.beside():
        done.append(1)
    done.append(2)
    streams.join()
    assert done == [1, 2]
