"""A cheap part of the broken environments; ``benchmarks/faults.py`` plays them all."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from operant.backends.foreign.errors import ForeignEnvError
from operant.vector.foreign_batch import ForeignBatch

from .broken import SEED, Broken, Fault, faults


def played(fault: Fault, backend: str, **options: Any) -> None:
    """Make, reset, step, draw and close a batch of which one goes wrong.

    Raises:
        ForeignEnvError, ValueError, TypeError: what it is answered with.
    """
    make = partial(Broken, fault.where, fault.how, fault.space)
    batch = ForeignBatch(make, 2, backend=backend, workers=2, seed=SEED, **options)
    try:
        batch.reset()
        for _ in range(3):
            batch.step(np.zeros(2, np.int64))
        batch.render_one(1)
    finally:
        batch.close()


ALONE = ("os._exit(0)", "forks", "closes stdout")
EVERYONE = [fault for fault in faults() if not fault.hangs and "serial" in fault.backends]


@pytest.mark.parametrize("fault", EVERYONE, ids=lambda fault: fault.name)
def test_one_after_the_other(fault: Fault) -> None:
    check(fault, "serial")


@pytest.mark.parametrize("fault", EVERYONE[::7], ids=lambda fault: fault.name)
def test_in_threads(fault: Fault) -> None:
    check(fault, "threads")


@pytest.mark.parametrize(
    "fault",
    [
        *EVERYONE[3::29],
        *(f for f in faults() if f.how in ("os._exit(0)", "forks", "closes stdout")),
    ],
    ids=lambda fault: fault.name,
)
def test_in_processes(fault: Fault) -> None:
    check(fault, "processes", context="forkserver")


def check(fault: Fault, backend: str, **options: Any) -> None:
    if not fault.sentence:
        played(fault, backend, **options)
        return
    with pytest.raises((ForeignEnvError, ValueError, TypeError)) as raised:
        played(fault, backend, **options)
    assert re.search(fault.sentence, str(raised.value)), str(raised.value)
    if fault.index is not None:
        assert getattr(raised.value, "env_index", None) == fault.index
