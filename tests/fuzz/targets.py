"""Plays one environment on several targets, and finds the first bit that differs."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import operant
from operant.compiler.emit import cuda_program as cuda_source
from operant.compiler.emit import numba_array_kernels as array_source
from operant.compiler.emit import numba_kernels as numba_source
from operant.compiler.emit.program_source import composed_words
from operant.compiler.recording.trace import BOOL, FLOAT, INT
from operant.compiler.runtime.cuda_words import WORDS
from operant.compiler.spec.rules import Rules, TracedRules
from operant.toolchain.host_kernels import HostKernels

LANES = 130
"""Environments of a large batch: two workers share it, and the last block is not full."""
FEW = 5
"""Environments of a batch in plain Python."""
STEPS = 24
_FUSED = '{{"contract"}}'
_KINDS: dict[str, Any] = {FLOAT: np.float32, INT: np.int32, BOOL: np.bool_}


class Difference(AssertionError):
    """Two targets computed different bits."""


def load(path: Path) -> Any:
    """The module of a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def unfused() -> Iterator[None]:
    """Kernels of the ``cpu`` backend are compiled without fused multiply-adds meanwhile."""
    header = numba_source.HEADER
    assert _FUSED in header
    try:
        numba_source.HEADER = array_source.HEADER = header.replace(_FUSED, "False")
        yield
    finally:
        numba_source.HEADER = array_source.HEADER = header


def same_bits(a: np.ndarray, b: np.ndarray, signed_zeros: bool = True) -> np.ndarray:
    """Where they are equal, zeros with their signs; all NaN are alike."""
    if a.dtype != np.float32:
        return a == b
    same = (a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))
    return same if signed_zeros else same | (a == b)


def play(env: type[operant.Env], targets: list[dict[str, Any]], seed: int, steps: int) -> int:
    """Play the same on every target; how many numbers were infinite or NaN.

    `targets` are arguments of `operant.make`. A batch may be larger than the first one: the
    environments that both have are compared.

    Raises:
        Difference: the first that was found.
    """
    mode = ("NextStep", "SameStep")[seed // 2 % 2]
    batches = [operant.make(env, seed=seed, autoreset_mode=mode, **target) for target in targets]
    random, strange = np.random.default_rng(seed), 0
    try:
        for batch in batches:
            batch.reset()
        for step in range(steps):
            strange += _compared(batches, targets, step)
            actions = _actions(batches[-1], random)
            for batch in batches:
                given = actions[: batch.num_envs]
                batch.step(given if batch.backend != "cuda" else _on(batch, given))
    finally:
        for batch in batches:
            batch.close()
    return strange


def _on(batch: Any, actions: np.ndarray) -> Any:
    return torch.from_numpy(np.ascontiguousarray(actions)).to(batch.device)


def _actions(batch: Any, random: np.random.Generator) -> np.ndarray:
    space, shape = batch.single_action_space, (batch.num_envs, *batch.single_action_space.shape)
    if hasattr(space, "nvec"):
        return random.integers(space.nvec, size=shape)
    if hasattr(space, "n"):
        return random.integers(space.start, space.start + space.n, size=shape)
    return random.uniform(space.low, space.high, shape).astype(np.float32)


def _compared(batches: list[Any], targets: list[dict[str, Any]], step: int) -> int:
    first, *others = [_state(batch) for batch in batches]
    for target, other in zip(targets[1:], others, strict=True):
        for key, value in first.items():
            # NVIDIA's assembler makes 0.0 of the -0.0 in a choice between 1.0 and -0.0.
            zeros = target["backend"] != "cuda" or not torch.cuda.is_available()
            same = same_bits(value, other[key][: len(value)], signed_zeros=zeros)
            if not same.all():
                at = tuple(map(int, np.argwhere(~same)[0]))
                raise Difference(
                    f"{key}{list(at)} before step {step}: {value[at]!r} on {targets[0]}, "
                    f"{other[key][at]!r} on {target}"
                )
    return int(sum((~np.isfinite(array)).sum() for array in first.values()))


def _state(batch: Any) -> dict[str, np.ndarray]:
    return {key: np.asarray(value) for key, value in batch.get_state().items()}


# Programs over numbers as C++ ---------------------------------------------------------------------
_BEGIN = """
#include <cmath>
#include <cstring>
#define DEVICE static
DEVICE int __float_as_int(float x) { int found; memcpy(&found, &x, 4); return found; }
DEVICE float __int_as_float(int x) { float found; memcpy(&found, &x, 4); return found; }
"""


def check_cpp(env: type[operant.Env], states: dict[str, np.ndarray], seed: int) -> None:
    """Compute ``step`` of many states as C++ for the host's compiler and as NumPy does.

    Raises:
        Difference: the first that was found.
    """
    rules = Rules.of(env)
    assert isinstance(rules, TracedRules)
    inputs = _inputs(rules, states, seed)
    found = _in_cpp(rules, inputs)
    wanted = _in_numpy(rules, inputs)
    for k, (a, b) in enumerate(zip(wanted, found, strict=True)):
        same = same_bits(a, b)
        if not same.all():
            at = int(np.argmin(same))
            given = {name: value[at] for name, value in inputs.items()}
            raise Difference(
                f"output {k} of step in C++: {b[at]!r} instead of {a[at]!r} at {given}"
            )


def _inputs(rules: TracedRules, states: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    size = len(next(iter(states.values())))
    found: dict[str, np.ndarray] = {f"s_{name}": states[name] for name in rules.fields}
    low, high = np.array(rules.action.low), np.array(rules.action.high)
    for k in range(rules.action.size):
        if rules.action.dtype == INT:
            found[f"a_{k}"] = random.integers(low[k], high[k], size).astype(np.int32)
        else:
            found[f"a_{k}"] = random.uniform(-2, 2, size).astype(np.float32)
    for k in range(rules.env.random_numbers):
        found[f"u_{k}"] = (random.integers(2**24, size=size) * 2.0**-24).astype(np.float32)
    return {name: np.ascontiguousarray(found[name]) for name in rules.step.inputs if name in found}


def _in_cpp(rules: TracedRules, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    program = rules.step
    names = {name: f"(({_c_type(value)} *)a[{k}])[i]" for k, (name, value) in _numbered(inputs)}
    params = zip(rules.float_params, rules.param_values().tolist(), strict=True)
    names |= {f"p_{name}": cuda_source.literal(value) for name, value in params}
    lines, outputs = cuda_source.program_source(program, names)
    kinds = [program.nodes[index].dtype for index in program.outputs]
    size = len(next(iter(inputs.values())))
    results = [np.empty(size, _KINDS[kind]) for kind in kinds]
    stores = [
        f"(({cuda_source.TYPES[kind]} *)a[{len(inputs) + k}])[i] = {text};"
        for k, (kind, text) in enumerate(zip(kinds, outputs, strict=True))
    ]
    body = "\n    ".join([*lines, *stores])
    words = "".join(cuda_source.word_source(word) for word in composed_words([program]))
    loop = f"for (long long i = 0; i < {size}; i++) {{\n    {body}\n  }}"
    source = f'{_BEGIN}{WORDS}{words}\nextern "C" void step(void **a) {{\n  {loop}\n}}\n'
    addresses = [array.ctypes.data for array in (*inputs.values(), *results)]
    table = np.array(addresses, np.uint64)
    HostKernels(source, ("step",)).launch("step", 1, 1, table)
    return results


def _numbered(inputs: dict[str, np.ndarray]) -> Any:
    return enumerate(inputs.items())


def _c_type(value: np.ndarray) -> str:
    return cuda_source.TYPES[{"f": FLOAT, "i": INT, "b": BOOL}[value.dtype.kind]]


def _in_numpy(rules: TracedRules, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    from operant.compiler.spec.rules import call
    from operant.lang.batch import batch

    size = len(next(iter(inputs.values())))
    actions = tuple(batch(inputs[f"a_{k}"]) for k in range(rules.action.size))
    with np.errstate(all="ignore"):
        state, reward, over = call(
            rules.env.step,
            state=rules.env.State(*[batch(inputs[f"s_{name}"]) for name in rules.fields]),
            action=actions[0] if rules.action.scalar else actions,
            random=tuple(batch(inputs[f"u_{k}"]) for k in range(rules.env.random_numbers)),
            params=rules.params._replace(
                **{name: batch([getattr(rules.params, name)]) for name in rules.float_params}
            ),
        )
    kinds = [rules.step.nodes[index].dtype for index in rules.step.outputs]
    values = [*state, reward, over]
    return [
        np.ascontiguousarray(np.broadcast_to(np.asarray(value).astype(_KINDS[kind]), size))
        for value, kind in zip(values, kinds, strict=True)
    ]
