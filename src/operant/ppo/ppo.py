"""`PPO`: the loop. Parts: collect, advantages and update are an engine's; the loss is in `loss`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor, nn

from operant.lang.env import Env
from operant.models.bonus import Bonus
from operant.ppo.batch import check_order, config_for, make_env, source_of
from operant.ppo.bonuses import with_bonuses, with_intrinsic, with_popart
from operant.ppo.config import Config
from operant.ppo.engines.async_engine import ASYNC_METRICS
from operant.ppo.engines.choose import choose_device, choose_engine
from operant.ppo.job import Iteration, Job
from operant.ppo.policy import add_intrinsic_head, add_return_normalizer, check_value_scale
from operant.ppo.shards import check_job, check_shards, shards_for
from operant.training.adam import Adam
from operant.training.add_on import AddOn
from operant.training.callbacks import Callback, only_watches
from operant.training.ranks import joined
from operant.training.schedule import scheduled
from operant.training.trainer import COUNTERS, WINDOW, Trainer
from operant.vector.batch import Batch
from operant.vector.foreign_env import ForeignEnv
from operant.vector.make import MakesEnvs

__all__ = ["METRICS", "PPO", "WINDOW", "AsyncPPO", "Timings"]

METRICS = (
    *COUNTERS,
    "policy_loss",
    "value_loss",
    "entropy",
    "kl",
    "clip_fraction",
    "explained_variance",
    "grad_norm",
    "epochs",
    "learning_rate",
    "clip",
    "collect_seconds",
    "advantages_seconds",
    "update_seconds",
)
"""Figures of an iteration, in the order of the files."""


class Timings(NamedTuple):
    """Seconds that the parts of an iteration took."""

    collect: float
    advantages: float
    update: float


class PPO(Trainer):
    """Proximal policy optimisation on a batch of environments.

    >>> ppo = PPO("CartPole-v1", num_envs=8, num_steps=16, seed=1)
    >>> ppo.learn(total_steps=256).steps
    256

    Args:
        env: an id (``"CartPole-v1"``, ``"LunarLander-v3"``), an environment class, a function that
            makes one environment of Gymnasium's or PettingZoo's API, a vector environment of
            Gymnasium's API, or a batch, see `operant.vector.batch` (in SAME_STEP mode). The last
            two bring their own number of environments.
        config: the whole configuration; by default the shipped one of the environment, if any.
        policy: a network of your own, see `operant.models.actor_critic`; by default
            `operant.models.policy_for` the spaces.
        add_ons: what is done besides; see `operant.training.add_on`.
        intrinsic: intrinsic rewards: ``"rnd"``, ``"icm"``, ``"count"``, objects such as
            ``operant.models.RND()``, or several of both, instead of those that the environment
            ships; ``"none"`` or an empty list: none. Their options are ``[intrinsic]`` of the
            configuration.
        options: single values by name, with or without their section: ``learning_rate=1e-3``.

    The seed also seeds PyTorch's global generator, which initialises the network. `pickle` and
    `copy` make a trainer that goes on as this one does, with a batch of its own.

    Raises:
        ValueError, TypeError: an unknown option, a bad value, or parts that do not fit together.
    """

    config_type = Config
    metrics: tuple[str, ...] = METRICS  # type: ignore[misc]  # with more where run.mode is async
    config: Config

    def __init__(
        self,
        env: str | type[Env] | ForeignEnv | MakesEnvs | VectorEnv[Any, Any, Any] | Batch,
        config: Config | None = None,
        *,
        policy: nn.Module | None = None,
        add_ons: Sequence[AddOn] = (),
        intrinsic: str | Bonus | Sequence[str | Bonus] | None = None,
        **options: Any,
    ) -> None:
        check_order(env, config, policy)
        kind = Config if config is None else type(config)
        if policy is not None and any(
            kind.dotted_name(key).startswith("policy.") for key in options
        ):
            raise ValueError("options of [policy] are for the built-in networks, not for policy=")
        source = source_of(env)
        bonuses, options = with_bonuses(intrinsic, add_ons, config, options)
        config = config_for(source, config, options, env if isinstance(env, str) else "")
        add_ons = with_popart(with_intrinsic(add_ons, bonuses, config), policy, config)
        config, shards = shards_for(config, joined(config.run.rank_timeout))
        device = choose_device(config.run.device, source)
        check_shards(shards, source, device, add_ons)
        if config.run.mode == "async":
            self.metrics = (*METRICS, *ASYNC_METRICS)
        batch = make_env(config, source, device, shards)
        super().__init__(config, batch, device, policy, add_ons, shards)
        self.optimizer = Adam(self.policy.parameters(), config.ppo.adam_eps)
        normalizer = getattr(self.policy, "return_normalizer", None)
        job = Job(
            config,
            self.env,
            self.policy,
            self.distribution,
            self.optimizer,
            device,
            getattr(self.policy, "obs_normalizer", None),
            normalizer if config.ppo.normalize_reward else None,
            self.add_ons.need_next_obs,
            shards,
        )
        check_job(job)
        self.engine, self.engine_reason = choose_engine(job)
        self.env.reset(seed=config.run.seed)
        self.timings = Timings(0.0, 0.0, 0.0)
        self.add_ons.begin(self)

    def complete(self, policy: nn.Module) -> nn.Module:
        """A policy with the normaliser of returns, if ``ppo.normalize_reward`` asks for one."""
        check_value_scale(policy, self.env.single_observation_space)
        add_return_normalizer(policy, self.config)
        add_intrinsic_head(policy, self.config)
        return policy

    # The loop -------------------------------------------------------------------------------
    def iterate(self, total: int, callbacks: list[Callback]) -> dict[str, float]:
        """An iteration; see `Trainer.iterate`."""
        began = time.perf_counter()
        now = self._following(total, 0)
        assert now is not None
        self.engine.expect_until(self.iteration + -(-(total - self.steps) // self.rollout_steps))
        episodes = self.engine.collect(now.number, now.step)
        collected = time.perf_counter()
        self.collected(episodes, callbacks)
        called = time.perf_counter()
        self.engine.advantages()
        estimated = time.perf_counter()
        following = None
        if not (self._stopping or self.add_ons) and all(map(only_watches, callbacks)):
            following = self._following(total, 1)
        self.engine.expect(following)
        figures = self.engine.update(now.number, now.learning_rate, now.clip)
        ended = time.perf_counter()
        self.count_episodes(episodes)
        parts = (collected - began, estimated - called, ended - estimated)
        self.timings = Timings(*(self.engine.timings() or parts))
        figures["learning_rate"], figures["clip"] = now.learning_rate, now.clip
        for name, seconds in self.timings._asdict().items():
            figures[f"{name}_seconds"] = seconds
        return figures

    def _following(self, total: int, later: int) -> Iteration | None:
        """The iteration that comes now, or `later`; None after the last."""
        ppo, steps = self.config.ppo, self.steps + later * self.rollout_steps
        if steps >= total:
            return None
        return Iteration(
            self.iteration + later,
            steps // (self.env.num_envs * self.shards.group.size),
            scheduled(ppo.learning_rate, ppo.learning_rate_schedule, steps / total),
            scheduled(ppo.clip, ppo.clip_schedule, steps / total),
        )

    @property
    def buffer(self) -> Any:
        """The engine's rollout: a `RolloutBuffer`, or a `GpuBuffer`."""
        return self.engine.buffer

    @property
    def engine_name(self) -> str:  # type: ignore[override]
        """Which engine executes the loop."""
        return self.engine.name

    def back_up(self) -> None:
        """The engine knows what its iteration changes."""
        self.engine.keep()

    def roll_back(self) -> None:
        """Put it back."""
        self.engine.undo()

    def retract(self, broken_off: bool = False) -> None:
        """See `Engine.retract`."""
        self.engine.retract(broken_off)

    # Saving ---------------------------------------------------------------------------------
    @property
    def optimizer_steps(self) -> int:
        """Adam's steps."""
        return self.optimizer.count

    @optimizer_steps.setter
    def optimizer_steps(self, count: int) -> None:
        self.optimizer.count = count

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """Views of Adam's moments, by parameter."""
        adam = self.optimizer
        names = [name for name, p in self.policy.named_parameters() if p.requires_grad]
        return {
            f"{name}.{moment}": part
            for moment in ("exp_avg", "exp_avg_sq")
            for name, part in zip(
                names, torch.split(getattr(adam, moment), adam.sizes), strict=True
            )
        }

    def state(self) -> dict[str, np.ndarray]:
        """What the engine remembers."""
        return self.engine.state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from there; see `Engine.set_state`."""
        self.engine.set_state(state)


class AsyncPPO(PPO):
    """`PPO` with ``mode="async"``: it collects the next rollouts while it trains on the last.

    >>> ppo = AsyncPPO("CartPole-v1", num_envs=8, num_steps=16, seed=1)
    >>> ppo.learn(total_steps=256).config.run.mode
    'async'

    Args:
        env, config, options: see `PPO`.

    Raises:
        ValueError: environments on a GPU.
    """

    def __init__(self, env: Any, config: Config | None = None, **options: Any) -> None:
        options.pop("run.mode", None)
        super().__init__(env, config, **{**options, "mode": "async"})
