"""From the actor's outputs to discrete actions, a tile at a time.

Everything is ``[rows, TILE]``, samples in the lanes of a vector: the loops over samples `i` are the
inner ones, and `load` and `store` tell LLVM that the rows they touch do not overlap.
"""

from __future__ import annotations

from math import inf

from numba import float32 as f32
from numba import int32 as i32
from numba import int64 as i64
from numba import uint8 as u8
from numba import uint64 as u64

from operant.compiler.runtime.alias_scopes import load, store
from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, select, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu import table as t
from operant.ppo.kernels.cpu.alias_scopes import HEADS
from operant.ppo.kernels.cpu.choices import log_totals
from operant.ppo.kernels.cpu.noise import fill_noise
from operant.ppo.kernels.cpu.unit import Unit
from operant.ppo.kernels.cpu.words import choice


@Unit
def sample_choices(step, lo, count, scratch_address, table_address):
    """Draw the actions of environments lo .. lo + count, and ``LOG_PROB`` of them, after `forward`.

    Each part by inversion, with a number of its own that depends on (seed, environment, step)
    alone. Actions go into the rollout and to the environments.
    """
    prefer_wide_vectors()
    table, scratch = at(u64(table_address), i64), at(u64(scratch_address), f32)
    actor, tile, parts = at(u64(table[t.ACTOR]), i64), table[t.TILE], table[t.PARTS]
    noise, work = shifted(scratch, table[t.SCRATCH_NOISE]), shifted(scratch, table[t.SCRATCH_WORK])
    chosen, out = shifted(scratch, table[t.SCRATCH_ACTION]), shifted(scratch, actor[n.OUT])
    probability, sizes = shifted(scratch, actor[n.D_OUT]), at(u64(table[t.SIZES]), i64)
    kept = shifted(at(u64(table[t.ACTION]), i64), (step * table[t.ENVS] + lo) * parts)
    places, starts = at(u64(table[t.ENV_ACTIONS]), i64), at(u64(table[t.STARTS]), i64)
    fill_noise(table, step, lo, count, noise)
    size = table[t.MASK_SIZE]
    if size > 0:
        allowed = shifted(at(u64(table[t.ENV_ACTION_MASK]), u8), lo * size)
        mask = shifted(at(u64(table[t.ACTION_MASK]), u8), (step * table[t.ENVS] + lo) * size)
        for k in range(size):
            logits = shifted(out, k * tile)
            for i in range(count):
                mask[i * size + k] = allowed[i * size + k]
                logits[i] = select(allowed[i * size + k] != 0, logits[i], f32(-inf))
    log_prob, largest = shifted(work, n.LOG_PROB * tile), shifted(work, n.LARGEST * tile)
    sums = shifted(work, n.TOTAL * tile)
    for i in range(count):
        store(HEADS.log_prob, log_prob, i, f32(0))
    first = 0
    for part in range(parts):
        size = sizes[part]
        log_totals(first, size, out, tile, count, work, part)
        totals = shifted(work, (n.WORK_ROWS + 2 * part) * tile)
        u = shifted(noise, part * tile)
        for i in range(count):
            store(HEADS.sums, sums, i, f32(0))
        for k in range(size):
            logits = shifted(out, (first + k) * tile)
            p = shifted(probability, (first + k) * tile)
            for i in range(count):
                mine = choice(load(HEADS.outputs, logits, i), load(HEADS.log_total, totals, i))[0]
                store(HEADS.d_outputs, p, i, mine)
                store(HEADS.sums, sums, i, load(HEADS.sums, sums, i) + mine)
        for i in range(count):  # rounding may leave the sum below 1: the number is scaled by it
            store(HEADS.sums, sums, i, load(HEADS.sums, sums, i) * load(HEADS.noise, u, i))
            store(HEADS.largest, largest, i, f32(0))
            store(HEADS.action, chosen, i, f32(0))
        for k in range(size):
            p = shifted(probability, (first + k) * tile)
            for i in range(count):
                cumulated = load(HEADS.largest, largest, i) + load(HEADS.d_outputs, p, i)
                store(HEADS.largest, largest, i, cumulated)
                beyond = select(cumulated <= load(HEADS.sums, sums, i), f32(1), f32(0))
                store(HEADS.action, chosen, i, load(HEADS.action, chosen, i) + beyond)
        for k in range(size):
            logits = shifted(out, (first + k) * tile)
            for i in range(count):
                mine = load(HEADS.outputs, logits, i) - load(HEADS.log_total, totals, i)
                it = load(HEADS.action, chosen, i) == f32(k)
                store(
                    HEADS.log_prob,
                    log_prob,
                    i,
                    load(HEADS.log_prob, log_prob, i) + select(it, mine, f32(0)),
                )
        taken, start = at(u64(places[part]), i32), i32(starts[part])
        for i in range(count):
            kept[i * parts + part] = i64(chosen[i])
            taken[lo + i] = i32(i32(chosen[i]) + start)
        first += size
    return 0
