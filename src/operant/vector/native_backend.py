"""The ``native`` backend: the functions of a shared library, on the buffers of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np
from gymnasium.vector import AutoresetMode

from operant.envs.native_rules import NativeRules
from operant.envs.rules import Rules
from operant.lang.trace import INT
from operant.vector.buffers import Buffers
from operant.vector.native_abi import STREAM
from operant.vector.native_team import Team

_FEWEST_RESETS = 16  # for a thread of their own
Call = tuple[int | None, ...]
"""Arguments of a call into the library: a count and addresses."""


class NativeBackend:
    """Steps a batch with a library, split over `workers` threads.

    Each method updates `buffers` in place. The library writes states, observations, rewards,
    terminations and masks there; time limit, statistics and resets are done here, on whole arrays.
    A game that has finished is not stepped.
    """

    def __init__(
        self,
        rules: NativeRules,
        buffers: Buffers,
        max_steps: int,
        mode: AutoresetMode,
        workers: int = 1,
    ) -> None:
        n = buffers.num_envs
        self._rules, self._buffers, self._library = rules, buffers, rules.library
        self._max_steps, self._mode = np.int32(max_steps), mode
        self._states = buffers.state["bytes"]
        whole = rules.action.dtype == INT
        self._actions = np.zeros((n, rules.action.size), np.int32 if whole else np.float32)
        self._choices = np.array(rules.action.choices, np.uint64)
        self._workers = min(workers, n)
        self._team = Team(self._workers)
        b, masks = buffers, (buffers.action_mask,) if rules.mask_size else (None,)
        parts = even_parts(n, self._workers)
        arrays = (self._states, self._actions, b.obs, b.reward, b.terminated, *masks)
        self._steps = [(hi - lo, *_addresses(arrays, lo)) for lo, hi in parts]
        arrays = (self._states, b.obs, *masks)
        self._views = [(hi - lo, *_addresses(arrays, lo)) for lo, hi in parts]
        self._first = _addresses(arrays, 0)

    def reset(self, mask: np.ndarray, now_us: int) -> None:
        """Begin a new episode in the environments of `mask`, bool ``[num_envs]``."""
        b = self._buffers
        lanes = np.flatnonzero(mask)
        self._begin(lanes)
        b.episode[lanes] += np.uint32(1)
        b.steps[lanes] = 0
        b.episode_return[lanes] = 0.0
        b.start_us[lanes] = now_us
        b.done[lanes] = False

    def _begin(self, lanes: np.ndarray) -> None:
        """Have the library reset the environments `lanes`, int64, to their next episode."""
        b = self._buffers
        streams = np.empty(len(lanes), STREAM)
        for name in ("seed", "index", "episode"):
            streams[name] = getattr(b, name)[lanes]
        self._states[lanes] = 0
        # A thread's share must be worth the 7 to 13 us that handing it over took on two busy cores.
        parts = even_parts(len(lanes), max(1, min(self._workers, len(lanes) // _FEWEST_RESETS)))
        calls = [
            (hi - lo, _address(lanes, lo), _address(streams, lo), *self._first) for lo, hi in parts
        ]
        self._run(self._library.reset, calls)

    def observe(self) -> None:
        """Write the observations and the masks from the states."""
        self._run(self._library.observe, self._views)

    def state_changed(self) -> None:
        """Nothing is kept outside the buffers."""

    def use(self, rules: Rules) -> None:
        """A library has no parameters."""

    def step(self, actions: np.ndarray, now_us: int) -> int:
        """One step of every environment; how many finished, or -1 if an action is bad.

        Raises:
            RuntimeError: the library wrote something else than 0 or 1 to ``terminated``.
        """
        if not self._take(actions):
            return -1
        b = self._buffers
        done, reward = b.cut(b.done), b.cut(b.reward)
        terminated, truncated = b.cut(b.terminated), b.cut(b.truncated)
        ended = np.flatnonzero(done)
        if len(ended):
            for report in (b.report_return, b.report_length, b.report_time_s):
                report[ended] = 0
        late = self._mode == AutoresetMode.NEXT_STEP and len(ended) > 0
        if late:  # they are reset below; until then the library must not meet a finished game
            self._begin(ended)
        self._run(self._library.step, self._steps)
        b.cut(b.steps)[:] += 1
        np.greater_equal(b.cut(b.steps), self._max_steps, out=truncated)
        b.cut(b.episode_return)[:] += reward
        if late:
            for result in (reward, terminated, truncated):
                result[ended] = 0
            waiting = done.copy()
        if terminated.view(np.uint8).max() > 1:
            raise RuntimeError(
                f"{self._library.path.name} wrote {terminated.view(np.uint8).max()} to terminated, "
                "which must be 0 or 1; try it: operant check"
            )
        np.logical_or(terminated, truncated, out=done)
        if late:
            self.reset(waiting, now_us)
        finished = np.flatnonzero(done)
        if len(finished):
            self._end(finished, now_us)
        return len(finished)

    def close(self) -> None:
        """Stop the worker threads."""
        self._team.close()

    def _end(self, finished: np.ndarray, now_us: int) -> None:
        """Report the episodes that ended; under SAME_STEP begin the next ones."""
        b = self._buffers
        b.report_return[finished] = b.episode_return[finished]
        b.report_length[finished] = b.steps[finished]
        b.report_time_s[finished] = (now_us - b.start_us[finished]) * 1e-6
        if self._mode == AutoresetMode.SAME_STEP:
            b.final_obs[finished] = b.obs[finished]
            self.reset(b.cut(b.done), now_us)
            b.done[finished] = True

    def _take(self, actions: np.ndarray) -> bool:
        """Copy actions, ``[num_envs, ...]``, into rows for the library; False if one is bad."""
        rows = actions.reshape(self._actions.shape)
        if self._rules.action.dtype == INT:
            unsigned: np.ndarray = rows.view(np.uint64 if rows.itemsize == 8 else np.uint32)
            good = bool((unsigned < self._choices).all())  # negative numbers are huge
        else:
            good = bool(np.isfinite(rows).all())
        if good:
            self._actions[...] = rows
        return good

    def _run(self, function: Callable[..., None], calls: list[Call]) -> None:
        if len(calls) == 1:
            function(*calls[0])
        else:
            self._team.run(lambda call: function(*call), calls)


def _address(array: np.ndarray, row: int) -> int:
    return int(array.ctypes.data) + row * array.strides[0]


def _addresses(arrays: Iterable[np.ndarray | None], row: int) -> Call:
    return tuple(None if array is None else _address(array, row) for array in arrays)


def even_parts(size: int, count: int) -> list[tuple[int, int]]:
    """Cut ``0..size`` into at most `count` even parts, none of them empty."""
    bounds = [round(k * size / count) for k in range(count + 1)]
    return [(lo, hi) for lo, hi in pairwise(bounds) if lo < hi]
