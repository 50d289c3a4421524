"""Copies of a batch: what `pickle` and `copy` keep of one, and how it is made again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from operant.compiler.spec.native_rules import NativeEnv
from operant.lang.env import Env

if TYPE_CHECKING:
    from operant.vector.base import BaseVecEnv

_SHARED = ("num_envs", "autoreset_mode", "copy", "render_mode", "max_episode_steps")
_KEPT = (
    "backend_reason",
    "metadata",
    "single_action_space",
    "single_observation_space",
    "spec",
    "_reports_episodes",
)
"""Attributes that a copy takes over although ``__init__`` makes them."""


def description(batch: BaseVecEnv, key: type[Env] | str) -> tuple[Any, ...]:
    """All that `made_again` needs to know of a batch; `key` stands for its environment class.

    Raises:
        ValueError: the batch is closed.
    """
    maker = next(cls for cls in type(batch).__mro__ if "_OPTIONS" in vars(cls))
    options = {name: getattr(batch, name) for name in (*_SHARED, *batch._OPTIONS)}
    options |= {"seed": batch._first_seed, **batch.rules.params._asdict()}
    state = batch.get_state() if batch._was_reset or batch.closed else None
    own = vars(batch)
    attributes = {name: own[name] for name in own if name in _KEPT or name not in batch._built}
    return type(batch), maker, key, options, state, attributes


def env_key(env: type[Env]) -> type[Env] | str:
    """What stands for an environment class in a pickle: itself, or the file of a library.

    Raises:
        TypeError: a class made inside a function, which pickle cannot find again.
    """
    if "<locals>" in env.__qualname__:
        raise TypeError(
            f"{env.__qualname__} is defined inside a function, where pickle cannot find it; define "
            "it at the top of a module, or keep env.get_state(), for PPO ppo.save()"
        )
    return str(env.native_library.path) if issubclass(env, NativeEnv) else env


def env_of(key: type[Env] | str) -> type[Env]:
    """The class that `env_key` stands for. A library is tried before it is loaded.

    Raises:
        NativeError, FileNotFoundError: see `operant.vector.native.load`.
    """
    if not isinstance(key, str):
        return key
    from operant.vector.native import load

    return load(key)


def made_again(
    cls: type[BaseVecEnv],
    maker: type[BaseVecEnv],
    key: type[Env] | str,
    options: Mapping[str, Any],
    state: Mapping[str, Any] | None,
    attributes: Mapping[str, Any],
) -> BaseVecEnv:
    """The batch that `description` describes.

    `maker` is the class whose ``__init__`` takes `options`: a subclass may take others.
    """
    batch = cls.__new__(cls)
    maker.__init__(batch, env_of(key), **options)
    if state is not None:
        batch.set_state(state)
    vars(batch).update(attributes)
    return batch
