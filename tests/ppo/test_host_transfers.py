"""What host and GPU tell each other: in main memory here, on a GPU where there is one."""

from __future__ import annotations

import pytest
import torch

from operant.ppo.engines.host_transfers import HostMirror, PhaseTimer

ON_GPU = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    ],
)
DEVICES = ["cpu", ON_GPU]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_numbers_go_both_ways(device: str, dtype: torch.dtype) -> None:
    numbers = HostMirror((2, 3), dtype, torch.device(device))
    numbers.host[:] = [[1, 2, 3], [4, 5, 2**40]]
    assert not numbers.gpu.any()  # not before they are sent
    numbers.send()
    assert numbers.gpu.tolist() == [[1, 2, 3], [4, 5, 2**40]]
    numbers.gpu.mul_(2)
    assert numbers.host[0, 0] == 1
    numbers.fetch()
    if device == "cuda":
        torch.cuda.synchronize()
    assert numbers.host.tolist() == [[2, 4, 6], [8, 10, 2**41]]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_copies_are_captured() -> None:
    told, found = (HostMirror((4,), torch.float64, torch.device("cuda")) for _ in range(2))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        told.send()
        found.gpu.copy_(told.gpu * 2)
        found.fetch()
    timer = PhaseTimer(torch.device("cuda"))
    for number in range(5):
        told.host[:] = number
        graph.replay()
        timer.record(3)
        timer.wait()
        assert found.host.tolist() == [2 * number] * 4


@pytest.mark.parametrize("device", DEVICES)
def test_times_of_the_parts(device: str) -> None:
    timer = PhaseTimer(torch.device(device))
    for moment in range(4):
        assert timer.seconds() is None
        timer.record(moment)
    timer.wait()
    parts = timer.seconds()
    assert parts is not None
    assert all(0 <= part < 60 for part in parts)
    timer.record(0)  # the next begins: what is known stays so
    timer.record(1)
    assert timer.seconds() == parts
    timer.record(2)
    timer.record(3)
    timer.wait()
    assert timer.seconds() != parts
