"""Moves of a fixed number of bytes, for compiled functions."""

from __future__ import annotations

from typing import Any

from llvmlite import ir as _ir
from numba.core import cgutils as _cgutils
from numba.core import types
from numba.extending import intrinsic

ir: Any = _ir  # without types of their own
cgutils: Any = _cgutils


@intrinsic(prefer_literal=True)
def move_bytes(_context: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy `count` bytes, a literal, from one address to another: short ones become vector moves,
    which a count known only when it runs would not."""
    if not isinstance(count, types.IntegerLiteral):
        return None

    def generate(context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        size = ir.Constant(ir.IntType(64), count.literal_value)
        where = [builder.inttoptr(address, byte) for address in given[:2]]
        cgutils.raw_memcpy(builder, *where, size, 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, count), generate


@intrinsic(prefer_literal=True)
def clear_bytes(_context: Any, target: Any, count: Any) -> Any:
    """Write `count` zero bytes, a literal, to an address."""
    if not isinstance(count, types.IntegerLiteral):
        return None

    def generate(context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        where = builder.inttoptr(given[0], ir.IntType(8).as_pointer())
        size = ir.Constant(ir.IntType(64), count.literal_value)
        cgutils.memset(builder, where, size, 0)
        return context.get_dummy_value()

    return types.void(types.int64, count), generate
