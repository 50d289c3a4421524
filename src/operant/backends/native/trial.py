"""A trial of a library: does it do what ``operant_env.h`` says? Run in a process of its own.

A few environments are played with random actions, three times over in three places of memory:
whole, in two halves, and each step once again. What a game gets wrong shows as a difference, as a
number that cannot be, or as a guard byte that has changed.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from operant.backends.native.child import STAGE_BYTES
from operant.backends.native.memory import TrialMemory
from operant.compiler.spec.native_abi import BOX, Library, NativeError

COUNT = 6
_HALF = COUNT // 2
_STEPS, _SECONDS = 256, 2.0
_SEED = 0x0123456789ABCDEF

Say = Callable[[str], None]


class Trial:
    """Plays `library`. `say` is told what is about to be called.

    Raises:
        NativeError: from `play`, with the reason to refuse the library.
    """

    def __init__(self, library: Library, say: Say) -> None:
        self._library, self._spec, self._say = library, library.spec, say
        self._whole, self._halves, self._again = (TrialMemory(self._spec, COUNT) for _ in range(3))
        self._episodes = np.zeros(COUNT, np.uint32)
        self._random = np.random.default_rng(0)
        self._now = ""

    def play(self) -> int:
        """Play; how many steps."""
        whole, halves = self._whole, self._halves
        everyone = np.arange(COUNT)
        self._reset(whole, everyone)
        first = _copies(whole)
        self._reset(halves, everyone[_HALF:])
        self._reset(halves, everyone[:_HALF])
        self._compare(whole, halves, everyone, "in another part of a batch")
        steps, ages, began = 0, np.zeros(COUNT, np.int64), time.monotonic()
        while steps < _STEPS and time.monotonic() - began < _SECONDS:
            steps += 1
            ages += 1
            self._now = f", step {steps}"
            self._step_three_ways()
            self._check_observe()
            over = whole.terminated.array == 1
            if self._spec.max_episode_steps is not None:
                over |= ages >= self._spec.max_episode_steps
            if over.any():
                self._begin_again(np.flatnonzero(over))
                ages[over] = 0
        self._now = ", after the steps"
        self._episodes[:] = 0
        self._reset(whole, everyone)
        self._compare_copies(first, _copies(whole), "began with the same stream once more")
        self._check_description()
        return steps

    # What is played -------------------------------------------------------------------------
    def _step_three_ways(self) -> None:
        whole, halves, again = self._whole, self._halves, self._again
        actions = self._actions()
        again.states.array[...] = whole.states.array
        for memory in (whole, halves, again):
            memory.actions.array[...] = actions
            memory.forget()
        self._step(whole, 0, COUNT)
        self._check_results(whole, np.arange(COUNT), "operant_step_many")
        self._step(again, 0, COUNT)
        self._compare(whole, again, np.arange(COUNT), "twice")
        self._step(halves, _HALF, COUNT)
        self._step(halves, 0, _HALF)
        self._compare(whole, halves, np.arange(COUNT), "in another part of a batch")

    def _begin_again(self, rows: np.ndarray) -> None:
        self._episodes[rows] += 1
        self._reset(self._whole, rows)
        for row in rows[::-1]:  # one by one, the last first
            self._reset(self._halves, np.array([row]))
        self._compare(self._whole, self._halves, rows, "in another part of a batch")

    def _actions(self) -> np.ndarray:
        """Random ones: of a Box also outside its bounds, as a policy may take."""
        spec, random = self._spec.action, self._random
        shape = (COUNT, spec.size)
        if spec.kind != BOX:
            return random.integers(0, np.array(spec.choices), shape)
        low, high = np.array(spec.lows, np.float64), np.array(spec.highs, np.float64)
        bounded = np.isfinite(low) & np.isfinite(high)
        low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
        wide = (high - low) / 4
        return np.clip(random.uniform(low - wide, high + wide, shape), -3e38, 3e38)

    # Calls ----------------------------------------------------------------------------------
    def _reset(self, memory: TrialMemory, rows: np.ndarray) -> None:
        memory.states.array[rows] = 0
        memory.forget(rows)
        count = len(rows)
        memory.indices.array[:count] = rows
        for name, values in (("seed", _SEED), ("index", rows), ("episode", self._episodes[rows])):
            memory.streams.array[name][:count] = values
        addresses = [memory.indices.address(), memory.streams.address()]
        addresses += [memory.states.address(), memory.obs.address()]
        with _Watched(self, "operant_reset_many", memory, rows, memory.states, memory.obs):
            self._library.reset(count, *addresses, memory.mask_address())
        self._check_results(memory, rows, "operant_reset_many")

    def _step(self, memory: TrialMemory, first: int, end: int) -> None:
        arrays = (memory.states, memory.actions, memory.obs, memory.rewards, memory.terminated)
        addresses = [array.address(first) for array in arrays]
        written = (memory.states, memory.obs, memory.rewards, memory.terminated)
        with _Watched(self, "operant_step_many", memory, np.arange(first, end), *written):
            self._library.step(end - first, *addresses, memory.mask_address(first))

    def _check_observe(self) -> None:
        """Observations and masks follow from the states, and looking changes nothing."""
        whole, again = self._whole, self._again
        again.states.array[...] = whole.states.array
        again.obs.array[...] = 0
        again.masks.array[...] = 255
        addresses = (again.states.address(), again.obs.address())
        everyone = np.arange(COUNT)
        with _Watched(self, "operant_observe_many", again, everyone, again.obs):
            self._library.observe(COUNT, *addresses, again.mask_address())
        for ours, theirs in ((whole.obs, again.obs), (whole.masks, again.masks)):
            if not np.array_equal(ours.bytes, theirs.bytes):
                raise NativeError(
                    f"operant_observe_many gives other {ours.name} than operant_step_many gave for "
                    f"the same state{self._now}: they must follow from the state"
                )

    # Judging --------------------------------------------------------------------------------
    def _check_results(self, memory: TrialMemory, rows: np.ndarray, function: str) -> None:
        """Raise NativeError if what was written to `rows` cannot be."""
        where = f"{function}{self._now}: "
        obs = memory.obs.array[rows]
        if not np.isfinite(obs).all():
            raise NativeError(f"{where}an observation is {obs[~np.isfinite(obs)][0]}, or not set")
        self._check_bounds(obs, where)
        if function == "operant_step_many":
            rewards, flags = memory.rewards.array[rows], memory.terminated.array[rows]
            if not np.isfinite(rewards).all():
                bad = rewards[~np.isfinite(rewards)][0]
                raise NativeError(f"{where}a reward is {bad}, or not set")
            if flags.max() > 1:
                raise NativeError(f"{where}terminated must be 0 or 1, got {flags.max()}")
        if self._spec.mask_size:
            masks = memory.masks.array[rows]
            if masks.max() > 1:
                raise NativeError(f"{where}a mask holds {masks.max()}; it must be 0 or 1")
            choices = self._spec.action.choices
            starts = np.cumsum((0, *choices[:-1]))
            if not np.maximum.reduceat(masks, starts, axis=1).all():
                raise NativeError(f"{where}a mask allows no action; allow one in every state")

    def _check_bounds(self, obs: np.ndarray, where: str) -> None:
        spec = self._spec.observation
        if spec.kind == BOX:
            low, high = np.array(spec.lows, np.float32), np.array(spec.highs, np.float32)
        else:
            low, high = np.array(0), np.array(spec.choices) - 1
        slack = 1e-6 * np.maximum(1.0, np.abs(obs))
        bad = (obs < low - slack) | (obs > high + slack)
        if bad.any():
            row, k = np.argwhere(bad)[0]
            low, high = (np.broadcast_to(bound, obs.shape)[row, k] for bound in (low, high))
            raise NativeError(
                f"{where}number {k} of an observation is {obs[row, k]:g}, outside its bounds "
                f"{low:g} to {high:g}"
            )

    def _compare(self, memory: TrialMemory, other: TrialMemory, rows: np.ndarray, how: str) -> None:
        advice = "it depends on its place in the batch, or on a global"
        if how == "twice":
            advice = "it depends on something outside its state: rand(), a global, an address"
        for ours, theirs in zip(memory.results, other.results, strict=True):
            if not np.array_equal(ours.bytes[rows], theirs.bytes[rows]):
                raise NativeError(
                    f"the same environment, played {how}, gave other {ours.name}{self._now}: "
                    f"{advice}"
                )

    def _compare_copies(
        self, first: Iterable[np.ndarray], second: Iterable[np.ndarray], what: str
    ) -> None:
        if not all(np.array_equal(a, b) for a, b in zip(first, second, strict=True)):
            raise NativeError(
                f"an environment that {what} looks different: it depends on something outside its "
                "state and its stream: rand(), a global, an address"
            )

    def _check_description(self) -> None:
        self._say("operant_describe")
        again = self._library.describe()
        for name, before in vars(self._spec).items():
            if getattr(again, name) != before:
                raise NativeError(
                    f"operant_describe says another {name} each time: {before}, then "
                    f"{getattr(again, name)}"
                )


class _Watched:
    """A call that may change, in `memory`, the `rows` of the arrays `written` and the masks."""

    def __init__(
        self, trial: Trial, function: str, memory: TrialMemory, rows: np.ndarray, *written: object
    ) -> None:
        self._function, self._memory, self._rows = function, memory, rows
        self._written = (*written, memory.masks)
        trial._say(f"{function}{trial._now}")

    def __enter__(self) -> None:
        self._before = [array.bytes.copy() for array in self._memory.everything]

    def __exit__(self, *error: object) -> None:
        others = np.ones(COUNT, np.bool_)
        others[self._rows] = False
        for array, before in zip(self._memory.everything, self._before, strict=True):
            array.check(self._function)
            may_change = any(array is other for other in self._written)
            rows = others if may_change else slice(None)
            if not np.array_equal(array.bytes[rows], before[rows]):
                whose = " of other environments" if may_change else ""
                raise NativeError(
                    f"{self._function} writes outside its memory: {array.name}{whose} changed"
                )


def _copies(memory: TrialMemory) -> list[np.ndarray]:
    return [memory.obs.bytes.copy(), memory.masks.bytes.copy()]


def main(path: str, descriptor: int, seconds: float) -> None:
    """Try a library; write the stage, then the verdict as JSON to an open file.

    The process is ended by SIGALRM if it takes longer than `seconds`.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)

    def say(stage: str) -> None:
        os.pwrite(descriptor, stage.encode().ljust(STAGE_BYTES), 0)

    verdict: dict[str, object]
    try:
        say("its initialisation or operant_describe")
        verdict = {"steps": Trial(Library(Path(path)), say).play()}
    except NativeError as error:
        verdict = {"refused": str(error)}
    os.pwrite(descriptor, json.dumps(verdict).encode(), STAGE_BYTES)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
