"""Blocks of matrix products, sums and activations, against NumPy in float64."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, call-arg"

from __future__ import annotations

from collections.abc import Callable
from itertools import product as product_of
from typing import Any

import numba
import numpy as np
import pytest
import torch
from numba import float32, int64, types, uint64
from numba.extending import intrinsic
from numpy.typing import NDArray

from operant.compiler.runtime.intrinsics import at
from operant.models.layers import ACTIVATIONS
from operant.ppo.kernels.cpu import blocks
from operant.ppo.kernels.cpu.activations import NUMBERS, SILU, activation, slope, tanh
from operant.ppo.kernels.cpu.blocks import ROWS, VECTORS
from operant.ppo.kernels.cpu.simd import INT64, LANES, load_vector, row_sums, store_vector

pytestmark = pytest.mark.usefixtures("compilers_seen")

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
FLOATS = types.CPointer(types.float32)
COUNTS = [1, 2, 3, 7, 64]
EVERY_VECTORS = range(1, VECTORS + 1)
GUARD = np.float32(77.0)
"""What stands in memory that nobody may write to."""


def floats(count: int, seed: int, offset: int = 0) -> Floats:
    """Random numbers that begin `offset` numbers after a cache line, with room behind them."""
    memory = np.full(count + 256, GUARD, np.float32)
    start = -(memory.ctypes.data // 4) % 16 + offset
    values = memory[start : start + count]
    values[:] = np.random.default_rng(seed).standard_normal(count)
    return values


def address(array: Floats) -> int:
    result: int = array.ctypes.data
    return result


def call(name: str, arguments: str) -> Callable[..., Any]:
    """A compiled function that calls a block; addresses stand for pointers (`p_...`)."""
    names = arguments.split()
    given = ", ".join(f"at(uint64({n}), float32)" if n.startswith("p_") else n for n in names)
    scope = {"at": at, "uint64": uint64, "float32": float32, "block": getattr(blocks, name)}
    exec(f"def run({', '.join(names)}):\n    return block({given})", scope)
    return numba.njit(scope["run"])


forward = call(
    "forward_block", "p_x x_row count p_w w_row p_bias number p_kept p_out out_row vectors"
)
backward = call(
    "backward_block", "p_d d_row d_step count p_w w_row number p_kept p_out out_row vectors"
)
product = call("product_block", "p_a a_row a_step count p_b b_row p_out out_row vectors")
dot = call("dot_block", "p_h h_row width p_w bias p_out")
column = call("column_block", "p_a a_row rows p_out vectors")
total = call("total", "p_a count")


def exact(name: str, z: Doubles) -> tuple[Doubles, Doubles]:
    """Activation and slope, by autograd."""
    x = torch.from_numpy(z).requires_grad_()
    y = ACTIVATIONS[name]()(x)
    (found,) = torch.autograd.grad(y.sum(), x)
    return y.detach().numpy(), found.numpy()


def check(found: Floats, wanted: Doubles, scale: Doubles | float) -> None:
    assert (np.abs(found - wanted) <= 1e-6 * (np.abs(wanted) + scale)).all()


# Products -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("vectors", EVERY_VECTORS)
def test_forward(vectors: int, name: str) -> None:
    for count, offset in product_of(COUNTS, (0, 3)):
        check_forward(vectors, count, name, offset)


def check_forward(vectors: int, count: int, name: str, offset: int) -> None:
    columns = vectors * LANES
    width, x_row, w_row = columns + LANES, count + 5, columns + 3
    x, w = floats(ROWS * x_row, 0, offset), floats(count * w_row, 1, offset)
    bias, kept = floats(width, 2, offset), floats(ROWS * width, 3, offset)
    out = floats(ROWS * width, 4, offset)
    kept_before, before = kept.reshape(ROWS, width).copy(), out.reshape(ROWS, width).copy()
    places = [address(array) for array in (x, w, bias, kept, out)]
    forward(places[0], x_row, count, places[1], w_row, places[2], NUMBERS[name], *places[3:],
            width, vectors)  # fmt: skip

    inputs = x.reshape(ROWS, x_row)[:, :count].astype(np.float64)
    weights = w.reshape(count, w_row)[:, :columns].astype(np.float64)
    z = inputs @ weights + bias[:columns]
    scale = np.abs(inputs) @ np.abs(weights) + 1
    check(out.reshape(ROWS, width)[:, :columns], exact(name, z)[0], scale)
    if NUMBERS[name] == SILU:
        check(kept.reshape(ROWS, width)[:, :columns], z, scale)
        kept_before[:, :columns] = kept.reshape(ROWS, width)[:, :columns]
    np.testing.assert_array_equal(kept.reshape(ROWS, width), kept_before)
    np.testing.assert_array_equal(out.reshape(ROWS, width)[:, columns:], before[:, columns:])
    assert memory_is_whole(out)


def memory_is_whole(array: Floats) -> bool:
    """Nothing was written before or behind an array of `floats`."""
    memory = array.base
    assert isinstance(memory, np.ndarray)
    start = (address(array) - address(memory)) // 4
    return bool((memory[:start] == GUARD).all() and (memory[start + array.size :] == GUARD).all())


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("vectors", EVERY_VECTORS)
def test_backward(vectors: int, name: str) -> None:
    for count, by_column in product_of(COUNTS, (False, True)):
        check_backward(vectors, count, name, by_column)


def check_backward(vectors: int, count: int, name: str, by_column: bool) -> None:
    columns = vectors * LANES
    width = columns + LANES
    d_row, d_step = (1, ROWS + 2) if by_column else (count + 3, 1)
    w_row = columns + 5
    d, w = floats((count + 3) * (ROWS + 2), 0, 1), floats(count * w_row, 1)
    kept, out = floats(ROWS * width, 2, 3), floats(ROWS * width, 3, 2)
    z = kept.reshape(ROWS, width).astype(np.float64)
    if NUMBERS[name] != SILU:
        kept[:] = exact(name, z)[0].ravel()
    places = [address(array) for array in (w, kept, out)]
    backward(address(d), d_row, d_step, count, places[0], w_row, NUMBERS[name], *places[1:], width,
             vectors)  # fmt: skip

    behind = np.array([[d[i * d_row + j * d_step] for j in range(count)] for i in range(ROWS)])
    weights = w.reshape(count, w_row)[:, :columns].astype(np.float64)
    wanted = behind.astype(np.float64) @ weights * exact(name, z)[1][:, :columns]
    scale = np.abs(behind) @ np.abs(weights) + 1
    check(out.reshape(ROWS, width)[:, :columns], wanted, scale)
    assert memory_is_whole(out)


@pytest.mark.parametrize("vectors", EVERY_VECTORS)
def test_product_adds(vectors: int) -> None:
    for count, by_column in product_of(COUNTS, (False, True)):
        check_product(vectors, count, by_column)


def check_product(vectors: int, count: int, by_column: bool) -> None:
    columns = vectors * LANES
    width = columns + LANES
    a_row, a_step = (1, ROWS + 2) if by_column else (count + 3, 1)
    b_row = columns + 7
    a, b = floats((count + 3) * (ROWS + 2), 0), floats(count * b_row, 1, 5)
    out = floats(ROWS * width, 2, 1)
    before = out.reshape(ROWS, width).astype(np.float64)
    product(address(a), a_row, a_step, count, address(b), b_row, address(out), width, vectors)
    left = np.array([[a[i * a_row + k * a_step] for k in range(count)] for i in range(ROWS)])
    right = b.reshape(count, b_row)[:, :columns].astype(np.float64)
    wanted = before[:, :columns] + left.astype(np.float64) @ right
    scale = np.abs(left) @ np.abs(right) + 1
    found = out.reshape(ROWS, width)
    check(found[:, :columns], wanted, scale)
    np.testing.assert_array_equal(found[:, columns:], before[:, columns:])
    assert memory_is_whole(out)


@pytest.mark.parametrize("vectors", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("offset", [0, 7])
def test_dot(vectors: int, offset: int) -> None:
    width, h_row = vectors * LANES, vectors * LANES + 3
    h, w = floats(LANES * h_row, 0, offset), floats(width, 1, offset)
    out = floats(LANES, 2, offset)
    dot(address(h), h_row, width, address(w), np.float32(0.5), address(out))
    rows = h.reshape(LANES, h_row)[:, :width].astype(np.float64)
    check(out, rows @ w + 0.5, np.abs(rows) @ np.abs(w) + 0.5)
    assert memory_is_whole(out)


@pytest.mark.parametrize("rows", COUNTS)
@pytest.mark.parametrize("vectors", EVERY_VECTORS)
def test_column_sums_are_added(vectors: int, rows: int) -> None:
    width = (vectors + 1) * LANES
    a, out = floats(rows * width, 0, 3), floats(vectors * LANES, 1, 1)
    before = out.astype(np.float64)
    column(address(a), width, rows, address(out), vectors)
    columns = a.reshape(rows, width)[:, : vectors * LANES].astype(np.float64)
    check(out, before + columns.sum(0), np.abs(columns).sum(0))
    assert memory_is_whole(out)


@pytest.mark.parametrize("count", [LANES, 2 * LANES, 3 * LANES, 8 * LANES])
@pytest.mark.parametrize("offset", [0, 5])
def test_total(count: int, offset: int) -> None:
    a = floats(count, 0, offset)
    found = total(address(a), count)
    assert abs(found - a.astype(np.float64).sum()) <= 1e-6 * np.abs(a).sum()
    moved = floats(count, 0, offset + 2)  # the order of the sum does not depend on the place
    assert total(address(moved), count) == found


# On vectors ---------------------------------------------------------------------------------------
def on_vectors(function: Callable[[Any], Any]) -> Callable[[Floats], Floats]:
    """A function of `Vector`, for arrays of any size."""

    @intrinsic
    def word(typing_context, source, index, out):
        def generate(context, builder, signature, args):
            result = function(load_vector(builder, args[0], args[1]))
            store_vector(builder, result, args[2], args[1])
            return context.get_dummy_value()

        return types.void(FLOATS, int64, FLOATS), generate

    @numba.njit
    def loop(source, count, out):
        for i in range(0, count, LANES):
            word(at(uint64(source), float32), i, at(uint64(out), float32))

    def run(x: Floats) -> Floats:
        padded = np.zeros(-(-x.size // LANES) * LANES, np.float32)
        padded[: x.size] = x
        out = np.empty_like(padded)
        loop(address(padded), padded.size, address(out))
        return out[: x.size]

    return run


act = {name: on_vectors(lambda x, n=n: activation(n, x)) for name, n in NUMBERS.items()}
slopes = {name: on_vectors(lambda x, n=n: slope(n, x)) for name, n in NUMBERS.items()}
TINY = np.float32(np.finfo(np.float32).tiny)


def dense(limit: float) -> Floats:
    sizes = np.concatenate([np.linspace(0, limit, 500_001), np.geomspace(TINY, limit, 200_001)])
    sizes = np.unique(sizes.astype(np.float32))
    return np.concatenate([-sizes[::-1], sizes])


def test_tanh_is_within_5e_7() -> None:
    x = dense(20.0)
    wanted, found = np.tanh(x.astype(np.float64)), on_vectors(tanh)(x)
    error = np.abs(found - wanted)
    assert error.max() <= 5e-7
    normal = np.abs(wanted) >= TINY
    assert (error[normal] / np.abs(wanted[normal])).max() <= 5e-7
    assert np.abs(found).max() <= 1 + 3e-7
    assert np.diff(found).min() >= -5e-7  # never back by more than it may be off
    np.testing.assert_array_equal(found, -found[::-1])


def test_tanh_of_extremes() -> None:
    found = act["tanh"](np.array([np.inf, -np.inf, 3e38, -3e38, 0.0, np.nan], np.float32))
    np.testing.assert_allclose(found[:4], [1, -1, 1, -1], atol=5e-7)
    assert found[4] == 0
    assert np.isnan(found[5])
    tiny = np.geomspace(1e-45, TINY, 1000).astype(np.float32)
    np.testing.assert_allclose(act["tanh"](tiny), tiny, rtol=5e-7, atol=3e-45)


def test_silu_is_within_2e_6_up_to_8() -> None:
    """Beyond, it is the sigmoid's error times the argument: up to 2.5e-7 with AVX-512, 2.8e-7 where
    vectors are narrower or there is no fused multiply-add."""
    x = dense(16.0)
    wanted, slope_wanted = exact("silu", x.astype(np.float64))
    limit = np.where(np.abs(x) <= 8, 2e-6, 3.2e-7 * np.abs(x))
    assert (np.abs(act["silu"](x) - wanted) <= limit).all()
    assert (np.abs(slopes["silu"](x) - slope_wanted) <= limit).all()


def test_silu_far_away_is_0_or_its_argument() -> None:
    x = np.array([17.0, 1e10, np.inf, -17.0, -1e10, np.nan], np.float32)
    np.testing.assert_array_equal(act["silu"](x)[:3], x[:3])
    np.testing.assert_array_equal(act["silu"](x)[3:5], [0, 0])
    np.testing.assert_array_equal(slopes["silu"](x)[:5], [1, 1, np.nan, 0, 0])
    assert np.isnan(act["silu"](x)[5])


def test_relu() -> None:
    x = np.array([-np.inf, -1.0, -1e-45, 0.0, 1e-45, 2.5, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(act["relu"](x), [0, 0, 0, 0, x[4], 2.5, np.inf, np.nan])


@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_slopes_from_what_was_kept(name: str) -> None:
    x = np.concatenate([dense(20.0), np.zeros(1, np.float32)])
    wanted = exact(name, x.astype(np.float64))[1]
    assert np.abs(slopes[name](act[name](x)) - wanted).max() <= 2e-6


def test_row_sums() -> None:
    @intrinsic
    def sums(typing_context, source, out):
        def generate(context, builder, signature, args):
            rows = [load_vector(builder, args[0], INT64(k * LANES)) for k in range(LANES)]
            store_vector(builder, row_sums(builder, rows), args[1], INT64(0))
            return context.get_dummy_value()

        return types.void(FLOATS, FLOATS), generate

    @numba.njit
    def run(source, out):
        sums(at(uint64(source), float32), at(uint64(out), float32))

    rows, out = floats(LANES * LANES, 0), floats(LANES, 1)
    run(address(rows), address(out))
    wanted = rows.reshape(LANES, LANES).astype(np.float64).sum(1)
    check(out, wanted, np.abs(rows.reshape(LANES, LANES)).sum(1))
    assert memory_is_whole(out)
