"""Recorded programs as C++ for the GPU: the system's compiler computes what NumPy does, to the
bit, and so does a GPU."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from operant.compiler.emit import cuda_program as cuda_source
from operant.compiler.emit.program_source import COMPOSED, composed_words
from operant.compiler.recording.trace import BOOL, FLOAT, INT
from operant.compiler.runtime.cuda_words import WORDS
from operant.toolchain.host_kernels import host_compiler
from operant.toolchain.nvrtc import EXACT, compile_source

from . import test_triton_source as expressions
from .test_triton_source import INPUTS, TEXTS

KINDS = {FLOAT: np.float32, INT: np.int32, BOOL: np.bool_}
BEGIN = """
#ifdef __CUDACC__
#define DEVICE static __device__
#else
#include <cmath>
#include <cstring>
#define DEVICE static
DEVICE int __float_as_int(float x) { int found; memcpy(&found, &x, 4); return found; }
DEVICE float __int_as_float(int x) { float found; memcpy(&found, &x, 4); return found; }
#endif
"""
END = """
#ifdef __CUDACC__
extern "C" __global__ void kernel(const Args a) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < a.size) compute(a, i);
}
#else
extern "C" void kernel(const Args* a) {
  for (int i = 0; i < a->size; ++i) compute(*a, i);
}
#endif
"""


def source() -> str:
    """A program that writes output k of each lane to row k of the array of its type."""
    program = expressions.record(TEXTS)
    names = {name: f"a.{name}[i]" for name in INPUTS}
    lines, outputs = cuda_source.program_source(program, names, "t")
    members = [f"const {cuda_source.TYPES[kind]}* {name};" for name, kind in INPUTS.items()]
    members += [f"{cuda_source.TYPES[kind]}* out_{kind};" for kind in KINDS]
    stores = [
        f"a.out_{program.nodes[index].dtype}[{k} * a.size + i] = {text};"
        for k, (index, text) in enumerate(zip(program.outputs, outputs, strict=True))
    ]
    return "\n".join(
        [
            BEGIN,
            WORDS,
            *[cuda_source.word_source(word) for word in composed_words([program])],
            f"struct Args {{ {' '.join(members)} long long size; }};",
            "DEVICE void compute(const Args& a, long long i) {",
            *[f"  {line}" for line in [*lines, *stores]],
            "}",
            END,
        ]
    )


@pytest.fixture(scope="module")
def on_host(tmp_path_factory: pytest.TempPathFactory) -> Callable[[np.ndarray, int], None]:
    if host_compiler() is None:
        pytest.skip("no C++ compiler")
    library = tmp_path_factory.mktemp("expressions") / "expressions.so"
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-x", "c++", "-"]
    command = [str(host_compiler()), *options, "-o", str(library)]
    done = subprocess.run(command, input=source(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:5000]
    kernel = ctypes.CDLL(str(library)).kernel
    return lambda argument, _: kernel(ctypes.c_void_p(argument.ctypes.data))


def assert_equals_numpy(launch: Any, values: Any, device: str = "cpu") -> None:
    size, program = len(values["x"]), expressions.record(TEXTS)
    given = [torch.from_numpy(np.array(values[name])).to(device) for name in INPUTS]
    outs = {
        kind: torch.from_numpy(np.zeros((len(TEXTS), size), dtype)).to(device)
        for kind, dtype in KINDS.items()
    }
    pointers = [tensor.data_ptr() for tensor in (*given, *outs.values())]
    launch(np.array([*pointers, size], np.uint64), size)
    for k, text in enumerate(TEXTS):
        found = outs[program.nodes[program.outputs[k]].dtype][k].cpu().numpy()
        wanted = np.broadcast_to(np.asarray(expressions.evaluate(text, values)), found.shape)
        same = expressions.bits(found) == expressions.bits(wanted)
        if not same.all():
            j = int(np.argmin(same))
            where = {name: value[j] for name, value in values.items()}
            pytest.fail(f"{text} gives {found[j]!r} instead of {wanted[j]!r} at {where}")


def test_every_operation_is_printed() -> None:
    used = {node.op for node in expressions.record(TEXTS).nodes} - {"constant", "input"}
    known = {*cuda_source._INFIX, *cuda_source._CALLS, *COMPOSED}
    assert used == known | {"minimum", "maximum", "negative", "not", "abs", "where"}


def test_it_computes_what_numpy_does(on_host: Any) -> None:
    assert_equals_numpy(on_host, expressions.ordinary(3000))
    assert_equals_numpy(on_host, expressions.special_numbers())


def test_it_compiles_for_a_gpu(nvrtc: Any) -> None:
    assert compile_source(nvrtc, source(), ("--gpu-architecture=sm_90", *EXACT))


@pytest.mark.gpu
def test_a_gpu_computes_what_numpy_does() -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    from operant.toolchain.nvrtc import Kernels

    kernels = Kernels(source(), ["kernel"], torch.device("cuda", 0))

    def launch(argument: np.ndarray, size: int) -> None:
        kernels.launch("kernel", -(-size // 64), 64, argument)

    assert_equals_numpy(launch, expressions.ordinary(20_000), "cuda")
    assert_equals_numpy(launch, expressions.special_numbers(), "cuda")
