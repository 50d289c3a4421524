"""How many threads PyTorch takes for one operation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread_an_operation() -> Iterator[None]:
    """PyTorch operations of this thread run on it alone; afterwards as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
