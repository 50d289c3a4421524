"""Recorded programs as Triton kernels: the interpreter computes what NumPy does, to the bit; and
the same text compiles."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from operant import lang
from operant.compiler.emit import triton_program as triton_source
from operant.compiler.emit.program_source import COMPOSED, composed_words
from operant.compiler.philox import philox, uniforms
from operant.compiler.recording.trace import BOOL, FLOAT, INT, Program, Symbol
from operant.compiler.spec.rules import NUMPY_DTYPES
from operant.lang.batch import batch
from operant.lang.words import bits_of, float_of

from ...modules import load as load_file

INF, NAN = math.inf, math.nan
INPUTS = {"x": FLOAT, "y": FLOAT, "p_k": FLOAT, "n": INT, "m": INT, "c": BOOL, "d": BOOL}
Values = dict[str, Any]


def always(c: Any, value: Any) -> Any:
    """A constant that is a value: recorded, it is an argument like any other."""
    return lang.where(c | ~c, value, value)


def whole(x: Any) -> Any:
    """to_int() where it is defined: neither NaN nor beyond 32 bits."""
    return lang.to_int(lang.clip(lang.where(x == x, x, 0.0), -1e6, 1e6))


WORDS = {name: getattr(lang, name) for name in lang.__all__} | {
    "whole": whole,
    "always": always,
    "bits_of": bits_of,
    "float_of": float_of,
    "inf": INF,
    "nan": NAN,
}

ARITHMETIC = """
    x+y x-y x*y x/y -x x+0.1 2.5-x x*1e-3 x/3.0 2.0/x x+n n-x x*n x/m n/m n/7 1/n x**2 x**3 n+m n-m
    n*m -n n+7 100-n n**2 abs(x) abs(n) p_k+x p_k*p_k x/p_k sqrt(x) sqrt(p_k) x**0.5 n**0.5
    floor(x) ceil(x) x//y x%y x//0.3 x%0.3 1.0//x 1.0%x n//m n%m n//7 n%7 n//-3 n%-3 7//m 7%m -7//m
    -7%m n//0 n%0 m//n m%n"""
CHOICES = """
    x<y x<=y x>y x>=y x==y x!=y x<0.5 0.5<=x x==x x!=x n<m n<=m n>m n>=m n==m n!=m n<3 n==3 m>=x
    c==d c!=d c&d c|d c^d ~c logical_not(x<y) c&True c|False n&m n|m n^m n&255 n|1 n^-1 n<<3 n<<0
    n<<31 n>>2 n>>31 m>>1 where(c,x,y) where(c,x,0.5) where(c,0.5,x) where(c,0.5,-0.5)
    where(c,x,n) where(c,n,m) where(c,n,3) where(c,3,n) where(c,3,-4) where(c,d,x<y) where(c,d,True)
    where(c,False,d) where(c,True,False) where(x<y,inf,x) where(x<y,-inf,nan) where(c,2147483647,n)
    minimum(x,y) maximum(x,y) minimum(x,0.5) minimum(0.5,x) maximum(x,-0.5) maximum(-0.5,x)
    minimum(x,p_k) maximum(p_k,x) minimum(x,nan) minimum(nan,x) maximum(x,nan) maximum(nan,x)
    minimum(x,inf) maximum(-inf,x) minimum(n,m) maximum(n,m) minimum(n,3) maximum(3,n)
    minimum(n,x) maximum(x,m) clip(x,-1.5,2.0) clip(x,-p_k,p_k) clip(p_k,x,y) clip(n,-3,3)
    clip(n,m,5) sign(x) sign(n)"""
CONVERSIONS = """
    to_float(n) to_float(c) to_int(c) whole(x) whole(-2.5*x) bits_of(x) float_of(n)
    float_of(bits_of(x)&2147483647) floor(whole(x)/2)"""
COMPOSED_WORDS = """
    sin(x) cos(x) tan(x) exp(x) log(x) tanh(x) atan(x) atan2(x,y) atan2(0.5,x) sin(n) cos(0.5*n)
    exp(-x*x) log(abs(x)) tan(p_k) sin(cos(x)) uniform(p_k,x,y) normal(0.25*p_k,0.5*p_k)
    randint(0.25*p_k,7) randint(0.25*p_k,(n&7)+1)"""
CONSTANTS = " ".join(
    [
        *[f"{word}(always(c,0.7))" for word in COMPOSED if word != "atan2"],
        *["atan2(always(c,0.7),-2.0)", "atan2(1.0,always(c,-0.7))", "sqrt(always(c,2.0))"],
        *["floor(always(c,-2.5))", "ceil(always(c,-2.5))", "abs(always(c,-2.5))", "-always(c,2.5)"],
        *["always(c,0.1)+always(c,0.2)", "always(c,0.1)*0.3", "1.0/always(c,3.0)"],
        *["always(c,0.1)//0.03", "always(c,-7)//2", "always(c,-7)%always(c,4)", "always(c,7)//0"],
        *["always(c,7)<<2", "always(c,-7)>>1", "always(c,6)&3", "always(c,6)-always(c,7)"],
        *[
            "-always(c,7)",
            "always(c,0.5)<always(c,0.7)",
            "always(c,7)==7",
            "always(c,7)!=6",
            "~always(c,True)",
        ],
        *[
            "always(c,True)&always(c,False)",
            "always(c,True)^True",
            "always(c,6)|1",
            "always(c,0.5)<=0.5",
            "minimum(always(c,0.5),0.7)",
        ],
        *["maximum(always(c,0.5),always(c,nan))", "maximum(always(c,nan),0.5)"],
        *["minimum(always(c,3),always(c,-4))", "where(d,always(c,0.5),always(c,nan))"],
        *["always(c,inf)-always(c,inf)", "always(c,inf)+x", "x*always(c,nan)", "to_float(n)*0.0"],
        *["bits_of(always(c,0.5))", "float_of(always(c,7))", "always(c,-2147483647)-1"],
        *[f"always(c,{value})" for value in (0.1, 0.0, 7, -7, True, False, INF, -INF, NAN, 1e-45)],
        *[f"always(c,{value})" for value in (3.4028234663852886e38, 2147483647, -2147483648)],
    ]
)
TEXTS = " ".join([ARITHMETIC, CHOICES, CONVERSIONS, COMPOSED_WORDS, CONSTANTS]).split()
LONG = "+".join([f"{k}.5*x*y" for k in range(1, 12)])  # gets a name of its own
TEXTS += ["-x", "where(x<y,-x,x)", "always(c,-0.0)", "atan2(x,0.5)", "always(c,1e-40)"]
TEXTS += ["x/1e-40", "x%1e-40", "minimum(x,1e-40)", "maximum(-0.0,x)", "where(c,x,-1e-40)"]
TEXTS += [LONG, f"({LONG})*({LONG})", f"where(({LONG})<0.0,x,y)"]


def evaluate(text: str, values: Values) -> Any:
    with np.errstate(all="ignore"):
        return eval(text, {**WORDS, **values})


def record(texts: list[str]) -> Program:
    program = Program()
    values = {name: program.input(name, dtype) for name, dtype in INPUTS.items()}
    for text in texts:
        result = evaluate(text, values)
        assert isinstance(result, Symbol), text
        program.outputs.append(result.index)
    return program


def kernel_source(texts: list[str]) -> str:
    """A module whose ``kernel`` writes output k of each lane to row k of the tensor of its type."""
    program = record(texts)
    words = [
        f"@triton.jit\n{triton_source.word_source(word)}" for word in composed_words([program])
    ]
    names = {name: f"v_{name}" for name in INPUTS}
    lines, outputs = triton_source.program_source(program, names, "t")
    loads = [f"v_{name} = tl.load({name} + i, mask=here, other=0)" for name in INPUTS]
    stores = [
        f"tl.store(out_{program.nodes[index].dtype} + {k} * size + i, {text}, mask=here)"
        for k, (index, text) in enumerate(zip(program.outputs, outputs, strict=True))
    ]
    body = [
        "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
        "here = i < size",
        *loads,
        *lines,
        *stores,
    ]
    arguments = f"{', '.join(INPUTS)}, out_float, out_int, out_bool, size, BLOCK: tl.constexpr"
    return "\n\n".join(
        [
            "import triton\nimport triton.language as tl",
            "from operant.compiler.runtime.triton_words import *",
            *words,
            f"@triton.jit\ndef kernel({arguments}):\n" + "".join(f"    {x}\n" for x in body),
        ]
    )


def load(source: str, path: Path) -> ModuleType:
    """The module with this text; Triton reads it again from the file."""
    path.write_text(source)
    return load_file(path)


@pytest.fixture
def kernel(interpreter: None, tmp_path: Path) -> Any:
    return load(kernel_source(TEXTS), tmp_path / "expressions.py").kernel


def batches(columns: dict[str, Any]) -> Values:
    return {name: batch(np.array(columns[name], NUMPY_DTYPES[INPUTS[name]])) for name in INPUTS}


def ordinary(count: int, seed: int = 8) -> Values:
    rng = np.random.default_rng(seed)
    return batches(
        {
            "x": rng.normal(0, 3, count),
            "y": rng.normal(0, 300, count),
            "p_k": rng.uniform(0.5, 2, count),
            "n": rng.integers(-(2**31) + 1, 2**31, count),
            "m": rng.integers(-9, 10, count),
            "c": rng.integers(0, 2, count) == 1,
            "d": rng.integers(0, 2, count) == 1,
        }
    )


def assert_kernel_equals_numpy(
    kernel: Any, values: Values, texts: list[str] = TEXTS, device: str = "cpu"
) -> None:
    size = len(values["x"])
    block = 1 << max(size - 1, 1).bit_length() if device == "cpu" else 64
    kinds = {FLOAT: torch.float32, INT: torch.int32, BOOL: torch.bool}
    shape = (len(texts), size)
    outs = {kind: torch.zeros(shape, dtype=dtype, device=device) for kind, dtype in kinds.items()}
    inputs = [torch.from_numpy(np.array(values[name])).to(device) for name in INPUTS]
    with np.errstate(all="ignore"):
        kernel[(-(-size // block),)](
            *inputs, *outs.values(), size, BLOCK=block, enable_fp_fusion=False
        )
    program = record(texts)
    for k, text in enumerate(texts):
        found = outs[program.nodes[program.outputs[k]].dtype][k].cpu().numpy()
        wanted = np.broadcast_to(np.asarray(evaluate(text, values)), found.shape)
        assert found.dtype == wanted.dtype, text
        same = bits(found) == bits(wanted)
        if not same.all():
            j = int(np.argmin(same))
            where = {name: value[j] for name, value in values.items()}
            pytest.fail(f"{text} gives {found[j]!r} instead of {wanted[j]!r} at {where}")


def bits(array: np.ndarray) -> np.ndarray:
    """Floats as their bits, every NaN as the same."""
    if array.dtype != np.float32:
        return array
    return np.where(np.isnan(array), np.float32(NAN), array).view(np.int32)


def test_every_operation_is_among_the_expressions() -> None:
    program = record(TEXTS)
    used = {node.op for node in program.nodes} - {"constant", "input"}
    known = {*triton_source._INFIX, *triton_source._CALLS, *triton_source._METHODS, *COMPOSED}
    assert used == known | {"minimum", "maximum", "negative", "not"}
    of_constants = {
        node.op
        for node in program.nodes
        if node.args and all(program.nodes[arg].op == "constant" for arg in node.args)
    }
    assert of_constants >= used - {"where", "to_float", "to_int"}  # computed when recorded


def test_kernel_equals_numpy_on_ordinary_numbers(kernel: Any) -> None:
    assert_kernel_equals_numpy(kernel, ordinary(3000))


ODD = (NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.1, 2.5, -3e30, 2.0**24, 1e-30)
EXTREME = (*ODD, 1e-45, -1e-45, -3e38, 1e-38)


def special_numbers(special: tuple[float, ...] = EXTREME) -> Values:
    x, y = (grid.ravel() for grid in np.meshgrid(special, special))
    whole_numbers = [-(2**31) + 1, -3, -1, 0, 1, 2, 7, 2**31 - 1]
    n, m = (np.resize(grid, len(x)) for grid in np.meshgrid(whole_numbers, whole_numbers))
    return ordinary(len(x)) | {"x": batch(x), "y": batch(y), "n": batch(n), "m": batch(m)}


def test_kernel_equals_numpy_on_special_numbers(kernel: Any) -> None:
    assert_kernel_equals_numpy(kernel, special_numbers())


ROW = st.tuples(
    st.floats(width=32),
    st.floats(width=32),
    st.floats(0.5, 2.0, width=32),
    st.integers(-(2**31) + 1, 2**31 - 1),
    st.integers(-9, 9),
    st.booleans(),
    st.booleans(),
)


@settings(
    deadline=None,
    max_examples=8,
    phases=[Phase.explicit, Phase.generate],  # others would run the interpreter for minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rows=st.lists(ROW, min_size=1, max_size=100))
def test_kernel_equals_numpy_on_any_numbers(kernel: Any, rows: list[Any]) -> None:
    columns = dict(zip(INPUTS, zip(*rows, strict=True), strict=True))
    assert_kernel_equals_numpy(kernel, batches(columns))


COMPILE = """
import sys, importlib.util
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
spec = importlib.util.spec_from_file_location("expressions", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
kinds = {"size": "i32", "BLOCK": "constexpr", "n": "*i32", "m": "*i32", "c": "*i1", "d": "*i1"}
kinds |= {"out_int": "*i32", "out_bool": "*i1"}
names = module.kernel.arg_names
source = ASTSource(
    fn=module.kernel,
    signature={name: kinds.get(name, "*fp32") for name in names},
    constexprs={(names.index("BLOCK"),): 32},
)
options = {"num_warps": 1, "enable_fp_fusion": False}
print(compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"])
"""


@pytest.fixture(scope="module")
def ptx(tmp_path_factory: pytest.TempPathFactory, unmeasured: Callable[[], dict[str, str]]) -> str:
    pytest.importorskip("triton")
    path = tmp_path_factory.mktemp("kernels") / "expressions.py"
    path.write_text(kernel_source(TEXTS))
    environ = {key: value for key, value in unmeasured().items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(path)], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_compiled_operations_round_as_numpy_does(ptx: str) -> None:
    assert "fma.rn" not in ptx
    assert "div.full" not in ptx  # approximate
    assert "sqrt.approx" not in ptx
    assert ptx.count("div.rn.f32") >= 10
    assert ptx.count("sqrt.rn.f32") >= 4


# On a GPU --------------------------------------------------------------------------------------


@pytest.fixture
def on_gpu(tmp_path: Path) -> Any:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    return load(kernel_source(TEXTS), tmp_path / "expressions.py").kernel


@pytest.mark.gpu
def test_a_gpu_computes_what_numpy_does(on_gpu: Any) -> None:
    assert_kernel_equals_numpy(on_gpu, ordinary(20_000), device="cuda")
    assert_kernel_equals_numpy(on_gpu, special_numbers(ODD), device="cuda")


@pytest.mark.gpu
def test_a_gpu_rounds_tiny_numbers_as_numpy_does(on_gpu: Any) -> None:
    assert_kernel_equals_numpy(on_gpu, special_numbers(), device="cuda")


# Random numbers ---------------------------------------------------------------------------------

DRAWS = """
import triton
import triton.language as tl
from operant.compiler.runtime.triton_words import philox, uniforms

@triton.jit
def words(counters, keys, out, BLOCK: tl.constexpr, LAST: tl.constexpr):
    i = tl.arange(0, BLOCK)
    c0 = tl.load(counters + i).to(tl.uint32, bitcast=True)
    c1 = tl.load(counters + BLOCK + i).to(tl.uint32, bitcast=True)
    c2 = tl.load(counters + 2 * BLOCK + i).to(tl.uint32, bitcast=True)
    k0 = tl.load(keys + i).to(tl.uint32, bitcast=True)
    k1 = tl.load(keys + BLOCK + i).to(tl.uint32, bitcast=True)
    w0, w1, w2, w3 = philox(c0, c1, c2, LAST, k0, k1)
    tl.store(out + i, w0.to(tl.int32, bitcast=True))
    tl.store(out + BLOCK + i, w1.to(tl.int32, bitcast=True))
    tl.store(out + 2 * BLOCK + i, w2.to(tl.int32, bitcast=True))
    tl.store(out + 3 * BLOCK + i, w3.to(tl.int32, bitcast=True))

@triton.jit
def draws(step, episode, high, low, index, out, BLOCK: tl.constexpr, PART: tl.constexpr):
    i = tl.arange(0, BLOCK)
    u0, u1, u2, u3 = uniforms(
        tl.load(step + i),
        tl.load(episode + i),
        tl.load(high + i),
        PART,
        tl.load(low + i),
        tl.load(index + i),
    )
    tl.store(out + i, u0)
    tl.store(out + BLOCK + i, u1)
    tl.store(out + 2 * BLOCK + i, u2)
    tl.store(out + 3 * BLOCK + i, u3)
"""
COUNT = 512


@pytest.fixture
def random_kernels(interpreter: None, tmp_path: Path) -> ModuleType:
    return load(DRAWS, tmp_path / "draws.py")


def random_words(rows: int) -> np.ndarray:
    """uint32 ``[rows, COUNT]``, the extremes among them."""
    words = np.random.default_rng(4).integers(0, 2**32, (rows, COUNT), np.uint32)
    words[:, :3] = [[0, 2**32 - 1, 2**31]] * rows
    return words


@pytest.mark.parametrize("last", [0, 1, 15, 1 << 16])
def test_philox_equals_numpy(random_kernels: ModuleType, last: int) -> None:
    words = random_words(5)
    given = torch.from_numpy(words.view(np.int32))
    out = torch.zeros(4, COUNT, dtype=torch.int32)
    random_kernels.words[(1,)](given[:3].clone(), given[3:].clone(), out, BLOCK=COUNT, LAST=last)
    wanted = philox((*words[:3], last), (words[3], words[4]))
    np.testing.assert_array_equal(out.numpy().view(np.uint32), wanted)


@pytest.mark.parametrize("block", [0, 3])
def test_uniforms_equal_numpy(random_kernels: ModuleType, block: int) -> None:
    words = random_words(5)
    step, episode, high, low, index = words
    seed = low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))
    signed = [torch.from_numpy(word.view(np.int32)) for word in words]
    out = torch.zeros(4, COUNT)
    random_kernels.draws[(1,)](*signed, out, BLOCK=COUNT, PART=block)
    wanted = uniforms(seed, index, episode, step, 4 * block + 4)[4 * block :]
    np.testing.assert_array_equal(out.numpy(), wanted)
    assert 0.0 <= float(out.min()) < 0.01
    assert 0.99 < float(out.max()) < 1.0
