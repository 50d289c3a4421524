"""Copy many tensors by one launch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from operant.toolchain.gpus import interpreted

CHUNK = 1 << 13
"""Bytes of a program."""
WORD = 4


class Copies:
    """Copies tensors to others each time it is called; PyTorch's ``_foreach_copy_`` takes a launch
    for each dtype, and few programs of 65 536 numbers each.

    Args:
        copies, tensors: as many, all of them contiguous; pairs of the same size and dtype. Their
            addresses are noted now.
    """

    def __init__(self, copies: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
        self._kept = (*copies, *tensors)
        assert all(tensor.is_contiguous() for tensor in self._kept)
        rows = []
        for copy, tensor in zip(copies, tensors, strict=True):
            assert (copy.numel(), copy.dtype) == (tensor.numel(), tensor.dtype)
            size, to, source = tensor.nbytes, copy.data_ptr(), tensor.data_ptr()
            whole = 0 if (to | source) % WORD else size // WORD * WORD
            ends = [*range(0, whole, CHUNK), whole, *range(whole + CHUNK, size, CHUNK), size]
            rows += [
                (to + begin, source + begin, end - begin, end <= whole)
                for begin, end in itertools.pairwise(ends)
                if end > begin
            ]
        table = torch.tensor(rows, dtype=torch.int64).view(-1, 4)
        self._table = table.to(self._kept[0].device) if self._kept else table

    def __call__(self) -> None:
        """Copy them now, on the current stream."""
        if len(self._table):
            options = {} if interpreted() else {"num_warps": 8}
            _copy[(len(self._table),)](self._table, CHUNK=CHUNK, WORD=WORD, **options)


@triton.jit
def _copy(table, CHUNK: tl.constexpr, WORD: tl.constexpr):  # noqa: N803
    own = table + 4 * tl.program_id(0)
    to, source, size = tl.load(own), tl.load(own + 1), tl.load(own + 2)
    if tl.load(own + 3) != 0:
        word = tl.arange(0, CHUNK // WORD)
        words = tl.load(source.to(tl.pointer_type(tl.int32)) + word, mask=word < size // WORD)
        tl.store(to.to(tl.pointer_type(tl.int32)) + word, words, mask=word < size // WORD)
    else:
        byte = tl.arange(0, CHUNK)
        some = tl.load(source.to(tl.pointer_type(tl.int8)) + byte, mask=byte < size)
        tl.store(to.to(tl.pointer_type(tl.int8)) + byte, some, mask=byte < size)
