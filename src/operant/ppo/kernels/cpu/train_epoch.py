"""An epoch: every sample once, in minibatches; what each training thread runs.

A minibatch is cut into chunks, a fixed number of them, and a chunk into tiles. Threads claim
chunks; the gradient of a chunk is added up tile by tile in memory of its own, and those of the
chunks in a fixed order by whoever finishes last, who also moves the parameters. So nobody waits but
at the end of a minibatch, nobody waits for a thread that does not run, and the result does not
depend on how many there are.
"""

from __future__ import annotations

from operant.compiler.runtime.intrinsics import atomic_add, atomic_store, call_address
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.compiled_function import compiled
from operant.ppo.kernels.cpu.kernel_arguments import ARGUMENTS
from operant.ppo.kernels.cpu.record import record_at
from operant.ppo.kernels.cpu.train_chunk import train_chunk
from operant.ppo.kernels.cpu.waiting import wait_for


@compiled
def train_epoch(worker, args_address):
    """Work on an epoch until it is done; every thread of a team calls this."""
    args = record_at(ARGUMENTS, args_address)
    control, chunks = args.control, args.chunks
    minibatches = args.minibatches
    scratch = args.scratch + 4 * worker * args.scratch_size
    while True:
        claimed = atomic_add(control, n.ORDER_CLAIMS, 1)
        if claimed >= minibatches * chunks:
            break
        call_address(args.order_chunk, (claimed // chunks, claimed % chunks, args_address))
        atomic_add(control, n.ORDER_DONE, 1)
    wait_for(control, n.ORDER_DONE, minibatches * chunks)
    for minibatch in range(minibatches):
        claims = n.CLAIMS + 2 * n.LINE * minibatch
        while True:
            claimed = atomic_add(control, claims, 1)
            if claimed >= chunks:
                break
            train_chunk(args, minibatch, claimed, scratch, args_address)
            if atomic_add(control, claims + n.LINE, 1) == chunks - 1:
                call_address(args.finish, (minibatch, args_address))
                atomic_store(control, n.APPLIED, minibatch + 1)
        wait_for(control, n.APPLIED, minibatch + 1)
    return 0
