"""Environments that operant does not compile, as a configuration describes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from operant.training.config import EnvConfig
from operant.vector.foreign_batch import ForeignBatch
from operant.vector.foreign_env import ForeignEnv, untrusted_wrappers
from operant.vector.make_foreign import make_foreign


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


class UntrustedWrapperError(ValueError):
    """A run's own configuration names code to put around its environments."""

    def __init__(self, wrappers: Sequence[str]) -> None:
        self.wrappers = list(wrappers)
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
        raise UntrustedWrapperError(left)
