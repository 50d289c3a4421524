"""REINFORCE with a baseline (Williams, 1992): a second algorithm, to show what one needs to write.

A rollout, returns to its end (those of unfinished episodes continue with the value), one step of
Adam along ``log_prob * (return - value)``. Nothing of `operant.ppo` is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from operant.buffers import RolloutBuffer
from operant.training.config import BaseConfig, EnvConfig, PolicyConfig, RunConfig
from operant.training.config_file import resolved
from operant.training.episodes import Episodes
from operant.training.guard import check_rollout
from operant.training.section import Section, option
from operant.training.trainer import COUNTERS, Trainer
from operant.vector.make import make


@dataclass(frozen=True)
class ReinforceConfig(Section, table="reinforce"):
    num_steps: int = option(64, "steps of each environment in a rollout", least=1)
    learning_rate: float = option(1e-2, "Adam's step size", above=0.0)
    gamma: float = option(0.99, "discount", least=0.0, most=1.0)


@dataclass(frozen=True)
class Config(BaseConfig):
    env: EnvConfig = field(default_factory=EnvConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    reinforce: ReinforceConfig = field(default_factory=ReinforceConfig)
    run: RunConfig = field(default_factory=RunConfig)


class Reinforce(Trainer):
    config_type = Config
    metrics = (*COUNTERS, "policy_loss", "value_loss")
    config: Config

    def __init__(self, env, config=None, *, policy=None, add_ons=(), **options) -> None:
        config = config or resolved(Config, env)
        config = config.replaced({config.dotted_name(key): v for key, v in options.items()})
        sizes = {"num_envs": config.env.num_envs, "autoreset_mode": "SameStep", "copy": False}
        batch = make(env, backend="cpu", **sizes, **config.env.params)
        super().__init__(config, batch, torch.device("cpu"), policy, add_ons)
        shape = batch.single_observation_space.shape
        self.buffer = RolloutBuffer(config.reinforce.num_steps, batch.num_envs, shape)
        size = sum(p.numel() for p in self.policy.parameters())
        self.moments = {name: torch.zeros(size) for name in ("exp_avg", "exp_avg_sq")}
        self.env.reset(seed=config.run.seed)
        self.add_ons.begin(self)

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        return self.moments

    def iterate(self, total: int, callbacks: list[Any]) -> dict[str, float]:
        finished = self._collect()
        if self.config.run.nan_guard:
            check_rollout(self.buffer, self.iteration)
        self.collected(finished, callbacks)
        self.count_episodes(finished)
        self.buffer.compute_advantages(self.config.reinforce.gamma, 1.0)
        obs, action, advantage, target = self.buffer.flat("obs", "action", "advantage", "target")
        head, value = self.policy(obs)
        log_prob, _ = self.distribution.evaluate(head, action)
        scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy_loss, value_loss = -(log_prob * scaled).mean(), (value - target).square().mean()
        loss, weights = policy_loss + 0.5 * value_loss, list(self.policy.parameters())
        self._step(parameters_to_vector(torch.autograd.grad(loss, weights)))
        return {"policy_loss": policy_loss.item(), "value_loss": value_loss.item()}

    @torch.inference_mode()
    def _collect(self) -> Episodes:
        buffer = self.buffer
        ends = []
        buffer.start(self.env.get_state()["obs"])
        for t in range(buffer.num_steps):
            head, buffer.value[t] = self.policy(buffer.obs[t])
            noise = torch.rand(len(head), self.distribution.noise_size)
            buffer.action[t], buffer.log_prob[t] = self.distribution.sample(head, noise)
            *step, info = self.env.step(self.distribution.to_env(buffer.action[t]).numpy())
            buffer.store_step(t, *step)
            if info:
                k, cut = np.flatnonzero(info["_episode"]), step[3] & ~step[2]
                report = info["episode"]
                buffer.store_final_obs(t, np.flatnonzero(cut), info["final_obs"][cut])
                ends.append((k, np.full(len(k), t), report["r"][k], report["l"][k], cut[k]))
        buffer.last_value[:] = self.policy(buffer.obs[-1])[1]
        buffer.fill_final_values(lambda obs: self.policy(obs)[1])
        return Episodes.joined(ends)

    @torch.no_grad()
    def _step(self, gradient: torch.Tensor) -> None:
        self.optimizer_steps += 1
        mean = self.moments["exp_avg"].lerp_(gradient, 0.1) / (1 - 0.9**self.optimizer_steps)
        square = self.moments["exp_avg_sq"].lerp_(gradient.square(), 0.001)
        root = (square / (1 - 0.999**self.optimizer_steps)).sqrt() + 1e-5
        weights = parameters_to_vector(self.policy.parameters())
        weights -= self.config.reinforce.learning_rate * mean / root
        vector_to_parameters(weights, self.policy.parameters())
