"""How threads share a step of a batch, as source for the kernel that all of them run.

A step is a job: every block of environments has its actions checked, then every block is stepped.
Blocks belong to parts, one a worker. A worker claims blocks of its own part first, then of others
that are far behind or asleep, so nobody waits for a thread that is not running. What a block
computes does not depend on who does it.

The threads talk through ``control``, lines of `LINE` int64, a cache line each. Line 0 is the job:
its number, the address of the actions, whether they are 64 bits wide, whether `done` was changed in
between, the time, the last job that had a bad action, and a request to stop. Line 1 counts what is
done of it. Line 2 + w is worker w's: the next block of its part to check and to step, each with the
number of the job, whether the worker sleeps, and the last job it worked on.

It is one kernel for all they do: Numba compiles a function again for each that calls it.
"""

from __future__ import annotations

from textwrap import indent

LINE = 8
JOB, ADDRESS, WIDE, RESCAN, NOW, WRONG, STOP = range(7)
CHECKED, STEPPED, EPISODES = range(LINE, LINE + 3)
FIRST = 2 * LINE  # where the workers' lines begin
TO_CHECK, TO_STEP, ASLEEP, LAST = range(4)

BLOCK = 4096
"""Environments that are stepped at a time: some 200 kB of CartPoles, for the second-level cache."""
SPINS = 50_000  # looks at a word before giving up: some 50 us
REFUSED, UNFINISHED, STOPPED, SLEEPS = -1, -2, -3, -4
"""What `work` returns instead of a count: an action is bad; some block is not done yet; the worker
was asked to stop; it found nothing to do for a while."""
CALLER, WAITING = 0, -1
"""Worker 0 is who asks for a step. -1 is the same, back to wait for the others."""

INDEX_BITS = 24  # of a word with a job's number and the next block
INDEX_MASK = (1 << INDEX_BITS) - 1


def block_size(lanes: int, workers: int) -> int:
    """Environments in a block, a multiple of 64: small enough that workers end together."""
    if workers == 1:
        return BLOCK
    return min(max(lanes // (16 * workers) // 64 * 64, 512), BLOCK)


# Who asks for a step posts a job; everyone works on jobs; who asked gathers the results.
_WORK = """\
mine = FIRST + LINE * worker
if worker == CALLER:
    # The job before is finished, so nobody can claim a block of it any more.
    job = control[JOB] + 1
    control[ADDRESS] = address_of(actions)
    control[WIDE] = wide
    control[NOW] = now_us
    for word in range(CHECKED, EPISODES + 1):
        control[word] = 0
    for part in range(workers):
        atomic_store(control, FIRST + LINE * part + TO_CHECK, job << INDEX_BITS)
        atomic_store(control, FIRST + LINE * part + TO_STEP, job << INDEX_BITS)
    atomic_store(control, JOB, job)
while worker != WAITING:
    if worker != CALLER:
        spins = 0
        while atomic_load(control, JOB) == control[mine + LAST]:
            if atomic_load(control, STOP) != 0:
                return STOPPED
            spins += 1
            if spins > SPINS:
                atomic_store(control, mine + ASLEEP, 1)
                if atomic_load(control, JOB) == control[mine + LAST]:
                    return SLEEPS  # who posts a job from now on finds the flag set
                atomic_store(control, mine + ASLEEP, 0)
    job = atomic_load(control, JOB)
    control[mine + LAST] = job
    for phase in range(TO_CHECK, TO_STEP + 1):
        for attempt in range(2):  # the second time without regard for whose a block is
            for turn in range(workers):
                part = worker + turn
                if part >= workers:
                    part -= workers
                # At first the last blocks are their owner's: memory moves from core to core with a
                # block, there and back. That pays when the owner sleeps or is far behind, not when
                # the two would have ended together.
                free = blocks[part]
                if turn > 0 and attempt == 0:
                    free -= (free >> 2) + 1
                word = FIRST + LINE * part + phase
                while True:
                    next_block = atomic_load(control, word)
                    number = next_block & INDEX_MASK
                    if next_block >> INDEX_BITS != job or number >= free:
                        break
                    if not atomic_replace(control, word, next_block, next_block + 1):
                        continue
                    lo = bounds[part] + block * number
                    hi = lo + block
                    if hi > bounds[part + 1]:
                        hi = bounds[part + 1]
                    if phase == TO_CHECK:
{check}
                        if wrong:
                            atomic_store(control, WRONG, job)
                    else:
                        given = (lo, hi, control[NOW], control[RESCAN], table_address)
                        ended = call_address(step_address, given)
                        atomic_add(control, EPISODES, ended)
                    atomic_add(control, CHECKED + phase, 1)
            spins = 0
            while atomic_load(control, CHECKED + phase) != total and spins < SPINS // 2:
                spins += 1
            if spins < SPINS // 2:
                break
        # Nobody steps before all actions are good.
        while atomic_load(control, CHECKED) != total and atomic_load(control, JOB) == job:
            pass
        if atomic_load(control, JOB) != job or atomic_load(control, WRONG) == job:
            break
    if worker == CALLER:
        break
for _ in range(SPINS):
    if atomic_load(control, STEPPED) == total:
        return control[EPISODES]
    if atomic_load(control, CHECKED) == total and control[WRONG] == control[JOB]:
        return REFUSED
return UNFINISHED"""


def work_source(check: str) -> str:
    """The body of ``work(worker, actions, wide, now_us, table)``.

    `check` takes the actions of environments lo..hi and says whether one is `wrong`.
    """
    return _WORK.format(check=indent(check, 24 * " "))
