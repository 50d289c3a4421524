"""A batch belongs to whoever steps it: a second thread is refused, not kept waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import operant
from operant.models import PPO
from operant.vector.native import load

REFUSED = r"^this \w+ is being stepped by another thread, .*; make one per thread$"


def uses(env: Any) -> dict[str, Callable[[], object]]:
    """What works on the memory of a batch, by name."""
    actions = np.zeros((env.num_envs, *env.single_action_space.shape), env.action_space.dtype)
    state = env.get_state()
    return {
        "step": lambda: env.step(actions),
        "step_many": lambda: env.step_many(actions[None]),
        "reset": lambda: env.reset(),
        "reset_many": lambda: env.reset_many(),
        "get_state": env.get_state,
        "set_state": lambda: env.set_state(state),
        "close": env.close,
    }


def make(backend: str, build_library: Callable[..., Path]) -> Any:
    if backend == "native":
        game = load(build_library("tests/vector/native/walk.c"), trial=False)
        return operant.make(game, 64, workers=2)
    workers = 2 if backend == "cpu" else 1
    return operant.make("CartPole-v1", 4096, backend=backend, workers=workers)


@pytest.mark.parametrize("backend", ["reference", "cpu", "native"])
def test_whoever_comes_second_is_refused(backend: str, build_library: Any) -> None:
    env = make(backend, build_library)
    env.reset(seed=0)
    everything, inside, go_on, step = uses(env), threading.Event(), threading.Event(), None

    def slow(*arguments: Any) -> int:
        inside.set()
        assert go_on.wait(60)
        assert step is not None
        return step(*arguments)

    step, env._backend.step = env._backend.step, slow
    first = threading.Thread(target=everything["step"])
    first.start()
    assert inside.wait(60)
    for use in everything.values():
        with pytest.raises(RuntimeError, match=REFUSED):
            use()
    go_on.set()
    first.join()
    assert not env.closed
    for use in everything.values():  # it goes on
        use()


def test_a_step_from_inside_a_step_is_refused() -> None:
    env = operant.make("CartPole-v1", 4, backend="reference")
    env.reset(seed=0)
    everything = uses(env)
    inner, env._backend.step = env._backend.step, lambda *_: everything["step"]()
    with pytest.raises(RuntimeError, match=REFUSED):
        everything["step"]()
    env._backend.step = inner
    everything["step"]()  # an error does not lock it up


def test_threads_of_two_workers_do_not_wait_forever() -> None:
    """Four of them: two seldom met, and then nothing was waited for."""
    env = operant.make("CartPole-v1", 4096, workers=2)
    env.reset(seed=0)
    together, errors = threading.Barrier(4), []
    actions = np.zeros(4096, np.int64)

    def steps() -> None:
        together.wait()
        for _ in range(300):
            try:
                env.step(actions)
            except RuntimeError as error:
                errors.append(str(error))

    threads = [threading.Thread(target=steps, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert all("make one per thread" in error for error in errors)
    env.step(actions)


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_nobody_steps_what_a_rollout_is_stepping(engine: str) -> None:
    ppo = PPO("CartPole-v1", num_envs=8, num_steps=4, hidden=[8], engine=engine, threads=1)
    assert ppo.engine.name == engine
    with ppo.env.in_use(), pytest.raises(RuntimeError, match=REFUSED):
        ppo.learn(32)
    ppo.learn(32)


@pytest.mark.usefixtures("interpreter")
def test_on_the_gpu_too() -> None:
    env = operant.make("CartPole-v1", 4, backend="cuda")
    env.reset(seed=0)
    everything = uses(env)
    del everything["close"]  # frees nothing that another thread needs
    for use in everything.values():
        with env.in_use(), pytest.raises(RuntimeError, match=REFUSED):
            use()
    for use in everything.values():
        use()
