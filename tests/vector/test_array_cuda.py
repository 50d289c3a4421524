"""States of arrays on the GPU: the C++ that NVRTC compiles there, run here by the system's own
compiler, against the ``cpu`` backend: equal to the bit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

import operant
from operant.compiler.emit.cuda_array_kernels import array_cuda_source
from operant.compiler.spec.rules import Rules
from operant.envs import env_ids, get_env
from operant.lang import Arrays, boolean, exp, float32, int32, log, tanh, to_float, to_int, uint8
from operant.models import PPO
from operant.toolchain.gpus import gpu_count
from operant.toolchain.host_kernels import host_compiler
from operant.vector.gpu_arrays import ArrayCudaVecEnv

from ..modules import load

GAMES = [name for name in env_ids() if issubclass(get_env(name).State, Arrays)]
EXAMPLES = Path(__file__).parents[2] / "examples"
MODES = ("NextStep", "SameStep", "Disabled")

needs_compiler = pytest.mark.skipif(
    host_compiler() is None and gpu_count() == 0, reason="no GPU and no C++ compiler"
)
pytestmark = needs_compiler


@pytest.fixture(autouse=True)
def _a_gpu_or_its_stand_in(monkeypatch):
    if gpu_count() == 0:
        monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.fixture
def snake():
    return load(EXAMPLES / "snake.py", "snake_of_the_examples").Snake


WEIGHTS = ((0.5, -1.25, 2.0), (3.0, 0.125, -0.75))
STEPS = (3, -2, 7)


def clip01(x):
    return min(max(x, 0.0), 1.0)


def bump(state, k):
    """Changes what its caller reads in the same expression."""
    state.counts[k] += 1
    return state.counts[k]


def mean_and_spread(row, random):
    total = 0.0
    for k in range(len(row)):
        total += row[k]
    mean = total / len(row)
    spread = 0.0
    for k in range(len(row)):
        spread = max(spread, abs(row[k] - mean))
    return mean, spread + 0.001 * random.uniform()


LIMITS = (float("inf"), -1.0, float("nan"), float("-inf"))


def bump_word(state):
    state.words[1] += 1
    return state.words[1] % 6


def outcome(state, random):
    """Its result is handed on as it is."""
    return state.rows[random.integers(4)][0] - state.rows[random.integers(4)][1], False


class Traps(operant.Env):
    """What C++ would order, wrap around or refuse by itself."""

    class State(Arrays):
        rows = float32[4, 2]
        words = int32[6]

    observation_space = Box(-np.inf, np.inf, (14,))
    action_space = Discrete(70)
    max_episode_steps = 12

    def reset(state, random):
        for k in range(4):
            state.rows[k, 0], state.rows[k, 1] = random.uniform(), random.normal()

    def step(state, action, random):
        state.words[random.integers(6)] += random.integers(9)
        state.words[0] = state.words[bump_word(state)] + state.words[1]
        big = 1 << 62
        for _ in range(action):
            big = big * 3 + 7
        state.words[2] = (big >> 40) & 255
        state.words[3] = ((7 << action) & 65535) if action < 64 else 0
        state.words[4] = to_int(clip01(LIMITS[action % 4]) * 3.0) if action % 4 != 2 else 5
        return outcome(state, random)

    def observe(state, obs):
        for k in range(4):
            obs[k] = state.rows[k, 0]
            obs[4 + k] = state.rows[k, 1]
        for k in range(6):
            obs[8 + k] = state.words[k]


class Everything(operant.Env):
    """A bit of everything the language has, in no order C++ would keep by itself."""

    class State(Arrays):
        grid = float32[3, 4]
        counts = int32[4]
        bytes = uint8[5]
        flags = boolean[3]

    observation_space = Box(-np.inf, np.inf, (20,))
    action_space = MultiDiscrete([3, 5])
    max_episode_steps = 9

    def reset(state, random):
        for y in range(3):
            for x in range(4):
                state.grid[y, x] = random.uniform(-1.0, 1.0) * (random.normal() + random.uniform())
        state.flags[:] = True
        state.counts[random.integers(4)] = random.integers(-7, 7) * 3 + random.integers(2)
        state.bytes[0], state.bytes[1] = random.integers(200), random.integers(200)

    def step(state, action, random):
        kind, amount = action[0], action[1]
        row = state.grid[kind]
        mean, spread = mean_and_spread(row, random)
        state.counts[0] = bump(state, 1) - 2 * bump(state, 1) + state.counts[1]
        state.counts[2] = (state.counts[0] - 40) // STEPS[kind] + (state.counts[1] - 9) % STEPS[
            kind
        ]
        before = state.counts[3]
        while before * before > 50 or before < -3:
            before = before // 2 + 1 if before > 0 else 0
        state.counts[3] = before - (1 << amount) + (before & 5) + (before ^ 3) + (before >> 1)
        for k in range(4, 0, -1):
            if k == amount:
                continue
            row[k - 1] += WEIGHTS[k % 2, kind] * tanh(mean * k) - exp(-spread) * 0.1
            if row[k - 1] > 5.0 or (random.chance(0.01) and state.flags[kind]):
                row[k - 1] = log(1.0 + abs(row[k - 1]))
                state.flags[kind] = not state.flags[kind]
                break
        state.bytes[2] = to_int(clip01(mean) * 255.0)
        reward = mean if spread > 0.5 else -0.25
        return reward + 0.01 * to_float(amount), spread > 6.0 and not state.flags[0]

    def observe(state, obs):
        for y in range(3):
            for x in range(4):
                obs[y * 4 + x] = state.grid[y, x]
        for k in range(4):
            obs[12 + k] = state.counts[k] * 0.1
        for k in range(3):
            obs[16 + k] = 1.0 if state.flags[k] else state.bytes[k] / 255.0

    def action_mask(state, mask):
        mask[2] = state.counts[3] > 0
        mask[3 + 4] = state.flags[1] or state.flags[2]


def on_host(value):
    return value.cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def play(env_class, mode, num_envs=7, steps=60, **options):
    """The same steps on both; every result and the whole state must be equal."""
    cpu = operant.make(env_class, num_envs, backend="cpu", seed=3, autoreset_mode=mode, **options)
    gpu = operant.make(env_class, num_envs, backend="cuda", seed=3, autoreset_mode=mode, **options)
    assert isinstance(gpu, ArrayCudaVecEnv)
    np.testing.assert_array_equal(cpu.reset()[0], on_host(gpu.reset()[0]))
    cpu.action_space.seed(0)
    finished = 0
    for step in range(steps):
        actions = cpu.action_space.sample()
        ours, theirs = gpu.step(actions), cpu.step(actions)
        for a, b in zip(ours[:4], theirs[:4], strict=True):
            np.testing.assert_array_equal(on_host(a), b, err_msg=f"step {step}")
        done = theirs[2] | theirs[3]
        np.testing.assert_array_equal(on_host(ours[4]["_episode"]), done)
        for key in ("r", "l") if done.any() else ():
            np.testing.assert_array_equal(
                on_host(ours[4]["episode"][key]), theirs[4]["episode"][key]
            )
        if mode == "SameStep" and done.any():
            final = on_host(ours[4]["final_obs"])
            np.testing.assert_array_equal(final[done], theirs[4]["final_obs"][done])
        masks = cpu.action_masks()
        if masks is not None:
            np.testing.assert_array_equal(on_host(gpu.action_masks()), masks)
        state = gpu.get_state()
        for key, value in cpu.get_state().items():
            np.testing.assert_array_equal(state[key], value, err_msg=key)
            assert state[key].dtype == value.dtype
        finished += int(done.sum())
        if mode == "Disabled" and done.any():
            cpu.reset_many(mask=done)
            gpu.reset_many(mask=done)
    return finished


@pytest.mark.parametrize("mode", MODES)
def test_snake_is_the_same_on_the_gpu(snake, mode):
    assert play(snake, mode) > 5


@pytest.mark.parametrize("env_id", GAMES)
def test_games_of_the_library_are_the_same_on_the_gpu(env_id):
    play(get_env(env_id), "SameStep", num_envs=5, steps=30)


@pytest.mark.parametrize("mode", MODES)
def test_every_word_is_the_same_on_the_gpu(mode):
    assert play(Everything, mode, num_envs=5, steps=40) > 5


def test_order_and_overflow_are_the_same_on_the_gpu():
    assert play(Traps, "SameStep", num_envs=6, steps=40) > 5


def test_cpp_is_told_the_order_of_what_acts():
    """A compiler may compute operands in any order; this one happens to go from left to right."""
    source = array_cuda_source(Rules.of(Traps), "1")[0]
    body = re.split(r" f_\d+_outcome\(", source)[1].partition("\n}")[0]
    assert body.count("draw_integers(") == 2
    assert "[&]() {" in body
    found = re.search(r"auto v0 = .*?; auto v1 = .*?; return \(v0 - v1\);", body)
    assert found is not None
    assert found[0].count("draw_integers") == 2


@pytest.mark.parametrize("num_envs", [1, 64, 65, 200])
def test_any_number_of_environments(snake, num_envs):
    play(snake, "SameStep", num_envs, steps=12)


def test_several_steps_in_one_launch(snake):
    many, one = (operant.make(snake, 9, backend="cuda", seed=1) for _ in range(2))
    many.reset()
    one.reset()
    actions = np.random.default_rng(0).integers(0, 4, (30, 9))
    *stacked, info = many.step_many(actions)
    for k, row in enumerate(actions):
        *results, told = one.step(row)
        for a, b in zip(stacked, results, strict=True):
            assert torch.equal(a[k], b)
        assert torch.equal(info["_episode"][k], told["_episode"])
        ended = told["_episode"]
        assert torch.equal(info["episode"]["r"][k][ended], told["episode"]["r"][ended])
        assert torch.equal(info["episode"]["l"][k][ended], told["episode"]["l"][ended])


def test_a_state_goes_from_the_host_to_the_gpu_and_back(snake):
    cpu = operant.make(snake, 6, backend="cpu", seed=5)
    gpu = operant.make(snake, 6, backend="cuda")
    cpu.reset()
    for k in range(5):
        cpu.step(np.full(6, k % 4))
    np.testing.assert_array_equal(on_host(gpu.set_state(cpu.get_state())), cpu.get_state()["obs"])
    for k in range(10):
        ours, theirs = gpu.step(np.full(6, k % 4)), cpu.step(np.full(6, k % 4))
        np.testing.assert_array_equal(on_host(ours[0]), theirs[0])
    np.testing.assert_array_equal(on_host(cpu.set_state(gpu.get_state())), on_host(ours[0]))


class Outside(operant.Env):
    class State(Arrays):
        cells = int32[4]

    observation_space = Box(-10, 10, (1,))
    action_space = Discrete(8)

    def reset(state, random):
        state.cells[:] = 1

    def step(state, action):
        state.cells[action] = 7
        return 0.0, False

    def observe(state, obs):
        obs[0] = state.cells[3]


class TooLarge(Outside):
    def step(state, action):
        state.cells[1] = state.cells[0] << (28 + action)
        return 0.0, False


def test_an_int_that_does_not_fit_is_reported():
    gpu = operant.make(TooLarge, 3, backend="cuda", seed=0)
    gpu.reset()
    gpu.step(np.array([1, 2, 0]))
    gpu.check_actions()
    gpu.step(np.array([1, 3, 2]))
    said = r"cuda.py:\d+: 2147483648 does not fit into state.cells, which is int32: -2147483648 to"
    with pytest.raises(OverflowError, match=said):
        gpu.get_state()
    assert gpu.get_state()["state.cells"][:, 1].tolist() == [2**29, -(2**31), 2**30]


def test_an_index_outside_its_array_is_reported():
    gpu = operant.make(Outside, 3, backend="cuda", seed=0)
    gpu.reset()
    gpu.step(np.array([1, 6, 2]))
    with pytest.raises(IndexError, match=r"cuda.py:\d+: index 6 of state.cells is outside"):
        gpu.get_state()
    assert gpu.get_state()["state.cells"][1].tolist() == [7, 1, 1, 1]  # element 0 instead
    gpu.step(np.array([1, 9, 2]))
    with pytest.raises(ValueError, match="out of range"):
        gpu.check_actions()


TRAIN = """
import sys
import torch
from snake import Snake
from operant.models import PPO

options = {"num_envs": 16, "num_steps": 8, "minibatches": 2, "seed": 1, "backend": "cuda"}
ppo = PPO(Snake, device=sys.argv[1], engine=sys.argv[2], hidden=(16,), **options)
before = [parameter.detach().clone() for parameter in ppo.policy.parameters()]
ppo.learn(16 * 8 * 3)
changed = [not torch.equal(a, b) for a, b in zip(before, ppo.policy.parameters(), strict=True)]
print(ppo.engine.name, all(changed))
"""


@pytest.mark.parametrize("engine", ["eager", "graph"])
def test_ppo_trains_on_it(engine):
    if gpu_count() == 0 and engine == "graph":
        pytest.skip("graphs need a GPU")
    device = "cuda" if gpu_count() else "cpu"
    # A process of its own: whether Triton interprets is decided when kernels are first imported.
    path = os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, device, engine],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{engine} True\n", done.stderr


def test_the_fused_engine_of_the_gpu_says_why_it_cannot(snake):
    from operant.ppo.engines.fused_scope import why_not_fused_on_gpu

    ppo = PPO(snake, num_envs=4, num_steps=8, engine="eager", hidden=(16,), device="cpu")
    assert "state is a tuple of numbers" in why_not_fused_on_gpu(ppo.engine.job)


def test_equal_rules_give_equal_text(snake):
    first, second = (array_cuda_source(Rules.of(snake), "1")[0] for _ in range(2))
    assert first == second
    assert re.search(r"DEVICE Result_float_bool f_\d+_step\(", operant.inspect(snake).cuda)
    with pytest.raises(ValueError, match=r"see \.triton"):
        operant.inspect("CartPole-v1").cuda  # noqa: B018
    with pytest.raises(ValueError, match="made of arrays"):
        operant.inspect(snake).triton  # noqa: B018
