"""Every kernel of the GPU once or a few times, on odd sizes, for the checker of memory accesses.

    compute-sanitizer --tool memcheck python benchmarks/sanitize.py [environments training fused]
    compute-sanitizer --tool racecheck python benchmarks/sanitize.py [environments training fused]

It compares with the host's figures too, and says what is done.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch

import operant
from operant.buffers.advantages import gae
from operant.buffers.triton_scans import discounted_triton, gae_triton
from operant.check.env_check import random_actions
from operant.models import PPO
from operant.ppo.engines.gpu_builders import fused_engine
from operant.ppo.kernels.cpu.shuffle import shuffle_keys
from operant.ppo.kernels.triton.episodes import last_episodes
from operant.ppo.kernels.triton.noise import fill_uniforms_triton
from operant.ppo.kernels.triton.order import fill_orders

sys.path.insert(0, "examples")
from lander import Lander

ENVS = ("CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1")
MODES = ("NextStep", "SameStep", "Disabled")
TRAININGS: list[tuple[str, str, dict[str, Any]]] = [
    ("CartPole-v1", "bf16", {"hidden": (64, 64)}),
    ("CartPole-v1", "bf16", {"hidden": (128, 128)}),
    ("Pendulum-v1", "bf16", {"hidden": (64, 64), "activation": "silu"}),
    ("Acrobot-v1", "bf16", {"hidden": (33, 12, 64), "activation": "relu", "shared": True}),
    ("CartPole-v1", "tf32", {"hidden": (64, 64)}),
    ("CartPole-v1", "fp32", {"hidden": (64, 64)}),
    ("Pendulum-v1", "fp32", {"hidden": (21,), "activation": "relu", "shared": True}),
]
"""Jobs of the fused engine. In bf16 a Hopper GPU runs kernels of its own, in C++."""


def environments() -> int:
    """Steps of small and large batches, in all modes; how many kernels' results were compared."""
    compared = 0
    jobs = [(env, mode, 77) for env in (*ENVS, Lander) for mode in MODES]
    jobs += [("CartPole-v1", mode, 40_001) for mode in MODES] + [("Acrobot-v1", "SameStep", 40_001)]
    for env, mode, count in jobs:
        gpu, host = (
            operant.make(env, count, backend=name, seed=1, autoreset_mode=mode, max_episode_steps=3)
            for name in ("cuda", "reference")
        )
        gpu.reset()
        host.reset()
        for k in range(5):
            actions = random_actions(gpu.rules.action, count, k)
            ours = gpu.step(actions)
            if mode == "Disabled" and k > 2:
                continue  # everybody waits, which the host refuses
            theirs = host.step(actions)
            for a, b in zip(ours[:4], theirs[:4], strict=True):
                assert np.array_equal(a.cpu().numpy(), b), (env, mode, count, k)
            compared += 1
        gpu.step_many(torch.from_numpy(np.stack([actions] * 3)))
        gpu.set_state(gpu.get_state())
    return compared


def training() -> None:
    """Advantages against the host's, and the other kernels of a rollout."""
    random = np.random.default_rng(0)
    shape = (17, 333)
    reward, value, final = random.normal(size=(3, *shape)).astype(np.float32)
    terminated, truncated = random.random((2, *shape)) < 0.1
    last = random.normal(size=shape[1]).astype(np.float32)
    given = [torch.from_numpy(x) for x in (reward, value, terminated, truncated, final, last)]
    gpus = [tensor.cuda() for tensor in given]
    out = torch.full((2, *shape), torch.nan, device="cuda")
    gae_triton(*gpus, 0.99, 0.95, (out[0], out[1]))
    expected = gae(reward, value, terminated, truncated, final, last, 0.99, 0.95)
    for ours, theirs in zip(out.cpu().numpy(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    discounted_triton(gpus[0], gpus[2], gpus[3], gpus[5].clone(), 0.99, out[0])
    fill_uniforms_triton(
        torch.empty((*shape, 3), device="cuda"), 5, torch.zeros(1, dtype=torch.int64, device="cuda")
    )
    orders = torch.empty((2, 1000), dtype=torch.int32, device="cuda")
    fill_orders(orders, torch.from_numpy(shuffle_keys(1, 0, 2).view(np.int64)).cuda())
    assert torch.equal(orders.sort().values, torch.arange(1000, device="cuda").expand(2, -1).int())
    report = torch.zeros((*shape, 4), device="cuda")
    found = torch.empty(1 + 2 * 100, dtype=torch.float64, device="cuda")
    last_episodes(gpus[2], gpus[3], report, 100, found)
    assert int(found[0]) == int((terminated | truncated).sum())


def fused(env: str, precision: str, options: dict[str, Any], num_envs: int = 77) -> None:
    """Two iterations of the fused engine without graphs: the rollout, advantages, the packing of
    samples, updates and Adam. In fp32 the weights must come out as the eager engine's."""
    trained = []
    for eager in (False, True)[: 2 if precision == "fp32" else 1]:
        batch = operant.make(
            env, num_envs, backend="cuda", autoreset_mode="SameStep", max_episode_steps=4
        )
        device = "cuda" if torch.cuda.is_available() else "cpu"  # the interpreter, without a GPU
        given = {"num_steps": 5, "epochs": 2, "minibatches": 2, "normalize_obs": True, **options}
        given |= {"normalize_reward": True, "value_clip": 0.3, "entropy_coef": 0.01, "seed": 3}
        ppo = PPO(batch, device=device, engine="eager", precision=precision, **given)
        if not eager:
            ppo.engine = fused_engine(ppo.engine.job, captured=False)  # type: ignore[attr-defined]
        ppo.learn(2 * num_envs * 5, progress=False)
        trained.append(torch.cat([p.detach().flatten() for p in ppo.policy.parameters()]))
    assert trained[0].isfinite().all(), (env, precision, options)
    if len(trained) == 2:
        torch.testing.assert_close(*trained, rtol=1e-3, atol=1e-5)


if __name__ == "__main__":
    parts = sys.argv[1:] or ["environments", "training", "fused"]
    said = []
    if "environments" in parts:
        said.append(f"{environments()} steps equal to the host's")
    if "training" in parts:
        training()
        said.append("advantages equal to the host's")
    if "fused" in parts:
        for job in TRAININGS:
            fused(*job)
            torch.cuda.synchronize()
            print(*job, flush=True)
        said.append(f"{len(TRAININGS)} trainings by the fused engine")
    torch.cuda.synchronize()
    print("; ".join(said))
