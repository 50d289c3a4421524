"""Threads that share a batch: how it is cut, and that nothing is lost when one of them fails."""

from __future__ import annotations

import gc
import itertools
import signal
import threading
import time
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operant.vector.workers import WorkerPool, split


def operant_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "operant"]


def assert_ended(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)


@given(
    blocks=st.integers(1, 5000),
    workers=st.integers(1, 300),
    multiple=st.sampled_from([1, 2, 8, 64, 100]),
    missing=st.integers(0, 99),
)
def test_split_covers_everything_once(
    blocks: int, workers: int, multiple: int, missing: int
) -> None:
    lanes = max(1, blocks * multiple - missing % multiple)
    slices = split(lanes, workers, multiple)
    assert slices[0][0] == 0
    assert slices[-1][1] == lanes
    for (_, end), (begin, _) in itertools.pairwise(slices):
        assert end == begin
    sizes = [hi - lo for lo, hi in slices]
    assert min(sizes) > 0
    assert all(lo % multiple == 0 for lo, _ in slices)
    assert len(slices) == min(workers, -(-lanes // multiple))
    whole = [-(-size // multiple) for size in sizes]
    assert max(whole) - min(whole) <= 1  # even: nobody waits for more than one block


def test_split_by_hand() -> None:
    assert split(64, 4, 64) == [(0, 64)]
    assert split(128, 4, 64) == [(0, 64), (64, 128)]
    assert split(320, 2, 64) == [(0, 128), (128, 320)]
    assert split(10, 3, 4) == [(0, 4), (4, 8), (8, 10)]


@pytest.fixture
def pool():
    pool = WorkerPool(split(1000, 4, 10))
    yield pool
    pool.close()


def test_run_is_the_sum_over_the_slices(pool: WorkerPool) -> None:
    for _ in range(200):
        assert pool.run(lambda lo, hi: sum(range(lo, hi))) == sum(range(1000))


def test_each_slice_has_a_thread_of_its_own_and_the_caller_takes_the_first(
    pool: WorkerPool,
) -> None:
    for _ in range(3):
        seen: dict[tuple[int, int], threading.Thread] = {}
        meeting = threading.Barrier(4, timeout=30)  # all four run at the same time

        def task(
            lo: int,
            hi: int,
            seen: dict[tuple[int, int], threading.Thread] = seen,
            meeting: threading.Barrier = meeting,
        ) -> int:
            seen[lo, hi] = threading.current_thread()
            meeting.wait()
            return 1

        assert pool.run(task) == 4
        assert sorted(seen) == [(0, 250), (250, 500), (500, 750), (750, 1000)]
        assert len(set(seen.values())) == 4
        assert seen[0, 250] is threading.current_thread()
        for bounds, thread in seen.items():
            assert bounds == (0, 250) or (thread.name == "operant" and thread.daemon)


class Odd(BaseException):
    """Not an ordinary exception; falsy, too."""

    def __bool__(self) -> bool:
        return False


@pytest.mark.parametrize("failing", [0, 250, 500, 750])
@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt(), Odd()], ids=repr)
def test_an_exception_in_any_slice_is_raised_and_the_pool_goes_on(
    pool: WorkerPool, failing: int, error: BaseException
) -> None:
    def task(lo: int, hi: int) -> int:
        if lo == failing:
            raise error
        return hi - lo

    for _ in range(3):
        with pytest.raises(type(error)) as caught:
            pool.run(task)
        assert caught.value is error
        assert pool.run(lambda lo, hi: hi - lo) == 1000


def test_when_all_fail_one_exception_is_raised_and_the_pool_goes_on(pool: WorkerPool) -> None:
    def task(lo: int, hi: int) -> int:
        raise ValueError(f"slice {lo}")

    for _ in range(3):
        with pytest.raises(ValueError, match="slice 0"):
            pool.run(task)
    assert pool.run(lambda lo, hi: hi - lo) == 1000


def test_run_waits_for_the_others_when_one_fails(pool: WorkerPool) -> None:
    """Or they would write to buffers that the caller believes to be its own again."""
    ended = []
    failed = threading.Event()

    def task(lo: int, hi: int) -> int:
        if lo == 0:
            failed.set()
            raise ValueError("first")
        assert failed.wait(timeout=30)
        time.sleep(0.05)
        ended.append(lo)
        return 0

    with pytest.raises(ValueError, match="first"):
        pool.run(task)
    assert sorted(ended) == [250, 500, 750]


def test_an_interrupt_while_waiting_does_not_disturb_the_next_run(pool: WorkerPool) -> None:
    """Ctrl-C: the main thread gives up waiting; what the others still bring is not mistaken."""
    main = threading.main_thread().ident
    assert main is not None
    waiting, interrupted = threading.Event(), threading.Event()

    def task(lo: int, hi: int) -> int:
        if lo == 0:
            waiting.set()
        elif lo == 250:
            waiting.wait(timeout=30)
            time.sleep(0.05)  # the main thread waits for results now
            signal.pthread_kill(main, signal.SIGINT)
        if lo > 0:
            interrupted.wait(timeout=30)
        return 7

    with pytest.raises(KeyboardInterrupt):
        pool.run(task)
    interrupted.set()
    for _ in range(3):
        assert pool.run(lambda lo, hi: hi - lo) == 1000


def test_close_ends_the_threads_and_may_be_called_again() -> None:
    before = set(operant_threads())
    pool = WorkerPool(split(1000, 4, 10))
    threads = [thread for thread in operant_threads() if thread not in before]
    assert len(threads) == 3
    pool.run(lambda lo, hi: 1)
    pool.close()
    pool.close()
    assert_ended(threads)


def test_a_forgotten_pool_ends_its_threads() -> None:
    before = set(operant_threads())
    pool = WorkerPool(split(1000, 4, 10))
    threads = [thread for thread in operant_threads() if thread not in before]
    pool.run(lambda lo, hi: 1)
    gone = weakref.ref(pool)
    del pool
    gc.collect()
    assert gone() is None
    assert_ended(threads)


def test_one_slice_needs_no_thread() -> None:
    before = threading.active_count()
    pool = WorkerPool([(0, 64)])
    assert threading.active_count() == before
    assert pool.run(lambda lo, hi: hi - lo) == 64
    pool.close()
