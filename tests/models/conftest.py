"""One thread for each operation: on a busy machine threads that wait for each other take most of
the time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from operant.toolchain.torch_threads import one_thread_an_operation


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with one_thread_an_operation():
        yield
