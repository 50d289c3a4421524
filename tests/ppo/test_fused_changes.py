"""What users do to a run of the fused engine from outside: to its policy, its environments, Ctrl-C.

What may crash or hang if it goes wrong runs in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import operant
from operant.models import PPO
from operant.training.callbacks import Callback

Tasks = dict[str, type[operant.Env]]
ROLLOUT = 7 * 13


def made(env: Any, engine: str = "fused", **options: Any) -> PPO:
    settings = {"num_envs": 7, "num_steps": 13, "hidden": (20, 9), "seed": 1, "threads": 1}
    ppo = PPO(env, engine=engine, backend="cpu", **{**settings, **options})
    assert ppo.engine.name == engine, ppo.engine_reason
    return ppo


# The policy ---------------------------------------------------------------------------------------
def halved(policy: Any) -> None:
    policy.half()


def head_in_doubles(policy: Any) -> None:
    policy.actor_head.double()


def smaller(policy: Any) -> None:
    for parameter in policy.parameters():
        parameter.data = torch.zeros(1)


def turned(policy: Any) -> None:
    weight = policy.actor[2].weight
    weight.data = weight.data.t().contiguous()


def assigned(policy: Any) -> None:
    state = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    policy.load_state_dict(state, assign=True)


def replaced(policy: Any) -> None:
    policy.actor_head.bias = nn.Parameter(torch.tensor([0.0, 0.0, 5.0]))


def frozen(policy: Any) -> None:
    policy.critic.requires_grad_(False)


CHANGES = (halved, head_in_doubles, smaller, turned, assigned, replaced, frozen)


@pytest.mark.parametrize("change", CHANGES)
def test_a_policy_that_is_no_longer_what_it_was(
    tasks: Tasks, change: Callable[[Any], None]
) -> None:
    ppo = made(tasks["Turns"]).learn(ROLLOUT)
    change(ppo.policy)
    with pytest.raises(ValueError) as error:
        ppo.learn(2 * ROLLOUT)
    said = str(error.value)
    assert "param" in said
    assert "\n" not in said
    assert ". " not in said  # one sentence
    assert not said.endswith(".")
    assert ppo.iteration == 1


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_the_middle_of_an_iteration(
    tasks: Tasks, change: Callable[[Any], None]
) -> None:
    class Now(Callback):
        def on_rollout(self, ppo: PPO, buffer: Any) -> None:
            change(ppo.policy)

    with pytest.raises(ValueError, match="param"):
        made(tasks["Turns"]).learn(ROLLOUT, Now())


def test_what_was_taken_back_does_no_harm(tasks: Tasks) -> None:
    ppo = made(tasks["Turns"]).learn(ROLLOUT)
    with torch.no_grad():  # numbers that half precision has
        for parameter in ppo.policy.parameters():
            parameter.copy_(parameter.half())
    ppo.policy.half()
    with pytest.raises(ValueError):
        ppo.learn(2 * ROLLOUT)
    before = ppo.policy.actor[0].weight.detach().float()
    ppo.policy.float()
    ppo.learn(2 * ROLLOUT)
    moved = (ppo.policy.actor[0].weight - before).abs().max()
    assert 0 < moved < 0.1


class Renormalize(Callback):
    """Statistics that are not the rollout's."""

    def on_rollout(self, ppo: PPO, buffer: Any) -> None:
        normalizer: Any = ppo.policy.obs_normalizer
        random = torch.Generator().manual_seed(ppo.iteration)
        normalizer.update(3 * torch.randn(500, *normalizer.mean.shape, generator=random) + 2)


@pytest.mark.parametrize("task", ["Turns", "Arm"])
def test_a_normaliser_that_changes_between_rollout_and_update(tasks: Tasks, task: str) -> None:
    found = []
    for engine in ("fused", "eager"):
        options = {"normalize_obs": True, "minibatches": 1, "epochs": 1, "max_grad_norm": 0.0}
        ppo = made(tasks[task], engine, **options).learn(ROLLOUT, Renormalize())
        found.append(ppo.optimizer.gradient)
    assert torch.linalg.norm(found[0] - found[1]) <= 1e-4 * torch.linalg.norm(found[1])


# In a process of its own --------------------------------------------------------------------------
def run(file: str, folder: Path) -> str:
    """What a program prints."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", file],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


STRAY = """\
from typing import NamedTuple

from gymnasium.spaces import Discrete, MultiDiscrete

import operant
from operant.lang import to_int, where
from operant.models import PPO


class Stray(operant.Env):
    class State(NamedTuple):
        time: int
        ill: int

    class Params(NamedTuple):
        bad: float = 0.0
        when: float = 3.0

    observation_space = Discrete(4)
    action_space = Discrete(2)
    max_episode_steps = 5

    def reset(random):
        return Stray.State(0, 0)

    def step(state, action):
        return Stray.State(state.time + 1, state.ill), 1.0, False

    def observe(state, params):
        bad = (state.time == to_int(params.when)) & (state.ill == 1)
        return where(bad, to_int(params.bad), 2)


class Strays(Stray):
    observation_space = MultiDiscrete([3, 4], start=[1, 0])

    def observe(state, params):
        return 3, Stray.observe(state, params)


for env in (Stray, Strays):
    for bad in (7, 4, -1, 3000000):
        for when in (3, 5):  # 5: the last of an episode, which no action follows
            ppo = PPO(env, engine="fused", num_envs=70, num_steps=7, hidden=(8,), threads=1,
                      device="cpu", params={"bad": float(bad), "when": float(when)})
            assert ppo.engine.name == "fused"
            ppo.learn(70 * 7)
            state = {"state.ill": ppo.env.get_state()["state.ill"]}
            state["state.ill"][67] = 1
            ppo.env.set_state(state)
            weights = [p.clone() for p in ppo.policy.parameters()]
            try:
                ppo.learn(70 * 7 * 3)
            except ValueError as error:
                print(env.__name__, bad, when, str(error))
            assert all((a == b).all() for a, b in zip(weights, ppo.policy.parameters()))
"""


def test_an_observation_that_its_space_does_not_have(tmp_path: Path) -> None:
    """There is no place for it in the one-hot vectors."""
    (tmp_path / "stray.py").write_text(STRAY)
    lines = run("stray.py", tmp_path).splitlines()
    assert len(lines) == 2 * 4 * 2
    for line in lines:
        name, bad, _, said = line.split(maxsplit=3)
        assert "environment 67" in said
        assert bad in said
        assert ("MultiDiscrete" if name == "Strays" else "Discrete(4)") in said
        assert ". " not in said


INTERRUPTED = """\
import faulthandler
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch

from operant.models import PPO
from operant.training.threads import Threads

faulthandler.dump_traceback_later(110, exit=True)
submit, run_all = ThreadPoolExecutor.submit, Threads.map
calls, when, begun, here = 0, "", threading.Event(), threading.Event()


def interrupt(*_):
    raise KeyboardInterrupt


def submitted(self, *args):
    started = submit(self, *args)
    if calls == 0 and when == "started":
        interrupt()
    return started


def mapped(self, function, items):
    global calls
    calls -= 1
    now = calls == 0

    def wrapped(item):
        mine = threading.current_thread() is threading.main_thread()
        if now and mine:
            here.set()
        if now and not mine and when in ("before", "after"):
            here.wait()  # or it might do all there is to do
        if now and mine and when == "before":
            interrupt()
        if now and not mine and when == "waiting":
            begun.set()
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            time.sleep(0.2)
        if now and mine and when == "waiting":
            begun.wait()
        result = function(item)
        if now and mine and when == "after":
            interrupt()
        return result

    return run_all(self, wrapped, items)


signal.signal(signal.SIGALRM, interrupt)
ThreadPoolExecutor.submit, Threads.map = submitted, mapped
size = 256 * 16
ppo = PPO("CartPole-v1", engine="fused", num_envs=256, num_steps=16, threads=2, device="cpu")
for when in ("before", "after", "waiting", "started"):
    for at in (1, 2, 3, 4):  # a rollout, advantages, the first epoch and the second
        calls, before = at, ppo.steps
        begun.clear()
        here.clear()
        try:
            ppo.learn(before + size)
        except KeyboardInterrupt:
            print(when, at, flush=True)
        assert ppo.steps == before
        ppo.learn(before + 2 * size)
        assert all(torch.isfinite(p).all() for p in ppo.policy.parameters())
"""


def test_interrupts_while_threads_run(tmp_path: Path) -> None:
    """Around this thread's own work, while it waits for another, right after it started one."""
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    lines = run("interrupted.py", tmp_path).splitlines()
    moments = ("before", "after", "waiting", "started")
    assert lines == [f"{when} {at}" for when in moments for at in (1, 2, 3, 4)]
