"""What kernels are told: declared once, for the host and the kernels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import float32, int64
from numba.core.errors import TypingError

from operant.ppo.kernels import cpu
from operant.ppo.kernels.cpu.kernel_arguments import ARGUMENTS, KernelArguments
from operant.ppo.kernels.cpu.network_layout import LAYER, NETWORK, layer_at
from operant.ppo.kernels.cpu.parameter_layout import PARAMETER
from operant.ppo.kernels.cpu.record import (
    RecordSpec,
    array,
    function,
    memory,
    number,
    record_at,
)

SPEC = RecordSpec(
    "sums",
    number("count"),
    array("values", float32),
    memory("result"),
    function("add", optional=True),
)


def arguments(**more: Any) -> KernelArguments:
    found = KernelArguments(SPEC)
    found.set(count=3, values=np.arange(5, dtype=np.float32), result=np.zeros(1), **more)
    return found


def test_a_kernel_reads_what_the_host_set_by_name() -> None:
    @numba.njit("float64(int64)")
    def total(address: Any) -> Any:
        args = record_at(SPEC, address)
        found = float32(0)
        for k in range(args.count):
            found += args.values[k]
        return found + (args.result != 0) + 10 * args.add

    given = arguments(add=7)
    assert total(given.address) == 0 + 1 + 2 + 1 + 70
    given.set(count=5)
    assert total(given.address) == 10 + 1 + 70
    assert given["count"] == 5
    assert given["values"] == given.arrays["values"].ctypes.data


def test_layers_follow_their_network() -> None:
    @numba.njit("int64(int64, int64)")
    def width(address: Any, k: Any) -> Any:
        return record_at(NETWORK, address).depth * 1000 + layer_at(address, k).width

    net = NETWORK.pack(**dict.fromkeys(NETWORK.index, 2))
    layers = [LAYER.pack(**dict.fromkeys(LAYER.index, 0) | {"width": w}) for w in (16, 48)]
    words = np.array(net + layers[0] + layers[1])
    assert [width(words.ctypes.data, k) for k in range(2)] == [2016, 2048]


def test_a_name_that_comes_twice_raises() -> None:
    with pytest.raises(ValueError, match="twice: count declared twice"):
        RecordSpec("twice", number("count"), number("other"), array("count", int64))


def test_a_missing_argument_raises_before_a_kernel_runs() -> None:
    given = KernelArguments(SPEC)
    given.set(count=3)
    with pytest.raises(TypeError, match=re.escape("sums: result, values not set; set() them")):
        _ = given.address
    assert arguments().address  # `add` is optional


def test_an_undeclared_argument_raises_and_sets_nothing() -> None:
    given = arguments()
    with pytest.raises(TypeError, match="sums: no field counts; declared are count, values"):
        given.set(count=9, counts=4)
    assert given["count"] == 3
    with pytest.raises(TypeError, match="no field counts"):
        given["counts"]


def test_a_record_wants_all_its_fields_and_no_others() -> None:
    values = dict.fromkeys(PARAMETER.index, 1)
    assert PARAMETER.pack(**values) == [1] * (PARAMETER.bytes // 8)
    with pytest.raises(TypeError, match="parameter: no field turned"):
        PARAMETER.pack(**values, turned=1)
    values.pop("rows")
    with pytest.raises(TypeError, match="parameter: rows not given"):
        PARAMETER.pack(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 1.5}, "count: expected a number, got 1.5"),
        ({"count": np.zeros(3)}, "count: expected a number"),
        ({"values": 12}, "values: expected an array, got 12"),
        ({"values": np.zeros(3)}, "values: expected float32, got an array of float64"),
        ({"add": None}, "add: expected a function, got None"),
    ],
)
def test_a_value_of_another_kind_raises(values: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        arguments().set(**values)


def test_an_array_with_gaps_raises() -> None:
    with pytest.raises(ValueError, match="values: expected a C-contiguous array"):
        arguments().set(values=np.zeros(6, np.float32)[::2])


def test_a_kernel_that_reads_an_undeclared_name_does_not_compile() -> None:
    def wrong(address: Any) -> Any:
        return record_at(SPEC, address).counts

    with pytest.raises(TypingError, match="sums: no field 'counts'; declared are count, values"):
        numba.njit("int64(int64)")(wrong)


def test_kernels_read_every_argument_that_is_declared() -> None:
    """What nobody reads nobody should have to set."""
    files = Path(str(cpu.__file__)).parent.glob("[a-z]*.py")
    text = "\n".join(path.read_text() for path in files)
    for name, spec in (
        ("args", ARGUMENTS),
        (r"\w+", NETWORK),
        (r"\w+", LAYER),
        (r"\w+", PARAMETER),
    ):
        unread = [field for field in spec.index if not re.search(rf"\b{name}\)?\.{field}\b", text)]
        assert unread == [], spec.name
