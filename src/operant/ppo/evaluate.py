"""Playing whole episodes with a trained policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from operant.envs.env import Env
from operant.ppo.agent import Agent
from operant.ppo.config import EnvConfig
from operant.ppo.noise import fill_uniforms
from operant.ppo.threads import one_thread_an_operation
from operant.vector.env import VecEnv
from operant.vector.make import make

_MOST_ENVS = 1024


@dataclass(frozen=True)
class Evaluation:
    """What an agent reached: arrays ``[episodes]``."""

    returns: np.ndarray
    """float32."""
    lengths: np.ndarray
    """int32."""

    @property
    def mean_return(self) -> float:
        """Mean over the episodes."""
        return float(self.returns.mean(dtype=np.float64))

    @property
    def std_return(self) -> float:
        """Standard deviation over the episodes."""
        return float(self.returns.std(dtype=np.float64))

    @property
    def mean_length(self) -> float:
        """Mean number of steps."""
        return float(self.lengths.mean())


def evaluation_env(env: type[Env] | str, config: EnvConfig, num_envs: int) -> VecEnv:
    """A batch to evaluate on: as trained, but with the environment's own time limit if it has one.

    Raises:
        ValueError: there is no limit at all, so an episode might never end.
    """
    batch = make(
        env,
        num_envs,
        backend=config.backend,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        copy=False,
        **config.params,
    )
    if batch.max_episode_steps is not None:
        return batch
    batch.close()
    if not config.max_episode_steps:
        raise ValueError(
            f"{config.id} has no time limit, so an episode might never end; "
            "set max_episode_steps in its class or env.max_episode_steps"
        )
    return make(
        env,
        num_envs,
        backend=config.backend,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        copy=False,
        max_episode_steps=config.max_episode_steps,
        **config.params,
    )


def evaluate(
    agent: Agent,
    env: type[Env] | str,
    config: EnvConfig,
    *,
    episodes: int = 100,
    deterministic: bool = True,
    seed: int = 0,
) -> Evaluation:
    """Play `episodes` episodes, many at once.

    Each environment of the batch plays a fixed share of them, so that short episodes are not
    counted more often than long ones.

    Raises:
        ValueError: less than one episode, or no time limit.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    size = min(episodes, _MOST_ENVS)
    shares = np.full(size, episodes // size)
    shares[: episodes % size] += 1
    batch = evaluation_env(env, config, size)
    returns: list[np.ndarray] = []
    lengths: list[np.ndarray] = []
    for info in steps(agent, batch, deterministic, seed):
        if not info:
            continue
        counted = info["_episode"] & (shares > 0)
        shares[counted] -= 1
        returns.append(info["episode"]["r"][counted])
        lengths.append(info["episode"]["l"][counted])
        if not shares.any():
            break
    batch.close()
    return Evaluation(np.concatenate(returns), np.concatenate(lengths))


def steps(agent: Agent, batch: VecEnv, deterministic: bool, seed: int) -> Iterator[dict[str, Any]]:
    """Reset a batch and step it for ever; yields the info of the reset and of each step.

    An environment that finished shows its last state once, and is reset by the step after.
    """
    noise = np.empty((1, batch.num_envs, agent.distribution.noise_size), np.float32)
    obs, info = batch.reset(seed=seed)
    step = 0
    while True:
        yield info
        if not deterministic:
            fill_uniforms(noise, seed, step)
        with one_thread_an_operation():
            action = agent.act(obs, None if deterministic else noise[0])
        obs, _, _, _, info = batch.step(action)
        step += 1
