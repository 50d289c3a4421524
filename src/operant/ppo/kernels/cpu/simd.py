"""Vectors as wide as the machine's, for code that writes LLVM instructions.

Numba has no vector type, and LLVM's own vectoriser neither keeps a block of a matrix product in
registers nor uses the machine's approximate reciprocal. So the hottest code is written in terms of
`Vector`, which turns Python operators into instructions.
"""

from __future__ import annotations

import platform
from typing import Any

import llvmlite.binding
import numba
from llvmlite import ir
from numba.core import cgutils


def _has(feature: str) -> bool:
    """Whether Numba compiles for machines with this feature: the host's, or as its settings say."""
    wanted: str | None = numba.config.CPU_FEATURES  # type: ignore[attr-defined]
    if wanted is not None:
        return f"+{feature}" in wanted.split(",")
    return bool(llvmlite.binding.get_host_cpu_features().get(feature, False))


LANES = 16 if _has("avx512f") else 8 if _has("avx2") else 4
"""Numbers in a register."""
_X86 = platform.machine().lower() in ("x86_64", "amd64")
REGISTERS = 16 if _X86 and LANES < 16 else 32
"""Registers of that width: 16 with SSE and AVX, 32 with AVX-512 and NEON."""
_ROUNDS_ONCE = not _X86 or _has("fma") or LANES == 16
"""Whether one instruction multiplies and adds; where none does, LLVM would call a function."""

FLOAT, INT32, INT64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
VECTOR = ir.VectorType(FLOAT, LANES)
UNDEFINED = ir.Constant(VECTOR, ir.Undefined)


class Vector:
    """A register of float32 under construction; operators append instructions."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def _new(self, value: Any) -> Vector:
        return Vector(self.builder, value)

    def _other(self, other: Vector | float) -> Any:
        return other.value if isinstance(other, Vector) else ir.Constant(VECTOR, [other] * LANES)

    def __add__(self, other: Vector | float) -> Vector:
        return self._new(self.builder.fadd(self.value, self._other(other)))

    def __sub__(self, other: Vector | float) -> Vector:
        return self._new(self.builder.fsub(self.value, self._other(other)))

    def __mul__(self, other: Vector | float) -> Vector:
        return self._new(self.builder.fmul(self.value, self._other(other)))

    def __neg__(self) -> Vector:
        return self._new(self.builder.fneg(self.value))

    def times_plus(self, factor: Vector | float, addend: Vector | float) -> Vector:
        """``self * factor + addend``, rounded once where the machine can."""
        if not _ROUNDS_ONCE:
            return self * factor + addend
        fma = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(VECTOR, [VECTOR] * 3), f"llvm.fma.v{LANES}f32"
        )
        args = [self.value, self._other(factor), self._other(addend)]
        return self._new(self.builder.call(fma, args))

    def where(self, comparison: str, other: Vector | float, a: Vector | float, b: Any) -> Vector:
        """`a` where the comparison holds, else `b`; it does not hold for NaN."""
        condition = self.builder.fcmp_ordered(comparison, self.value, self._other(other))
        return self._new(self.builder.select(condition, self._other(a), self._other(b)))

    def clipped(self, limit: float) -> Vector:
        """Within plus and minus `limit`; NaN stays NaN."""
        low = self.where("<", -limit, -limit, self)
        return low.where(">", limit, limit, low)

    def reciprocal(self) -> Vector:
        """1 / self, to 2 units in the last place: the machine's estimate and a step of Newton's."""
        builder = self.builder
        if LANES == 16:
            kind = ir.FunctionType(VECTOR, [VECTOR, VECTOR, ir.IntType(16)])
            name, rest = "llvm.x86.avx512.rcp14.ps.512", [UNDEFINED, ir.IntType(16)(0xFFFF)]
        elif LANES == 8:
            kind, name, rest = ir.FunctionType(VECTOR, [VECTOR]), "llvm.x86.avx.rcp.ps.256", []
        else:
            return self._new(builder.fdiv(self._other(1.0), self.value))
        estimate = cgutils.get_or_insert_function(builder.module, kind, name)
        guess = self._new(builder.call(estimate, [self.value, *rest]))
        return guess.times_plus((-self).times_plus(guess, 1.0), guess)


def splat(builder: Any, number: Any) -> Vector:
    """A vector of one number."""
    first = builder.insert_element(UNDEFINED, number, INT32(0))
    zeros = ir.Constant(ir.VectorType(INT32, LANES), None)
    return Vector(builder, builder.shuffle_vector(first, UNDEFINED, zeros))


def load_vector(builder: Any, pointer: Any, index: Any) -> Vector:
    """The numbers from ``pointer[index]``; they need not be aligned."""
    address = builder.bitcast(builder.gep(pointer, [index], inbounds=True), VECTOR.as_pointer())
    return Vector(builder, builder.load(address, align=4))


def store_vector(builder: Any, vector: Vector, pointer: Any, index: Any) -> None:
    """Write to ``pointer[index]`` and on."""
    address = builder.bitcast(builder.gep(pointer, [index], inbounds=True), VECTOR.as_pointer())
    builder.store(vector.value, address, align=4)


def row_sums(builder: Any, rows: list[Vector]) -> Vector:
    """The sum of each of `LANES` vectors, as the lanes of one.

    Neighbours are folded into one vector until one is left: half of its lanes hold the one's sums
    so far, the other half the other's.
    """
    while len(rows) > 1:
        pairs = zip(rows[::2], rows[1::2], strict=True)
        rows = [_folded(builder, a, b, len(rows)) for a, b in pairs]
    return rows[0]


def _folded(builder: Any, a: Vector, b: Vector, group: int) -> Vector:
    """Each run of `group` lanes of `a`, then of `b`, folded to half its length."""
    starts = range(0, 2 * LANES, group)
    halves = []
    for shift in (0, group // 2):
        lanes = [start + shift + k for start in starts for k in range(group // 2)]
        mask = ir.Constant(ir.VectorType(INT32, LANES), lanes)
        halves.append(Vector(builder, builder.shuffle_vector(a.value, b.value, mask)))
    return halves[0] + halves[1]
