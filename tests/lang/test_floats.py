"""The float32 words against float64 NumPy: as NumPy runs them, compiled exactly, compiled fast."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import llvmlite.binding
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import ArrayLike, NDArray

from operant import lang
from operant.compiler.emit import numba_kernels as kernels
from operant.compiler.emit.numba_program import word_source
from operant.compiler.emit.program_source import COMPOSED, word_program

from ..modules import load

Floats = NDArray[np.float32]
Word = Callable[..., Floats]
Words = dict[str, dict[str, Word]]  # by path, then by name

TINY = float(np.finfo(np.float32).tiny)
SMALLEST = 1e-45  # the smallest denormal
INF, NAN, PI = np.inf, np.nan, np.pi
PATHS = ("numpy", "exact", "fast")
ONE_ARGUMENT = [word for word in COMPOSED if word != "atan2"]


def compiled(flags: str, folder: Path) -> dict[str, Word]:
    """The words as the kernels hold them, each in a loop over arrays; `flags` is FAST or EXACT."""
    parts = [kernels.HEADER.format(name="words", version="")]
    for word in COMPOSED:
        parts.append(f"@njit(**{flags})\n{word_source(word)}")
    for word in COMPOSED:
        names = word_program(word).inputs
        values = ", ".join(f"{name}[i]" for name in names)
        parts.append(
            f"@njit(**{flags})\ndef loop_{word}({', '.join(names)}, out):\n"
            f"    for i in range(out.shape[0]):\n        out[i] = {word}({values})\n"
        )
    path = folder / f"words_{flags.lower()}.py"
    path.write_text("\n\n".join(parts))
    module = load(path)

    def over_arrays(loop: Callable[..., None]) -> Word:
        def word(*values: ArrayLike) -> Floats:
            inputs = [np.atleast_1d(np.asarray(value, np.float32)) for value in values]
            out = np.empty_like(inputs[0])
            loop(*inputs, out)
            return out

        return word

    return {word: over_arrays(getattr(module, f"loop_{word}")) for word in COMPOSED}


def with_numpy(word: str) -> Word:
    def over_arrays(*values: ArrayLike) -> Floats:
        inputs = [np.atleast_1d(np.asarray(value, np.float32)) for value in values]
        with np.errstate(all="ignore"):
            out = getattr(lang, word)(*inputs)
        assert out.dtype == np.float32
        return np.asarray(out)

    return over_arrays


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Words:
    folder = tmp_path_factory.mktemp("words")
    return {
        "numpy": {word: with_numpy(word) for word in COMPOSED},
        "exact": compiled("EXACT", folder),
        "fast": compiled("FAST", folder),
    }


def f32(values: ArrayLike) -> Floats:
    return np.asarray(values, np.float32)


def any_bits(count: int, seed: int) -> Floats:
    """Every exponent equally often: tiny, huge, both signs, now and then infinite or NaN."""
    bits = np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)
    return bits.view(np.float32)


def neighbours(values: NDArray[np.float64]) -> Floats:
    """The floats around each value, where a range reduction is most likely to go wrong."""
    middle = f32(values)
    around = [middle]
    for direction in (-INF, INF):
        step = middle
        for _ in range(2):
            step = np.nextafter(step, np.float32(direction))
            around.append(step)
    return np.concatenate(around)


def angles() -> Floats:
    rng = np.random.default_rng(1)
    turns = np.arange(-12732, 12733) * (PI / 4)  # both the zeros and where the quadrant changes
    return np.concatenate(
        [
            f32(np.linspace(-1e4, 1e4, 1_000_001)),
            f32(np.linspace(-10, 10, 200_001)),
            f32(rng.uniform(-1e4, 1e4, 500_000)),
            neighbours(turns[np.abs(turns) < 9999]),
            f32([1e4, -1e4]),
        ]
    )


def relative_error(result: Floats, exact: NDArray[np.float64]) -> float:
    """The largest, where the exact result is a normal float."""
    normal = (np.abs(exact) >= TINY) & (np.abs(exact) <= np.finfo(np.float32).max)
    assert normal.any()
    error = np.abs(result[normal].astype(np.float64) - exact[normal]) / np.abs(exact[normal])
    return float(error.max())  # NaN where a result is NaN, which compares as too large


# Accuracy ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("word", ["sin", "cos"])
def test_sin_and_cos_are_within_5e_7(words: Words, path: str, word: str) -> None:
    x = angles()
    error = np.abs(words[path][word](x) - getattr(np, word)(x.astype(np.float64)))
    worst = int(np.argmax(error))
    assert error[worst] <= 5e-7, f"{word}({x[worst]!r}) is off by {error[worst]}"


@settings(deadline=None)
@given(x=arrays(np.float32, st.integers(1, 20), elements=st.floats(-1e4, 1e4, width=32)))
def test_sin_and_cos_of_any_angle(words: Words, x: Floats) -> None:
    for path in PATHS:
        for word in ("sin", "cos"):
            exact = getattr(np, word)(x.astype(np.float64))
            assert np.abs(words[path][word](x) - exact).max() <= 5e-7


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("word", ["sin", "cos"])
def test_sin_and_cos_stay_in_bounds_for_any_finite_angle(
    words: Words, path: str, word: str
) -> None:
    x = np.concatenate([any_bits(1_000_000, 2), angles(), f32([3.4e38, -3.4e38, SMALLEST])])
    result = words[path][word](x[np.isfinite(x)])
    assert np.abs(result).max() <= 1.0


@pytest.mark.parametrize("path", PATHS)
def test_tan_is_within_1e_6_up_to_1_5(words: Words, path: str) -> None:
    x = f32(np.concatenate([np.linspace(-1.5, 1.5, 500_001), np.geomspace(TINY, 1.5, 300_000)]))
    assert relative_error(words[path]["tan"](x), np.tan(x.astype(np.float64))) <= 1e-6


RELATIVE = {
    "exp": (np.exp, np.linspace(-87.34, 88.73, 1_000_001), np.geomspace(1e-30, 1.0, 100_000)),
    "log": (np.log, np.geomspace(TINY, 3.4e38, 500_000), np.linspace(0.25, 4.0, 1_000_001)),
    "tanh": (np.tanh, np.geomspace(TINY, 100.0, 500_000), np.linspace(0.3, 12.0, 500_001)),
    "atan": (np.arctan, np.geomspace(TINY, 3.4e38, 500_000), np.linspace(0.1, 10.0, 500_001)),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("word", RELATIVE)
def test_relative_error_is_within_5e_7(words: Words, path: str, word: str) -> None:
    exact, *grids = RELATIVE[word]
    x = np.concatenate([f32(grid) for grid in grids])
    if word != "log":
        x = np.concatenate([x, -x])
    assert relative_error(words[path][word](x), exact(x.astype(np.float64))) <= 5e-7


@settings(deadline=None)
@given(x=arrays(np.float32, st.integers(1, 20), elements=st.floats(0, 88, width=32)))
def test_relative_error_of_any_number(words: Words, x: Floats) -> None:
    x = x[x >= TINY]
    wide = x.astype(np.float64)
    for path in PATHS:
        for word, (exact, *_) in RELATIVE.items():
            for values, doubles in [(x, wide)] if word == "log" else [(x, wide), (-x, -wide)]:
                reference = exact(doubles)
                if (np.abs(reference) >= TINY).any():
                    assert relative_error(words[path][word](values), reference) <= 5e-7


@pytest.mark.parametrize("path", PATHS)
def test_log_of_denormals(words: Words, path: str) -> None:
    x = f32(np.geomspace(SMALLEST, TINY, 10_000))
    assert relative_error(words[path]["log"](x), np.log(x.astype(np.float64))) <= 5e-7


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("inputs", ["square", "any size", "same size"])
def test_atan2_is_within_5e_7(words: Words, path: str, inputs: str) -> None:
    rng = np.random.default_rng(3)
    y, x = f32(rng.uniform(-1, 1, (2, 1_000_000)))
    if inputs == "any size":  # a sum or a product of the two may overflow or vanish
        y, x = any_bits(1_000_000, 4), any_bits(1_000_000, 5)
    elif inputs == "same size":
        scale = np.exp2(rng.integers(-149, 128, x.size)).astype(np.float32)
        y, x = y * scale, x * scale
    finite = np.isfinite(y) & np.isfinite(x)
    y, x = y[finite] + 0.0, x[finite] + 0.0  # this atan2 takes -0.0 for 0.0
    exact = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    assert relative_error(words[path]["atan2"](y, x), exact) <= 5e-7


# Edges ------------------------------------------------------------------------------------------
EDGES = [
    ("sin", (0.0,), 0.0),
    ("cos", (0.0,), 1.0),
    ("tan", (0.0,), 0.0),
    ("exp", (0.0,), 1.0),
    ("exp", (89.0,), INF),
    ("exp", (INF,), INF),
    ("exp", (3e38,), INF),
    ("exp", (-104.0,), 0.0),
    ("exp", (-88.0,), 0.0),
    ("exp", (-INF,), 0.0),
    ("log", (1.0,), 0.0),
    ("log", (0.0,), -INF),
    ("log", (-0.0,), -INF),
    ("log", (-1.0,), NAN),
    ("log", (-SMALLEST,), NAN),
    ("log", (-INF,), NAN),
    ("log", (INF,), INF),
    ("tanh", (0.0,), 0.0),
    ("tanh", (100.0,), 1.0),
    ("tanh", (-100.0,), -1.0),
    ("tanh", (3e38,), 1.0),
    ("tanh", (INF,), 1.0),
    ("tanh", (-INF,), -1.0),
    ("atan", (0.0,), 0.0),
    ("atan", (INF,), np.float32(PI / 2)),
    ("atan", (-INF,), np.float32(-PI / 2)),
    ("atan2", (0.0, 0.0), 0.0),
    ("atan2", (0.0, 1.0), 0.0),
    ("atan2", (0.0, -1.0), np.float32(PI)),
    ("atan2", (1.0, 0.0), np.float32(PI / 2)),
    ("atan2", (-1.0, 0.0), np.float32(-PI / 2)),
    ("atan2", (1.0, -0.0), np.float32(PI / 2)),
    ("atan2", (INF, 1.0), np.float32(PI / 2)),
    ("atan2", (-INF, 1.0), np.float32(-PI / 2)),
    ("atan2", (1.0, INF), 0.0),
    ("atan2", (1.0, -INF), np.float32(PI)),
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("word", "args", "expected"), EDGES)
def test_edge(
    words: Words,
    path: str,
    word: str,
    args: tuple[float, ...],
    expected: float,
) -> None:
    (result,) = words[path][word](*[[value] for value in args])
    np.testing.assert_array_equal(result, np.float32(expected))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("y", "x"), [(1.0, 1.0), (1.0, -1.0), (-1.0, -1.0), (-1.0, 1.0)])
def test_atan2_knows_the_quadrants(words: Words, path: str, y: float, x: float) -> None:
    sizes = f32(np.geomspace(1e-3, 1e3, 7))
    height, width = np.meshgrid(y * sizes, x * sizes)
    result = words[path]["atan2"](height.ravel(), width.ravel())
    exact = np.arctan2(height.astype(np.float64), width.astype(np.float64)).ravel()
    np.testing.assert_allclose(result, exact, rtol=5e-7)
    assert (np.sign(result) == np.sign(y)).all()
    assert ((np.abs(result) < PI / 2) == (x > 0)).all()


@pytest.mark.parametrize("path", PATHS)
def test_exp_keeps_the_largest_and_the_smallest_results(words: Words, path: str) -> None:
    top, above, bottom = words[path]["exp"]([88.72283, 88.7229, -87.33654])
    assert top == pytest.approx(3.40279851e38, rel=1e-6)
    assert above == INF
    assert bottom >= TINY


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("word", ONE_ARGUMENT)
def test_nan_stays_nan(words: Words, path: str, word: str) -> None:
    result = words[path][word](np.full(33, NAN))
    assert np.isnan(result).all()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("args", [(NAN, 1.0), (1.0, NAN), (NAN, -1.0), (0.0, NAN), (NAN, NAN)])
def test_nan_stays_nan_in_atan2(words: Words, path: str, args: tuple[float, float]) -> None:
    assert np.isnan(words[path]["atan2"]([args[0]], [args[1]]))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("word", ["sin", "cos", "tan"])
def test_an_infinite_angle_has_no_sine(words: Words, path: str, word: str) -> None:
    assert np.isnan(words[path][word]([INF, -INF])).all()


# The paths among each other ---------------------------------------------------------------------
def assert_same_bits(a: Floats, b: Floats, *inputs: Floats) -> None:
    """Equal to the bit; a NaN equals any NaN, whose sign and payload no standard fixes."""
    same = (a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))
    if not same.all():
        k = int(np.argmin(same))
        pytest.fail(f"{(~same).sum()} differ: {[x[k] for x in inputs]} gives {a[k]!r} and {b[k]!r}")


ORDINARY = [1.0, 0.5, 0.625, 0.70710678, PI / 4, PI / 2, 88.72283, 89.0, 87.33654, 87.4, 104.0, 1e4]
EXTREME = [0.0, SMALLEST, TINY, 2.0**31, 3.4028235e38, INF, NAN]
SPECIAL = f32([sign * value for value in ORDINARY + EXTREME for sign in (1.0, -1.0)])


@pytest.mark.parametrize("word", COMPOSED)
def test_compiled_exactly_is_numpy_to_the_bit(words: Words, word: str) -> None:
    rng = np.random.default_rng(6)
    count = len(word_program(word).inputs)
    special = [grid.ravel() for grid in np.meshgrid(*[SPECIAL] * count)]
    inputs = [
        np.concatenate([special[k], any_bits(300_000, 7 + k), f32(rng.uniform(-20, 20, 300_000))])
        for k in range(count)
    ]
    assert_same_bits(words["exact"][word](*inputs), words["numpy"][word](*inputs), *inputs)


@settings(deadline=None)
@given(data=st.data(), word=st.sampled_from(COMPOSED))
def test_compiled_exactly_is_numpy_to_the_bit_for_any_floats(
    words: Words, data: st.DataObject, word: str
) -> None:
    shape = data.draw(st.integers(1, 20))
    inputs = [
        data.draw(arrays(np.float32, shape, elements=st.floats(width=32)))
        for _ in word_program(word).inputs
    ]
    assert_same_bits(words["exact"][word](*inputs), words["numpy"][word](*inputs), *inputs)


HAS_FMA = llvmlite.binding.get_host_cpu_features().get("fma", False)


@pytest.mark.skipif(not HAS_FMA, reason="a CPU without fused multiply-add")
def test_the_fast_path_does_fuse(words: Words) -> None:
    """Otherwise the fast path of this file is the exact one, tested twice."""
    x = f32(np.linspace(-10, 10, 10_001))
    assert (words["fast"]["sin"](x) != words["exact"]["sin"](x)).any()
