"""Advantages of a rollout, and its samples packed for the update; what each thread runs.

Backwards through the steps of a tile of environments; see `operant.buffers.advantages`. A sample is
packed into a row of its own, a few cache lines at most: the network's inputs, the action, then
what `heads` calls data. Shuffled samples are read in no order, one row at a time.
"""

from __future__ import annotations

from numba import float32 as f32
from numba import int64 as i64
from numba import njit
from numba import uint8 as u8
from numba import uint64 as u64

from operant.buffers.advantages import gae_step
from operant.compiler.runtime.intrinsics import at, atomic_add, call_address, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu import table as t
from operant.ppo.kernels.cpu.unit import Unit


@njit(nogil=True, error_model="numpy")
def _pack(table, step, lo, count, table_address):
    """Pack the samples of one step."""
    envs, parts, row = table[t.ENVS], table[t.PARTS], table[t.SAMPLE_ROW]
    first = step * envs + lo
    samples = shifted(at(u64(table[t.SAMPLES]), f32), first * row)
    to = table[t.SAMPLES] + 4 * first * row
    call_address(u64(table[t.ENCODE]), (table[t.OBS], first, count, to, row, table_address))
    known = shifted(samples, table[t.SAMPLE_DATA])
    if table[t.KIND] == n.CHOICES:
        chosen = shifted(at(u64(table[t.ACTION]), i64), first * parts)
        for i in range(count):
            for k in range(parts):
                known[i * row + k] = f32(chosen[i * parts + k])
    else:
        drawn = shifted(at(u64(table[t.ACTION]), f32), first * parts)
        for i in range(count):
            for k in range(parts):
                known[i * row + k] = drawn[i * parts + k]
    known = shifted(known, parts)
    log_prob, value = at(u64(table[t.LOG_PROB]), f32), at(u64(table[t.VALUE]), f32)
    advantage, target = at(u64(table[t.ADVANTAGE]), f32), at(u64(table[t.TARGET]), f32)
    for i in range(count):
        known[i * row + n.OLD_LOG_PROB] = log_prob[first + i]
        known[i * row + n.ADVANTAGE] = advantage[first + i]
        known[i * row + n.TARGET] = target[first + i]
        known[i * row + n.OLD_VALUE] = value[first + i]
    size = table[t.MASK_SIZE]
    if size > 0:
        mask = shifted(at(u64(table[t.ACTION_MASK]), u8), first * size)
        for i in range(count):
            for word in range(table[t.MASK_ROWS]):
                bits = 0
                for k in range(min(n.MASK_BITS, size - word * n.MASK_BITS)):
                    bits |= i64(mask[i * size + word * n.MASK_BITS + k] != 0) << k
                known[i * row + n.DATA_ROWS + word] = f32(bits)


@Unit
def estimate(worker, table_address):
    """Work on a rollout until nothing is left to claim; every thread of a team calls this."""
    table = at(u64(table_address), i64)
    control = at(u64(table[t.CONTROL]), i64)
    envs, steps, tile = table[t.ENVS], table[t.STEPS], table[t.TILE]
    discounts = at(u64(table[t.DISCOUNTS]), f32)
    reward, value = at(u64(table[t.REWARD]), f32), at(u64(table[t.VALUE]), f32)
    terminated, truncated = at(u64(table[t.TERMINATED]), u8), at(u64(table[t.TRUNCATED]), u8)
    final_value = at(u64(table[t.FINAL_VALUE]), f32)
    advantage, target = at(u64(table[t.ADVANTAGE]), f32), at(u64(table[t.TARGET]), f32)
    trace = at(u64(table[t.TRACES]), f32)
    while True:
        claimed = atomic_add(control, n.TILES_CLAIMED, 1)
        if claimed >= table[t.ENV_TILES]:
            return 0
        lo = claimed * tile
        count = min(tile, envs - lo)
        following = shifted(at(u64(table[t.LAST_VALUE]), f32), lo)
        mine = shifted(trace, lo)
        for i in range(count):
            mine[i] = f32(0)
        for k in range(steps):
            step = steps - 1 - k
            place = step * envs + lo
            gae_step(
                shifted(reward, place), shifted(value, place), shifted(terminated, place),
                shifted(truncated, place), shifted(final_value, place), following, mine,
                discounts[0], discounts[1], shifted(advantage, place), shifted(target, place),
                count,
            )  # fmt: skip
            following = shifted(value, place)
            _pack(table, step, lo, count, table_address)
