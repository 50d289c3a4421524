"""What one environment tells about all of a batch."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit

from operant.backends.foreign.block import Layouts, MakeEnv
from operant.backends.foreign.errors import ForeignEnvError, in_words, is_ctrl_c, place_of
from operant.backends.foreign.pettingzoo import (
    as_parallel,
    is_pettingzoo,
    max_cycles,
    shared_spaces,
)
from operant.backends.foreign.random_actions import RandomActions
from operant.backends.foreign.state import why_not_saved
from operant.spaces.mask_leaf import KEY, flat_mask, mask_entries, mask_leaf
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
    env = _called("could not be made", make_env)
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
            found, told = _found_agents(env, mask_in_obs)
        else:
            found, told = _found(env, mask_in_obs)
        if not measure:
            return found, 0.0
        measured = _agents_step_seconds if several else step_seconds
        return found, _called("raised in step()", lambda: measured(env, *told))
    finally:
        _called("raised in close()", env.close)


def _called(what: str, call: Callable[[], Any]) -> Any:
    """What a call of the first environment gives.

    Raises:
        ForeignEnvError: it raised.
    """
    try:
        return call()
    except BaseException as error:
        if is_ctrl_c(error) or isinstance(error, ForeignEnvError):
            raise
        kept = error.__traceback__.tb_next if error.__traceback__ else None
        text = "".join(traceback.format_exception(type(error), error, kept))
        place = place_of(error)
        message = f"environment 0 {what}: {in_words(error)}{f' ({place})' if place else ''}"
        raise ForeignEnvError(message, 0, traceback=text) from error


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
        mask_size = mask_entries(action)
        try:
            found = flat_mask(info[KEY]).size
        except ValueError:
            found = 0
        if mask_size and found != mask_size:
            raise ForeignEnvError(
                f'{name} gives {found} values in info["{KEY}"]; {action} has {mask_size} actions'
            )
    return Layouts(seen, acts, mask_size, leaf, agents)


def _told_first(env: Any) -> tuple[Any, Any]:
    """The info and the observation of the first reset; of one that gives something else None."""
    result = _called("raised in reset()", lambda: env.reset(seed=0))
    return result[::-1] if isinstance(result, tuple) and len(result) == 2 else (None, None)


def _found_agents(env: Any, mask_in_obs: bool) -> tuple[Probe, tuple[Any, Any]]:
    """`_found` of a parallel environment."""
    agents, observation, action = _called("has spaces that raise", lambda: shared_spaces(env))
    told = infos, seen = _told_first(env)
    if not (isinstance(infos, dict) and isinstance(seen, dict)):
        raise ForeignEnvError(f"{env} must return two dicts of agents from reset(), obs and infos")
    info = next(iter(infos.values()), None)
    found = Probe(
        str(env),
        _layouts(str(env), observation, action, info, mask_in_obs, agents),
        max_cycles(env),
        None,
        getattr(env, "render_mode", None),
        dict(getattr(env, "metadata", {})),
        why_not_saved(env),
        None,
    )
    return found, told


def _found(env: gymnasium.Env[Any, Any], mask_in_obs: bool) -> tuple[Probe, tuple[Any, Any]]:
    """What it is, and the info and observation of its first reset."""
    name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
    for what in ("observation_space", "action_space"):
        if not isinstance(getattr(env, what, None), gymnasium.Space):
            raise ForeignEnvError(f"{name} has no {what}; set it in __init__")
    ObsLayout.of(env.observation_space)  # before a reset() that might not fit it either
    told = info, _ = _told_first(env)
    spec = env.spec
    found = Probe(
        name,
        _layouts(name, env.observation_space, env.action_space, info, mask_in_obs),
        time_limit(env),
        None if spec is None or spec.reward_threshold is None else float(spec.reward_threshold),
        env.render_mode,
        dict(env.metadata),
        why_not_saved(env),
        spec,
    )
    return found, told


def time_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    """Steps after which an environment truncates its episodes, as far as it says so."""
    inside: Any = env
    while isinstance(inside, gymnasium.Wrapper):
        if isinstance(inside, TimeLimit):
            return int(inside._max_episode_steps)
        inside = inside.env
    return env.spec.max_episode_steps if env.spec is not None else None


def step_seconds(env: gymnasium.Env[Any, Any], info: Any = None, obs: Any = None) -> float:
    """How long a step takes, resets in proportion; after one that may load and compile things.

    Args:
        env: was reset.
        info, obs: what that gave, for its action mask.

    Raises:
        ForeignEnvError: a result that is no tuple of five.
    """
    next_action = RandomActions(env.action_space, 0)
    result = _five(env, env.step(next_action(info, obs)))
    count, passed = 0, 0.0
    while count < _MOST_STEPS and passed < _MOST_S:
        obs, info = result[0], result[4]
        before = time.perf_counter()
        if result[2] or result[3]:
            obs, info = env.reset()
        reset = time.perf_counter()
        action = next_action(info, obs)
        stepping = time.perf_counter()
        result = env.step(action)
        passed += time.perf_counter() - stepping + reset - before
        count += 1
    return passed / count


def _five(env: Any, result: Any) -> tuple[Any, ...]:
    """What a step gave.

    Raises:
        ForeignEnvError: it is no tuple of five.
    """
    if isinstance(result, tuple) and len(result) == 5:
        return result
    raise ForeignEnvError(
        f"{type(env.unwrapped).__name__}.step() must return (obs, reward, terminated, truncated, "
        f"info), got {type(result).__name__}"
        + (f" of {len(result)}" if isinstance(result, tuple) else "")
    )


def _agents_step_seconds(env: Any, infos: Any, obs: Any) -> float:
    """`step_seconds` of all agents of a parallel environment."""
    next_action = {
        agent: RandomActions(env.action_space(agent), seed)
        for seed, agent in enumerate(env.possible_agents)
    }
    count, passed = -1, 0.0  # the first may load and compile things
    while count < 1 or (count < _MOST_STEPS and passed < _MOST_S):
        actions = {agent: next_action[agent](infos.get(agent), obs[agent]) for agent in env.agents}
        before = time.perf_counter()
        obs, _, _, _, infos = _five(env, env.step(actions))
        if not env.agents:
            obs, infos = env.reset()
        passed = 0.0 if count < 0 else passed + time.perf_counter() - before
        count += 1
    return passed / count


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
