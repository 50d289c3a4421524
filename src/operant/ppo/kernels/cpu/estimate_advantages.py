"""Advantages of a rollout, and its samples packed for the update; what each thread runs.

Backwards through the steps of a tile of environments; see `operant.buffers.advantages`. A sample is
packed into a row of its own, a few cache lines at most: the network's inputs, the action, then
`layout`'s rows of data. Shuffled samples are read in no order, one row at a time.
"""

from __future__ import annotations

from numba import float32 as f32
from numba import int64 as i64
from numba import njit
from numba import uint64 as u64

from operant.buffers.advantages import gae_step
from operant.compiler.runtime.intrinsics import at, atomic_add, call_address, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.compiled_function import compiled
from operant.ppo.kernels.cpu.kernel_arguments import ARGUMENTS
from operant.ppo.kernels.cpu.record import record_at


@njit(nogil=True, error_model="numpy")
def _pack(args, step, lo, count, args_address):
    """Pack the samples of one step."""
    envs, parts, row = args.envs, args.parts, args.sample_row
    first = step * envs + lo
    samples = shifted(at(u64(args.samples), f32), first * row)
    to = args.samples + 4 * first * row
    call_address(args.encode, (args.obs, first, count, to, row, args_address))
    known = shifted(samples, args.sample_data)
    if args.action_kind == n.CATEGORICAL:
        chosen = shifted(at(u64(args.action), i64), first * parts)
        for i in range(count):
            for k in range(parts):
                known[i * row + k] = f32(chosen[i * parts + k])
    else:
        drawn = shifted(at(u64(args.action), f32), first * parts)
        for i in range(count):
            for k in range(parts):
                known[i * row + k] = drawn[i * parts + k]
    known = shifted(known, parts)
    log_prob, value = args.log_prob, args.value
    advantage, target = args.advantage, args.target
    for i in range(count):
        known[i * row + n.OLD_LOG_PROB] = log_prob[first + i]
        known[i * row + n.ADVANTAGE] = advantage[first + i]
        known[i * row + n.TARGET] = target[first + i]
        known[i * row + n.OLD_VALUE] = value[first + i]
    size = args.mask_size
    if size > 0:
        mask = shifted(args.action_mask, first * size)
        for i in range(count):
            for word in range(args.mask_rows):
                bits = 0
                for k in range(min(n.MASK_BITS, size - word * n.MASK_BITS)):
                    bits |= i64(mask[i * size + word * n.MASK_BITS + k] != 0) << k
                known[i * row + n.DATA_ROWS + word] = f32(bits)


@compiled
def estimate_advantages(worker, args_address):
    """Work on a rollout until nothing is left to claim; every thread of a team calls this."""
    args = record_at(ARGUMENTS, args_address)
    control = args.control
    envs, steps, tile = args.envs, args.steps, args.tile
    discounts = args.discounts
    reward, value = args.reward, args.value
    terminated, truncated = args.terminated, args.truncated
    final_value = args.final_value
    advantage, target = args.advantage, args.target
    trace = args.traces
    while True:
        claimed = atomic_add(control, n.TILES_CLAIMED, 1)
        if claimed >= args.env_tiles:
            return 0
        lo = claimed * tile
        count = min(tile, envs - lo)
        following = shifted(args.last_value, lo)
        mine = shifted(trace, lo)
        for i in range(count):
            mine[i] = f32(0)
        for k in range(steps):
            step = steps - 1 - k
            index = step * envs + lo
            gae_step(
                shifted(reward, index), shifted(value, index), shifted(terminated, index),
                shifted(truncated, index), shifted(final_value, index), following, mine,
                discounts[0], discounts[1], shifted(advantage, index), shifted(target, index),
                count,
            )  # fmt: skip
            following = shifted(value, index)
            _pack(args, step, lo, count, args_address)
