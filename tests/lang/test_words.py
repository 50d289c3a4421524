"""The words mean the same for symbols, for arrays and for Python numbers.

Random expressions are evaluated on NumPy arrays, recorded and interpreted node by node, and
recorded and compiled. All must agree to the bit; where fused multiply-adds are allowed, to a few
units in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operant import lang
from operant.compiler.emit import numba_kernels as kernels
from operant.compiler.emit.numba_program import function_source, word_source
from operant.compiler.emit.program_source import COMPOSED, composed_words
from operant.compiler.recording.trace import BOOL, FLOAT, INT, Program, Symbol
from operant.compiler.spec.rules import NUMPY_DTYPES
from operant.lang import floats
from operant.lang.batch import Batch, batch

from ..modules import load

INPUTS = {"x": FLOAT, "y": FLOAT, "p": FLOAT, "u": FLOAT, "n": INT, "m": INT, "c": BOOL}
INF, NAN = math.inf, math.nan
Values = dict[str, Any]


def whole(x: Any) -> Any:
    """to_int() where it is defined: neither NaN nor beyond 32 bits."""
    return lang.to_int(lang.clip(lang.where(x == x, x, 0.0), -1e6, 1e6))


WORDS = {name: getattr(lang, name) for name in lang.__all__} | {"whole": whole}


def evaluate(text: str, values: Values) -> Any:
    with np.errstate(all="ignore"):
        return eval(text, {**WORDS, **values})


# Random expressions -----------------------------------------------------------------------------
# A, B: floats. I, J: ints. P, Q: truth values. S, T: floats above zero. K, L: constants.
GRAMMAR = {
    "A": """x y u to_float(I) to_float(P) (-A) (A+B) (A-B) (A*B) (A/B) (A//B) (A%B) (A+K) (K-A)
        (A*K) (K/A) (A/K) (A%K) (A//K) (A*I) (I-A) (I/J) (I/L) (L/I) (I*K) (I%A) abs(A) floor(A)
        ceil(A) sqrt(A) sign(A) sign(I) sin(A) cos(A) tan(A) exp(A) log(A) tanh(A) atan(A)
        atan2(A,B) sin(I) minimum(A,B) maximum(A,B) minimum(A,K) maximum(K,A) minimum(I,A)
        clip(A,-1.5,K) clip(I,-K,K) where(P,A,B) where(P,A,I) where(P,K,A) where(P,L,A)
        where(P,K,-K) (A)**2 (A)**3 (A)**0.5 (I)**0.5 uniform(u,A,B) uniform(u,-K,K)
        normal(u,p/2.5)""",
    "I": """n m whole(A) to_int(P) (-I) (I+J) (I-J) (I*J) (I//J) (I%J) (I//L) (I%L) (L-I) (I&J)
        (I|L) (I^J) (I&L) (I<<3) (I>>2) abs(I) minimum(I,J) maximum(I,L) clip(I,-L,L) where(P,I,J)
        where(P,I,L) (I)**2 randint(u,L) randint(u,(I&7)+1)""",
    "P": """c (A<B) (A<=B) (A>K) (A>=I) (I==J) (I!=L) (I<J) (I>=L) (A==B) (A!=B) (P&Q) (P|Q) (P^Q)
        (~P) logical_not(P) where(P,P,Q) (P==Q) (I>K)""",
    "S": """p (S+T) (S*T) (S/T) (S+K) (K/S) (S*K) sqrt(S) maximum(S,T) minimum(S,K) where(c,S,T)
        where((n<m),S,K) (sin(clip(S,0.0,3.0))+1.5) (cos(clip(S,0.0,3.0))+1.5) log(S+1.5) tanh(S)
        exp(clip(S,0.0,3.0)) (tan(clip(S,0.0,1.0))+0.5) atan(S) atan2(S,T) (S)**2 abs(S)""",
}
SAME = {"B": "A", "J": "I", "Q": "P", "T": "S"}
CONSTANTS = {"K": ["0.1", "2.5", "3.0", "1e-3", "pi"], "L": ["1", "3", "7", "100"]}
LEAVES = {"A": 3, "I": 2, "P": 1, "S": 1}  # how many of the first alternatives hold no other


def expression(random: Random, kind: str, depth: int) -> str:
    """A random expression of `kind`, as Python text."""
    kind = SAME.get(kind, kind)
    if kind in CONSTANTS:
        return random.choice(CONSTANTS[kind])
    choices = GRAMMAR[kind].split()
    chosen = random.choice(choices[: LEAVES[kind]] if depth == 0 else choices)
    return "".join(
        expression(random, letter, depth - 1) if letter.isupper() else letter for letter in chosen
    )


def record(texts: list[str]) -> Program:
    program = Program()
    values = {name: program.input(name, dtype) for name, dtype in INPUTS.items()}
    for text in texts:
        result = evaluate(text, values)
        assert isinstance(result, Symbol)
        program.outputs.append(result.index)
    return program


NODES: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "floor_divide": np.floor_divide,
    "mod": np.remainder,
    "negative": np.negative,
    "abs": np.abs,
    "less": np.less,
    "less_equal": np.less_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.logical_not,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "where": np.where,
    "floor": np.floor,
    "ceil": np.ceil,
    "sqrt": np.sqrt,
    "to_float": lambda x: x.astype(np.float32),
    "to_int": lambda x: x.astype(np.int32),
} | {word: getattr(floats, word) for word in COMPOSED}


def interpret(program: Program, values: Values) -> list[np.ndarray]:
    """Run a program node by node; each result must have the dtype that was recorded."""
    results: list[Any] = []
    for node in program.nodes:
        dtype = NUMPY_DTYPES[node.dtype]
        if node.op == "input":
            result = np.asarray(values[str(node.value)])
        elif node.op == "constant":
            result = np.full(len(values["x"]), node.value, dtype)
        else:
            result = np.asarray(NODES[node.op](*[results[arg] for arg in node.args]))
        assert result.dtype == dtype, node
        results.append(result)
    return [results[output] for output in program.outputs]


def assert_equal(text: str, a: Any, b: Any, values: Values) -> None:
    """Equal to the bit, but for the sign of a zero and the payload of a NaN."""
    assert a.dtype == b.dtype, text
    same = (a == b) | ((a != a) & (b != b))
    if not same.all():
        k = int(np.argmin(same))
        where = {name: value[k] for name, value in values.items()}
        pytest.fail(f"{text} gives {a[k]!r} and {b[k]!r} at {where}")


def batches(columns: dict[str, Any]) -> Values:
    return {name: batch(np.array(columns[name], NUMPY_DTYPES[INPUTS[name]])) for name in INPUTS}


ANY_FLOAT = st.floats(width=32)
ROW = st.fixed_dictionaries(
    {
        "x": ANY_FLOAT,
        "y": ANY_FLOAT,
        "p": st.floats(0.5, 2.0, width=32),
        "u": st.integers(0, 2**24 - 1).map(lambda k: k * 2.0**-24),
        "n": st.integers(-(2**31), 2**31 - 1),
        "m": st.integers(-9, 9),
        "c": st.booleans(),
    }
)
ROWS = st.lists(ROW, min_size=1, max_size=40).map(
    lambda rows: batches({name: [row[name] for row in rows] for name in INPUTS})
)


def ordinary(count: int) -> Values:
    rng = np.random.default_rng(8)
    return batches(
        {
            "x": rng.normal(0, 3, count),
            "y": rng.normal(0, 300, count),
            "p": rng.uniform(0.5, 2, count),
            "u": rng.integers(0, 2**24, count) * 2.0**-24,
            "n": rng.integers(-(2**31), 2**31, count),
            "m": rng.integers(-9, 10, count),
            "c": rng.integers(0, 2, count) == 1,
        }
    )


@settings(deadline=None, max_examples=300)
@given(random=st.randoms(use_true_random=False), kind=st.sampled_from("AIPS"), values=ROWS)
def test_arrays_compute_what_symbols_record(random: Random, kind: str, values: Values) -> None:
    text = expression(random, kind, 3)
    result = evaluate(text, values)
    assert isinstance(result, Batch)
    with np.errstate(all="ignore"):
        (recorded,) = interpret(record([text]), values)
    assert_equal(text, np.asarray(result), recorded, values)


# Compiled ---------------------------------------------------------------------------------------
def some_expressions(seed: int, kinds: str, depth: int) -> list[str]:
    random = Random(seed)
    return [expression(random, kind, depth) for kind in kinds]


ANY = [
    *some_expressions(35, "A" * 18 + "I" * 10 + "P" * 6, 3),
    *["minimum(x, y)", "maximum(x, y)", "minimum(x, 2.5)", "maximum(0.1, x)", "clip(x, -p, p)"],
    *["clip(p, x, y)", "minimum(n, x)", "maximum(n, m)", "sign(x)", "x // y", "x % y", "n / m"],
]
"""Every operator and word; equal to the bit where nothing is fused."""
SAFE = [
    *some_expressions(2, "S" * 10, 4),
    *["n // m", "n % m", "n // 7", "n % 7", "n * n", "(n << 3) ^ (m >> 1)", "abs(n)"],
    *["minimum(n, m)", "randint(u, 7)", "(n < m) & c", "~c ^ (m == 3)"],
]
"""Floats that cannot cancel, and integers: fusing changes the last places at most."""


def compiled(
    texts: list[str], flags: str, folder: Path
) -> Callable[[Values], Iterator[np.ndarray]]:
    """The expressions as one function of the kernels' kind, in a loop over arrays."""
    program = record(texts)
    parts = [kernels.HEADER.format(name="expressions", version="")]
    for word in composed_words([program]):
        parts.append(f"@njit(**{flags})\n{word_source(word, '_w')}")
    parts.append(f"@njit(**{flags})\n{function_source(program, 'expressions', '_w')}")
    loop = [
        f"@njit(**{flags})",
        f"def loop({', '.join(INPUTS)}, out_float, out_int, out_bool):",
        "    for i in range(x.shape[0]):",
        f"        out = expressions({', '.join(f'{name}[i]' for name in INPUTS)})",
    ]
    for k, output in enumerate(program.outputs):
        loop.append(f"        out_{program.nodes[output].dtype}[{k}, i] = out[{k}]")
    path = folder / f"expressions_{flags.lower()}.py"
    path.write_text("\n\n".join([*parts, "\n".join(loop)]))
    module = load(path)

    def run(values: Values) -> Iterator[np.ndarray]:
        shape = (len(texts), len(values["x"]))
        outs = {dtype: np.zeros(shape, NUMPY_DTYPES[dtype]) for dtype in (FLOAT, INT, BOOL)}
        module.loop(*[np.asarray(values[name]) for name in INPUTS], *outs.values())
        for k, output in enumerate(program.outputs):
            yield outs[program.nodes[output].dtype][k]

    return run


Run = Callable[[Values], Iterator[np.ndarray]]


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return compiled(ANY + SAFE, "EXACT", tmp_path_factory.mktemp("expressions"))


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return compiled(SAFE, "FAST", tmp_path_factory.mktemp("expressions"))


def test_the_compiled_expressions_hold_every_operation() -> None:
    """A seed that leaves something out tests nothing of it."""
    used = {node.op for node in record(ANY + SAFE).nodes}
    assert used == {*NODES, "constant", "input"}


def test_compiled_exactly_equals_numpy_on_ordinary_numbers(exact: Run) -> None:
    values = ordinary(5000)
    for text, result in zip(ANY + SAFE, exact(values), strict=True):
        assert_equal(text, np.asarray(evaluate(text, values)), result, values)


def test_compiled_exactly_equals_numpy_on_special_numbers(exact: Run) -> None:
    special = [NAN, INF, -INF, 0.0, 1.0, -1.0, 0.1, 2.5, -2.5, 1e-45, -3e38, 2.0**24]
    x, y = (grid.ravel() for grid in np.meshgrid(special, special))
    values = ordinary(len(x)) | {"x": batch(x), "y": batch(y)}
    for text, result in zip(ANY + SAFE, exact(values), strict=True):
        assert_equal(text, np.asarray(evaluate(text, values)), result, values)


@settings(deadline=None)
@given(values=ROWS)
def test_compiled_exactly_equals_numpy_on_any_numbers(exact: Run, values: Values) -> None:
    for text, result in zip(ANY + SAFE, exact(values), strict=True):
        assert_equal(text, np.asarray(evaluate(text, values)), result, values)


def test_compiled_fast_is_close_to_numpy(fast: Run) -> None:
    values = ordinary(5000)
    for text, result in zip(SAFE, fast(values), strict=True):
        reference = np.asarray(evaluate(text, values))
        assert result.dtype == reference.dtype
        if result.dtype == np.float32:
            np.testing.assert_allclose(result, reference, rtol=1e-6, err_msg=text)
        else:
            np.testing.assert_array_equal(result, reference, err_msg=text)


# Python numbers ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        *[
            "sin(x)",
            "cos(x)",
            "tan(x)",
            "exp(x)",
            "tanh(x)",
            "atan(x)",
            "atan2(y,x)",
            "log(abs(y))",
        ],
        *[
            "abs(x)",
            "sign(x)",
            "sign(n)",
            "floor(y)",
            "ceil(y)",
            "sqrt(abs(x))",
            "clip(x,-1.0,0.5)",
        ],
        *["minimum(x,y)", "maximum(x,y)", "minimum(n,m)", "maximum(n,m)", "clip(n,-3,3)"],
        *[
            "where(c,x,y)",
            "where(x<y,n,m)",
            "logical_not(c)",
            "to_float(n)",
            "to_int(y)",
            "to_int(c)",
        ],
        *["to_float(c)", "uniform(u,x,y)", "randint(u,10)", "normal(u,p/2.5)"],
        *["x%p", "y//p", "n%m", "n//m", "x**2", "p**0.5", "n/m", "(x<y)|c", "x*n"],
    ],
)
def test_python_numbers_give_what_arrays_give(text: str) -> None:
    values = ordinary(200)
    values["y"], values["n"] = values["y"] % 10.0, values["n"] % 1000
    values["m"] = lang.where(values["m"] == 0, 4, values["m"])
    expected = evaluate(text, values)
    for k in range(200):
        numbers = {name: value[k].item() for name, value in values.items()}
        result = evaluate(text, numbers)
        assert type(result) is type(expected[k].item())
        assert result == pytest.approx(expected[k].item(), rel=2e-6, abs=2e-6)


@pytest.mark.parametrize("word", ["minimum", "maximum"])
@pytest.mark.parametrize(("a", "b"), [(NAN, 1.0), (1.0, NAN), (NAN, NAN), (NAN, INF), (-INF, NAN)])
def test_nan_wins_in_minimum_and_maximum(word: str, a: float, b: float) -> None:
    function = getattr(lang, word)
    first, second = (batch(np.full(9, value)) for value in (a, b))
    assert math.isnan(function(a, b))
    for result in (function(first, second), function(first, b), function(a, second)):
        assert np.isnan(result).all()


def test_clip_keeps_nan_and_limits_the_rest() -> None:
    x = batch(np.array([NAN, -INF, -2.0, 0.5, 2.0, INF]))
    np.testing.assert_array_equal(lang.clip(x, -1.0, 1.0), [NAN, -1.0, -1.0, 0.5, 1.0, 1.0])
    assert math.isnan(lang.clip(NAN, -1.0, 1.0))
    assert lang.clip(5, 0, 3) == 3


def test_the_sign_of_nan_is_zero() -> None:
    x = [NAN, -INF, -1e-45, -0.0, 0.0, 1e-45, INF]
    expected = [0.0, -1.0, -1.0, 0.0, 0.0, 1.0, 1.0]
    np.testing.assert_array_equal(lang.sign(batch(np.array(x))), expected)
    assert [lang.sign(value) for value in x] == expected


def test_words_carry_their_names_and_say_what_they_do() -> None:
    for name in set(lang.__all__) - {"LanguageError", "pi"}:
        word = getattr(lang, name)
        assert word.__name__ == name
        assert word.__doc__
    assert lang.pi == math.pi


# Drawing from distributions ---------------------------------------------------------------------
COUNT = 1_000_000
LAST = batch(np.array([1.0 - 2.0**-24]))  # the largest uniform number


@pytest.fixture(scope="module")
def draws() -> tuple[Batch, Batch]:
    """Uniform numbers as the library draws them: multiples of 2**-24 below 1."""
    numbers = np.random.default_rng(9).integers(0, 2**24, (2, COUNT)) * 2.0**-24
    return batch(numbers[0]), batch(numbers[1])


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-0.05, 0.05), (20.0, 40.0), (3, 7)])
def test_uniform(draws: tuple[Batch, Batch], low: float, high: float) -> None:
    values = lang.uniform(draws[0], low, high)
    assert values.dtype == np.float32
    assert values.min() >= np.float32(low)
    assert values.max() <= np.float32(high)
    spread = (high - low) / math.sqrt(12)
    wide = np.asarray(values, np.float64)
    assert abs(wide.mean() - (low + high) / 2) < 5 * spread / math.sqrt(COUNT)
    assert wide.std() == pytest.approx(spread, rel=5e-3)


def test_uniform_of_the_largest_number_is_not_above_high() -> None:
    for low, high in [(0.0, 1.0), (-0.05, 0.05), (20.0, 40.0), (-1e6, 3.0)]:
        assert low <= lang.uniform(LAST, low, high)[0] <= np.float32(high)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 10])
def test_randint_gives_each_number_equally_often(draws: tuple[Batch, Batch], n: int) -> None:
    values = lang.randint(draws[0], n)
    assert values.dtype == np.int32
    counts = np.bincount(values, minlength=n)
    assert len(counts) == n
    assert np.abs(counts - COUNT / n).max() <= 5 * math.sqrt(COUNT / n)


@settings(deadline=None)
@given(n=st.integers(1, 2**24))
def test_randint_is_never_n(n: int) -> None:
    assert lang.randint(LAST, n)[0] == n - 1
    assert lang.randint(1.0 - 2.0**-24, n) == n - 1
    assert lang.randint(batch(np.zeros(1)), n)[0] == 0


def test_normal(draws: tuple[Batch, Batch]) -> None:
    values = lang.normal(*draws)
    assert values.dtype == np.float32
    wide = np.asarray(values, np.float64)
    assert abs(wide.mean()) < 5 / math.sqrt(COUNT)
    assert wide.var() == pytest.approx(1.0, abs=5 * math.sqrt(2 / COUNT))
    assert (wide**4).mean() == pytest.approx(3.0, abs=5 * math.sqrt(96 / COUNT))
    for size, share in [(1.0, 0.682689), (2.0, 0.954500), (3.0, 0.997300)]:
        spread = math.sqrt(share * (1 - share) / COUNT)
        assert (np.abs(wide) < size).mean() == pytest.approx(share, abs=5 * spread)


def test_normal_is_finite_at_the_ends() -> None:
    ends = batch(np.array([0.0, 0.5, 1.0 - 2.0**-24]))
    u1, u2 = (batch(grid.ravel()) for grid in np.meshgrid(ends, ends))
    values = lang.normal(u1, u2)
    assert np.isfinite(values).all()
    assert 5.76 < np.abs(values).max() <= 5.77
