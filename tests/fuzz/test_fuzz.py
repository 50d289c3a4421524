"""A small part of what ``python tests/fuzz`` plays, and that it finds what is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from operant.compiler.emit import numba_kernels as numba_source
from operant.toolchain.gpus import gpu_count
from operant.toolchain.host_kernels import host_compiler

sys.path.insert(0, str(Path(__file__).parent))

import array_writer
import number_writer
import programs
from targets import Difference

pytestmark = [
    pytest.mark.usefixtures("unseen_test"),
    pytest.mark.skipif(host_compiler() is None or gpu_count() > 0, reason="needs a C++ compiler"),
]


@pytest.mark.parametrize("number", [1, 3, 6])  # any floats, whole floats, arrays; hostile names
def test_programs_are_the_same_everywhere(tmp_path: Path, number: int) -> None:
    assert programs.check(number, tmp_path) == "equal"


def test_a_reciprocal_instead_of_a_division_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = numba_source.HEADER.replace('{{"contract"}}', '{{"contract", "arcp"}}')
    assert header != numba_source.HEADER
    monkeypatch.setattr(numba_source, "HEADER", header)
    with pytest.raises(Difference, match="before step"):
        programs.check(WRONG_WITH_RECIPROCALS, tmp_path)


WRONG_WITH_RECIPROCALS = 7


def test_a_number_is_always_the_same_program() -> None:
    texts = [programs.text(number) for number in range(30)]
    assert texts == [programs.text(number) for number in range(30)]
    assert len(set(texts)) == 30
    assert "\n    v_" not in array_writer.program(0)  # hostile names come from `programs` alone


def test_programs_over_numbers_say_everything() -> None:
    text = "\n".join(number_writer.program(seed) for seed in range(60))
    for word in (*number_writer.WORDS.split(), "atan2", "where", "clip", "minimum", "maximum"):
        assert f"{word}(" in text, word
    for word in ("randint", "normal", "uniform", "to_int", "to_float", "logical_not"):
        assert f"{word}(" in text, word
    for sign in ("+", "-", "*", "/", "//", "%", "**", "<<", ">>", "&", "|", "^", "==", "!=", "<="):
        assert f" {sign} " in text, sign
    for size in number_writer.WRONG_ONCE:
        assert f"% {size}.0" in text, size
    for count in (1, 9, 33, 64):
        assert f"random_numbers = {count}\n" in text, count
    assert "action_mask" in text
    for space in number_writer.SPACES:
        assert space in text
