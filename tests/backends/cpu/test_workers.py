"""Threads that share a step."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import operant
from operant.backends.cpu.workers import Workers, split
from operant.compiler.runtime.numba_jobs import ASLEEP, BLOCK, FIRST, LINE, STOPPED, UNFINISHED
from operant.toolchain.machine import usable_cores
from operant.vector import measured_workers

MANY = 5 * BLOCK + 320  # several blocks for each of several workers


def operant_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "operant"]


def wait_until(condition, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@settings(deadline=None)
@given(st.integers(1, 10_000), st.integers(1, 70))
def test_split_covers_everything_once(blocks: int, workers: int) -> None:
    lanes = blocks * 64
    parts = split(lanes, workers, 64)
    assert 1 <= len(parts) <= workers
    assert parts[0][0] == 0
    assert parts[-1][1] == lanes
    for (_, end), (begin, _) in pairwise(parts):
        assert end == begin
    sizes = [hi - lo for lo, hi in parts]
    assert all(size > 0 and size % 64 == 0 for size in sizes)
    assert max(sizes) - min(sizes) <= 64


@pytest.mark.parametrize("workers", [2, 3, 7])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_many_blocks_give_the_bits_of_one_worker(workers: int, mode: str) -> None:
    one, many = (
        operant.make("CartPole-v1", MANY, workers=count, autoreset_mode=mode)
        for count in (1, workers)
    )
    one.reset(seed=0)
    many.reset(seed=0)
    random = np.random.default_rng(0)
    finished = 0
    for _ in range(60):
        actions = random.integers(0, 2, MANY)
        first, second = one.step(actions), many.step(actions)
        for a, b in zip(first[:4], second[:4], strict=True):
            np.testing.assert_array_equal(a, b)
        assert first[4].keys() == second[4].keys()
        if first[4]:
            np.testing.assert_array_equal(first[4]["_episode"], second[4]["_episode"])
            finished += int(first[4]["_episode"].sum())
    assert finished > MANY
    many.close()


@pytest.mark.parametrize("place", [0, BLOCK + 1, MANY - 1])
def test_a_bad_action_anywhere_steps_nobody(place: int) -> None:
    env = operant.make("CartPole-v1", MANY, workers=3)
    env.reset(seed=0)
    actions = np.zeros(MANY, np.int64)
    env.step(actions)
    before = env.get_state()
    actions[place] = 2
    with pytest.raises(ValueError, match=f"action 2 of environment {place} "):
        env.step(actions)
    after = env.get_state()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name], err_msg=name)
    actions[place] = 1
    env.step(actions)
    assert (env.get_state()["steps"] == 2).all()
    env.close()


def test_sleeping_workers_wake_up_and_go_to_sleep_again() -> None:
    env = operant.make("CartPole-v1", MANY, workers=2, copy=False)
    twin = operant.make("CartPole-v1", MANY, workers=1, copy=False)
    env.reset(seed=0)
    twin.reset(seed=0)
    asleep = env._backend.arrays["control"][FIRST + LINE + ASLEEP :: LINE]
    actions = np.ones(MANY, np.int64)
    for _ in range(5):
        np.testing.assert_array_equal(env.step(actions)[0], twin.step(actions)[0])
        assert wait_until(lambda: asleep[0] == 1)
    env.close()


def test_threads_end_with_close_and_with_the_environment() -> None:
    gc.collect()
    assert wait_until(lambda: not operant_threads())
    closed = operant.make("CartPole-v1", MANY, workers=3)
    dropped = operant.make("CartPole-v1", MANY, workers=2)
    assert len(operant_threads()) == 3
    closed.close()
    assert wait_until(lambda: len(operant_threads()) == 1)
    del dropped
    gc.collect()
    assert wait_until(lambda: not operant_threads())


def test_an_interrupt_is_raised_when_the_step_is_complete() -> None:
    control = np.zeros(LINE * 4, np.int64)
    workers = Workers(2, lambda worker: STOPPED, control)
    answers = iter([UNFINISHED, KeyboardInterrupt, UNFINISHED, 7])
    asked = []

    def gather() -> int:
        answer = next(answers)
        asked.append(answer)
        if answer is KeyboardInterrupt:
            raise KeyboardInterrupt
        return answer

    with pytest.raises(KeyboardInterrupt):
        workers.wait(gather)
    assert asked[-1] == 7
    workers.close()


FORK = """
import os, numpy as np, operant
env = operant.make("CartPole-v1", 20_000, workers=2)
env.reset(seed=0)
env.step(np.zeros(20_000, int))
if os.fork() == 0:
    control = env._backend.arrays["control"]
    try:
        env._backend._workers.wait(lambda: -2)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, timeout=120
    )
    assert "make the environment in the child" in done.stdout


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_auto_takes_a_number_that_was_measured(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fastest of the numbers tried; timings are made up here."""
    tried = []

    def seconds(rules: object, num_envs: int, workers: int) -> float:
        tried.append(workers)
        assert num_envs == 130
        return {8: 3.0, 4: 1.0, 2: 1.1, 1: 9.0}[workers]

    monkeypatch.setattr(measured_workers, "_seconds", seconds)
    monkeypatch.setattr(measured_workers, "usable_cores", lambda: 8)
    batch = operant.make(env, 130, workers="auto", seed=1)
    assert batch.workers == 4
    assert tried == [8, 8, 4, 4, 2, 2, 1, 1]
    batch.close()


def test_auto_is_measured_on_the_batch_itself() -> None:
    batch = operant.make("CartPole-v1", 70, workers="auto", seed=1)
    assert 1 <= batch.workers <= usable_cores()
    assert operant.make("CartPole-v1", 4, backend="reference", workers="auto").workers == 1
    with pytest.raises(ValueError, match="workers must be an int or 'auto', got 'many'"):
        operant.make("CartPole-v1", 4, workers="many")
    batch.close()
