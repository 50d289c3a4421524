"""The policy on a tile of environments, and the critic on final observations: what rollouts of all
kinds have in common."""

from __future__ import annotations

from numba import float32 as f32
from numba import njit
from numba import uint64 as u64

from operant.compiler.runtime.intrinsics import at, call_address, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.network_layout import NETWORK
from operant.ppo.kernels.cpu.record import record_at
from operant.ppo.kernels.cpu.simd import LANES


@njit(nogil=True, error_model="numpy")
def encode_tile(args, obs, first, count, x_address, args_address):
    """Observations `first` and on at address `obs` as inputs, rows of `x`."""
    call_address(args.encode, (obs, first, count, x_address, args.x_row, args_address))
    if args.encoding == n.ONE_HOT:
        call_address(args.expand_one_hot, (x_address, count, args_address))


@njit(nogil=True, error_model="numpy")
def forward_tile(args, with_actor, x_address, x_row, rows, scratch_address, args_address):
    """The critic's outputs of `rows` inputs, in a thread's scratch memory, and the actor's if asked
    for, or if both share a network."""
    for k in range(args.nets):
        net = args.critic if k == 0 else args.actor
        if k == 0 or with_actor:
            arguments = (net, x_address, x_row, rows, scratch_address, args_address)
            call_address(args.forward, arguments)


@njit(nogil=True, error_model="numpy")
def values_of(args, scratch_address):
    """Where the critic's values are in a thread's scratch memory."""
    offset = record_at(NETWORK, args.critic).out + args.value_row * args.tile
    return shifted(at(u64(scratch_address), f32), offset)


@njit(nogil=True, error_model="numpy")
def final_values(args, tile_number, scratch_address, args_address):
    """Values of the final observations of episodes that were cut short, those that were noted for
    a tile; whether a number was not finite."""
    tile = args.tile
    x_address = scratch_address + 4 * args.scratch_x
    values = values_of(args, scratch_address)
    finals, found = args.final_index, args.final_value
    first = tile_number * args.final_capacity
    last = first + args.final_counts[tile_number]
    bad = 0
    for lo in range(first, last, tile):
        count = min(tile, last - lo)
        rows = (count + LANES - 1) // LANES * LANES
        encode_tile(args, args.final_obs, lo, count, x_address, args_address)
        forward_tile(args, False, x_address, args.x_row, rows, scratch_address, args_address)
        for i in range(count):
            bad |= (values[i] - values[i]) != f32(0)
            found[finals[lo + i]] = values[i]
    return bad
