"""How threads share a step of a batch. Compiled; used by generated kernels.

A step is a job: every block of environments has its actions checked, then every block is stepped.
Blocks belong to parts, one a worker. A worker claims blocks of its own part first, then of others
that are far behind or asleep, so nobody waits for a thread that is not running. What a block
computes does not depend on who does it.

The threads talk through ``control``, lines of `LINE` int64, a cache line each. Line 0 is the job:
its number, the address of the actions, whether they are 64 bits wide, whether `done` was changed in
between, the time, the last job that had a bad action, and a request to stop. Line 1 counts what is
done of it. Line 2 + w is worker w's: the next block of its part to check and to step, each with the
number of the job, and whether the worker sleeps.
"""

# mypy: disable-error-code="no-untyped-def, call-arg, var-annotated"

from __future__ import annotations

from numba import njit

from operant.lang.intrinsics import atomic_load, atomic_replace, atomic_store

LINE = 8
JOB, ADDRESS, WIDE, RESCAN, NOW, WRONG, STOP = range(7)
CHECKED, STEPPED, EPISODES = range(LINE, LINE + 3)
FIRST = 2 * LINE  # where the workers' lines begin
TO_CHECK, TO_STEP, ASLEEP = range(3)

BLOCK = 4096
"""Environments that are stepped at a time: some 200 kB of CartPoles, for the second-level cache."""
SPINS = 50_000  # looks at a word before giving up: some 50 us
REFUSED, UNFINISHED = -1, -2
"""What a step returns instead of a count: an action is bad; some block is not done yet."""

_INDEX_BITS = 24  # of a word with a job's number and the next block
_INDEX_MASK = (1 << _INDEX_BITS) - 1


def block_size(lanes: int, workers: int) -> int:
    """Environments in a block, a multiple of 64: small enough that workers end together."""
    if workers == 1:
        return BLOCK
    return min(max(lanes // (16 * workers) // 64 * 64, 512), BLOCK)


@njit(error_model="numpy", fastmath=False)
def count_blocks(bounds, part, block):
    """Blocks of a part of the batch."""
    return (bounds[part + 1] - bounds[part] + block - 1) // block


@njit(error_model="numpy", fastmath=False)
def count_all(bounds, workers, block):
    """Blocks of the whole batch."""
    total = 0
    for part in range(workers):
        total += count_blocks(bounds, part, block)
    return total


@njit(error_model="numpy", fastmath=False)
def open_to(worker, part, attempt, bounds, block):
    """How many blocks of a part a worker may claim; at its first attempt the last are the owner's.

    Memory moves from core to core with a block, there and back again. That pays when the owner
    sleeps or is far behind, not when the two would have ended together.
    """
    blocks = count_blocks(bounds, part, block)
    return blocks if worker == part or attempt > 0 else blocks - blocks // 4 - 1


@njit(error_model="numpy", fastmath=False)
def reached(control, word, total):
    """Whether a count reaches `total` within some 25 us."""
    spins = 0
    while atomic_load(control, word) != total and spins < SPINS // 2:
        spins += 1
    return spins < SPINS // 2


@njit(error_model="numpy", fastmath=False)
def claim(control, word, job, blocks):
    """The next block of a part that nobody has, or -1. Fails for good once the job is over."""
    while True:
        value = atomic_load(control, word)
        block = value & _INDEX_MASK
        if value >> _INDEX_BITS != job or block >= blocks:
            return -1
        if atomic_replace(control, word, value, value + 1):
            return block


@njit(error_model="numpy", fastmath=False)
def post(control, workers, address, wide, rescan, now_us):
    """Announce a job. The one before is finished, so nobody can claim a block of it any more."""
    job = control[JOB] + 1
    control[ADDRESS] = address
    control[WIDE] = wide
    control[RESCAN] = rescan
    control[NOW] = now_us
    for word in (CHECKED, STEPPED, EPISODES):
        control[word] = 0
    for worker in range(workers):
        atomic_store(control, FIRST + LINE * worker + TO_CHECK, job << _INDEX_BITS)
        atomic_store(control, FIRST + LINE * worker + TO_STEP, job << _INDEX_BITS)
    atomic_store(control, JOB, job)


@njit(error_model="numpy", fastmath=False)
def gather(control, bounds, workers, block):
    """Wait a while for the job to be done; episodes finished, or `REFUSED`, or `UNFINISHED`."""
    total = count_all(bounds, workers, block)
    for _ in range(SPINS):
        if atomic_load(control, STEPPED) == total:
            return control[EPISODES]
        if atomic_load(control, CHECKED) == total and control[WRONG] == control[JOB]:
            return REFUSED
    return UNFINISHED
