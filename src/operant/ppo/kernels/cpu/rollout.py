"""A rollout: policy, environments and memory, step by step; what each thread runs.

Threads claim tiles of environments, and take a tile through all steps before they touch the next,
so that its states, observations and activations stay in the core's cache. Nobody waits for anybody.
What an environment does and what its policy draws depend on who it is alone, not on the tile.
"""

from __future__ import annotations

from numba import float32 as f32
from numba import int64 as i64
from numba import njit
from numba import uint64 as u64

from operant.compiler.runtime.intrinsics import at, atomic_add, call_address, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu import table as t
from operant.ppo.kernels.cpu.simd import LANES
from operant.ppo.kernels.cpu.unit import Unit


@njit(nogil=True, error_model="numpy")
def _encode(table, obs, first, count, x_address, table_address):
    call_address(
        u64(table[t.ENCODE]), (obs, first, count, x_address, table[t.X_ROW], table_address)
    )
    if table[t.ENCODING] == n.ONE_HOT:
        call_address(u64(table[t.SPREAD]), (x_address, count, table_address))


@njit(nogil=True, error_model="numpy")
def _final_values(table, tile_number, scratch_address, table_address):
    """Values of the final observations of episodes that were cut short."""
    tile, critic, scratch = table[t.TILE], table[t.CRITIC], at(u64(scratch_address), f32)
    x_address = scratch_address + 4 * table[t.SCRATCH_X]
    place = at(u64(critic), i64)[n.OUT] + table[t.VALUE_ROW] * tile
    values = shifted(scratch, place)
    finals, found = at(u64(table[t.FINAL_PLACE]), i64), at(u64(table[t.FINAL_VALUE]), f32)
    first = tile_number * table[t.FINALS_MOST]
    last = first + at(u64(table[t.FINAL_COUNTS]), i64)[tile_number]
    bad = 0
    for lo in range(first, last, tile):
        count = min(tile, last - lo)
        rows = (count + LANES - 1) // LANES * LANES
        _encode(table, table[t.FINAL_OBS], lo, count, x_address, table_address)
        arguments = (critic, x_address, table[t.X_ROW], rows, scratch_address, table_address)
        call_address(u64(table[t.FORWARD]), arguments)
        for i in range(count):
            bad |= (values[i] - values[i]) != f32(0)
            found[finals[lo + i]] = values[i]
    return bad


@njit(nogil=True, error_model="numpy")
def _collect_tile(table, tile_number, scratch_address, table_address):
    """All steps of the environments of a tile; whether a number was not finite."""
    tile, steps, lo = table[t.TILE], table[t.STEPS], tile_number * table[t.TILE]
    count = min(tile, table[t.ENVS] - lo)
    rows = (count + LANES - 1) // LANES * LANES
    lanes = table[t.ENV_LANES]  # compiled rules step so many at a time
    whole = (count + lanes - 1) // lanes * lanes
    x_address, x_row = scratch_address + 4 * table[t.SCRATCH_X], table[t.X_ROW]
    as_it_is = table[t.ENCODING] == n.PLAIN and table[t.NORMALIZE] == 0
    if as_it_is:
        x_row = table[t.INPUT_SIZE]
        x_address = table[t.ENV_OBS] + 4 * lo * x_row
    bad = 0
    for step in range(steps + 1):
        if not as_it_is:
            _encode(table, table[t.ENV_OBS], lo, count, x_address, table_address)
        for k in range(table[t.NETS]):
            net = table[t.CRITIC] if k == 0 else table[t.ACTOR]
            if k == 0 or step < steps:
                arguments = (net, x_address, x_row, rows, scratch_address, table_address)
                call_address(u64(table[t.FORWARD]), arguments)
        if step < steps:
            call_address(u64(table[t.SAMPLE]), (step, lo, count, scratch_address, table_address))
            stepped = (lo, lo + whole, table[t.NOW_US], i64(step == 0), table[t.ENV_TABLE])
            ended = call_address(u64(table[t.ENV_STEP]), stepped)
            kept = (step, tile_number, count, ended, scratch_address, table_address)
            bad |= call_address(u64(table[t.KEEP]), kept)
    place = at(u64(table[t.CRITIC]), i64)[n.OUT] + table[t.VALUE_ROW] * tile
    values = shifted(at(u64(scratch_address), f32), place)
    last_value = at(u64(table[t.LAST_VALUE]), f32)
    for i in range(count):
        bad |= (values[i] - values[i]) != f32(0)
        last_value[lo + i] = values[i]
    return bad


@Unit
def collect(worker, table_address):
    """Work on a rollout until nothing is left to claim; every thread of a team calls this."""
    table = at(u64(table_address), i64)
    control, bad = at(u64(table[t.CONTROL]), i64), at(u64(table[t.BAD]), i64)
    scratch = table[t.SCRATCH] + 4 * worker * table[t.SCRATCH_SIZE]
    while True:
        claimed = atomic_add(control, n.TILES_CLAIMED, 1)
        if claimed >= table[t.ENV_TILES]:
            break
        bad[claimed] = _collect_tile(table, claimed, scratch, table_address)
        bad[claimed] |= _final_values(table, claimed, scratch, table_address)
    return 0
