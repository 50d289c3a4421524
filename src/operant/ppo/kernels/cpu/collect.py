"""A rollout: policy, environments and memory, step by step; what each thread runs.

Threads claim tiles of environments, and take a tile through all steps before they touch the next,
so that its states, observations and activations stay in the core's cache. Nobody waits for anybody.
What an environment does and what its policy draws depend on who it is alone, not on the tile.
"""

from __future__ import annotations

from numba import float32 as f32
from numba import int64 as i64
from numba import njit

from operant.compiler.runtime.intrinsics import atomic_add, call_address
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.compiled_function import compiled
from operant.ppo.kernels.cpu.kernel_arguments import ARGUMENTS
from operant.ppo.kernels.cpu.policy_tile import encode_tile, final_values, forward_tile, values_of
from operant.ppo.kernels.cpu.record import record_at
from operant.ppo.kernels.cpu.simd import LANES


@njit(nogil=True, error_model="numpy")
def _collect_tile(args, tile_number, scratch_address, args_address):
    """All steps of the environments of a tile; whether a number was not finite."""
    tile, steps, lo = args.tile, args.steps, tile_number * args.tile
    count = min(tile, args.envs - lo)
    rows = (count + LANES - 1) // LANES * LANES
    lanes = args.env_lanes  # compiled rules step so many at a time
    whole = (count + lanes - 1) // lanes * lanes
    x_address, x_row = scratch_address + 4 * args.scratch_x, args.x_row
    as_it_is = args.encoding == n.PLAIN and args.normalize == 0
    if as_it_is:
        x_row = args.input_size
        x_address = args.env_obs + 4 * lo * x_row
    bad = 0
    for step in range(steps + 1):
        if not as_it_is:
            encode_tile(args, args.env_obs, lo, count, x_address, args_address)
        forward_tile(args, step < steps, x_address, x_row, rows, scratch_address, args_address)
        if step < steps:
            call_address(args.sample, (step, lo, count, scratch_address, args_address))
            stepped = (lo, lo + whole, args.now_us, i64(step == 0), args.env_arguments)
            ended = call_address(args.env_step, stepped)
            stored = (step, tile_number, count, ended, scratch_address, args_address)
            bad |= call_address(args.store_step, stored)
    values, last_value = values_of(args, scratch_address), args.last_value
    for i in range(count):
        bad |= (values[i] - values[i]) != f32(0)
        last_value[lo + i] = values[i]
    return bad


@compiled
def collect(worker, args_address):
    """Work on a rollout until nothing is left to claim; every thread of a team calls this."""
    args = record_at(ARGUMENTS, args_address)
    control, bad = args.control, args.bad
    scratch = args.scratch + 4 * worker * args.scratch_size
    while True:
        claimed = atomic_add(control, n.TILES_CLAIMED, 1)
        if claimed >= args.env_tiles:
            break
        bad[claimed] = _collect_tile(args, claimed, scratch, args_address)
        bad[claimed] |= final_values(args, claimed, scratch, args_address)
    return 0
