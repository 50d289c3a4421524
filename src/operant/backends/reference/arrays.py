"""The ``reference`` backend for a state of arrays: the author's functions, run by Python.

One environment after the other, one line after the other: a debugger steps into ``reset``,
``step``, ``observe`` and ``action_mask``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from operant.backends.reference.numbers import ReferenceBackend
from operant.backends.reference.plain import PlainFunctions, known_number
from operant.backends.reference.stream import Stream
from operant.backends.reference.watch import WATCH, endless_call
from operant.compiler.errors import EndlessLoopError
from operant.compiler.spec.array_rules import ArrayRules, arguments
from operant.compiler.spec.buffers import Buffers
from operant.compiler.spec.rules import Rules
from operant.lang.arrays import labelled
from operant.lang.integers import Int64, to_float32


class ArrayReferenceBackend(ReferenceBackend):
    """Steps a batch in plain Python. Each method updates `buffers` in place."""

    def __init__(
        self, rules: ArrayRules, buffers: Buffers, max_steps: int, mode: AutoresetMode
    ) -> None:
        super().__init__(rules, buffers, max_steps, mode)
        plain = PlainFunctions()
        self._functions = {
            name: (plain.bind(function), arguments(function))
            for name, function in rules.functions.items()
        }

    def use(self, rules: Rules) -> None:
        """See `ReferenceBackend`."""
        super().use(rules)
        self._params = type(self._params)(*map(known_number, self._params))

    def _float(self, value: float) -> np.float32:
        return np.float32(value)

    def _call(self, name: str, lane: int, **given: Any) -> Any:
        function, names = self._functions[name]
        arrays = [array[lane] for array in self._buffers.state.values()]
        given |= {"state": self._rules.env.State(*arrays), "params": self._params}
        try:
            # Numbers that become infinite do so in compiled code too.
            with WATCH.watched(), np.errstate(all="ignore"):
                return function(*[given[argument] for argument in names])
        except EndlessLoopError as error:
            raise endless_call(error) from None

    def _stream(self, lane: int, episode: int, step: int) -> Stream:
        b = self._buffers
        return Stream(int(b.seed[lane]), int(b.index[lane]), episode, step)

    def _begin(self, lanes: np.ndarray) -> None:
        b = self._buffers
        for lane in lanes.tolist():
            for array in b.state.values():
                array[lane] = 0
            self._call("reset", lane, random=self._stream(lane, int(b.episode[lane]), 0))

    def _observe(self, lanes: np.ndarray) -> None:
        b = self._buffers
        shape = self._rules.observation.shape or (1,)
        for lane in lanes.tolist():
            row = b.obs[lane : lane + 1].reshape(shape)
            row[...] = 0
            self._call("observe", lane, obs=labelled(row, "obs"))
            if self._rules.mask_size:
                b.action_mask[lane] = True
                self._call("action_mask", lane, mask=labelled(b.action_mask[lane], "mask"))

    def _advance(self) -> tuple[np.ndarray, np.ndarray]:
        b, n = self._buffers, self._buffers.num_envs
        rewards, ends = np.zeros(n, np.float32), np.zeros(n, np.bool_)
        for lane in range(n):
            if self._mode == AutoresetMode.NEXT_STEP and b.done[lane]:
                continue  # is reset now
            kind = np.float32 if self._rules.action.dtype == "float" else Int64
            values = [kind(array[lane]) for array in b.action]
            action = values[0] if self._rules.action.scalar else tuple(values)
            episode, step = int(b.episode[lane]) - 1, int(b.steps[lane]) + 1
            random = self._stream(lane, episode & 0xFFFFFFFF, step)
            reward, ends[lane] = self._call("step", lane, action=action, random=random)
            rewards[lane] = to_float32(reward)
        return rewards, ends
