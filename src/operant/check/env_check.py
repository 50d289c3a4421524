"""`check_env`: does an environment do what training needs? The work behind ``operant check``.

It plays whole episodes on every backend, compares them, and says what it found, a sentence each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from operant.backends.author_mistake import env_mistake
from operant.check.actions import check_actions
from operant.check.code import check_compiles, check_errors
from operant.check.finding import CheckFailed, Finding
from operant.check.masks import check_masks
from operant.check.pictures import check_render
from operant.check.plays import (
    NUM_ENVS,
    batch_of,
    count_of,
    play,
    random_actions,
    steps_of,
)
from operant.compiler.emit.dialects import PythonText
from operant.compiler.env_functions import part_place, return_place
from operant.compiler.recording.trace import FLOAT
from operant.compiler.spec.array_rules import ArrayRules
from operant.compiler.spec.native_rules import is_native
from operant.compiler.spec.rules import Rules, TracedRules
from operant.lang.env import Env
from operant.vector.choose_backend import available_backends
from operant.vector.env import VecEnv

TOLERANCE = 1e-5
"""Allowed difference between backends after one step from the same state, relative to 1 + |value|:
they differ by fused multiply-adds only. For a state of arrays there are none: no difference."""
_RARE = 1e-4  # share of steps whose termination may hang on that last bit


def check_env(env: type[Env]) -> Iterator[Finding]:
    """Run every check on `env`; yields each finding as soon as it is known.

    Where it does not compile, or a function raises, that is the last one: the others would only
    meet it again.
    """
    checks: list[tuple[str, Callable[[type[Env]], str]]] = [
        ("actions", check_actions),
        ("spaces", _check_spaces),
        ("finite", _check_finite),
        ("bounds", _check_bounds),
        ("resets", _check_resets),
        ("parity", _check_parity),
        ("determinism", _check_determinism),
        ("autoreset", _check_autoreset),
    ]
    if Rules.of(env).mask_size:
        checks.append(("masks", check_masks))
    if hasattr(env, "render"):
        checks.append(("render", check_render))
    if not is_native(env):
        compiles = _found("compiles", check_compiles, env)
        yield compiles
        if not compiles.passed:
            return
        errors = _found("errors", check_errors, env)
        yield errors
        if not errors.passed:
            return
    for name, check in checks:
        yield _found(name, check, env)
    if _keeps_state(env):
        yield Finding(
            "state",
            True,
            f"{_return_place(env, 'step')}step() returns the state as it came, so nothing in it "
            f"ever changes; if that is not meant, write {env.__name__}.State(...) with the new "
            "values",
            note=True,
        )
    try:
        yield _note_episodes(env)
    except Exception as error:
        yield _failed("episodes", error)


def _found(name: str, check: Callable[[type[Env]], str], env: type[Env]) -> Finding:
    try:
        return Finding(name, True, check(env))
    except Exception as error:  # a crash of the author's code is a finding, too
        return _failed(name, error)


def _failed(name: str, error: Exception) -> Finding:
    if isinstance(error, CheckFailed):
        return Finding(name, False, str(error))
    said = env_mistake(error)
    return Finding(name, False, said or f"raised {type(error).__name__}: {error}")


def _check_spaces(env: type[Env]) -> str:
    rules = Rules.of(env)
    batch = VecEnv(env, 4, backend=available_backends(env)[0])
    obs, _ = batch.reset(seed=0)
    expected = (4, *rules.observation.shape)
    wanted = np.dtype(np.float32 if rules.observation.dtype == FLOAT else np.int64)
    if obs.shape != expected or obs.dtype != wanted:
        raise CheckFailed(f"observations are {obs.dtype} {obs.shape}, not {wanted} {expected}")
    if isinstance(rules, ArrayRules):
        _require_written(rules)
    return f"observations {rules.observation.space}, actions {rules.action.space}"


def _require_written(rules: ArrayRules) -> None:
    """Raise if no line of observe() can write to some element. Parameters that are constants of
    the code may be why: with others it might."""
    unwritten = np.argwhere(~rules.library(PythonText())[0].shown)
    if len(unwritten) and rules.params._fields == rules.float_params:
        index = ", ".join(map(str, unwritten[0]))
        raise CheckFailed(
            f"{part_place(rules.env, 'observe')}observe() never writes to obs[{index}], which is "
            f"always 0; write obs[{index}] = ..., or give observation_space another shape "
            f"({len(unwritten)} of {rules.observation.size} numbers are not written)"
        )


def _check_finite(env: type[Env]) -> str:
    batch = VecEnv(env, count_of(env), backend=available_backends(env)[0])
    places = {name: _return_place(env, name) for name in ("step", "observe")}
    obs, _ = batch.reset(seed=0)
    _require_finite(f"{places['observe']}the observation after reset()", obs)
    for step, _, (obs, reward, _, _, _) in play(batch):
        where = f"at step {step + 1}"
        _require_finite(f"{places['step']}the reward {where}", reward)
        _require_finite(f"{places['observe']}the observation {where}", obs)
        for name, values in batch.get_state().items():
            if name.startswith("state."):
                _require_finite(f"{places['step']}State.{name[6:]} {where}", values)
    return f"no NaN and no infinity in {steps_of(env)} steps of {count_of(env)} environments"


def _return_place(env: type[Env], name: str) -> str:
    """``file:line: `` of what a function of the author's returns; nothing for a library's."""
    return "" if is_native(env) else f"{return_place(getattr(env, name))}: "


def _require_finite(what: str, values: np.ndarray) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        place = np.argwhere(bad)[0]
        component = f", component {place[1]}" if values.ndim > 1 else ""
        raise CheckFailed(
            f"{what} is {values[tuple(place)]} (environment {place[0]}{component}); x / 0.0 is "
            "infinite, 0.0 / 0.0 and the sqrt or log of less than 0 are NaN: ask before, with "
            "where() or clip()"
        )


def _check_bounds(env: type[Env]) -> str:
    rules = Rules.of(env)
    batch = VecEnv(env, count_of(env), backend=available_backends(env)[0])
    low, high = _limits(rules.observation.space)
    place = "" if is_native(env) else part_place(env, "observation_space")
    obs, _ = batch.reset(seed=0)
    _require_inside(f"{place}observation", "after reset()", obs, low, high)
    for step, _, (obs, *_) in play(batch):
        _require_inside(f"{place}observation", f"at step {step + 1}", obs, low, high)
    return "every observation lies in the observation space"


def _limits(space: spaces.Space[Any]) -> tuple[np.ndarray, np.ndarray]:
    match space:
        case spaces.Box():
            return space.low, space.high
        case spaces.Discrete():
            return np.asarray(space.start), np.asarray(space.start + space.n - 1)
        case spaces.MultiDiscrete():
            return space.start, space.start + space.nvec - 1
    raise TypeError(f"no limits known for {space}")


def _require_inside(
    what: str, when: str, obs: np.ndarray, low: np.ndarray, high: np.ndarray
) -> None:
    slack = 1e-6 * np.maximum(1.0, np.abs(np.where(np.isfinite(obs), obs, 0.0)))
    bad = (obs < low - slack) | (obs > high + slack)
    if bad.any():
        place = tuple(np.argwhere(bad)[0])
        low, high = np.broadcast_to(low, obs.shape)[place], np.broadcast_to(high, obs.shape)[place]
        component = f", component {place[1]}" if obs.ndim > 1 else ""
        raise CheckFailed(
            f"{what} {obs[place]:.6g} {when} is outside [{low:.6g}, {high:.6g}] "
            f"(environment {place[0]}{component}); widen observation_space or limit the state"
        )


def _check_resets(env: type[Env]) -> str:
    backends = available_backends(env)
    count = 4 * count_of(env)
    batches = [batch_of(env, count, name) for name in backends]
    for episode in range(3):
        results = [b.reset(seed=0 if episode == 0 else None)[0] for b in batches]
        for name, obs in zip(backends[1:], results[1:], strict=True):
            if not np.array_equal(obs, results[0], equal_nan=True):
                index = int(np.argwhere(obs != results[0])[0][0])
                raise CheckFailed(
                    f"reset() differs between {backends[0]} and {name} (environment {index}, "
                    f"episode {episode}): does it depend on anything but `random` and `params`?"
                )
    if np.array_equal(results[0], VecEnv(env, count, backend=backends[0]).reset(seed=1)[0]):
        return "the same bits on every backend (and the same for every seed: reset() draws nothing)"
    return f"the same bits on {' and '.join(backends)}, other bits for another seed"


def _check_parity(env: type[Env]) -> str:
    if is_native(env):
        return "only one implementation, the library"
    reference = VecEnv(env, count_of(env), backend="reference")
    others = [name for name in available_backends(env) if name != "reference"]
    worst, exact = 0.0, not isinstance(reference.rules, TracedRules)
    for name in others:
        batch = batch_of(env, count_of(env), name)
        batch.reset(seed=0)
        mismatches = 0
        for step in range(steps_of(env)):
            actions = random_actions(batch.rules.action, batch.num_envs, step)
            if step == 0:
                reference.reset(seed=0)
            reference.set_state(batch.get_state())
            batch.step(actions)
            reference.step(actions)
            ours, theirs = batch.get_state(), reference.get_state()
            for key in ours:
                if exact and not np.array_equal(ours[key], theirs[key], equal_nan=True):
                    raise CheckFailed(
                        f"{key} differs between reference and {name} at step {step + 1}"
                    )
                if ours[key].dtype == np.float32:
                    worst = max(worst, _require_close(key, name, step, ours[key], theirs[key]))
            mismatches += int((ours["terminated"] != theirs["terminated"]).sum())
        if mismatches > _RARE * count_of(env) * steps_of(env):
            raise CheckFailed(
                f"termination differs between reference and {name} in {mismatches} of "
                f"{count_of(env) * steps_of(env)} steps from the same states"
            )
    if not others:
        return "only the reference backend is present"
    alike = "equal to the bit" if exact else f"largest difference in a step {worst:.1e}"
    played = f"{steps_of(env)} steps of {count_of(env)} environments"
    return f"{played} on reference and {', '.join(others)}: {alike}"


def _require_close(
    key: str, backend: str, step: int, ours: np.ndarray, theirs: np.ndarray
) -> float:
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    with np.errstate(invalid="ignore"):  # of two infinities
        difference = np.abs(ours.astype(np.float64) - theirs) / (1.0 + np.abs(theirs))
    difference = np.where(same, 0.0, difference)
    worst = float(np.max(difference, initial=0.0))
    if not worst <= TOLERANCE:
        place = tuple(np.argwhere(~(difference <= TOLERANCE))[0])
        raise CheckFailed(
            f"{key} differs between reference and {backend} at step {step + 1} (environment "
            f"{place[0]}): {theirs[place]:.7g} and {ours[place]:.7g} from the same state"
        )
    return worst


def _check_determinism(env: type[Env]) -> str:
    runs = {f"two runs on {name}": [(name, 1, 0), (name, 1, 0)] for name in available_backends(env)}
    for name in available_backends(env):
        if name in ("cpu", "native"):
            runs[f"1 and 2 workers on {name}"] = [(name, 1, 0), (name, 2, 0)]
    for what, setups in runs.items():
        first, second = (_trajectory(env, *setup) for setup in setups)
        for step, (a, b) in enumerate(zip(first, second, strict=True)):
            if not np.array_equal(a, b, equal_nan=True):
                raise CheckFailed(
                    f"{what} with the same seed and actions differ at step {step}: "
                    "the functions must not keep or draw anything themselves"
                )
    return f"the same seed gives the same bits: {', '.join(runs)}"


def _trajectory(env: type[Env], backend: str, workers: int, seed: int) -> list[np.ndarray]:
    count = 2 * NUM_ENVS if backend != "reference" else 2 * count_of(env)
    batch = batch_of(env, count, backend, workers)
    values = [batch.reset(seed=seed)[0]]
    for step in range(min(200, steps_of(env))):
        obs, reward, *_ = batch.step(random_actions(batch.rules.action, batch.num_envs, step))
        values += [obs, reward]
    batch.close()
    return values


def _check_autoreset(env: type[Env]) -> str:
    """On the fastest backend of the host, and on the GPU if there is one."""
    names = available_backends(env)
    hosts = [name for name in names if name != "cuda"]
    finished = [_compare_modes(env, name) for name in [hosts[-1], *names[len(hosts) :]]]
    return f"SAME_STEP and NEXT_STEP agree over {finished[0]} finished episodes"


def _compare_modes(env: type[Env], backend: str) -> int:
    """One batch per mode, same seed and actions: the first episodes must tell the same story."""
    modes = (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP)
    same, later = (batch_of(env, NUM_ENVS, backend, autoreset_mode=mode) for mode in modes)
    same.reset(seed=0)
    later.reset(seed=0)
    running = np.ones(NUM_ENVS, np.bool_)
    awaiting = np.zeros(NUM_ENVS, np.bool_)
    fresh = np.zeros_like(same.get_state()["obs"])
    finished = 0
    for step in range(steps_of(env)):
        actions = random_actions(same.rules.action, NUM_ENVS, step)
        obs_same, reward_same, *flags_same, info = same.step(actions)
        obs_later, reward_later, *flags_later, _ = later.step(actions)
        done = (flags_same[0] | flags_same[1]) & running
        last = np.where(_column(done, obs_same), info.get("final_obs", obs_same), obs_same)
        agree = (
            np.array_equal(last[running], obs_later[running], equal_nan=True)
            and np.array_equal(reward_same[running], reward_later[running], equal_nan=True)
            and all(
                np.array_equal(a[running], b[running])
                for a, b in zip(flags_same, flags_later, strict=True)
            )
            and np.array_equal(fresh[awaiting], obs_later[awaiting], equal_nan=True)
        )
        if not agree:
            raise CheckFailed(
                f"SAME_STEP and NEXT_STEP autoreset differ on {backend} at step {step + 1}"
            )
        fresh[done], awaiting, running = obs_same[done], done, running & ~done
        finished += int(done.sum())
    return finished


def _column(mask: np.ndarray, like: np.ndarray) -> np.ndarray:
    return mask.reshape(-1, *[1] * (like.ndim - 1))


def _keeps_state(env: type[Env]) -> bool:
    """Whether `step` of a state of numbers returns each field as it was."""
    rules = Rules.of(env)
    if not isinstance(rules, TracedRules):
        return False
    nodes = [rules.step.nodes[index] for index in rules.step.outputs[: len(rules.fields)]]
    return [node.value for node in nodes] == [f"s_{name}" for name in rules.fields]


def _note_episodes(env: type[Env]) -> Finding:
    batch = VecEnv(env, count_of(env))
    lengths: list[int] = []
    returns: list[float] = []
    for _, _, (*_, info) in play(batch):
        if info:
            lengths += info["episode"]["l"][info["_episode"]].tolist()
            returns += info["episode"]["r"][info["_episode"]].tolist()
    if not lengths:
        limit = env.max_episode_steps
        advice = "set max_episode_steps to limit them"
        if limit is not None:
            advice = f"max_episode_steps = {limit} is more than what is played here"
        return Finding(
            "episodes", True, f"no episode ended in {steps_of(env)} steps; {advice}", note=True
        )
    return Finding(
        "episodes",
        True,
        f"{len(lengths)} with random actions: mean length {np.mean(lengths):.1f}, "
        f"mean return {np.mean(returns):.4g}",
    )
