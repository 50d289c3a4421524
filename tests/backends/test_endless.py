"""A ``while`` that does not end: an error with its line on every backend, no waiting for good."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import operant
from operant.backends.author_mistake import env_mistake
from operant.backends.reference import watch
from operant.backends.reference.watch import Watch
from operant.compiler.errors import EndlessLoopError
from operant.compiler.parsing.endless import ADVICE, MOST_PASSES
from operant.lang import Arrays, int32, to_float
from operant.toolchain.host_kernels import host_compiler

PASSES = 5000
SOUND, FLAT, NESTED, RETURNS, HELPED = range(5)


def first_root(n):
    """Leaves its only loop by return: for 0 never."""
    k = 0
    while True:  #! RETURNS
        k += 1
        if n > 0 and k * k >= n:
            return k, to_float(k)


def spin(state):
    while True:  #! HELPED
        state.n[0] += 1
        if state.n[1] == 1:
            return


class Loops(operant.Env):
    """Action 0 ends after many passes; the others never do."""

    class State(Arrays):
        n = int32[4]

    observation_space = Box(-1e9, 1e9, (4,))
    action_space = Discrete(5)
    max_episode_steps = 100

    def reset(state, random):
        state.n[0] = random.integers(5)

    def step(state, action):
        count = 0
        while count < PASSES or action == FLAT:  #! FLAT
            count += 1
            state.n[0] = (state.n[0] * 5 + count) % 1009
        if action == NESTED:
            for k in range(1000):
                while state.n[0] >= 0:  #! NESTED
                    state.n[2] = k
        root, gained = first_root(0 if action == RETURNS else 50)
        state.n[3] += root
        if action == HELPED:
            spin(state)
        return gained, False

    def observe(state, obs):
        for k in range(4):
            obs[k] = state.n[k]


def place(mark: str) -> str:
    """File and line of a loop."""
    lines = Path(__file__).read_text().splitlines()
    (line,) = [k for k, text in enumerate(lines, 1) if text.endswith(f"#! {mark}")]
    return f"{__file__}:{line}"


TESTS = {"FLAT": "count < PASSES or action == FLAT", "NESTED": "state.n[0] >= 0"}
TESTS |= dict.fromkeys(("RETURNS", "HELPED"), "True")


def batch(backend: str) -> Any:
    env = operant.make(Loops, 3, backend=backend, seed=7)
    env.reset()
    return env


def stepped(env: Any, action: int) -> Any:
    """The state after a step; asking for it waits for a GPU."""
    env.step(np.array([SOUND, action, SOUND]))
    return env.get_state()


@pytest.fixture
def short_watch(monkeypatch: pytest.MonkeyPatch, unseen_test: None) -> Iterator[None]:
    """Unseen, because an error from another thread may arrive while coverage holds its lock."""
    monkeypatch.setattr(watch.WATCH, "limit_s", 0.1)
    return


@pytest.fixture(params=["reference", "cpu", "cuda"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name == "reference":
        request.getfixturevalue("short_watch")
    if name == "cuda":
        if host_compiler() is None:
            pytest.skip("there is no C++ compiler")
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    return name


@pytest.mark.parametrize("mark", TESTS)
def test_an_endless_loop_is_an_error(backend: str, mark: str) -> None:
    env = batch(backend)
    limit = f"{MOST_PASSES} passes"
    if backend == "reference":
        limit = "0.1 s of processor time"
    with pytest.raises(EndlessLoopError) as found:
        stepped(env, globals()[mark])
    message = f"{place(mark)}: `while {TESTS[mark]}` did not end within {limit}; {ADVICE}"
    assert str(found.value) == message
    assert env_mistake(found.value) == message
    stepped(env, SOUND)  # it is said once


def test_loops_that_end_are_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    if host_compiler() is not None:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    names = ["reference", "cpu"] + ["cuda"] * (host_compiler() is not None)
    envs = [batch(name) for name in names]
    states = []
    for env in envs:
        for _ in range(3):
            stepped(env, SOUND)
        states.append({k: v for k, v in env.get_state().items() if k.startswith("state.")})
    for state in states[1:]:
        np.testing.assert_array_equal(state["state.n"], states[0]["state.n"])
    assert states[0]["state.n"][:, 3].tolist() == [24, 24, 24]


def test_a_step_without_while_counts_nothing() -> None:
    from operant.compiler.emit.dialects import PythonText
    from operant.compiler.spec.rules import Rules

    rules: Any = Rules.of(operant.envs.get_env("Prospector-v0"))
    library, _ = rules.library(PythonText())
    assert not any("passes" in text for text in library.texts)
    rules = Rules.of(Loops)
    library, _ = rules.library(PythonText())
    assert sum(text.count("endless(") for text in library.texts) == len(TESTS)


# The watch of plain Python ------------------------------------------------------------------------
def test_a_call_that_waits_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a debugger: time passes, but not the processor's."""
    looks = threading.Semaphore(0)

    def computed_s(call: Any) -> float:
        looks.release()
        return 1.0

    monkeypatch.setattr(watch._Call, "computed_s", computed_s)
    with Watch(limit_s=0.001).watched():
        for _ in range(20):
            assert looks.acquire(timeout=60)


def test_only_the_thread_that_computes_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, unseen_test: None
) -> None:
    told, times = [], iter(range(1_000_000))
    main = threading.get_ident()

    def computed_s(call: Any) -> float:
        return 0.0 if call.thread == main else float(next(times))

    def endless() -> None:
        try:
            with one.watched():
                while True:
                    pass
        except EndlessLoopError:
            told.append(threading.get_ident())

    monkeypatch.setattr(watch._Call, "computed_s", computed_s)
    one = Watch(limit_s=0.001)
    with one.watched():
        thread = threading.Thread(target=endless)
        thread.start()
        thread.join(timeout=60)
    assert told == [thread.ident]


def test_the_watch_ends_with_the_calls() -> None:
    one = Watch(limit_s=0.001)
    for _ in range(2):  # and begins again
        with one.watched():
            assert one._looking
        for thread in threading.enumerate():
            if thread.name == "operant-watch":
                thread.join(timeout=60)
        assert not one._looking


def test_a_forked_process_has_a_watch_of_its_own() -> None:
    one = Watch()
    one._looking = True  # as in a child, which has the memory but not the thread
    one._lock.acquire()
    one.begin_again()
    with one.watched():
        assert [thread.name for thread in threading.enumerate()].count("operant-watch") >= 1


def test_a_long_call_without_while_is_ended_too(short_watch: None) -> None:
    class Long(Loops):
        def step(state, action):  # type: ignore[no-untyped-def]
            for _ in range(1 << 40):
                state.n[0] = 1  #! LONG
            return 0.0, False

    env = operant.make(Long, 1, backend="reference", seed=0)
    env.reset()
    with pytest.raises(EndlessLoopError, match=r"step\(\) did not return within 0.1 s of proc"):
        env.step(np.array([0]))
