"""Playing whole episodes with a trained policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from operant.compiler.spec.rules import own_time_limit
from operant.lang.env import Env
from operant.spaces.rows import ObsLayout
from operant.toolchain.torch_threads import one_thread_an_operation
from operant.training.agent import Agent
from operant.training.config import EnvConfig
from operant.training.foreign import foreign_batch
from operant.training.noise import fill_uniforms
from operant.vector.batch import Batch, Ends, StepMemory, compiled_batch, is_batch
from operant.vector.choose_backend import host_backend
from operant.vector.env import VecEnv
from operant.vector.foreign_batch import MOST_STEPS, ForeignBatch
from operant.vector.foreign_env import ForeignEnv
from operant.vector.targets import find_env

_MOST_ENVS = 1024
_MOST_FOREIGN_ENVS = 16
"""Each may hold a simulator or a screen of its own."""
Playable = type[Env] | ForeignEnv | str | Batch
"""What episodes can be played on."""


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
    env: type[Env] | ForeignEnv | str,
    config: EnvConfig,
    num_envs: int,
    max_episode_steps: int | None = None,
    render_mode: str | None = None,
) -> VecEnv | ForeignBatch:
    """A batch to play on: as trained, but with the environment's own time limit if it has one.

    `max_episode_steps` is a limit that wins over both. Where there is none at all, an episode may
    go on for ever: ``batch.max_episode_steps`` is None. Of a batch there is, see
    `Batch.for_evaluation`. `render_mode` is for environments that operant does not compile: those
    that it does can always be drawn.
    """
    env = find_env(env) if isinstance(env, str) else env
    if isinstance(env, ForeignEnv):
        drawn = {} if render_mode is None else {"render_mode": render_mode, "backend": "serial"}
        batch = foreign_batch(env, config, num_envs, max_episode_steps, **drawn)
        if batch.describe().max_episode_steps is not None:
            return batch
        batch.close()
        return batch.for_evaluation(num_envs)
    own = own_time_limit(env, config.params)
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
    env: Playable,
    config: EnvConfig,
    *,
    episodes: int = 100,
    deterministic: bool = True,
    seed: int = 0,
    max_episode_steps: int | None = None,
) -> Evaluation:
    """Play `episodes` episodes, many at once, on a batch made from `env` and `config`, or from one
    that is trained on; for `max_episode_steps` see `evaluation_env`.

    Each environment of the batch plays a fixed share of them, so that short episodes are not
    counted more often than long ones.

    Raises:
        ValueError: less than one episode, or no time limit.
    """
    with _batch(env, config, episodes, max_episode_steps) as batch:
        return _played(agent, batch, episodes, deterministic, seed)


def _played(
    agent: Agent, batch: Batch, episodes: int, deterministic: bool, seed: int
) -> Evaluation:
    """The first `episodes` episodes of a batch that is reset with `seed`."""
    size = batch.num_envs
    shares = np.full(size, episodes // size)
    shares[: episodes % size] += 1
    returns: list[np.ndarray] = []
    lengths: list[np.ndarray] = []
    for ends in steps(agent, batch, deterministic, seed):
        if ends is None:
            continue
        counted = shares[ends.env_index] > 0
        shares[ends.env_index[counted]] -= 1
        returns.append(ends.returns[counted])
        lengths.append(ends.lengths[counted])
        if not shares.any():
            break
    return Evaluation(np.concatenate(returns), np.concatenate(lengths))


@contextmanager
def _batch(
    env: Playable, config: EnvConfig, episodes: int, max_episode_steps: int | None
) -> Iterator[Batch]:
    """Environments to play on, not more than there are episodes; closed in the end.

    Raises:
        ValueError: less than one episode, or no time limit.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    check_limit(env, config, max_episode_steps)
    with closing(_made(env, config, episodes, max_episode_steps)) as batch:
        yield batch


def _made(env: Playable, config: EnvConfig, episodes: int, max_episode_steps: int | None) -> Batch:
    if is_batch(env):
        most = _MOST_FOREIGN_ENVS if compiled_batch(env) is None else _MOST_ENVS
        return env.for_evaluation(min(episodes, most), max_episode_steps)
    assert isinstance(env, str | type | ForeignEnv)
    found = find_env(env) if isinstance(env, str) else env
    most = _MOST_FOREIGN_ENVS if isinstance(found, ForeignEnv) else _MOST_ENVS
    return evaluation_env(found, config, min(episodes, most), max_episode_steps)


def evaluate_both(
    agent: Agent,
    env: Playable,
    config: EnvConfig,
    *,
    episodes: int = 100,
    seed: int = 0,
    max_episode_steps: int | None = None,
) -> Evaluated:
    """`evaluate` with the most probable actions, then with sampled ones on the same environments.

    Raises:
        ValueError: less than one episode, or no time limit.
    """
    with _batch(env, config, episodes, max_episode_steps) as batch:
        greedy, sampled = (
            _played(agent, batch, episodes, deterministic, seed) for deterministic in (True, False)
        )
    return Evaluated(greedy, sampled)


def time_limit(env: Playable, config: EnvConfig) -> int | None:
    """The time limit of an evaluation, see `evaluation_env`; None: an episode might never end."""
    if is_batch(env):
        return env.describe().evaluation_limit
    assert isinstance(env, str | type | ForeignEnv)
    found = find_env(env) if isinstance(env, str) else env
    if isinstance(found, ForeignEnv):  # it says so itself, and is cut where it does not
        return config.max_episode_steps or MOST_STEPS
    return own_time_limit(found, config.params) or config.max_episode_steps or None


def check_limit(env: Playable, config: EnvConfig, max_episode_steps: int | None = None) -> None:
    """Raise ValueError if there is no time limit at all, so that an episode might never end."""
    if not (max_episode_steps or time_limit(env, config)):
        raise ValueError(
            f"{config.id} has no time limit, so an episode might never end; set max_episode_steps "
            "in its class, or pass max_episode_steps=... (on the command line "
            "--max-episode-steps N)"
        )


def steps(agent: Agent, batch: Batch, deterministic: bool, seed: int) -> Iterator[Ends | None]:
    """Reset a batch in main memory and step it for ever; yields once after the reset, and after
    each step the episodes that ended in it.

    An environment of ours that finished shows its last state once, and is reset by the step after.
    """
    count = batch.num_envs
    noise = np.empty((1, count, agent.distribution.noise_size), np.float32)
    flags = np.empty((2, count), np.bool_)
    obs = ObsLayout.of(batch.single_observation_space).memory(count)
    memory = StepMemory(obs, np.empty(count, np.float32), *flags)
    batch.reset(seed=seed)
    batch.write_obs(obs)
    ends, step = None, 0
    while True:
        yield ends
        if not deterministic:
            fill_uniforms(noise, seed, step)
        with one_thread_an_operation():
            numbers = None if deterministic else noise[0]
            action = agent.act(obs, numbers, batch.action_masks())
        ends = batch.write_step(action, memory)
        step += 1
