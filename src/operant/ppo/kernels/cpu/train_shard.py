"""One shard's share of an epoch, minibatch by minibatch: what is not added up here.

The record of a shard has its samples alone (``envs`` of ``row_envs`` columns, ``shard_first`` being
the first), and the loss is a mean over the samples of all shards. The host adds up what they found,
see `operant.ppo.engines.fused_cpu_shards`, and moves the parameters by `apply`.
"""

from __future__ import annotations

from operant.compiler.runtime.intrinsics import atomic_add, call_address
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.compiled_function import compiled
from operant.ppo.kernels.cpu.kernel_arguments import ARGUMENTS
from operant.ppo.kernels.cpu.record import record_at
from operant.ppo.kernels.cpu.train_chunk import train_chunk


@compiled
def order_shard(worker, args_address):
    """Decide which samples each minibatch has; every thread of a team calls this."""
    args = record_at(ARGUMENTS, args_address)
    chunks = args.chunks
    while True:
        claimed = atomic_add(args.control, n.ORDER_CLAIMS, 1)
        if claimed >= args.minibatches * chunks:
            break
        call_address(args.order_chunk, (claimed // chunks, claimed % chunks, args_address))
    return 0


@compiled
def train_shard(worker, args_address):
    """The gradients of the chunks of a minibatch; every thread of a team calls this."""
    args = record_at(ARGUMENTS, args_address)
    scratch = args.scratch + 4 * worker * args.scratch_size
    while True:
        claimed = atomic_add(args.control, n.CLAIMS, 1)
        if claimed >= args.chunks:
            break
        train_chunk(args, args.minibatch, claimed, scratch, args_address)
    return 0
