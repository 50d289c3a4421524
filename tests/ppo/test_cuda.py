"""PPO with its networks on a GPU, environments on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from operant.models import PPO
from operant.training.callbacks import Callback

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
SMALL = {"num_envs": 64, "num_steps": 16, "epochs": 2, "device": "cuda", "seed": 3}
ROLLOUT = 64 * 16


class StopAfter(Callback):
    def __init__(self, iterations: int) -> None:
        self.iterations = iterations

    def on_update(self, ppo, metrics):
        if ppo.iteration == self.iterations:
            ppo.stop()


def weights(ppo: PPO) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in ppo.policy.parameters()])


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_the_same_seed_gives_the_same_bits(env):
    one, same = (PPO(env, **SMALL).learn(4 * ROLLOUT) for _ in range(2))
    assert weights(one).device.type == "cuda"
    assert torch.equal(weights(one), weights(same))


def test_save_and_load_continue_to_the_bit(tmp_path):
    options = {**SMALL, "normalize_obs": True, "normalize_reward": True}
    whole = PPO("Pendulum-v1", **options).learn(4 * ROLLOUT)
    half = PPO("Pendulum-v1", **options)
    half.learn(4 * ROLLOUT, StopAfter(2))
    half.save(tmp_path)
    loaded = PPO.load(tmp_path).learn(4 * ROLLOUT)
    assert loaded.device.type == "cuda"
    assert torch.equal(weights(loaded), weights(whole))
    on_cpu = PPO.load(tmp_path, device="cpu")
    obs = np.zeros((3, 3), np.float32)
    np.testing.assert_allclose(on_cpu.predict(obs), half.predict(obs), atol=1e-4)


def test_it_learns():
    ppo = PPO("CartPole-v1", device="cuda", seed=1)
    ppo.learn(100_000)
    assert ppo.mean_return > 150  # a random policy: 22


def test_a_second_gpu_that_is_not_there():
    with pytest.raises(ValueError, match="only"):
        PPO("CartPole-v1", device=f"cuda:{torch.cuda.device_count()}")
