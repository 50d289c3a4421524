"""Program number k of the fuzzer: its text, and the check that all targets agree on it."""

from __future__ import annotations

import os
import shutil
import tempfile
import traceback
from pathlib import Path
from typing import Any

import array_writer
import hostile_names
import number_writer
from targets import FEW, LANES, STEPS, check_cpp, load, play, unfused

import operant
from operant.lang.advice import LanguageError

STATEMENTS = 8
_TABLES = "WEIGHTS GRID STEPS KINDS SAFE DEEP BONUS COUNT STRICT"
_HELPERS = "whole tame total inner mixed halves spend"


def is_array_program(number: int) -> bool:
    """Even numbers have a state of arrays."""
    return number % 2 == 0


def text(number: int) -> str:
    """Program `number`; a third of them with hostile names."""
    if is_array_program(number):
        found = array_writer.program(number, STATEMENTS)
        names = f"{_TABLES} {_HELPERS}".split()
        names += hostile_names.variables(found, r"[fibkw]\d+|row\d+")
        attributes = list(array_writer.ARRAYS)
    else:
        found = number_writer.program(number // 2)
        names = ["tame", *hostile_names.variables(found, r"x\d+")]
        attributes = ["gravity", "ring", "f0", "f1", "f2", "i0", "i1", "b0", "b1"]
    if number % 3:
        return found
    return hostile_names.renamed(found, names, attributes, number)


def write(number: int, folder: Path) -> Path:
    """Program `number` as a file."""
    path = folder / f"program_{number}.py"
    path.write_text(text(number))
    return path


def check(number: int, folder: Path, gpu: bool = False) -> str:
    """Play program `number` on every target: "equal", or "refused" by the language.

    Raises:
        Difference: two targets computed different bits.
    """
    try:
        env: type[operant.Env] = load(write(number, folder)).Program
    except LanguageError as error:
        if "does not fit in" in str(error):  # a constant, which Python computes by itself
            return "refused"
        raise
    python: dict[str, Any] = {"num_envs": FEW, "backend": "reference"}
    compiled: list[dict[str, Any]] = [
        {"num_envs": LANES, "backend": "cpu", "workers": workers} for workers in (1, 2)
    ]
    if is_array_program(number):
        _check_arrays(env, number, python, compiled, gpu)
    else:
        _check_numbers(env, number, python, compiled, gpu)
    return "equal"


def _check_arrays(env: Any, number: int, python: Any, compiled: list[Any], gpu: bool) -> None:
    play(env, [python, *compiled], number, STEPS)
    if gpu:
        play(env, [compiled[0], {"num_envs": LANES, "backend": "cuda"}], number, STEPS)
        return
    os.environ["TRITON_INTERPRET"] = "1"  # C++ for the host stands in for the GPU
    try:
        play(env, [python, {"num_envs": FEW, "backend": "cuda"}], number, STEPS)
    finally:
        del os.environ["TRITON_INTERPRET"]


def _check_numbers(env: Any, number: int, python: Any, compiled: list[Any], gpu: bool) -> None:
    python |= {"num_envs": LANES}
    if number_writer.is_whole(number // 2):
        play(env, [python, *compiled], number, STEPS)
    else:
        with unfused():
            play(env, [python, *compiled], number, STEPS)
    batch = operant.make(env, seed=number, **python)
    batch.reset()
    states = {name: batch.get_state()[f"state.{name}"] for name in env.State._fields}
    check_cpp(env, states, number)
    if gpu:
        play(env, [python, {"num_envs": LANES, "backend": "cuda"}], number, STEPS)


def attempt(number: int, gpu: bool, keep: Path) -> tuple[int, str, str]:
    """Play one program in a folder of its own: its number, what came of it, and the error."""
    folder = Path(tempfile.mkdtemp(prefix="operant-fuzz-"))
    os.environ["OPERANT_HOME"] = str(folder)
    try:
        return number, check(number, folder, gpu), ""
    except BaseException as error:
        keep.mkdir(exist_ok=True)
        shutil.copy(write(number, folder), keep)
        kind = "different" if type(error).__name__ == "Difference" else "crashed"
        return number, kind, "".join(traceback.format_exception_only(error))[-1500:]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
