"""`check_env`: does an environment do what training needs? The work behind ``operant check``.

It plays whole episodes on every backend, compares them, and says what it found, a sentence each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from operant.envs.env import Env
from operant.envs.layouts import Layout
from operant.envs.rules import Rules, TracedRules
from operant.lang.trace import FLOAT
from operant.vector.backends import available_backends
from operant.vector.cards import interpreted
from operant.vector.env import VecEnv
from operant.vector.make import make

NUM_ENVS, NUM_ARRAY_ENVS = 64, 4
"""How many are played. A state of arrays is stepped one environment at a time by the reference."""
MAX_STEPS = 1000
TOLERANCE = 1e-5
"""Allowed difference between backends after one step from the same state, relative to 1 + |value|:
they differ by fused multiply-adds only. For a state of arrays there are none: no difference."""
_RARE = 1e-4  # share of steps whose termination may hang on that last bit


@dataclass(frozen=True)
class Finding:
    """One thing that was checked. `note`: worth reading, but no failure."""

    name: str
    passed: bool
    detail: str
    note: bool = False


class CheckFailed(Exception):  # noqa: N818  (reads as what it is: a finding)
    """What a check raises: the sentence for the report."""


def check_env(env: type[Env]) -> Iterator[Finding]:
    """Run every check on `env`; yields each finding as soon as it is known."""
    checks: list[tuple[str, Callable[[type[Env]], str]]] = [
        ("actions", _check_actions),
        ("spaces", _check_spaces),
        ("finite", _check_finite),
        ("bounds", _check_bounds),
        ("resets", _check_resets),
        ("parity", _check_parity),
        ("determinism", _check_determinism),
        ("autoreset", _check_autoreset),
    ]
    if env.action_mask is not None:
        checks.append(("masks", _check_masks))
    for name, check in checks:
        try:
            yield Finding(name, True, check(env))
        except CheckFailed as failure:
            yield Finding(name, False, str(failure))
        except Exception as error:  # a crash of the author's code is a finding, too
            yield Finding(name, False, f"raised {type(error).__name__}: {error}")
    yield _note_episodes(env)


def throughput(env: type[Env], backend: str, num_envs: int = 4096, seconds: float = 0.5) -> float:
    """Environment steps per second on this machine, one worker; a million at once on a card."""
    if backend == "cuda":
        return _throughput_on_card(env, seconds)
    batch = VecEnv(env, num_envs, backend=backend, copy=False, seed=0)
    batch.reset()
    actions = [random_actions(batch.rules.action, num_envs, k) for k in range(8)]
    batch.step(actions[0])
    steps, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        batch.step(actions[steps % len(actions)])
        steps += 1
    batch.close()
    return steps * num_envs / elapsed


def _throughput_on_card(env: type[Env], seconds: float) -> float:
    from operant.bench.env import timed_on_card

    count = 4096 if interpreted() else 1 << 20
    batch = make(env, count, backend="cuda", seed=0)
    batch.reset()
    actions = [random_actions(batch.rules.action, count, k) for k in range(8)]
    batch.step(actions[0])
    timed = timed_on_card(batch, actions)
    return count / timed(max(1, round(seconds / timed(8))))


class _OnHost:
    """A batch on a card that takes and gives NumPy arrays, to be compared with others."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self.rules, self.num_envs, self.close = batch.rules, batch.num_envs, batch.close
        self.get_state, self.set_state = batch.get_state, batch.set_state

    def reset(self, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        return _array(self._batch.reset(seed=seed)[0]), {}

    def step(self, actions: np.ndarray) -> tuple[Any, ...]:
        *results, info = self._batch.step(actions)
        ended = _array(info["_episode"])
        found = {}
        if ended.any():
            episode = {key: _array(value) for key, value in info["episode"].items()}
            found = {"episode": episode, "_episode": ended}
            found |= {"final_obs": _array(info["final_obs"])} if "final_obs" in info else {}
        return (*map(_array, results), found)

    def action_masks(self) -> np.ndarray:
        return _array(self._batch.action_masks())


def _array(tensor: Any) -> np.ndarray:
    found: np.ndarray = tensor.cpu().numpy().copy()
    return found


def _batch(env: type[Env], num_envs: int, backend: str, workers: int = 1, **options: Any) -> Any:
    """A batch on a backend, with NumPy arrays."""
    if backend == "cuda":
        return _OnHost(make(env, num_envs, backend=backend, **options))
    return VecEnv(env, num_envs, backend=backend, workers=workers, **options)


def random_actions(layout: Layout, num_envs: int, seed: int) -> np.ndarray:
    """Actions ``[num_envs, *shape]``, uniform in the space; standard normal where unbounded."""
    random = np.random.default_rng(seed)
    shape = (num_envs, *layout.shape)
    if layout.dtype != FLOAT:
        low, high = (np.array(bounds).reshape(layout.shape) for bounds in (layout.low, layout.high))
        return random.integers(low, high, shape)
    space: Any = layout.space
    finite = np.isfinite(space.low) & np.isfinite(space.high)
    low, high = np.where(finite, space.low, 0.0), np.where(finite, space.high, 0.0)
    values = np.where(finite, random.uniform(low, high, shape), random.standard_normal(shape))
    return values.astype(np.float32)


def _steps(env: type[Env]) -> int:
    return min(env.max_episode_steps or MAX_STEPS, MAX_STEPS) + 10


def _backends() -> list[str]:
    return available_backends()


def _play(batch: Any, seed: int = 0) -> Iterator[tuple[int, np.ndarray, Any]]:
    """Whole episodes with random actions: step number, actions, and the five results."""
    batch.reset(seed=seed)
    for step in range(_steps(batch.rules.env)):
        actions = random_actions(batch.rules.action, batch.num_envs, step)
        yield step, actions, batch.step(actions)


def _num_envs(env: type[Env]) -> int:
    return NUM_ENVS if isinstance(Rules.of(env), TracedRules) else NUM_ARRAY_ENVS


def _check_actions(env: type[Env]) -> str:
    rules = Rules.of(env)
    if not isinstance(rules, TracedRules):
        return _check_array_actions(env)
    used = {arg for node in rules.step.nodes for arg in node.args} | set(rules.step.outputs)
    unused = [
        str(node.value)
        for index, node in enumerate(rules.step.nodes)
        if node.op == "input" and str(node.value) in _action_names(rules) and index not in used
    ]
    if len(unused) == rules.action.size:
        raise CheckFailed("step() never uses `action`: whatever the policy does changes nothing")
    if unused:
        raise CheckFailed(f"step() never uses action[{unused[0][1:]}]")
    return f"step() uses every component of {rules.action.space}"


def _check_array_actions(env: type[Env]) -> str:
    """Two batches from the same states, every action against the first: something must change."""
    layout = Rules.of(env).action
    batches = [VecEnv(env, 16, seed=0) for _ in range(2)]
    batches[0].reset()
    batches[1].reset()
    for step in range(_steps(env)):
        actions = random_actions(layout, 16, step)
        others = random_actions(layout, 16, MAX_STEPS + step)
        batches[1].set_state(batches[0].get_state())
        batches[0].step(actions)
        batches[1].step(others)
        first, second = (batch.get_state() for batch in batches)
        if any(not np.array_equal(first[key], second[key], equal_nan=True) for key in first):
            return f"actions of {layout.space} change what happens"
    raise CheckFailed("whatever the policy does changes nothing: does step() use `action`?")


def _action_names(rules: Rules) -> set[str]:
    return {f"a{k}" for k in range(rules.action.size)}


def _check_spaces(env: type[Env]) -> str:
    rules = Rules.of(env)
    batch = VecEnv(env, 4, backend="reference")
    obs, _ = batch.reset(seed=0)
    expected = (4, *rules.observation.shape)
    wanted = np.dtype(np.float32 if rules.observation.dtype == FLOAT else np.int64)
    if obs.shape != expected or obs.dtype != wanted:
        raise CheckFailed(f"observations are {obs.dtype} {obs.shape}, not {wanted} {expected}")
    return f"observations {rules.observation.space}, actions {rules.action.space}"


def _check_finite(env: type[Env]) -> str:
    batch = VecEnv(env, _num_envs(env), backend="reference")
    obs, _ = batch.reset(seed=0)
    _require_finite("the observation after reset()", obs)
    for step, _, (obs, reward, _, _, _) in _play(batch):
        where = f"at step {step + 1}"
        _require_finite(f"the reward {where}", reward)
        _require_finite(f"the observation {where}", obs)
        for name, values in batch.get_state().items():
            if name.startswith("state."):
                _require_finite(f"State.{name[6:]} {where}", values)
    return f"no NaN and no infinity in {_steps(env)} steps of {_num_envs(env)} environments"


def _require_finite(what: str, values: np.ndarray) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        place = np.argwhere(bad)[0]
        component = f", component {place[1]}" if values.ndim > 1 else ""
        raise CheckFailed(f"{what} is {values[tuple(place)]} (environment {place[0]}{component})")


def _check_bounds(env: type[Env]) -> str:
    rules = Rules.of(env)
    batch = VecEnv(env, _num_envs(env), backend="reference")
    low, high = _limits(rules.observation.space)
    obs, _ = batch.reset(seed=0)
    _require_inside("after reset()", obs, low, high)
    for step, _, (obs, *_) in _play(batch):
        _require_inside(f"at step {step + 1}", obs, low, high)
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


def _require_inside(when: str, obs: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    slack = 1e-6 * np.maximum(1.0, np.abs(np.where(np.isfinite(obs), obs, 0.0)))
    bad = (obs < low - slack) | (obs > high + slack)
    if bad.any():
        place = tuple(np.argwhere(bad)[0])
        low, high = np.broadcast_to(low, obs.shape)[place], np.broadcast_to(high, obs.shape)[place]
        component = f", component {place[1]}" if obs.ndim > 1 else ""
        raise CheckFailed(
            f"observation {obs[place]:.6g} {when} is outside [{low:.6g}, {high:.6g}] "
            f"(environment {place[0]}{component}); widen observation_space or limit the state"
        )


def _check_resets(env: type[Env]) -> str:
    backends = _backends()
    count = 4 * _num_envs(env)
    batches = [_batch(env, count, name) for name in backends]
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
    reference = VecEnv(env, _num_envs(env), backend="reference")
    others = [name for name in _backends() if name != "reference"]
    worst, exact = 0.0, not isinstance(reference.rules, TracedRules)
    for name in others:
        batch = _batch(env, _num_envs(env), name)
        batch.reset(seed=0)
        mismatches = 0
        for step in range(_steps(env)):
            actions = random_actions(batch.rules.action, _num_envs(env), step)
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
        if mismatches > _RARE * _num_envs(env) * _steps(env):
            raise CheckFailed(
                f"termination differs between reference and {name} in {mismatches} of "
                f"{_num_envs(env) * _steps(env)} steps from the same states"
            )
    if not others:
        return "only the reference backend is present"
    alike = "equal to the bit" if exact else f"largest difference in a step {worst:.1e}"
    played = f"{_steps(env)} steps of {_num_envs(env)} environments"
    return f"{played} on reference and {', '.join(others)}: {alike}"


def _require_close(
    key: str, backend: str, step: int, ours: np.ndarray, theirs: np.ndarray
) -> float:
    difference = np.abs(ours.astype(np.float64) - theirs) / (1.0 + np.abs(theirs))
    difference = np.where(np.isnan(ours) & np.isnan(theirs), 0.0, difference)
    worst = float(np.max(difference, initial=0.0))
    if not worst <= TOLERANCE:
        place = tuple(np.argwhere(~(difference <= TOLERANCE))[0])
        raise CheckFailed(
            f"{key} differs between reference and {backend} at step {step + 1} (environment "
            f"{place[0]}): {theirs[place]:.7g} and {ours[place]:.7g} from the same state"
        )
    return worst


def _check_determinism(env: type[Env]) -> str:
    runs = {f"two runs on {name}": [(name, 1, 0), (name, 1, 0)] for name in _backends()}
    if "cpu" in _backends():
        runs["1 and 2 workers on cpu"] = [("cpu", 1, 0), ("cpu", 2, 0)]
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
    count = 2 * NUM_ENVS if backend != "reference" else 2 * _num_envs(env)
    batch = _batch(env, count, backend, workers)
    values = [batch.reset(seed=seed)[0]]
    for step in range(min(200, _steps(env))):
        obs, reward, *_ = batch.step(random_actions(batch.rules.action, batch.num_envs, step))
        values += [obs, reward]
    batch.close()
    return values


def _check_autoreset(env: type[Env]) -> str:
    """On the fastest backend of the host, and on the card if there is one."""
    names = _backends()
    hosts = [name for name in names if name != "cuda"]
    finished = [_compare_modes(env, name) for name in [hosts[-1], *names[len(hosts) :]]]
    return f"SAME_STEP and NEXT_STEP agree over {finished[0]} finished episodes"


def _compare_modes(env: type[Env], backend: str) -> int:
    """One batch per mode, same seed and actions: the first episodes must tell the same story."""
    modes = (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP)
    same, later = (_batch(env, NUM_ENVS, backend, autoreset_mode=mode) for mode in modes)
    same.reset(seed=0)
    later.reset(seed=0)
    running = np.ones(NUM_ENVS, np.bool_)
    awaiting = np.zeros(NUM_ENVS, np.bool_)
    fresh = np.zeros_like(same.get_state()["obs"])
    finished = 0
    for step in range(_steps(env)):
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


def _check_masks(env: type[Env]) -> str:
    """Masks of all states met, also the last of an episode: NEXT_STEP shows it to the policy."""
    reference = VecEnv(env, _num_envs(env), backend="reference")
    reference.reset(seed=0)
    masked = 0
    for name in _backends():
        batch = _batch(env, _num_envs(env), name)
        batch.reset(seed=0)
        for step in range(_steps(env) + 1):
            masks = _masks(batch)
            _require_choice(batch, masks, step)
            masked += int((~masks).sum())
            reference.set_state(batch.get_state())
            different = np.argwhere(masks != _masks(reference))
            if len(different):
                index, action = different[0]
                raise CheckFailed(
                    f"action_mask() differs between reference and {name} {_when(step)} "
                    f"(environment {index}, value {action}) from the same state"
                )
            batch.step(random_actions(batch.rules.action, _num_envs(env), step))
    if not masked:
        return "every action was allowed in every state met"
    return f"the same on {' and '.join(_backends())}; every state met allows some action"


def _masks(batch: Any) -> np.ndarray:
    masks: np.ndarray = batch.action_masks()
    return masks


def _require_choice(batch: Any, masks: np.ndarray, step: int) -> None:
    """Raise unless every component of every environment has an allowed action."""
    layout = batch.rules.action
    starts = np.cumsum((0, *layout.choices[:-1]))
    none = ~np.logical_or.reduceat(masks, starts, axis=1)
    if none.any():
        index, component = np.argwhere(none)[0]
        part = "" if layout.scalar else f" of component {component}"
        last = ", the last state of an episode" if batch.get_state()["done"][index] else ""
        raise CheckFailed(
            f"action_mask() allows no action{part} {_when(step)} (environment {index}{last}); "
            "allow at least one in every state"
        )


def _when(steps: int) -> str:
    return f"at step {steps}" if steps else "after reset()"


def _note_episodes(env: type[Env]) -> Finding:
    batch = VecEnv(env, _num_envs(env))
    lengths: list[int] = []
    returns: list[float] = []
    for _, _, (*_, info) in _play(batch):
        if info:
            lengths += info["episode"]["l"][info["_episode"]].tolist()
            returns += info["episode"]["r"][info["_episode"]].tolist()
    if not lengths:
        return Finding(
            "episodes",
            True,
            f"no episode ended in {_steps(env)} steps; set max_episode_steps to limit them",
            note=True,
        )
    return Finding(
        "episodes",
        True,
        f"{len(lengths)} with random actions: mean length {np.mean(lengths):.1f}, "
        f"mean return {np.mean(returns):.4g}",
    )
