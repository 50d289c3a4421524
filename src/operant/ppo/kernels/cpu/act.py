"""What the policy answers to environments that others step: one step of all of them, and values
where a rollout ends; what each thread runs."""

from __future__ import annotations

from numba import float32 as f32
from numba import njit
from numba import uint64 as u64

from operant.compiler.runtime.intrinsics import (
    at,
    atomic_add,
    call_address,
    shifted,
)
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.compiled_function import compiled
from operant.ppo.kernels.cpu.kernel_arguments import ARGUMENTS
from operant.ppo.kernels.cpu.policy_tile import encode_tile, final_values, forward_tile, values_of
from operant.ppo.kernels.cpu.record import record_at
from operant.ppo.kernels.cpu.simd import LANES


@njit(nogil=True, error_model="numpy")
def _act_on_tile(args, step, lo, scratch_address, args_address):
    """Actions, their log-probabilities and values of a tile's environments, into the rollout; at
    the end of it values alone."""
    count = min(args.tile, args.envs - lo)
    rows = (count + LANES - 1) // LANES * LANES
    x_address, first = scratch_address + 4 * args.scratch_x, step * args.envs + lo
    acts = step < args.steps
    encode_tile(args, args.obs, first, count, x_address, args_address)
    forward_tile(args, acts, x_address, args.x_row, rows, scratch_address, args_address)
    values = values_of(args, scratch_address)
    into = shifted(args.value, first) if acts else shifted(args.last_value, lo)
    for i in range(count):
        into[i] = values[i]
    if acts:
        call_address(args.sample, (step, lo, count, scratch_address, args_address))
        work = shifted(at(u64(scratch_address), f32), args.scratch_work)
        drawn = shifted(work, n.LOG_PROB * args.tile)
        log_prob = shifted(args.log_prob, first)
        for i in range(count):
            log_prob[i] = drawn[i]


@compiled
def act(worker, args_address):
    """Answer step ``act_step`` until no tile is left to claim; every thread of a team calls
    this."""
    args = record_at(ARGUMENTS, args_address)
    scratch = args.scratch + 4 * worker * args.scratch_size
    while True:
        claimed = atomic_add(args.control, n.TILES_CLAIMED, 1)
        if claimed >= args.env_tiles:
            return 0
        _act_on_tile(args, args.act_step, claimed * args.tile, scratch, args_address)


@compiled
def value_finals(worker, args_address):
    """Fill in the values of all final observations, which are noted for tile 0; for one thread."""
    args = record_at(ARGUMENTS, args_address)
    scratch = args.scratch + 4 * worker * args.scratch_size
    return final_values(args, 0, scratch, args_address)
