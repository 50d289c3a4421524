"""What one environment tells about all of a batch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit

from operant.backends.foreign.block import Layouts, MakeEnv
from operant.backends.foreign.errors import ForeignEnvError
from operant.backends.foreign.pettingzoo import (
    as_parallel,
    is_pettingzoo,
    max_cycles,
    shared_spaces,
)
from operant.backends.foreign.state import why_not_saved
from operant.spaces.mask_leaf import KEY, mask_entries, mask_leaf
from operant.spaces.rows import ObsLayout

_MOST_STEPS = 64
_MOST_S = 0.05
HAND_OVER_S = 80e-6
"""Seconds that it takes to wake worker processes and to be woken by them, in each step."""
_WORTH = 0.8
"""Share of the serial time that processes must stay below to be chosen."""


@dataclass(frozen=True)
class Probe:
    """What was found out with an environment that was made for this alone, and closed."""

    name: str
    """Its id, or the name of its class."""
    layouts: Layouts
    max_episode_steps: int | None
    reward_threshold: float | None
    render_mode: str | None
    metadata: dict[str, Any]
    why_not_saved: str | None
    spec: Any


def probe(make_env: MakeEnv, measure: bool, mask_in_obs: bool = False) -> tuple[Probe, float]:
    """What `make_env` makes, and if wanted the seconds that a step of it takes, else 0.

    Without `measure` no step is made: one might hang, or end this process.

    Args:
        make_env: makes an environment, which is closed again.
        measure: whether to step it.
        mask_in_obs: whether policies see masks that are part of observations.

    Raises:
        TypeError: that is no environment of Gymnasium's.
        ForeignEnvError: it raises, or its spaces have no fixed size.
    """
    if not callable(make_env):
        raise TypeError(
            f"make_env must be a function that makes an environment, got {make_env!r}; to pass an "
            "environment `env`, write lambda: MyEnv(...)"
        )
    env = make_env()
    several = is_pettingzoo(env)
    if not several and not isinstance(env, gymnasium.Env):
        raise TypeError(
            "make_env must return a gymnasium.Env or an environment of PettingZoo's, got "
            f"{type(env).__name__}; environments of the older package gym can be wrapped with "
            "shimmy"
        )
    try:
        if several:
            env = as_parallel(env)
            return _found_agents(env, mask_in_obs), _agents_step_seconds(env) if measure else 0.0
        return _found(env, mask_in_obs), _step_seconds(env) if measure else 0.0
    finally:
        env.close()


def _layouts(
    name: str,
    observation: gymnasium.Space[Any],
    action: gymnasium.Space[Any],
    info: Any,
    mask_in_obs: bool,
    agents: tuple[Any, ...] = (),
) -> Layouts:
    """How one row lies in memory, from the spaces and an ``info`` of ``reset()``."""
    leaf = mask_leaf(observation, action, mask_in_obs)
    seen = ObsLayout.of(observation if leaf is None else leaf.seen)
    try:
        acts = ObsLayout.of(action)
    except ValueError as error:
        raise ValueError(str(error).replace("observation", "action")) from None
    mask_size = 0 if leaf is None else mask_entries(action)
    if leaf is None and isinstance(info, dict) and KEY in info:
        mask_size, found = mask_entries(action), np.size(info[KEY])
        if mask_size and found != mask_size:
            raise ForeignEnvError(
                f'{name} gives {found} values in info["{KEY}"]; {action} has {mask_size} actions'
            )
    return Layouts(seen, acts, mask_size, leaf, agents)


def _found_agents(env: Any, mask_in_obs: bool) -> Probe:
    agents, observation, action = shared_spaces(env)
    _, infos = env.reset(seed=0)
    info = next(iter(infos.values()), None) if isinstance(infos, dict) else None
    return Probe(
        str(env),
        _layouts(str(env), observation, action, info, mask_in_obs, agents),
        max_cycles(env),
        None,
        getattr(env, "render_mode", None),
        dict(getattr(env, "metadata", {})),
        why_not_saved(env),
        None,
    )


def _found(env: gymnasium.Env[Any, Any], mask_in_obs: bool) -> Probe:
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    for what in ("observation_space", "action_space"):
        if not isinstance(getattr(env, what, None), gymnasium.Space):
            raise ForeignEnvError(f"{name} has no {what}; set it in __init__")
    ObsLayout.of(env.observation_space)  # before a reset() that might not fit it either
    _, info = env.reset(seed=0)
    spec = env.spec
    return Probe(
        name,
        _layouts(name, env.observation_space, env.action_space, info, mask_in_obs),
        time_limit(env),
        None if spec is None or spec.reward_threshold is None else float(spec.reward_threshold),
        env.render_mode,
        dict(env.metadata),
        why_not_saved(env),
        spec,
    )


def time_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    """Steps after which an environment truncates its episodes, as far as it says so."""
    inside: Any = env
    while isinstance(inside, gymnasium.Wrapper):
        if isinstance(inside, TimeLimit):
            return int(inside._max_episode_steps)
        inside = inside.env
    return env.spec.max_episode_steps if env.spec is not None else None


def _step_seconds(env: gymnasium.Env[Any, Any]) -> float:
    """How long a step takes, resets in proportion; after one that may load and compile things."""
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(_MOST_STEPS)]
    result: Any = env.step(actions[0])
    if not (isinstance(result, tuple) and len(result) == 5):
        raise ForeignEnvError(
            f"{type(env.unwrapped).__name__}.step() must return (obs, reward, terminated, "
            f"truncated, info), got {type(result).__name__}"
            + (f" of {len(result)}" if isinstance(result, tuple) else "")
        )
    count, began = 0, time.perf_counter()
    for action in actions:
        if result[2] or result[3]:
            env.reset()
        result = env.step(action)
        count += 1
        if time.perf_counter() - began > _MOST_S:
            break
    return (time.perf_counter() - began) / count


def _agents_step_seconds(env: Any) -> float:
    """`_step_seconds` of all agents of a parallel environment."""
    for agent in env.possible_agents:
        env.action_space(agent).seed(0)
    count, began = -1, time.perf_counter()  # the first may load and compile things
    while count < 1 or (count < _MOST_STEPS and time.perf_counter() - began < _MOST_S):
        env.step({agent: env.action_space(agent).sample() for agent in env.agents})
        if not env.agents:
            env.reset()
        count += 1
        if count == 0:
            began = time.perf_counter()
    return (time.perf_counter() - began) / count


def choose(step_s: float, num_envs: int, workers: int, cores: int) -> tuple[str, str]:
    """``"serial"`` or ``"processes"``, and why, in words.

    Args:
        step_s: seconds that a step of one environment takes.
        num_envs: environments of the batch.
        workers: processes that would share them.
        cores: of the machine, that this process may use.
    """
    serial_s = step_s * num_envs
    cost = f"a step of all {num_envs} takes {serial_s * 1e6:.0f} us one after the other"
    if min(workers, cores, num_envs) < 2:
        what = "there is one environment" if num_envs < 2 else "there is one core to use"
        return "serial", f"serial: {what}; {cost}"
    shared_s = serial_s / min(workers, cores, num_envs) + HAND_OVER_S
    if shared_s < _WORTH * serial_s:
        return "processes", f"processes: {cost}, about {shared_s * 1e6:.0f} us in {workers}"
    return "serial", (
        f"serial: {cost}, too little for the {HAND_OVER_S * 1e6:.0f} us that handing it to "
        "processes costs"
    )
