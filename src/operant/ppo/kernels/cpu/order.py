"""Which samples a chunk trains on."""

from __future__ import annotations

from numba import float32 as f32
from numba import float64 as f64
from numba import int32 as i32
from numba import int64 as i64
from numba import uint64 as u64

from operant.compiler.runtime.intrinsics import at, prefer_wide_vectors, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu import table as t
from operant.ppo.kernels.cpu.chunks import chunk_bounds
from operant.ppo.kernels.cpu.shuffle import bits_for, shuffled_place
from operant.ppo.kernels.cpu.unit import Unit


@Unit
def order(minibatch, chunk, table_address):
    """Decide which samples a chunk has; the moments of their advantages.

    The moments are of the differences from the minibatch's first advantage: equal ones have none.
    """
    prefer_wide_vectors()
    table = at(u64(table_address), i64)
    places, keys = at(u64(table[t.ORDER]), i32), at(u64(table[t.KEYS]), u64)
    advantage = at(u64(table[t.ADVANTAGE]), f32)
    start, _, lo, hi = chunk_bounds(table, minibatch, chunk)
    count = table[t.STEPS] * table[t.ENVS]
    bits = bits_for(count)
    shift = f64(advantage[shuffled_place(start, count, bits, keys)])
    first, second = f64(0), f64(0)
    for k in range(start + lo, start + hi):
        sample = shuffled_place(k, count, bits, keys)
        places[k] = sample
        difference = f64(advantage[sample]) - shift
        first += difference
        second += difference * difference
    place = n.MOMENTS * (minibatch * table[t.CHUNKS] + chunk)
    moments = shifted(at(u64(table[t.MOMENTS]), f64), place)
    moments[0], moments[1] = first, second
    return 0
