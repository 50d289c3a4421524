"""Stepping any batch in main memory with random actions, to check it or to time it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from operant.backends.foreign.random_actions import RandomActions
from operant.spaces.mask_leaf import KEY
from operant.spaces.rows import ObsLayout
from operant.vector.batch import Batch, StepMemory


def step_memory(batch: Batch) -> StepMemory:
    """Memory for the results of a step; the caller's."""
    rows = ObsLayout.of(batch.single_observation_space).memory(batch.num_envs)
    flags = np.zeros((2, batch.num_envs), np.bool_)
    return StepMemory(rows, np.zeros(batch.num_envs, np.float32), *flags)


def random_actions(batch: Batch) -> Iterator[np.ndarray]:
    """Actions that `batch`, which was reset, allows now, as rows of memory ``[num_envs, ...]``;
    the same for the same masks."""
    layout = ObsLayout.of(batch.single_action_space)
    choose = [RandomActions(batch.single_action_space, row) for row in range(batch.num_envs)]
    while True:
        rows, masks = layout.memory(batch.num_envs), batch.action_masks()
        for row, one in enumerate(choose):
            told = {} if masks is None else {KEY: masks[row]}
            layout.pack(one(told), rows[row : row + 1])
        yield rows
