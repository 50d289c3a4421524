"""Playing whole episodes with a trained policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from operant.lang.env import Env
from operant.ppo.agent import Agent
from operant.ppo.config import EnvConfig
from operant.ppo.noise import fill_uniforms
from operant.ppo.threads import one_thread_an_operation
from operant.vector.choose_backend import host_backend
from operant.vector.env import VecEnv
from operant.vector.registry import get_env

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


class Evaluated(NamedTuple):
    """The same episodes played twice: with the most probable actions, and with sampled ones.

    They may differ much: in a maze the greedy policy can run against a wall for ever where a
    sampled one gets through.
    """

    greedy: Evaluation
    sampled: Evaluation


def evaluation_env(
    env: type[Env] | str, config: EnvConfig, num_envs: int, max_episode_steps: int | None = None
) -> VecEnv:
    """A batch to play on: as trained, but with the environment's own time limit if it has one.

    `max_episode_steps` is a limit that wins over both. Where there is none at all, an episode may
    go on for ever: ``batch.max_episode_steps`` is None.
    """
    env = get_env(env) if isinstance(env, str) else env
    own = env.max_episode_steps
    elsewhere = config.backend.startswith(("auto", "cuda"))
    backend = host_backend(env) if elsewhere else config.backend
    return VecEnv(
        env,
        num_envs,
        backend="reference" if config.impl == "reference" else backend,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        copy=False,
        max_episode_steps=max_episode_steps or own or config.max_episode_steps or None,
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
    max_episode_steps: int | None = None,
) -> Evaluation:
    """Play `episodes` episodes, many at once; for `max_episode_steps` see `evaluation_env`.

    Each environment of the batch plays a fixed share of them, so that short episodes are not
    counted more often than long ones.

    Raises:
        ValueError: less than one episode, or no time limit.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    check_limit(env, config, max_episode_steps)
    size = min(episodes, _MOST_ENVS)
    shares = np.full(size, episodes // size)
    shares[: episodes % size] += 1
    batch = evaluation_env(env, config, size, max_episode_steps)
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


def evaluate_both(
    agent: Agent,
    env: type[Env] | str,
    config: EnvConfig,
    *,
    episodes: int = 100,
    seed: int = 0,
    max_episode_steps: int | None = None,
) -> Evaluated:
    """`evaluate` with the most probable actions, then with sampled ones.

    Raises:
        ValueError: less than one episode, or no time limit.
    """
    greedy, sampled = (
        evaluate(
            agent,
            env,
            config,
            episodes=episodes,
            deterministic=deterministic,
            seed=seed,
            max_episode_steps=max_episode_steps,
        )
        for deterministic in (True, False)
    )
    return Evaluated(greedy, sampled)


def check_limit(
    env: type[Env] | str, config: EnvConfig, max_episode_steps: int | None = None
) -> None:
    """Raise ValueError if there is no time limit at all, so that an episode might never end."""
    env = get_env(env) if isinstance(env, str) else env
    if not (max_episode_steps or env.max_episode_steps or config.max_episode_steps):
        raise ValueError(
            f"{config.id} has no time limit, so an episode might never end; set max_episode_steps "
            "in its class, or pass max_episode_steps=... (on the command line "
            "--max-episode-steps N)"
        )


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
            numbers = None if deterministic else noise[0]
            action = agent.act(obs, numbers, batch.action_masks())
        obs, _, _, _, info = batch.step(action)
        step += 1
