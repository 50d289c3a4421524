"""A multilayer perceptron on a tile of samples: what the rollout and the update share.

Tiles are ``[samples, neurons]``. Products are of the precision that the weights have (bfloat16 or
float32, the latter perhaps rounded to TF32) and summed in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

TANH, RELU, SILU = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
NUMBERS = {"tanh": 0, "relu": 1, "silu": 2}


@triton.jit
def matrix(weights, at, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # noqa: N803
    """A matrix ``[ROWS, COLUMNS]``."""
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    return tl.load(weights + at + rows[:, None] * COLUMNS + columns[None, :])


@triton.jit
def vector(numbers, at, SIZE: tl.constexpr):  # noqa: N803
    """A vector ``[SIZE]``."""
    return tl.load(numbers + at + tl.arange(0, SIZE))


@triton.jit
def product(a, b, PRECISION: tl.constexpr):  # noqa: N803
    """``a @ b`` in float32, of factors as precise as `b` is."""
    return tl.dot(a.to(b.dtype), b, input_precision=PRECISION)


@triton.jit
def product_of_columns(a, b, dtype: tl.constexpr, PRECISION: tl.constexpr):  # noqa: N803
    """``a.T @ b``: summed over samples."""
    return tl.dot(tl.trans(a.to(dtype)), b.to(dtype), input_precision=PRECISION)


@triton.jit
def product_transposed(a, b, PRECISION: tl.constexpr):  # noqa: N803
    """``a @ b.T``."""
    return tl.dot(a.to(b.dtype), tl.trans(b), input_precision=PRECISION)


@triton.jit
def tanh(z, QUICK: tl.constexpr):  # noqa: N803
    """To float32's precision, or by the GPU's own instruction, which has 11 bits."""
    if QUICK:
        found = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [z], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        small = tl.exp(-2.0 * tl.abs(z))
        size = (1.0 - small) / (1.0 + small)
        found = tl.where(z < 0.0, -size, size)
    return found


@triton.jit
def sigmoid(z):
    """1 / (1 + exp(-z))."""
    return 1.0 / (1.0 + tl.exp(-z))


@triton.jit
def activate(z, KIND: tl.constexpr, QUICK: tl.constexpr):  # noqa: N803
    """What a layer gives."""
    if KIND == TANH:
        found = tanh(z, QUICK)
    elif KIND == RELU:
        found = tl.maximum(z, 0.0)
    else:
        found = z * sigmoid(z)
    return found


@triton.jit
def saved(z, active, KIND: tl.constexpr):  # noqa: N803
    """What the way back needs: the result, or for SiLU what it came from."""
    return z if KIND == SILU else active


@triton.jit
def slope(saved, KIND: tl.constexpr):  # noqa: N803
    """The activation's derivative."""
    if KIND == TANH:
        found = 1.0 - saved * saved
    elif KIND == RELU:
        found = tl.where(saved > 0.0, 1.0, 0.0)
    else:
        half = sigmoid(saved)
        found = half * (1.0 + saved * (1.0 - half))
    return found


@triton.jit
def layer(x, weights, bias, KIND: tl.constexpr, QUICK: tl.constexpr, PRECISION: tl.constexpr):  # noqa: N803
    """A hidden layer: its results, and what its way back needs. The first one has no `bias`."""
    z = product(x, weights, PRECISION)
    if bias is not None:
        z += bias[None, :]
    active = activate(z, KIND, QUICK)
    return active, saved(z, active, KIND)
