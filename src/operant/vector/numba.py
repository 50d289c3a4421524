"""The ``cpu`` backend: the environment's kernels, generated, compiled by Numba and cached on disk.

Numba caches compiled code beside a source file, so the generated source is written to a folder of
its own (``$OPERANT_HOME/kernels``, by default ``~/.operant/kernels``), under a name that holds a
hash of its text. The second start finds both and compiles nothing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
from gymnasium.vector import AutoresetMode

from operant import __version__, paths
from operant.envs.rules import Rules
from operant.lang import intrinsics
from operant.vector import numba_jobs, numba_lanes, numba_philox
from operant.vector.buffers import LANES, Arena, Buffers
from operant.vector.numba_jobs import LINE, STOP, UNFINISHED, block_size
from operant.vector.numba_source import kernels_source
from operant.vector.numba_table import table_layout
from operant.vector.workers import Workers, split

_MODES = {AutoresetMode.NEXT_STEP: 0, AutoresetMode.SAME_STEP: 1, AutoresetMode.DISABLED: 2}


class NumbaBackend:
    """Steps a batch with compiled kernels, split over `workers` threads.

    Each method updates `buffers` in place and allocates nothing that grows with the batch.
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
        parts = split(buffers.lanes, workers, LANES)
        arrays = _arrays(rules, buffers, parts)
        block = block_size(buffers.lanes, len(parts))
        settings = [buffers.num_envs, buffers.lanes, _MODES[mode], max_steps, len(parts), block]
        addresses = [array.ctypes.data for array in arrays.values()]
        self._table = table = np.array(settings + addresses, np.uint64)
        self._arrays = arrays  # kept alive as long as the kernels hold their addresses
        self._step, self._wait = kernels.step, kernels.wait
        self._reset_slice, self._observe_slice = kernels.reset_slice, kernels.observe_slice
        self._num_envs, self._rescan = buffers.num_envs, True
        self._workers = None
        if len(parts) > 1:
            control = arrays["control"]
            control[STOP] = 1
            kernels.serve(1, 0, table)  # compile now, not in the middle of a step
            kernels.wait(table)
            control[STOP] = 0
            self._workers = Workers(len(parts), kernels.serve, control, table, arrays)

    def reset(self, mask: np.ndarray, now_us: int) -> None:
        """Begin a new episode in the environments of `mask`, bool ``[num_envs]``."""
        self._reset_slice(np.flatnonzero(mask), now_us, self._table)
        self._rescan = True

    def observe(self) -> None:
        """Write the observations from the states."""
        self._observe_slice(np.arange(self._num_envs), self._table)

    def state_changed(self) -> None:
        """Note that someone else wrote to the buffers."""
        self._rescan = True

    def step(self, actions: np.ndarray, now_us: int) -> int:
        """One step with `actions`, contiguous int32, int64 or float32; how many finished.

        Returns -1, having stepped nobody, if an action is bad.
        """
        workers, table = self._workers, self._table
        if not actions.flags.writeable:  # another type to Numba: it would compile again
            actions = actions.copy()
        data = actions.reshape(-1).view(np.uint8)
        if workers is not None:
            workers.wake()
        finished: int = self._step(data, actions.itemsize == 8, self._rescan, now_us, table)
        if finished == UNFINISHED and workers is not None:
            finished = workers.wait(lambda: self._wait(table))
        if finished >= 0:
            self._rescan = False
        return finished

    def close(self) -> None:
        """Stop the worker threads."""
        if self._workers is not None:
            self._workers.close()


def _arrays(rules: Rules, buffers: Buffers, parts: list[tuple[int, int]]) -> dict[str, np.ndarray]:
    """The arrays of the kernels' table: those of the batch, and scratch memory of our own."""
    known: dict[str, Any] = {
        "params": rules.param_values(),
        "done_words": buffers.done,
        "bounds": np.array([lo for lo, _ in parts] + [buffers.lanes], np.int64),
        "control": np.zeros(LINE * (len(parts) + 2), np.int64),
    }
    known |= {f"state_{name}": array for name, array in buffers.state.items()}
    known |= {f"action_{k}": array for k, array in enumerate(buffers.action)}
    scratch = Arena(buffers.lanes)
    dtypes = {"f32": np.float32, "u32": np.uint32, "i64": np.int64}
    layout = table_layout(rules)
    for name, (dtype, _) in layout.items():
        if name not in known:
            array = getattr(buffers, name, None)
            known[name] = scratch.zeros(dtypes[dtype]) if array is None else array
    return {name: known[name] for name in layout}


def load_kernels(rules: Rules) -> ModuleType:
    """The module of compiled kernels for these rules, from memory or from disk."""
    return _load(rules.env.__name__, kernels_source(rules, __version__, _fingerprint()))


@lru_cache(maxsize=1)
def _fingerprint() -> str:
    """Stands for the code that generated kernels call; Numba's cache does not look there."""
    parts = [numba.__version__]
    for module in (intrinsics, numba_jobs, numba_lanes, numba_philox):
        parts.append(Path(str(module.__file__)).read_text())
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:12]


@lru_cache(maxsize=256)
def _load(name: str, source: str) -> ModuleType:
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    module_name = f"operant_kernels_{name}_{digest}"
    path = _write_once(f"{module_name}.py", source)
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # Numba looks the module up by name when it loads its cache
    spec.loader.exec_module(module)
    return module


def _write_once(filename: str, source: str) -> Path:
    """Write the file unless it is there already: Numba's cache is keyed by its time stamp."""
    for folder in (
        paths.home() / "kernels",
        Path(tempfile.gettempdir()) / f"operant-{os.getuid()}",
    ):
        path = folder / filename
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if path.exists() and path.read_text() == source:
                return path
            with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".tmp", delete=False) as file:
                file.write(source)
            os.replace(file.name, path)
            return path
        except OSError:
            continue  # a read-only home: compile into the temporary folder
    raise OSError(f"cannot write compiled kernels to {paths.home()}; set OPERANT_HOME")


def cache_statistics() -> dict[str, int]:
    """How many kernels this process loaded from disk and how many it compiled."""
    hits = misses = 0
    for name, module in list(sys.modules.items()):
        if name.startswith("operant_kernels_"):
            for kernel in _dispatchers(module):
                hits += sum(kernel.stats.cache_hits.values())
                misses += sum(kernel.stats.cache_misses.values())
    return {"loaded": hits, "compiled": misses}


def _dispatchers(module: ModuleType) -> list[Any]:
    names = ("step", "wait", "serve", "reset_slice", "observe_slice")
    return [getattr(module, name) for name in names]


def inspect_assembly(rules: Rules) -> dict[str, str]:
    """The machine code of the kernels compiled so far in this process, by kernel name."""
    kernels = load_kernels(rules)
    texts: dict[str, Any] = {}
    for kernel in _dispatchers(kernels):
        texts[kernel.__name__] = "\n".join(kernel.inspect_asm().values())
    return texts
