"""Philox4x32-10 for generated Numba code; the same words as `operant.compiler.philox`."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_WORD, _WIDE = ir.IntType(32), ir.IntType(64)


def _multiply(builder: Any, factor: int, word: Any) -> tuple[Any, Any]:
    """High and low word of a product."""
    product = builder.mul(builder.zext(word, _WIDE), _WIDE(factor))
    return builder.trunc(builder.lshr(product, _WIDE(32)), _WORD), builder.trunc(product, _WORD)


@intrinsic
def philox(typing_context: Any, c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """Four uint32 words from four counter words and two key words, all uint32."""
    result = types.UniTuple(types.uint32, 4)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        c0, c1, c2, c3, k0, k1 = args
        for _ in range(10):
            high0, low0 = _multiply(builder, 0xD2511F53, c0)
            high1, low1 = _multiply(builder, 0xCD9E8D57, c2)
            c0, c1 = builder.xor(builder.xor(high1, c1), k0), low1
            c2, c3 = builder.xor(builder.xor(high0, c3), k1), low0
            k0, k1 = builder.add(k0, _WORD(0x9E3779B9)), builder.add(k1, _WORD(0xBB67AE85))
        return context.make_tuple(builder, signature.return_type, [c0, c1, c2, c3])

    return result(*[types.uint32] * 6), generate
