"""Which samples a chunk trains on."""

from __future__ import annotations

from numba import float64 as f64
from numba import njit

from operant.compiler.runtime.intrinsics import prefer_wide_vectors, shifted
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.chunks import chunk_bounds
from operant.ppo.kernels.cpu.compiled_function import compiled
from operant.ppo.kernels.cpu.kernel_arguments import ARGUMENTS
from operant.ppo.kernels.cpu.record import record_at
from operant.ppo.kernels.cpu.shuffle import bits_for, shuffled_index


@njit(nogil=True, error_model="numpy")
def _sample(args, k, count, bits, keys):
    """The sample that comes as number `k`. Of a shard it has some columns of the rollout alone."""
    index = shuffled_index(k, count, bits, keys)
    if args.shards > 1:
        index = index // args.envs * args.row_envs + args.shard_first + index % args.envs
    return index


@compiled
def order_chunk(minibatch, chunk, args_address):
    """Decide which samples a chunk has; the moments of their advantages.

    The moments are of the differences from the minibatch's first advantage: equal ones have none.
    """
    prefer_wide_vectors()
    args = record_at(ARGUMENTS, args_address)
    samples, keys = args.order, args.keys
    advantage = args.advantage
    start, _, lo, hi = chunk_bounds(args, minibatch, chunk)
    count = args.steps * args.envs
    bits = bits_for(count)
    shift = f64(advantage[_sample(args, start, count, bits, keys)])
    first, second = f64(0), f64(0)
    for k in range(start + lo, start + hi):
        sample = _sample(args, k, count, bits, keys)
        samples[k] = sample
        difference = f64(advantage[sample]) - shift
        first += difference
        second += difference * difference
    offset = n.MOMENTS * (minibatch * args.chunks + chunk)
    moments = shifted(args.moments, offset)
    moments[0], moments[1] = first, second
    return 0
