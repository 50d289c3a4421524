"""The ``cpu`` and ``native`` backends: kernels, generated, compiled by Numba, cached on disk."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numba.core.ccallback import CFunc
from numba.core.dispatcher import Dispatcher

from operant.backends.cpu.workers import Workers, split
from operant.compiler.compile_error import compiling
from operant.compiler.emit.numba_arguments import table_layout
from operant.compiler.emit.numba_array_kernels import (
    STREAM_WORDS,
    array_kernels_source,
    noted_error,
)
from operant.compiler.emit.numba_kernels import kernels_source
from operant.compiler.emit.numba_native_kernels import native_arrays, native_kernels_source
from operant.compiler.runtime.numba_jobs import (
    CALLER,
    LINE,
    RESCAN,
    STOP,
    UNFINISHED,
    WAITING,
    block_size,
)
from operant.compiler.spec.array_rules import ArrayRules
from operant.compiler.spec.buffers import LANES, Arena, Buffers
from operant.compiler.spec.native_rules import NativeRules
from operant.compiler.spec.rules import Rules, TracedRules
from operant.toolchain.generated_modules import load_module
from operant.version import __version__

_MODES = {AutoresetMode.NEXT_STEP: 0, AutoresetMode.SAME_STEP: 1, AutoresetMode.DISABLED: 2}
_INT64_POINTER = ctypes.POINTER(ctypes.c_int64)
_NO_ACTIONS = np.zeros(0, np.uint8)


class NumbaBackend:
    """Steps a batch with compiled kernels, split over `workers` threads.

    Each method updates `buffers` in place and allocates nothing that grows with the batch. Rules in
    Python are part of the kernels; those of a library are called by them.
    """

    def __init__(
        self,
        rules: Rules,
        buffers: Buffers,
        max_steps: int,
        mode: AutoresetMode,
        workers: int = 1,
    ) -> None:
        kernels = load_kernels(rules)
        self._rules = rules
        if isinstance(rules, NativeRules):  # a step may take long: threads share any number
            parts = split(buffers.num_envs, workers, 1)
        else:
            parts = split(buffers.lanes, workers, LANES)
        block = block_size(buffers.lanes, len(parts))
        blocks = [-(-(hi - lo) // block) for lo, hi in parts]
        arrays = _arrays(rules, buffers, parts, blocks)
        settings = [buffers.num_envs, _MODES[mode], max_steps, len(parts), block, sum(blocks)]
        addresses = [array.ctypes.data for array in arrays.values()]
        functions = [kernels.reset.address, kernels.step.address]
        table = np.array([*settings, *functions, *addresses], np.uint64)
        self.arrays = arrays | {"table": table}  # kept alive as long as kernels use the addresses
        """What the kernels work on, by name; see `operant.compiler.emit.numba_arguments`."""
        self.actions = buffers.action
        """What the next step does, one array per component."""
        self.step_address: int = kernels.step.address
        """Of the compiled function that steps a block; see `compiler.emit.numba_kernels`."""
        self._table, self._control = table.ctypes.data, arrays["control"]
        self._work, self._reset, self._observe = kernels.work, kernels.reset.ctypes, kernels.observe
        self._trouble = arrays.get("trouble", np.zeros(2, np.int64))
        self._rescan = True
        self._workers = None
        if len(parts) > 1:
            serve = partial(_serve, kernels.work, self._table, self.arrays)
            self._control[STOP] = 1
            serve(1)  # compile now, not in the middle of a step
            self._control[STOP] = 0
            self._workers = Workers(len(parts), serve, self._control)

    def reset(self, mask: np.ndarray, now_us: int) -> None:
        """Begin a new episode in the environments of `mask`, bool ``[num_envs]``."""
        chosen = np.flatnonzero(mask)
        self._reset(0, len(chosen), chosen.ctypes.data_as(_INT64_POINTER), now_us, self._table)
        self._rescan = True
        self.check()

    def observe(self) -> None:
        """Write the observations and the masks from the states."""
        self._observe(self._table)
        self.check()

    def state_changed(self) -> None:
        """Note that someone else wrote to the buffers."""
        self._rescan = True

    def use(self, rules: Rules) -> None:
        """Go on with other values of the float parameters."""
        self._rules = rules
        self.arrays["params"][:] = rules.param_values()

    def step(self, actions: np.ndarray, now_us: int) -> int:
        """One step with `actions`, contiguous int32, int64 or float32; how many finished.

        Returns -1, having stepped nobody, if an action is bad.
        """
        work, workers, table = self._work, self._workers, self._table
        if not actions.flags.writeable:  # another type to Numba: it would compile again
            actions = actions.copy()
        data = actions.reshape(-1).view(np.uint8)
        if self._rescan:
            self._control[RESCAN] = 1
        if workers is not None:
            workers.wake()
        finished: int = work(CALLER, data, actions.itemsize == 8, now_us, table)
        if finished == UNFINISHED and workers is not None:
            finished = workers.wait(lambda: work(WAITING, data, False, 0, table))
        if self._rescan and finished >= 0:
            self._rescan = False
            self._control[RESCAN] = 0
        if self._trouble[0]:
            self.check()
        return finished

    def check(self) -> None:
        """Raise what went wrong in the author's functions, which compiled code cannot.

        Raises:
            RulesError: an index lay outside its array; element 0 was used instead.
            RulesOverflowError: an int did not fit into its array; its lowest bits were kept.
            EndlessLoopError: a ``while`` made too many passes, and was left.
            RuntimeError: a library wrote something else than 0 or 1 to ``terminated``.
        """
        word = int(self._trouble[0])
        self._trouble[:] = 0
        if word and isinstance(self._rules, ArrayRules):
            _, places = array_kernels_source(self._rules, __version__)
            raise noted_error(word, places)
        if word and isinstance(self._rules, NativeRules):
            raise RuntimeError(
                f"{self._rules.library.path.name} wrote {word} to terminated, "
                "which must be 0 or 1; try it: operant check"
            )

    def close(self) -> None:
        """Stop the worker threads."""
        if self._workers is not None:
            self._workers.close()


def _serve(work: Callable[..., int], table: int, keep: object, worker: int) -> int:
    """Let `worker` work on jobs; `keep` is all memory behind the table."""
    return work(worker, _NO_ACTIONS, False, 0, table)


def _arrays(
    rules: Rules, buffers: Buffers, parts: list[tuple[int, int]], blocks: list[int]
) -> dict[str, np.ndarray]:
    """The arrays of the kernels' table: those of the batch, and scratch memory of our own."""
    known: dict[str, Any] = {
        "params": rules.param_values(),
        "bounds": np.array([lo for lo, _ in parts] + [parts[-1][1]], np.int64),
        "blocks": np.array(blocks, np.int64),
        "control": np.zeros(LINE * (len(parts) + 2), np.int64),
    }
    known |= {f"state_{name}": array for name, array in buffers.state.items()}
    known |= {f"action_{k}": array for k, array in enumerate(buffers.action)}
    scratch = Arena(buffers.lanes)
    known["stream"] = scratch.zeros(np.uint32, (STREAM_WORDS,))
    known["trouble"] = np.zeros(2, np.int64)
    known |= native_arrays(rules, buffers) if isinstance(rules, NativeRules) else {}
    dtypes = {"f32": np.float32, "u32": np.uint32, "i64": np.int64}
    layout = table_layout(rules)
    for name, dtype in layout.items():
        if name not in known:
            array = getattr(buffers, name, None)
            known[name] = scratch.zeros(dtypes[dtype]) if array is None else array
    return {name: known[name] for name in layout}


def load_kernels(rules: Rules) -> ModuleType:
    """The module of compiled kernels for these rules, from memory or from disk.

    Raises:
        CompileError: the compiler refused them.
    """
    if isinstance(rules, NativeRules):  # the text is the same for every library
        source = native_kernels_source(rules, __version__)
        return load_module("libraries", source)
    with compiling(rules.env, "cpu"):
        if isinstance(rules, ArrayRules):
            source, _ = array_kernels_source(rules, __version__)
        else:
            assert isinstance(rules, TracedRules)
            source = kernels_source(rules, __version__)
        return load_module(rules.env.__name__, source)


def cache_statistics() -> dict[str, int]:
    """How many kernels this process loaded from disk and how many it compiled."""
    hits = misses = 0
    for name, module in list(sys.modules.items()):
        if name.startswith("operant_kernels_"):
            for kernel in vars(module).values():
                if isinstance(kernel, CFunc):
                    hits += kernel.cache_hits
                    misses += 1 - kernel.cache_hits
                elif isinstance(kernel, Dispatcher) and kernel.stats.cache_path is not None:
                    hits += sum(kernel.stats.cache_hits.values())
                    misses += sum(kernel.stats.cache_misses.values())
    return {"loaded": hits, "compiled": misses}


def inspect_assembly(rules: Rules) -> str:
    """The machine code of ``step``, if it was compiled in this process."""
    assembly: str = load_kernels(rules).step._library.get_asm_str()
    return assembly
