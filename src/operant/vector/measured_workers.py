"""How many threads step a batch fastest on this machine."""

from __future__ import annotations

import time

import numpy as np
from gymnasium.vector import AutoresetMode

from operant.compiler.recording.trace import INT
from operant.compiler.spec.buffers import Buffers
from operant.compiler.spec.rules import Rules
from operant.toolchain.machine import usable_cores
from operant.toolchain.team_size import TeamSize
from operant.vector.choose_backend import choose_backend
from operant.vector.seeding import assign_streams

_STEPS = 16


def measured_workers(rules: Rules, num_envs: int) -> int:
    """The number of threads with which a batch of `num_envs` stepped fastest just now.

    Batches of that size, with 1 up to as many threads as there are cores, are made, timed and
    thrown away.
    """
    size = TeamSize(usable_cores())
    while not size.settled:
        size.took(_seconds(rules, num_envs, size.now))
    return size.now


def _seconds(rules: Rules, num_envs: int, workers: int) -> float:
    buffers = Buffers.allocate(rules, num_envs)
    create = choose_backend("auto", rules).create
    backend = create(rules, buffers, 2**31 - 1, AutoresetMode.SAME_STEP, workers)
    everyone = np.ones(num_envs, np.bool_)
    assign_streams(buffers, 0, everyone)
    backend.reset(everyone, 0)
    actions = np.zeros((num_envs, *rules.action.shape), np.float32)
    if rules.action.dtype == INT:
        actions = actions.astype(np.int32)
        actions += np.reshape(rules.action.low, rules.action.shape).astype(np.int32)
    backend.step(actions, 0)  # wakes the threads
    began = time.perf_counter()
    for _ in range(_STEPS):
        backend.step(actions, 0)
    seconds = time.perf_counter() - began
    backend.close()
    return seconds
