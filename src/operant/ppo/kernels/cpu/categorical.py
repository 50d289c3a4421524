"""Choices: the parts of a discrete action, each of a certain number of outputs."""

from __future__ import annotations

from numba import float32 as f32
from numba import njit

from operant.compiler.runtime.alias_scopes import load, store
from operant.compiler.runtime.intrinsics import prefer_wide_vectors, select, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.alias_scopes import HEADS
from operant.ppo.kernels.cpu.closed_forms import exp, log_total


@njit(nogil=True, error_model="numpy")
def log_sum_exp(first, size, out, tile, count, work, part):
    """Row ``WORK_ROWS + 2 * part`` of `work`: logarithm of the sum of exponentials of logits."""
    prefer_wide_vectors()
    largest, sums = shifted(work, n.LARGEST * tile), shifted(work, n.TOTAL * tile)
    result = shifted(work, (n.WORK_ROWS + 2 * part) * tile)
    logits = shifted(out, first * tile)
    for i in range(count):
        store(HEADS.largest, largest, i, load(HEADS.outputs, logits, i))
        store(HEADS.sums, sums, i, f32(0))
    for k in range(1, size):
        logits = shifted(out, (first + k) * tile)
        for i in range(count):
            a, b = load(HEADS.outputs, logits, i), load(HEADS.largest, largest, i)
            store(HEADS.largest, largest, i, select(a > b, a, b))
    for k in range(size):
        logits = shifted(out, (first + k) * tile)
        for i in range(count):
            power = exp(load(HEADS.outputs, logits, i) - load(HEADS.largest, largest, i))[0]
            store(HEADS.sums, sums, i, load(HEADS.sums, sums, i) + power)
    for i in range(count):
        store(
            HEADS.log_total,
            result,
            i,
            log_total(load(HEADS.largest, largest, i), load(HEADS.sums, sums, i))[0],
        )
