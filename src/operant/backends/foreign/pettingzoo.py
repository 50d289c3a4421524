"""PettingZoo's environments, all as its parallel API has them."""

from __future__ import annotations

import sys
from typing import Any

from gymnasium import spaces

from operant.backends.foreign.errors import ForeignEnvError


def is_pettingzoo(env: object) -> bool:
    """Whether something is an environment of PettingZoo's; the package is not imported for it."""
    module = sys.modules.get("pettingzoo.utils.env")
    return module is not None and isinstance(env, module.ParallelEnv | module.AECEnv)


def as_parallel(env: Any) -> Any:
    """An environment in which all agents act at once.

    Raises:
        ForeignEnvError: its agents take turns.
    """
    from pettingzoo.utils.conversions import aec_to_parallel  # type: ignore[import-untyped]
    from pettingzoo.utils.env import ParallelEnv  # type: ignore[import-untyped]

    if isinstance(env, ParallelEnv):
        return env
    try:
        return aec_to_parallel(env)
    except AssertionError:
        raise ForeignEnvError(
            f"the agents of {env} take turns, and rows of a batch act all at once; if it changes "
            'only after all have acted, say so with metadata["is_parallelizable"] = True'
        ) from None


def shared_spaces(env: Any) -> tuple[tuple[Any, ...], spaces.Space[Any], spaces.Space[Any]]:
    """The agents of a parallel environment, and the observation and action space of each.

    Raises:
        ForeignEnvError: they have different ones, or it does not say who they are.
    """
    agents = tuple(getattr(env, "possible_agents", ()))
    if not agents:
        raise ForeignEnvError(f"{env} has no possible_agents; list everyone who may take part")
    first = agents[0]
    seen, acts = env.observation_space(first), env.action_space(first)
    for agent in agents[1:]:
        for name, wanted, found in (
            ("observation_space", seen, env.observation_space(agent)),
            ("action_space", acts, env.action_space(agent)),
        ):
            if found != wanted:
                raise ForeignEnvError(
                    f"the agents of {env} share one policy, and so need equal spaces: the {name} "
                    f"of {agent!r} is {found}, that of {first!r} is {wanted}; pad them, as "
                    "supersuit.pad_observations_v0 and pad_action_space_v0 do"
                )
    return agents, seen, acts


def max_cycles(env: Any) -> int | None:
    """Steps after which an environment truncates all agents, as far as it says so."""
    limit = getattr(env, "max_cycles", getattr(env.unwrapped, "max_cycles", None))
    return limit if isinstance(limit, int) and limit > 0 else None


def limited(env: Any, limit: int) -> Any:
    """A parallel environment whose agents are truncated after `limit` steps; one of its own that
    is shorter holds too."""
    from pettingzoo.utils.wrappers import (  # type: ignore[import-untyped]
        BaseParallelWrapper,
    )

    class Limited(BaseParallelWrapper):  # type: ignore[misc]
        """Counts steps."""

        max_cycles = limit

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            """As it does, from 0 on."""
            self._steps = 0
            self.__dict__.pop("agents", None)  # from now on those of the environment again
            return super().reset(seed=seed, options=options)

        def step(self, actions: Any) -> Any:
            """As it does; everyone left is truncated in the last."""
            obs, reward, terminated, truncated, info = super().step(actions)
            self._steps += 1
            if self._steps < limit:
                return obs, reward, terminated, truncated, info
            self.agents: list[Any] = []
            return obs, reward, terminated, dict.fromkeys(truncated, True), info

    return Limited(env)
