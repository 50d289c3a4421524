"""Stable-Baselines3, as its users have it: PyTorch on a CPU, Gymnasium's own environments.

64 environments in one process (``DummyVecEnv``, its default), and as many PyTorch threads as a
short trial finds best. On two cores that is 26 k steps/s; 35 k with 128 to 512 environments, 34 k
with 2048; 3 k with 8 environments in 8 processes (``SubprocVecEnv``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from operant.bench.peers import Setting, not_usable

NUM_ENVS = 64


def check(setting: Setting) -> None:
    """Raise ValueError unless SB3 is there and can do it."""
    _import()
    _own(setting)


def _import() -> Any:
    try:
        import stable_baselines3
    except ImportError as error:
        raise not_usable("sb3", error) from None
    return stable_baselines3


def _own(setting: Setting) -> Setting:
    """64 environments; the CPU also on a machine with a GPU, as SB3 advises for such networks."""
    return replace(
        setting, num_envs=min(NUM_ENVS, setting.num_envs), device="cpu", engine="sync", threads=0
    )


class SB3Trainer:
    """See `operant.bench.peers.Trainer`."""

    shares = flops_per_step = None

    def __init__(self, setting: Setting) -> None:
        from stable_baselines3.common.env_util import make_vec_env

        from operant.models.layers import ACTIVATIONS

        one = _own(setting)
        self._model = _import().PPO(
            "MlpPolicy",
            make_vec_env(one.env, n_envs=one.num_envs),
            learning_rate=one.learning_rate,
            n_steps=one.num_steps,
            batch_size=one.rollout // one.minibatches,
            n_epochs=one.epochs,
            gamma=one.gamma,
            gae_lambda=one.gae_lambda,
            clip_range=one.clip,
            ent_coef=one.entropy_coef,
            vf_coef=one.value_coef,
            max_grad_norm=one.max_grad_norm,
            policy_kwargs={
                "net_arch": {"pi": list(one.hidden), "vf": list(one.hidden)},
                "activation_fn": ACTIVATIONS[one.activation],
                "optimizer_kwargs": {"eps": one.adam_eps},
            },
            device="cpu",
            seed=0,
        )
        self.setting = one
        self.setting = replace(one, threads=self._best_threads())

    def train(self, iterations: int) -> None:
        """Whole iterations; see `Trainer`."""
        self._train(iterations, self.setting.threads)

    def _train(self, iterations: int, threads: int) -> None:
        with _torch_threads(threads):
            self._model.learn(iterations * self.setting.rollout, reset_num_timesteps=False)

    def close(self) -> None:
        """Close the environments."""
        self._model.get_env().close()

    def _best_threads(self) -> int:
        """1, 2, 4, ... up to the cores: the best in the slower of two iterations.

        Several threads win some 10 % on two idle cores, and lose most of the speed as soon as
        anything else runs, because they wait for each other; the faster iteration hides that.
        """
        from operant.toolchain.machine import usable_cores

        counts = [1 << k for k in range(usable_cores().bit_length())]
        slower = dict.fromkeys(counts, 0.0)
        self._train(1, 1)  # warms up
        for count in counts * 2:
            began = time.perf_counter()
            self._train(1, count)
            slower[count] = max(slower[count], time.perf_counter() - began)
        return min(slower, key=lambda count: slower[count])


def open_trainer(setting: Setting) -> SB3Trainer:
    """SB3's PPO."""
    return SB3Trainer(setting)


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
