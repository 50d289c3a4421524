"""What ``operant check`` plays with an environment of Gymnasium's API; see `foreign_check`, which
runs it in a process of its own."""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import gymnasium
import numpy as np

from operant.backends.foreign.block import MakeEnv
from operant.backends.foreign.errors import place_of
from operant.backends.foreign.pettingzoo import is_pettingzoo
from operant.backends.foreign.probe import choose, step_seconds, time_limit
from operant.backends.foreign.processes import why_not_sent
from operant.backends.foreign.random_actions import RandomActions
from operant.backends.foreign.state import restore, saved, why_not_saved
from operant.check.agents_trial import AgentsTrial
from operant.check.finding import Finding
from operant.check.foreign_values import (
    dtype_note,
    flag_fault,
    image_fault,
    mask_fault,
    obs_fault,
    reward_fault,
)
from operant.spaces.rows import ObsLayout
from operant.toolchain.machine import usable_cores

_MOST_STEPS, _MOST_S = 2000, 3.0
_COMPARED_STEPS = 200
_SEED = 1
_NUM_ENVS = 16
"""Environments for which it is told what ``backend="auto"`` takes."""
_RESULTS = "(obs, reward, terminated, truncated, info)"

Say = Callable[[str, str], None]
"""Told the name of a check and what is about to be called."""


class ForeignTrial:
    """Plays environments that `make_env` makes, and says what it finds.

    Args:
        make_env: makes one.
        say: see `Say`.
        measured: whether to say how fast it steps.
    """

    def __init__(self, make_env: MakeEnv, say: Say, measured: bool = True) -> None:
        self._make_env, self._say, self._measured = make_env, say, measured
        self._faults: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        self._lengths: list[int] = []
        self._returns: list[float] = []
        self._masked = False
        self._steps = 0
        self._where = os.getcwd()

    def findings(self) -> Iterator[Finding]:
        """Each finding as soon as it is known. Where an environment raises, or gives something
        that cannot be looked at, that is the last one: the others would only meet it again."""
        try:
            env = self._called("made", "making it", self._make_env)
            if is_pettingzoo(env):
                yield Finding("made", True, f"{env}, an environment of PettingZoo's")
                self._called("close", "close()", env.close)
                yield from AgentsTrial(self._make_env, self._say).findings()
                return
            self._check_kind(env)
            yield Finding("made", True, f"{_name(env)}, {_layers(env)}")
            yield self._spaces(env)
            self._check_reset(env)
            yield Finding("reset", True, "reset(seed=...) gives (obs, info)")
            self._play(env)
            yield Finding("step", True, f"{self._steps} steps of {len(self._lengths)} episodes")
            yield from self._values(env)
            yield from self._repeated()
            yield self._episodes(env)
            if env.render_mode is not None:
                yield self._rendered(env)
            yield self._saving(env)
            yield self._sent()
            if self._measured:
                yield self._speed()
            yield from self._ended(env)
        except _StopError as stop:
            yield stop.finding

    # Calls ----------------------------------------------------------------------------------
    def _called(self, name: str, what: str, call: Callable[[], Any]) -> Any:
        """What a call gives.

        Raises:
            _StopError: it raised.
        """
        self._say(name, what)
        try:
            return call()
        except BaseException as error:
            self._stop(name, f"{what} raised {_words(error)}{_at(place_of(error))}{_advice(error)}")

    def _stop(self, name: str, sentence: str) -> NoReturn:
        raise _StopError(Finding(name, False, sentence))

    def _made(self) -> gymnasium.Env[Any, Any]:
        env: gymnasium.Env[Any, Any] = self._called("made", "making it", self._make_env)
        self._check_kind(env)
        return env

    def _check_kind(self, env: Any) -> None:
        if not isinstance(env, gymnasium.Env):
            kind = type(env).__name__
            wanted = "not a gymnasium.Env, nor an environment of PettingZoo's"
            self._stop("made", f"this makes a {kind}, {wanted}")

    def _reset(self, env: gymnasium.Env[Any, Any], seed: int | None) -> tuple[Any, Any]:
        found = self._called("reset", f"reset(seed={seed})", lambda: env.reset(seed=seed))
        if not (isinstance(found, tuple) and len(found) == 2):
            self._stop("reset", f"reset() must return (obs, info), it returned {_kind(found)}")
        if not isinstance(found[1], dict):
            self._stop("reset", f"info of reset() must be a dict, got {_kind(found[1])}")
        return found

    def _step(self, env: gymnasium.Env[Any, Any], action: Any, number: int) -> tuple[Any, ...]:
        found: Any = self._called("step", f"step() {number}", lambda: env.step(action))
        if not (isinstance(found, tuple) and len(found) == 5):
            self._stop("step", f"step() must return {_RESULTS}, it returned {_kind(found)}")
        if not isinstance(found[4], dict):
            self._stop("step", f"info of step() must be a dict, got {_kind(found[4])}")
        return found

    # Checks ---------------------------------------------------------------------------------
    def _spaces(self, env: gymnasium.Env[Any, Any]) -> Finding:
        for what in ("observation_space", "action_space"):
            space = getattr(env, what, None)
            if not isinstance(space, gymnasium.Space):
                self._stop("spaces", f"it has no {what}; set it in __init__")
            try:
                ObsLayout.of(space)
            except ValueError as error:
                self._stop("spaces", f"{what}: {error}")
        detail = f"observations {env.observation_space}, actions {env.action_space}"
        return Finding("spaces", True, detail)

    def _check_reset(self, env: gymnasium.Env[Any, Any]) -> None:
        before = np.random.get_state()[1].tobytes(), random.getstate()  # type: ignore[index]
        obs, info = self._reset(env, _SEED)
        after = np.random.get_state()[1].tobytes(), random.getstate()  # type: ignore[index]
        if before != after:
            self._notes["determinism"] = (
                "reset() changes the random numbers of the whole process, which the environments "
                "beside it share; use self.np_random"
            )
        self._look(env, obs, info, "after reset()")

    def _look(self, env: gymnasium.Env[Any, Any], obs: Any, info: Any, when: str) -> None:
        """Note what is wrong about an observation and the mask beside it."""
        if fault := obs_fault(env.observation_space, obs):
            self._faults.setdefault("observations", f"{fault} ({when})")
        elif note := dtype_note(env.observation_space, obs):
            self._notes.setdefault("observations", note)
        if "action_mask" in info:
            self._masked = True
            if fault := mask_fault(env.action_space, info["action_mask"]):
                self._faults.setdefault("masks", f"{fault} ({when})")
        elif self._masked:
            self._faults.setdefault("masks", f'info has no "action_mask" {when}, and had one')

    def _play(self, env: gymnasium.Env[Any, Any]) -> None:
        """Whole episodes with random actions; every value is looked at."""
        choose_action = RandomActions(env.action_space, 0)
        _, info = self._reset(env, _SEED)
        length, total, began = 0, 0.0, time.monotonic()
        while self._steps < _MOST_STEPS and time.monotonic() - began < _MOST_S:
            action = choose_action(info)
            self._steps += 1
            when = f"at step {self._steps}"
            obs, reward, *ends, info = self._step(env, action, self._steps)
            self._look(env, obs, info, when)
            if fault := reward_fault(reward):
                self._faults.setdefault("rewards", f"{fault} ({when})")
            for name, value in zip(("terminated", "truncated"), ends, strict=True):
                if fault := flag_fault(name, value):
                    self._faults.setdefault("ends", f"{fault} ({when})")
            if "rewards" not in self._faults:
                total += float(reward)
            length += 1
            if _any(ends):
                self._lengths.append(length)
                self._returns.append(total)
                length, total = 0, 0.0
                obs, info = self._reset(env, None)
                self._look(env, obs, info, "after the reset() of a second episode")

    def _values(self, env: gymnasium.Env[Any, Any]) -> Iterator[Finding]:
        good = {
            "observations": "all in the space, no NaN and no infinity",
            "rewards": "finite numbers",
            "ends": "terminated and truncated are truth values",
        }
        if self._masked:
            good["masks"] = 'info["action_mask"] fits the actions in every state met'
        for name, sentence in good.items():
            if name in self._faults:
                yield Finding(name, False, self._faults[name])
            elif name in self._notes:
                yield Finding(name, True, self._notes[name], note=True)
            else:
                yield Finding(name, True, sentence)

    def _repeated(self) -> Iterator[Finding]:
        """The same seed and actions in two environments, alone and side by side; another seed."""
        steps = max(1, min(_COMPARED_STEPS, self._steps // 3))
        first = list(self._trajectory(_SEED, steps))
        others = {
            "in a second environment": list(self._trajectory(_SEED, steps)),
            "while another environment steps in the same process": self._beside(steps),
        }
        for how, again in others.items():
            for step, (one, other) in enumerate(zip(first, again, strict=True)):
                if one != other:
                    when = f"at step {step}" if step else "after reset()"
                    detail = (
                        f"the same seed and actions give something else {how}, {when}: reset(seed) "
                        "must set all that is random, and only self.np_random may be used"
                    )
                    yield Finding("determinism", False, detail)
                    return
        note = self._notes.get("determinism")
        same = f"the same seed gives the same {steps} steps, other environments beside it too"
        yield Finding("determinism", True, note or same, note=note is not None)
        if first == list(self._trajectory(_SEED + 1, steps)):
            detail = "every seed gives the same steps: nothing here is random, or seeds are ignored"
            yield Finding("seeds", True, detail, note=True)
        else:
            yield Finding("seeds", True, "another seed gives another episode")

    def _trajectory(self, seed: int, steps: int) -> Iterator[bytes]:
        """What is seen of `steps` steps, each as bytes."""
        env = self._made()
        choose_action = RandomActions(env.action_space, seed=7)
        obs, info = self._reset(env, seed)
        yield _bytes(obs)
        for step in range(steps):
            obs, reward, *ends, info = self._step(env, choose_action(info), step + 1)
            yield _bytes((obs, reward, *ends))
            if _any(ends):
                _, info = self._reset(env, None)
        self._called("close", "close()", env.close)

    def _beside(self, steps: int) -> list[bytes]:
        """`_trajectory` with another environment that steps in between."""
        pairs = zip(self._trajectory(_SEED, steps), self._trajectory(_SEED + 1, steps), strict=True)
        return [one for one, _ in pairs]

    def _episodes(self, env: gymnasium.Env[Any, Any]) -> Finding:
        if self._lengths:
            detail = f"{len(self._lengths)} with random actions: mean length "
            detail += f"{np.mean(self._lengths):.1f}"
            if "rewards" not in self._faults:
                detail += f", mean return {np.mean(self._returns):.4g}"
            return Finding("episodes", True, detail)
        limit = time_limit(env)
        detail = f"none ended in {self._steps} steps; "
        if limit is not None:
            return Finding("episodes", True, f"{detail}they are truncated after {limit}")
        detail += "give it a time limit: gymnasium.wrappers.TimeLimit, or max_episode_steps"
        return Finding("episodes", True, detail, note=True)

    def _rendered(self, env: gymnasium.Env[Any, Any]) -> Finding:
        try:
            image = self._called("render", "render()", env.render)
        except _StopError as stop:
            return stop.finding
        if env.render_mode != "rgb_array":
            detail = f"the mode is {env.render_mode!r}; recording needs rgb_array"
            return Finding("render", True, detail, note=True)
        if fault := image_fault(image):
            return Finding("render", False, fault)
        height, width, _ = np.shape(image)
        return Finding("render", True, f"images of {width} x {height}")

    def _saving(self, env: gymnasium.Env[Any, Any]) -> Finding:
        if why := why_not_saved(env):
            return Finding("saving", True, f"a resumed run restarts its episodes: {why}", note=True)
        self._say("saving", "get_state() or set_state()")
        one, other = self._made(), self._made()
        choose_action = RandomActions(env.action_space, 0)
        _, info = self._reset(one, _SEED)
        for step in range(5):
            *_, terminated, truncated, info = self._step(one, choose_action(info), step)
            if terminated or truncated:
                _, info = self._reset(one, None)
        self._reset(other, _SEED + 1)
        try:
            restore(other, saved(one))
        except Exception as error:
            return Finding("saving", False, f"its state could not be saved: {_words(error)}")
        for step in range(50):
            action = choose_action(info)
            results = [self._step(env, action, step) for env in (one, other)]
            if _bytes(results[0][:4]) != _bytes(results[1][:4]):
                detail = f"another environment with its state gives something else at step {step}"
                return Finding("saving", False, f"{detail}; get_state() must hold all of it")
            *_, terminated, truncated, info = results[0]
            if terminated or truncated:
                infos = [self._reset(env, None)[1] for env in (one, other)]
                info = infos[0]
        return Finding("saving", True, "its state can be saved; a resumed run goes on to the bit")

    def _sent(self) -> Finding:
        if why := why_not_sent(self._make_env):
            detail = f'{why}; without that only backend="serial" and "threads" can run it'
            return Finding("processes", True, detail, note=True)
        return Finding("processes", True, "can be sent to worker processes")

    def _speed(self) -> Finding:
        env = self._made()
        _, info = self._reset(env, _SEED)
        step_s = self._called("speed", "measuring steps", lambda: step_seconds(env, info))
        self._called("close", "close()", env.close)
        cores = usable_cores()
        _, reason = choose(step_s, _NUM_ENVS, min(cores, _NUM_ENVS), cores)
        detail = f"{1 / step_s:,.0f} steps/s one after the other; auto takes {reason}"
        return Finding("speed", True, detail)

    def _ended(self, env: gymnasium.Env[Any, Any]) -> Iterator[Finding]:
        self._called("close", "close()", env.close)
        changed = []
        if os.getcwd() != self._where:
            changed.append(f"changes the working directory to {os.getcwd()}")
            os.chdir(self._where)
        alive = [thread.name for thread in threading.enumerate() if not thread.daemon]
        if len(alive) > 1:
            changed.append(f"leaves threads behind after close(): {', '.join(alive[1:4])}")
        if changed:
            yield Finding("close", True, f"it {'; it '.join(changed)}", note=True)
        else:
            yield Finding("close", True, "leaves nothing behind")


class _StopError(Exception):
    """The finding after which there is nothing more to play."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.detail)
        self.finding = finding


def _name(env: gymnasium.Env[Any, Any]) -> str:
    return env.spec.id if env.spec is not None else "no id"


def _layers(env: gymnasium.Env[Any, Any]) -> str:
    """Its class, and those of the wrappers that were put around what Gymnasium makes of an id."""
    usual, around = ("OrderEnforcing", "PassiveEnvChecker", "TimeLimit"), []
    while isinstance(env, gymnasium.Wrapper):
        around.append(type(env).__name__)
        env = env.env
    shown = [name for name in around[::-1] if name not in usual]
    return type(env).__name__ + "".join(f", in {name}" for name in shown)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, tuple) else "")


def _at(place: str) -> str:
    return f" ({place})" if place else ""


def _advice(error: BaseException) -> str:
    """What to write instead, where that is known."""
    if re.search(r"reset\(\) got an unexpected keyword argument '(seed|options)'", str(error)):
        return "; write def reset(self, *, seed=None, options=None)"
    return ""


def _words(error: BaseException) -> str:
    """An error in words, also one that cannot be printed."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _any(ends: list[Any]) -> bool:
    """Whether an episode has ended, as far as these values say so."""
    return any(bool(np.any(end)) for end in ends)


def _bytes(value: Any) -> bytes:
    """A value as bytes that are equal where it is."""
    if isinstance(value, dict):
        return b"".join(_bytes((str(key), value[key])) for key in value)
    if isinstance(value, tuple | list):
        return b"".join(map(_bytes, value))
    array = np.asarray(value)
    return repr(value).encode() if array.dtype.kind == "O" else array.tobytes()
