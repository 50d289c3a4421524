"""Copies of many tensors by one launch, in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.usefixtures("interpreter")


def test_every_byte_and_no_other() -> None:
    from operant.ppo.kernels.triton.copies import CHUNK, Copies

    random = torch.Generator().manual_seed(0)
    sizes = [1, 3, 77, 4096, CHUNK, CHUNK + 1, 2 * CHUNK + 7]
    kinds = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32, torch.float64]
    given, copies, around = [], [], []
    for shift in (0, 1):  # one element further: bytes that are not at the address of a word
        for size in sizes:
            for kind in kinds:
                numbers = torch.randint(0, 2, (size + 1,), generator=random).to(kind)
                room = torch.full((size + 3,), 1, dtype=kind)
                given.append(numbers[shift : shift + size])
                copies.append(room[1 : 1 + size])
                around.append(room)
    copy = Copies(copies, given)
    assert not all(torch.equal(a, b) for a, b in zip(copies, given, strict=True))
    copy()
    for a, b, room in zip(copies, given, around, strict=True):
        assert torch.equal(a, b)
        assert bool(room[0] == 1)
        assert (room[-2:] == 1).all()
    given[-1].mul_(2.0)
    copy()
    assert torch.equal(copies[-1], given[-1])


def test_nothing_to_copy() -> None:
    from operant.ppo.kernels.triton.copies import Copies

    Copies([], [])()
    Copies([torch.empty(0, 3)], [torch.empty(0, 3)])()


def test_what_cannot_be_copied() -> None:
    from operant.ppo.kernels.triton.copies import Copies

    square = torch.zeros(4, 4)
    for copy, tensor in ((square.T[:2], square[:2]), (square[0], square.double()[0])):
        with pytest.raises(AssertionError):
            Copies([copy], [tensor])
