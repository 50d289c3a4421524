"""The policy's random numbers."""

from __future__ import annotations

from numba import float32 as f32
from numba import njit
from numba import uint32 as u32

from operant.compiler.philox import POLICY_BLOCK
from operant.compiler.runtime.alias_scopes import store
from operant.compiler.runtime.intrinsics import prefer_wide_vectors, shifted
from operant.compiler.runtime.numba_philox import philox
from operant.ppo.kernels.cpu.alias_scopes import NOISE


@njit(nogil=True, error_model="numpy")
def fill_noise(args, step, lo, count, noise):
    """Uniform numbers ``[4 * NOISE_BLOCKS, TILE]``, those of `operant.training.noise`."""
    prefer_wide_vectors()
    tile, scale = args.tile, f32(2**-24)
    when = args.first_step + step
    low, high = u32(when & 0xFFFFFFFF), u32(when >> 32)
    seed_low, seed_high = u32(args.seed_low), u32(args.seed_high)
    first = args.first_row + lo
    for block in range(args.noise_blocks):
        one, two = shifted(noise, 4 * block * tile), shifted(noise, (4 * block + 1) * tile)
        three, four = shifted(noise, (4 * block + 2) * tile), shifted(noise, (4 * block + 3) * tile)
        number = u32(POLICY_BLOCK + block)
        for i in range(count):
            words = philox(low, high, seed_high, number, seed_low, u32(first + i))
            store(NOISE.first, one, i, f32(words[0] >> u32(8)) * scale)
            store(NOISE.second, two, i, f32(words[1] >> u32(8)) * scale)
            store(NOISE.third, three, i, f32(words[2] >> u32(8)) * scale)
            store(NOISE.fourth, four, i, f32(words[3] >> u32(8)) * scale)
