"""`Executor`: who steps the environments of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from operant.backends.foreign.agent_block import env_block
from operant.backends.foreign.block import Layouts, MakeEnv
from operant.backends.foreign.memory import Memory

SeedPairs = Sequence[tuple[int, int | None]]
"""Indices of environments and what each is seeded with; None: its own random numbers go on."""


class Executor(Protocol):
    """Steps the environments of a batch, whose rows are in `memory`.

    Every method raises `ForeignEnvError` for what an environment does wrong.
    """

    memory: Memory
    workers: int

    def reset(self, seeds: SeedPairs, options: Any = None) -> None:
        """Begin new episodes in these environments."""

    def step(self) -> None:
        """Step all with ``memory.action``."""

    def submit(self, indices: Sequence[int]) -> None:
        """Begin to step these, with their rows of ``memory.action``; see `ready`."""

    def ready(self) -> list[int]:
        """Some of those submitted that are done, and were not reported yet; waits for the first.
        Called only while there are some. An error is that of one; the others go on."""

    def states(self) -> list[bytes]:
        """Each environment as bytes; see `operant.backends.foreign.state`."""

    def set_states(self, states: Sequence[bytes]) -> None:
        """Continue from what `states` gave."""

    def render(self, index: int) -> Any:
        """What ``render()`` of one gives."""

    def close(self) -> None:
        """End what it started; again is harmless."""


class Serial:
    """One after the other, in the caller's thread."""

    workers = 1

    def __init__(self, make_env: MakeEnv, layouts: Layouts, num_envs: int) -> None:
        rows = num_envs * layouts.rows_each
        self.memory = Memory.allocate(layouts.observation, layouts.action, rows, layouts.mask_size)
        self._block = env_block(make_env, layouts, self.memory, 0, num_envs)
        self._submitted: list[int] = []
        self.step: Callable[[], None] = self._block.step_all
        self.render = self._block.render
        self.reset = self._block.reset
        self.states = self._block.states
        self.set_states = self._block.set_states

    def submit(self, indices: Sequence[int]) -> None:
        """See `Executor`; they are stepped by `ready`."""
        self._submitted += indices

    def ready(self) -> list[int]:
        """See `Executor`."""
        index = self._submitted.pop(0)
        self._block.step_some([index])
        return [index]

    def close(self) -> None:
        """See `Executor`."""
        self._block.close()


def as_pairs(indices: np.ndarray, seeds: Sequence[int | None]) -> SeedPairs:
    """Environments and their seeds."""
    return list(zip(indices.tolist(), seeds, strict=True))
