"""Environments that operant does not compile, as a configuration describes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium

from operant.training.config import EnvConfig
from operant.vector.batch import Batch
from operant.vector.foreign_batch import ForeignBatch
from operant.vector.foreign_env import ForeignEnv, untrusted_wrappers
from operant.vector.frame_stack import FrameStack
from operant.vector.make_foreign import make_foreign
from operant.vector.vector_batch import VectorBatch


def foreign_batch(
    env: ForeignEnv,
    config: EnvConfig,
    num_envs: int,
    max_episode_steps: int | None = None,
    **options: Any,
) -> ForeignBatch:
    """A batch of `env` with the parameters, wrappers and workers in `config`.

    Args:
        env: which.
        config: how they are made and run.
        num_envs: how many.
        max_episode_steps: a limit that wins over that of `config`.
        options: see `make_foreign`; they win over `config`.

    Raises:
        ValueError, TypeError, ForeignEnvError: see `make_foreign`.
    """
    given: dict[str, Any] = {
        "backend": config.backend,
        "impl": config.impl,
        "workers": config.workers or None,
        "max_episode_steps": max_episode_steps or config.max_episode_steps or None,
        "wrappers": config.wrappers,
        "frame_stack": config.frame_stack,
        "on_worker_death": config.on_worker_death,
        "step_timeout_s": config.step_timeout,
        **config.params,
    }
    return make_foreign(env, num_envs, **{**given, **options})


def training_batch(env: ForeignEnv, config: EnvConfig, first_env: int = 0) -> Batch:
    """The batch that `config` describes, to train on: frames that are stacked are kept once, and
    the environment's own vector version is used where that is asked for. `first_env`: where they
    stand in a larger batch, of which `config.num_envs` are a block.

    Raises:
        ValueError, TypeError, ForeignEnvError: see `make_foreign`.
    """
    if config.backend == "vector":
        return _own_vector(env, config)
    if config.frame_stack == 1:
        return foreign_batch(env, config, config.num_envs, first_env=first_env)
    single = foreign_batch(env, config, config.num_envs, frame_stack=1, first_env=first_env)
    return FrameStack(single, config.frame_stack)


def _own_vector(env: ForeignEnv, config: EnvConfig) -> Batch:
    """What the environment's ``vector_entry_point`` makes."""
    spec = gymnasium.registry.get(env.gymnasium_id)
    if spec is None or spec.vector_entry_point is None:
        raise ValueError(
            f"{env.name} has no vector version of its own (vector_entry_point); leave env.backend "
            "'auto'"
        )
    if config.wrappers or config.frame_stack > 1:
        raise ValueError(
            "env.wrappers and env.frame_stack go around single environments, and env.backend is "
            "'vector'; leave out one of them"
        )
    limit: dict[str, Any] = {}
    if config.max_episode_steps:
        limit["max_episode_steps"] = config.max_episode_steps
    made = gymnasium.make_vec(
        env.gymnasium_id,
        num_envs=config.num_envs,
        vectorization_mode="vector_entry_point",
        **limit,
        **config.params,
    )
    return VectorBatch(made, name=env.name, params=config.params)


def how_it_runs(batch: Batch, config: EnvConfig) -> str | None:
    """What steps a batch of environments that operant does not compile, and why, in words; None for
    other batches."""
    if not isinstance(batch, ForeignBatch | FrameStack):
        return None
    single = batch.batch if isinstance(batch, FrameStack) else batch
    spec = getattr(single, "spec", None)
    has_own = spec is not None and spec.vector_entry_point is not None
    reason: str = batch.backend_reason
    if has_own and config.backend == "auto" and not config.wrappers and config.frame_stack == 1:
        reason += (
            "; its own vector version is often faster, with other episodes, and cannot be saved: "
            "env.backend=vector"
        )
    return reason


class UntrustedWrapperError(ValueError):
    """A run's own configuration names code to put around its environments."""

    def __init__(self, wrappers: Sequence[str], all_wrappers: Sequence[str]) -> None:
        self.wrappers, self.all_wrappers = list(wrappers), list(all_wrappers)
        super().__init__(
            f"env.wrappers of this run names code, {', '.join(self.wrappers)}, which is not "
            "imported unless you name it again: pass wrappers=[...]"
        )


def check_wrappers(config: EnvConfig, typed: Sequence[str] | None) -> None:
    """Refuse wrappers that a run's configuration names, unless they are Gymnasium's own or the user
    named them too.

    Args:
        config: read from a run, which may come from anyone.
        typed: what the user named; None: nothing.

    Raises:
        UntrustedWrapperError: there are others.
    """
    left = [name for name in untrusted_wrappers(config.wrappers) if name not in (typed or ())]
    if left:
        raise UntrustedWrapperError(left, config.wrappers)
