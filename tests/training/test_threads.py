"""Threads: order, errors, and PyTorch's own number."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from operant.toolchain.machine import usable_cores
from operant.toolchain.torch_threads import one_thread_an_operation
from operant.training.threads import Threads, keep_freed_memory


@pytest.mark.parametrize("count", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(count):
    threads = Threads(count)
    assert threads.map(lambda x: x * x, list(range(50))) == [x * x for x in range(50)]
    assert threads.map(lambda x: x, []) == []


def test_several_threads_work_at_once_each_with_one_torch_thread():
    threads, meeting = Threads(3), threading.Barrier(3, timeout=300)

    def work(_):
        meeting.wait()  # passes only if all three are here
        return threading.get_ident(), torch.get_num_threads()

    with one_thread_an_operation():
        found = threads.map(work, [0, 1, 2])
    assert len({ident for ident, _ in found}) == 3
    assert {number for _, number in found} == {1}


@pytest.mark.parametrize("guilty", [0, 7])
def test_an_error_in_a_thread_reaches_the_caller(guilty):
    threads = Threads(3)

    def work(x):
        time.sleep(0.001)
        if x == guilty:
            raise ZeroDivisionError("here")
        return x

    with pytest.raises(ZeroDivisionError, match="here"):
        threads.map(work, list(range(10)))
    assert threads.map(lambda x: x, [1, 2]) == [1, 2]  # and they are still usable


def test_the_number_of_torch_threads_is_put_back():
    before = torch.get_num_threads()
    with one_thread_an_operation():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    with pytest.raises(ZeroDivisionError), one_thread_an_operation():
        1 / 0  # noqa: B018
    assert torch.get_num_threads() == before


def test_cores_and_memory():
    assert usable_cores() >= 1
    keep_freed_memory()  # wherever it runs
