"""Random array environments: ``cpu`` computes what plain Python does, to the bit.

`program_writer` writes them. Others, by hand: ``python tests/vector/test_array_programs.py 10 50``
plays those of the seeds 10 to 49.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import operant
from operant.vector.cards import card_count
from operant.vector.host_kernels import host_compiler

SEEDS = (28, 101, 203)
STATEMENTS = 14


def load(path: Path) -> Any:
    """A module, so that the source of its functions can be read."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


writer = load(Path(__file__).parent / "program_writer.py")


def written(folder: Path, seed: int, statements: int) -> type[operant.Env]:
    path = folder / f"array_program_{seed}.py"
    path.write_text(writer.program(seed, statements))
    env: type[operant.Env] = load(path).Program
    return env


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal, zeros with their signs; all NaN are alike."""
    if a.dtype != np.float32:
        return np.array_equal(a, b)
    numbers = ~np.isnan(a)
    bits = (array.view(np.int32)[numbers] for array in (a, b))
    return np.array_equal(numbers, ~np.isnan(b)) and np.array_equal(*bits)


def compare(env: type[operant.Env], backends: tuple[str, ...], num_envs: int, steps: int) -> int:
    """Play the same on each; how many numbers were not finite."""
    options: dict[str, Any] = {"seed": 3, "autoreset_mode": "SameStep"}
    batches = [operant.make(env, num_envs, backend=name, **options) for name in backends]
    random, strange = np.random.default_rng(0), 0
    for batch in batches:
        batch.reset()
    for step in range(steps):
        first, *others = [batch.get_state() for batch in batches]
        for name, other in zip(backends[1:], others, strict=True):
            for key in first:
                assert same_bits(first[key], other[key]), f"{key} on {name} before step {step}"
        strange += int(sum((~np.isfinite(array)).sum() for array in first.values()))
        actions = random.integers(4, size=num_envs)
        for batch in batches:
            batch.step(actions)
    return strange


@pytest.mark.parametrize("seed", SEEDS)
def test_cpu_computes_what_python_does(tmp_path: Path, seed: int) -> None:
    compare(written(tmp_path, seed, STATEMENTS), ("reference", "cpu"), 6, 30)


@pytest.mark.skipif(host_compiler() is None or card_count() > 0, reason="needs a C++ compiler")
@pytest.mark.parametrize("seed", [3, 103])
def test_cpp_computes_what_python_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The kernels of the card, compiled for the host: longer programs, for it compiles faster."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    compare(written(tmp_path, seed, 4 * STATEMENTS), ("reference", "cuda"), 4, 25)


def test_programs_are_what_they_should_be() -> None:
    """The writer is worth something: another program for another seed, each of many words."""
    texts = [writer.program(seed, 60) for seed in range(8)]
    assert writer.program(0, 60) == texts[0]
    assert len(set(texts)) == 8
    everything = "\n".join(text.partition("def step")[2] for text in texts)
    words = "sin cos tan exp log tanh atan atan2 sqrt floor ceil abs sign min max minimum maximum"
    words += " clip where to_float to_int float int bool logical_not whole mixed total inner halves"
    words += " spend random.uniform random.integers random.normal random.chance lang.sin len"
    for word in words.split():
        assert f"{word}(" in everything, word
    signs = "+ - * / // % & | ^ << >> < <= > >= == != and or += -= *= /= //= %= >>= &= |= ^="
    for sign in signs.split():
        assert f" {sign} " in everything, sign
    for part in ("if ", "elif ", "else:", "for k", "while ", "break", "continue", "return 0.25"):
        assert f"    {part}" in everything, part
    for part in ("[:] = ", "row0 = ", "Way.", "STEPS[", "KINDS[", "SAFE[", "params.", "~", "not "):
        assert part in everything, part


if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        for number in range(*map(int, sys.argv[1:3])):
            environment = written(Path(folder), number, 20)
            found = compare(environment, ("reference", "cpu", "cuda"), 4, 25)
            print(number, "equal;", found, "infinite or NaN", flush=True)
