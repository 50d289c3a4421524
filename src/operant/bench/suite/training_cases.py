"""Cases of policies and training: CartPole, 64x64 tanh, standard PPO."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from operant.bench.suite.case import Case, Latency, Throughput, Work

if TYPE_CHECKING:
    from operant.ppo.ppo import PPO

BATCHES = (1, 64, 4096, 65536)
_STEPS = 128
_WORK: dict[str, Any] = {
    "hidden": [64, 64],
    "activation": "tanh",
    "shared": False,
    "normalize_obs": False,
    "normalize_reward": False,
    "num_steps": _STEPS,
    "epochs": 4,
    "minibatches": 4,
    "learning_rate": 2.5e-4,
    "learning_rate_schedule": "constant",
    "entropy_coef": 0.01,
    "target_kl": 0.0,
    "seed": 1,
    "compile": "off",
}
_ENVS = {"eager": 256, "fused": 1024, "graph": 8192}
_GPU_ENVS = {"eager": 8192, "fused": 16384, "graph": 8192}


def training_cases(device: str) -> list[Case]:
    """Acting, updates and whole iterations, by engine."""
    gpu = device != "cpu"
    place = "cuda" if gpu else "cpu"
    found = [
        Case(f"policy_forward/{size}/{place}", "us", partial(_forward, size, device), size != 4096)
        for size in BATCHES
    ]
    found += [
        Case(f"predict/{size}/{place}", "us", partial(_predict, size, device), size == 1)
        for size in BATCHES[:2]
    ]
    for engine in ("fused", "graph", "eager") if gpu else ("fused", "eager"):
        opened = {"update": _update, "train": _train}
        found += [
            Case(f"{part}/{engine}/{place}", "steps/s", partial(make, engine, device), True)
            for part, make in opened.items()
        ]
    return found


def new_ppo(device: str, num_envs: int, engine: str = "eager") -> PPO:
    """A trainer of that size.

    Raises:
        ValueError: that engine cannot train it there.
    """
    from operant.ppo.ppo import PPO

    ppo = PPO("CartPole-v1", num_envs=num_envs, engine=engine, device=device, **_WORK)
    if ppo.engine_name != engine:
        raise ValueError(f"engine {ppo.engine_name}: {ppo.engine_reason}")
    return ppo


def _waiting(ppo: PPO) -> Callable[[], Any]:
    if ppo.device.type == "cpu":
        return lambda: None
    import torch

    return lambda: torch.cuda.synchronize(ppo.device)


def _forward(size: int, device: str) -> Work:
    """The actor alone, as in acting; on a CPU with one thread, as a trainer acts."""
    import torch

    from operant.models.outputs import head_of
    from operant.toolchain.torch_threads import one_thread_an_operation

    ppo = new_ppo(device, 4)
    obs = torch.zeros((size, 4), device=ppo.device)
    policy, wait = ppo.policy.eval(), _waiting(ppo)
    ppo.env.close()

    def run() -> None:
        with torch.inference_mode():
            head_of(policy, obs)
        wait()

    class Forward(Latency):
        def measure(self, seconds: float) -> float:
            with one_thread_an_operation():
                return super().measure(seconds)

    return Latency(run)


def _predict(size: int, device: str) -> Work:
    import numpy as np

    ppo = new_ppo(device, 4)
    agent, obs = ppo.agent, np.zeros((size, 4), np.float32)
    ppo.env.close()
    return Latency(lambda: agent.act(obs[0] if size == 1 else obs))


def _train(engine: str, device: str) -> Work:
    ppo = new_ppo(device, (_ENVS if device == "cpu" else _GPU_ENVS)[engine], engine)
    size, wait = len(ppo.buffer), _waiting(ppo)

    def iteration() -> None:
        ppo.learn(ppo.steps + size, progress=False)
        wait()

    return Throughput(iteration, size, ppo.env.close)


def _update(engine: str, device: str) -> Work:
    """Updates on one rollout, again and again, with a rate that hardly moves the policy."""
    from operant.toolchain.torch_threads import one_thread_an_operation

    ppo = new_ppo(device, (_ENVS if device == "cpu" else _GPU_ENVS)[engine], engine)
    trained, wait = ppo.engine, _waiting(ppo)
    trained.keep()
    trained.collect(0, 0)
    trained.advantages()

    def update() -> None:
        with one_thread_an_operation():
            trained.update(0, 1e-9, 0.2)
        wait()

    return Throughput(update, len(ppo.buffer), ppo.env.close)
