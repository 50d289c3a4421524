"""Copy the weights to where the other kernels read them, see `Networks`."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from operant.toolchain.gpus import interpreted


def pack_weights(addresses: Tensor, offsets: Tensor, full: Tensor, low: Tensor) -> None:
    """Write the numbers at `addresses`, int64 ``[P]``, to `offsets`, int32 ``[P]``, of two vectors:
    `full`, float32, and `low`, of the precision that products are computed in."""
    count = len(offsets)
    block = 1 << 16 if interpreted() else 128
    _pack[(triton.cdiv(count, block),)](addresses, offsets, full, low, count, BLOCK=block)


@triton.jit
def _pack(addresses, offsets, full, low, count, BLOCK: tl.constexpr):  # noqa: N803
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = j < count
    source = tl.load(addresses + j, mask=here, other=0).to(tl.pointer_type(tl.float32))
    offset = tl.load(offsets + j, mask=here, other=0)
    value = tl.load(source, mask=here, other=0.0)
    tl.store(full + offset, value, mask=here)
    tl.store(low + offset, value.to(low.dtype.element_ty), mask=here)
