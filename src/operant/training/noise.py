"""The policy's random numbers: counter-based, so there is no state to save.

The number that environment i gets at step g of a run depends on (seed, i, g) alone: a run that
stops and goes on, or another engine, draws the same ones.

    key     = (low word of the seed, i)
    counter = (low word of g, high word of g, high word of the seed, POLICY_BLOCK + block)
"""

# mypy: disable-error-code="no-untyped-def, call-arg, var-annotated"

from __future__ import annotations

import numpy as np
from numba import njit
from numba import uint32 as u32

from operant.compiler.philox import POLICY_BLOCK
from operant.compiler.runtime.numba_philox import philox
from operant.vector.seeding import checked_seed


def fill_uniforms(out: np.ndarray, seed: int, first_step: int, first_env: int = 0) -> None:
    """Fill `out`, float32 ``[T, N, K]``, with the numbers of T steps from `first_step` on,
    of N environments from `first_env` on.

    They are in [0, 1), multiples of 2**-24. `seed` is 0 .. 2**64 - 1, a step 0 .. 2**63 - 1.

    Raises:
        ValueError: a seed beyond 64 bits.
    """
    seed = checked_seed(seed)
    words = np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32), np.uint32(POLICY_BLOCK)
    _fill(out, *words, np.int64(first_step), np.int64(first_env))


@njit(cache=True, nogil=True, fastmath=False)
def _fill(out, seed_low, seed_high, first_block, first_step, first_env):
    steps, envs, size = out.shape
    scale = np.float32(2**-24)
    for t in range(steps):
        step = first_step + t
        low, high = u32(step & 0xFFFFFFFF), u32(step >> 32)
        for block in range((size + 3) // 4):
            for i in range(envs):
                key = u32(first_env + i)
                words = philox(low, high, seed_high, u32(first_block + block), seed_low, key)
                for k in range(min(4, size - 4 * block)):
                    out[t, i, 4 * block + k] = np.float32(words[k] >> u32(8)) * scale


def shuffled(count: int, seed: int, iteration: int, epoch: int, shard: int = 0) -> np.ndarray:
    """A permutation of ``0 .. count - 1``, int64, that depends on its arguments alone.

    `seed` is 0 .. 2**64 - 1, `epoch` below 2**16.
    """
    key = np.array([seed, (iteration << 16) + epoch], np.uint64)
    stream = np.random.Philox(key=key, counter=[0, 0, 0, shard])
    return np.random.Generator(stream).permutation(count)
