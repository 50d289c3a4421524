"""What host and card tell each other: in main memory here, on a card where there is one."""

from __future__ import annotations

import pytest
import torch
from operant.ppo.engines.exchange import Exchange, Marks

ON_CARD = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    ],
)
DEVICES = ["cpu", ON_CARD]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_numbers_go_both_ways(device: str, dtype: torch.dtype) -> None:
    numbers = Exchange((2, 3), dtype, torch.device(device))
    numbers.host[:] = [[1, 2, 3], [4, 5, 2**40]]
    assert not numbers.card.any()  # not before they are sent
    numbers.send()
    assert numbers.card.tolist() == [[1, 2, 3], [4, 5, 2**40]]
    numbers.card.mul_(2)
    assert numbers.host[0, 0] == 1
    numbers.fetch()
    if device == "cuda":
        torch.cuda.synchronize()
    assert numbers.host.tolist() == [[2, 4, 6], [8, 10, 2**41]]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_copies_are_captured() -> None:
    told, found = (Exchange((4,), torch.float64, torch.device("cuda")) for _ in range(2))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        told.send()
        found.card.copy_(told.card * 2)
        found.fetch()
    marks = Marks(torch.device("cuda"))
    for number in range(5):
        told.host[:] = number
        graph.replay()
        marks.note(3)
        marks.wait()
        assert found.host.tolist() == [2 * number] * 4


@pytest.mark.parametrize("device", DEVICES)
def test_times_of_the_parts(device: str) -> None:
    marks = Marks(torch.device(device))
    for moment in range(4):
        assert marks.seconds() is None
        marks.note(moment)
    marks.wait()
    parts = marks.seconds()
    assert parts is not None
    assert all(0 <= part < 60 for part in parts)
    marks.note(0)  # the next begins: what is known stays so
    marks.note(1)
    assert marks.seconds() == parts
    marks.note(2)
    marks.note(3)
    marks.wait()
    assert marks.seconds() != parts
