"""From the actor's outputs to discrete actions, a tile at a time.

Everything is ``[rows, TILE]``, samples in the lanes of a vector: the loops over samples `i` are the
inner ones, and `load` and `store` tell LLVM that the rows they touch do not overlap.
"""

from __future__ import annotations

from math import inf

from numba import float32 as f32
from numba import int32 as i32
from numba import int64 as i64
from numba import uint64 as u64

from operant.compiler.runtime.alias_scopes import load, store
from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, select, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.alias_scopes import HEADS
from operant.ppo.kernels.cpu.categorical import log_sum_exp
from operant.ppo.kernels.cpu.closed_forms import choice
from operant.ppo.kernels.cpu.compiled_function import compiled
from operant.ppo.kernels.cpu.kernel_arguments import ARGUMENTS
from operant.ppo.kernels.cpu.network_layout import NETWORK
from operant.ppo.kernels.cpu.noise import fill_noise
from operant.ppo.kernels.cpu.record import record_at


@compiled
def sample_categorical(step, lo, count, scratch_address, args_address):
    """Draw the actions of environments lo .. lo + count, and ``LOG_PROB`` of them, after `forward`.

    Each part by inversion, with a number of its own that depends on (seed, environment, step)
    alone. Actions go into the rollout and to the environments.
    """
    prefer_wide_vectors()
    args, scratch = record_at(ARGUMENTS, args_address), at(u64(scratch_address), f32)
    actor, tile, parts = record_at(NETWORK, args.actor), args.tile, args.parts
    noise, work = shifted(scratch, args.scratch_noise), shifted(scratch, args.scratch_work)
    chosen, out = shifted(scratch, args.scratch_action), shifted(scratch, actor.out)
    probability, sizes = shifted(scratch, actor.d_out), args.sizes
    stored = shifted(at(u64(args.action), i64), (step * args.envs + lo) * parts)
    action_addresses, starts = args.env_actions, args.starts
    fill_noise(args, step, lo, count, noise)
    size = args.mask_size
    if size > 0:
        allowed = shifted(args.env_action_mask, lo * size)
        mask = shifted(args.action_mask, (step * args.envs + lo) * size)
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
        log_sum_exp(first, size, out, tile, count, work, part)
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
        taken, start = at(u64(action_addresses[part]), i32), i32(starts[part])
        for i in range(count):
            stored[i * parts + part] = i64(chosen[i])
            taken[lo + i] = i32(i32(chosen[i]) + start)
        first += size
    return 0
