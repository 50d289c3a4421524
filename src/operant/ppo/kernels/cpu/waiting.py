"""Waiting for other threads, in compiled code."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from operant.compiler.runtime.intrinsics import atomic_load

SPINS = 2_000
"""Looks at a word, some microseconds, before the core is offered to others between two looks."""


@intrinsic
def _let_others_run(typing_context: Any) -> Any:
    """POSIX's sched_yield."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.IntType(32), []), "sched_yield"
        )
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), generate


@njit(nogil=True, error_model="numpy")
def wait_for(control, index, least):
    """Return when ``control[index]``, int64, has reached `least`."""
    spins = 0
    while atomic_load(control, index) < least:
        spins += 1
        if spins > SPINS:
            _let_others_run()
