"""Draw actions from heads: what `operant.models.distributions` does, on a tile of environments."""

from __future__ import annotations

import triton
import triton.language as tl

from operant.compiler.runtime.triton_words import philox, unit
from operant.ppo.kernels.triton.loss import HALF_LOG_2PI, HIGHEST, LOWEST

TWO_PI = tl.constexpr(6.283185307179586)


@triton.jit
def policy_uniforms(step, i, seed_low, seed_high, block):
    """Four of the policy's numbers at `step`, int64, as in `operant.training.noise`."""
    zero = tl.zeros_like(i).to(tl.uint32)
    w0, w1, w2, w3 = philox(
        zero + step.to(tl.uint32),
        zero + (step >> 32).to(tl.uint32),
        zero + tl.cast(seed_high, tl.int32).to(tl.uint32, bitcast=True),
        block,
        zero + tl.cast(seed_low, tl.int32).to(tl.uint32, bitcast=True),
        i.to(tl.uint32),
    )
    return unit(w0), unit(w1), unit(w2), unit(w3)


@triton.jit
def pick(head, column, k):
    """Column `k` of a tile."""
    return tl.sum(tl.where((column == k)[None, :], head, 0.0), 1)


@triton.jit
def gaussian(mean, log_std, one, two):
    """A normal number from two in [0, 1), and the logarithm of its density."""
    log_std = tl.minimum(tl.maximum(log_std, LOWEST), HIGHEST)
    # The constant on the right: on the left of a tensor, the interpreter of Triton 3.7 makes a
    # constant of the product, which its cosine refuses.
    normal = tl.sqrt(-2.0 * tl.log(1.0 - one)) * tl.cos(two * TWO_PI)
    action = mean + tl.exp(log_std) * normal
    # Not from `normal`: the action is rounded, and it is what the update will look at.
    miss = (action - mean) * tl.exp(-log_std)
    return action, -0.5 * miss * miss - HALF_LOG_2PI - log_std


@triton.jit
def limited(action, low, high):
    """The nearest number within bounds; NaN stays what it is."""
    return tl.where(action < low, low, tl.where(action > high, high, action))
