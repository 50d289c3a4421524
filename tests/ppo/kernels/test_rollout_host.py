"""The rollout's kernel for Hopper: against the environments' rules, and against the policy in
bfloat16. Where there is no GPU, the host plays one: the same text, by the system's compiler."""

from __future__ import annotations

import copy
import ctypes
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, MultiDiscrete
from torch import Tensor, nn

import operant
from operant.lang import floor, to_float, to_int, where
from operant.models import PPO
from operant.models.actor_critic import ActorCritic, ContinuousActorCritic
from operant.models.distributions import masked
from operant.toolchain import paths
from operant.toolchain.host_kernels import host_compiler
from operant.training.noise import fill_uniforms

from ...environments import Leaky

pytestmark = [
    pytest.mark.filterwarnings("ignore:(invalid|overflow|divide):RuntimeWarning"),
    pytest.mark.skipif(
        host_compiler() is None and not torch.cuda.is_available(), reason="no C++ compiler"
    ),
]
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
Tasks = dict[str, type[operant.Env]]
STEPS, LIMIT = 6, 4
RESULTS = (
    *("obs", "reward", "terminated", "truncated", "action", "action_mask", "log_prob", "value"),
    *("last_value", "final_value", "final_obs", "report"),
)
OPTIONS = ("-std=c++17", "-O1", "-shared", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off")
GPU_ON_HOST = Path(__file__).parent / "gpu_on_host.h"
ENTRY = """
extern "C" void launch(const Rollout* argument, int blocks, int threads) {
  run_blocks<const Rollout>(rollout, *argument, blocks, threads);
}
"""


class HostKernels:
    """As `operant.toolchain.nvrtc.Kernels`."""

    def __init__(self, source: str, names: list[str], device: Any, **options: Any) -> None:
        from operant.ppo.kernels.hopper import rollout_source

        instructions = rollout_source._read("warps.cu")
        assert names == ["rollout"]
        assert instructions in source
        assert options["shared"] <= 227 << 10
        text = source.replace(instructions, GPU_ON_HOST.read_text()) + ENTRY
        digest = hashlib.sha256("\n".join([*OPTIONS, text]).encode()).hexdigest()[:24]
        library = paths.home() / "kernels" / f"rollout_{digest}.so"
        if not library.exists():
            library.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=library.parent) as folder:
                built = f"{folder}/kernel.so"
                command = [host_compiler(), *OPTIONS, "-x", "c++", "-", "-o", built]
                done = subprocess.run(command, input=text, capture_output=True, text=True)
                assert done.returncode == 0, done.stderr[:5000]
                os.replace(built, library)
        self._launch = ctypes.CDLL(str(library)).launch

    def launch(self, name: str, blocks: int, threads: int, argument: np.ndarray) -> None:
        self._launch(ctypes.c_void_p(argument.ctypes.data), blocks, threads)


@pytest.fixture
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Engines take the host for a Hopper GPU. They only play, and without graphs."""
    if not ON_GPU:
        request.getfixturevalue("interpreter")
    elif torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("the GPU is no Hopper")
    from operant.ppo.engines import fused_gpu_layout, fused_gpu_program, gpu_builders
    from operant.ppo.kernels.hopper import hopper_rollout

    monkeypatch.setattr(fused_gpu_program, "HopperUpdate", lambda plan, device: None)
    monkeypatch.setattr(gpu_builders, "GraphExecutor", gpu_builders.DirectExecutor)
    if not ON_GPU:
        monkeypatch.setattr(fused_gpu_layout, "is_hopper", lambda device: True)
        monkeypatch.setattr(fused_gpu_layout, "_processors", lambda device: 132)
        monkeypatch.setattr(hopper_rollout, "Kernels", HostKernels)
    return monkeypatch


class Locked(operant.Env):
    """Two choices with a mask; whole numbers, truth values and many draws."""

    class State(NamedTuple):
        x: float
        count: int
        odd: bool

    observation_space = Box(-np.inf, np.inf, (4,))
    action_space = MultiDiscrete([3, 4], start=[1, -1])
    max_episode_steps = 5
    random_numbers = 6

    def reset(random):
        return Locked.State(random[5] - 0.5, to_int(floor(random[1] * 9.0)) - 4, random[2] < 0.5)

    def step(state, action, random):
        x = 0.9 * state.x + 0.1 * (action[0] - 2) + 0.2 * (random[4] - 0.5)
        count = (state.count * 7 - action[1]) % 5 - state.count // 3
        odd = ~state.odd ^ (count < 0)
        return Locked.State(x, count, odd), where(odd, 1.0 - x * x, -x), x > 0.4

    def observe(state):
        return state.x, to_float(state.count), to_float(state.odd), state.x / 3.0

    def action_mask(state):
        low = state.x < 0.0
        return (True, low, ~low, low, True, ~low, state.odd)


def made(env: Any, num_envs: int, by_state: bool = False, size: float = 0.1, **options: Any) -> PPO:
    given = {"num_steps": STEPS, "epochs": 1, "minibatches": 1, "seed": 2**40 + 3}
    settings = {**given, "precision": "bf16", **options}
    batch = operant.make(
        env, num_envs, backend="cuda", autoreset_mode="SameStep", max_episode_steps=LIMIT
    )
    if by_state:
        names = ("hidden", "activation", "shared", "normalize_obs")
        network = {name: settings.pop(name) for name in names if name in settings}
        spaces = batch.single_observation_space, batch.single_action_space
        settings["policy"] = ContinuousActorCritic(*spaces, state_dependent_std=True, **network)
    ppo = PPO(batch, device=DEVICE, engine="fused", **settings)
    assert ppo.engine.name == "fused", ppo.engine_reason
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in ppo.policy.parameters():
            parameter += (size * torch.randn(parameter.shape, generator=random)).to(DEVICE)
    return ppo


def in_bfloat16(policy: ActorCritic, obs: Tensor) -> tuple[Tensor, Tensor]:
    """Head and values, rounded where the kernel rounds."""

    def low(x: Tensor) -> Tensor:
        return x.bfloat16().double()

    def through(trunk: nn.Sequential, head: nn.Linear) -> Tensor:
        x = low(policy._inputs(obs).float())
        layers = list(trunk)
        for k, (linear, activation) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
            bias = linear.bias.double() if k else low(linear.bias)
            x = low(activation(x @ low(linear.weight).T + bias).float())
        return x @ low(head.weight).T + head.bias.double()

    with torch.no_grad():
        critic = policy.actor if policy.critic is None else policy.critic
        heads = through(policy.actor, policy.actor_head)
        return policy._head(heads.float()), through(critic, policy.critic_head)[:, 0].float()


def check(ppo: PPO, twin: Any, iteration: int) -> None:
    """Collect, and do the same with a twin of the environments."""
    policy, num_envs = copy.deepcopy(ppo.policy).cpu(), twin.num_envs
    assert isinstance(policy, ActorCritic)
    for name in ("obs", "reward", "action", "log_prob", "values", "final_value", "final_obs"):
        getattr(ppo.engine.buffer, name).fill_(99)
    first = 2**32 - 3 + STEPS * iteration
    episodes = ppo.engine.collect(iteration, first)
    b = SimpleNamespace(**{name: getattr(ppo.engine.buffer, name).cpu() for name in RESULTS})
    noise = np.zeros((STEPS, num_envs, ppo.distribution.noise_size), np.float32)
    fill_uniforms(noise, ppo.config.run.seed, first)
    same, ended, began = [], 0, np.zeros(num_envs, np.bool_)
    np.testing.assert_array_equal(b.obs[0].numpy(), twin.get_state()["obs"])
    for t in range(STEPS):
        head, value = in_bfloat16(policy, b.obs[t])
        if b.action_mask.shape[-1]:
            np.testing.assert_array_equal(b.action_mask[t].numpy(), twin.action_masks())
            head = masked(head, b.action_mask[t])
        wanted, _ = ppo.distribution.sample(head, torch.from_numpy(noise[t]))
        log_prob, _ = ppo.distribution.evaluate(head, b.action[t])
        torch.testing.assert_close(b.value[t], value, rtol=0, atol=0.02)
        torch.testing.assert_close(b.log_prob[t], log_prob, rtol=0, atol=0.05)
        same.append((wanted - b.action[t]).abs().float() < 0.05)
        obs, reward, terminated, truncated, info = twin.step(
            ppo.distribution.to_env(b.action[t]).numpy()
        )
        np.testing.assert_array_equal(b.obs[t + 1].numpy(), obs)
        np.testing.assert_array_equal(b.reward[t].numpy(), reward)
        np.testing.assert_array_equal(b.terminated[t].numpy(), terminated)
        np.testing.assert_array_equal(b.truncated[t].numpy(), truncated)
        done = terminated | truncated
        ended += done.sum()
        if done.any():
            final = torch.from_numpy(np.asarray(info["final_obs"])[done])
            np.testing.assert_array_equal(b.final_obs[t][done].numpy(), final.numpy())
            returns, lengths = (info["episode"][name][done] for name in ("r", "l"))
            np.testing.assert_array_equal(b.report[t, done, 0].numpy(), returns)
            found = b.report[t, done, 1].view(torch.int32).numpy()
            np.testing.assert_array_equal(found, lengths)
            seconds = b.report[t, :, 2].numpy()
            assert ON_GPU or (seconds[done & began] == 0.0).all()  # by a clock that stands still
            assert ON_GPU or iteration > 0 or (seconds[done & ~began] != 0.0).all()
            began |= done
            value = torch.zeros(num_envs)
            value[done] = in_bfloat16(policy, final)[1]
            value[~(truncated & ~terminated)] = 0.0
            torch.testing.assert_close(b.final_value[t], value, rtol=0, atol=0.02)
        else:
            assert not b.final_value[t].any()
    torch.testing.assert_close(
        b.last_value, in_bfloat16(policy, b.obs[STEPS])[1], rtol=0, atol=0.02
    )
    assert torch.stack(same).float().mean() > 0.98
    assert len(episodes.env_index) == ended > 0
    ours, theirs = ppo.env.get_state(), twin.get_state()
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert ppo.engine.engine.program.rollout.hints.abs().sum() == 0


JOBS = [
    ("CartPole-v1", 37, {"hidden": (64, 64)}),
    ("Turns", 5, {"hidden": (21,), "normalize_obs": True}),
    ("Doors", 17, {"hidden": (16, 7), "activation": "relu", "shared": True}),
    ("Knobs", 33, {"hidden": (16,), "activation": "silu"}),
    ("Switches", 70, {"hidden": (33, 12), "shared": True}),
    ("Push", 16, {"hidden": (9, 30, 12), "activation": "silu"}),
    ("Arm", 37, {"hidden": (30,), "normalize_obs": True}),
    ("Arm", 20, {"hidden": (16, 7), "by_state": True, "shared": True}),
    ("Locked", 65, {"hidden": (17, 30)}),
    ("Acrobot-v1", 9, {"hidden": (20,), "activation": "relu"}),
]


# Half of them with two tiles of environments a warp: a few below and a few above one, both ways.
TILED = [(1 + k % 2, *job) for k, job in enumerate(JOBS)] + [(2, *JOBS[0]), (1, *JOBS[1])]


@pytest.mark.parametrize(
    ("tiles", "task", "num_envs", "options"), TILED, ids=["-".join(map(str, j[:3])) for j in TILED]
)
def test_a_rollout_is_what_policy_and_environment_do(
    gpu: pytest.MonkeyPatch,
    tasks: Tasks,
    tiles: int,
    task: str,
    num_envs: int,
    options: dict[str, Any],
) -> None:
    from operant.ppo.engines import fused_gpu_rollout
    from operant.ppo.kernels.hopper.rollout_source import Shape

    pairs = 2 if tiles == 1 else 1
    gpu.setattr(fused_gpu_rollout, "launch_shape", lambda *_: Shape(tiles, pairs, 1))
    env = {**tasks, "Locked": Locked}.get(task, task)
    ppo = made(env, num_envs, **options)
    if ppo.policy.obs_normalizer is not None:
        size = ppo.policy.obs_normalizer.mean.numel()
        ppo.policy.obs_normalizer.update(torch.linspace(-1, 2, 10 * size).view(10, size).to(DEVICE))
    twin = operant.make(
        env, num_envs, backend="reference", autoreset_mode="SameStep", max_episode_steps=LIMIT
    )
    twin.set_state(ppo.env.get_state())
    for iteration in range(2):  # the second begins where the first ended
        check(ppo, twin, iteration)


def test_wide_layers(gpu: pytest.MonkeyPatch) -> None:
    """The update's kernel has none, the rollout's could."""
    from operant.ppo.engines import fused_scope

    gpu.setattr(fused_scope, "MOST_NEURONS_IN_BF16", 128)
    ppo = made("CartPole-v1", 20, hidden=(128, 70))
    twin = operant.make(
        "CartPole-v1", 20, backend="reference", autoreset_mode="SameStep", max_episode_steps=LIMIT
    )
    twin.set_state(ppo.env.get_state())
    check(ppo, twin, 0)


@pytest.mark.parametrize(("gift", "steps"), [(0, 3), (1, 3), (0, 2), (1, 2), (2, 6)])
def test_hints_tell_of_what_is_not_finite(gpu: pytest.MonkeyPatch, gift: int, steps: int) -> None:
    batch = operant.make(Leaky, 21, backend="cuda", autoreset_mode="SameStep", gift=gift)
    ppo = PPO(
        batch, device=DEVICE, engine="fused", precision="bf16", num_steps=steps, minibatches=1
    )
    ppo.engine.collect(0, 0)
    hints = ppo.engine.engine.program.rollout.hints.cpu().numpy()
    if gift < 2 and steps > 2:
        assert np.isnan(hints).sum() == 2  # of both warps that act
    else:
        assert (hints == 0).all()


@pytest.mark.parametrize("options", [{"activation": "relu"}, {"normalize_obs": True}], ids=str)
def test_hints_tell_of_final_observations(gpu: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    batch = operant.make(
        Leaky, 21, backend="cuda", autoreset_mode="SameStep", max_episode_steps=3, gift=0
    )
    given = {"num_steps": 3, "minibatches": 1, **options}
    ppo = PPO(batch, device=DEVICE, engine="fused", precision="bf16", **given)
    ppo.engine.collect(0, 0)
    assert ppo.engine.buffer.truncated[-1].all()
    assert ppo.engine.buffer.obs.isfinite().all()
    assert np.isnan(ppo.engine.engine.program.rollout.hints.cpu().numpy()).sum() >= 2


def test_values_of_final_observations_are_looked_at(gpu: pytest.MonkeyPatch, tasks: Tasks) -> None:
    ppo = made(tasks["Turns"], 21, hidden=(16,))
    ppo.engine.collect(0, 0)
    assert (ppo.engine.engine.program.rollout.hints == 0).all()
    with torch.no_grad():
        ppo.policy.critic_head.bias.fill_(torch.inf)
    ppo.engine.collect(0, 0)
    assert np.isnan(ppo.engine.engine.program.rollout.hints.cpu().numpy()).sum() == 2


def test_what_has_no_probability_is_never_chosen(gpu: pytest.MonkeyPatch, tasks: Tasks) -> None:
    """Nor something that does not exist, where nothing has one."""
    ppo = made(tasks["Turns"], 64, hidden=(8,))
    with torch.no_grad():
        ppo.policy.actor_head.weight.zero_()
        for bias, allowed in [((-torch.inf, 0.0, -torch.inf), {1}), ((torch.nan,) * 3, {2})]:
            ppo.policy.actor_head.bias.copy_(torch.tensor(bias, device=DEVICE))
            ppo.engine.collect(0, 0)
            assert set(ppo.engine.buffer.action.flatten().tolist()) == allowed
