"""Making environments by name or class."""

from __future__ import annotations

from typing import Any

from operant.envs.env import Env
from operant.envs.registry import get_env
from operant.vector.env import VecEnv
from operant.vector.single import SingleEnv


def make(env: str | type[Env], num_envs: int = 1, **options: Any) -> VecEnv:
    """A batch of environments.

    >>> env = make("CartPole-v1", num_envs=4, seed=7)
    >>> obs, info = env.reset()
    >>> obs.shape
    (4, 4)

    Args:
        env: an id such as ``"CartPole-v1"``, or an environment class.
        num_envs: how many.
        options: see `operant.VecEnv`: ``backend``, ``workers``, ``seed``, ``autoreset_mode``,
            ``copy``, ``render_mode``, ``max_episode_steps``, and the environment's own parameters.

    Raises:
        ValueError, TypeError: an unknown id or a bad option; the message says what to write.
    """
    if isinstance(env, str):
        env = get_env(env)
    return VecEnv(env, num_envs, **options)


def make_for_gymnasium(env_id: str, num_envs: int = 1, **options: Any) -> VecEnv:
    """What `gymnasium.make_vec` calls."""
    return make(env_id, num_envs, **options)


def make_single(env_id: str, **options: Any) -> SingleEnv:
    """What `gymnasium.make` calls."""
    return SingleEnv(get_env(env_id), **options)
