"""The entry points, compiled once a machine.

Numba caches a compiled function beside its file and looks at that file alone to tell whether the
cache is up to date. So the files of the entry points are copied to the folder of the environments'
kernels, under names that stand for everything that is compiled into them.
"""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numba
from llvmlite.binding import get_host_cpu_name
from numba.core import config

from operant.toolchain.child import python_command, python_environment
from operant.toolchain.generated_modules import load_module, module_path
from operant.toolchain.machine import usable_cores

_FILES = {
    "act": ("act", "value_finals"),
    "encode": ("encode", "expand_one_hot"),
    "train_shard": ("order_shard", "train_shard"),
    "weights": ("add_up", "apply", "finish", "pack"),
}
"""Files of the functions that have other names than they."""
_FILE_OF = {name: file for file, names in _FILES.items() for name in names}
_SLOWEST = (
    *("sample_categorical", "sample_gaussian", "forward", "finish", "train_epoch", "train_shard"),
    "backward",
)
"""Functions that take longest to compile, the slowest first."""
_MOST_PROCESSES = 4
_HERE = Path(__file__).parent
log = logging.getLogger("operant.compile")


def load_functions(names: Sequence[str]) -> dict[str, Any]:
    """Compiled functions by name; what is not cached yet is compiled, on several cores.

    What is going on is logged to ``operant.compile``: progress as DEBUG, the time it took as INFO.
    """
    missing = sorted((name for name in names if not _is_cached(name)), key=_by_time)
    if not missing:
        return {name: load_function(name) for name in names}
    began = time.perf_counter()
    log.debug("compiling the training kernels, once for this machine")
    helpers = min(usable_cores(), _MOST_PROCESSES, 1 + len(missing) // 3) - 1
    # The one that needs PyTorch stays here, where it is loaded already.
    given = [name for name in missing if name != "estimate_advantages"]
    shares = [given[k :: helpers + 1] for k in range(1, helpers + 1)]
    processes = [_compile_elsewhere(share) for share in shares]
    theirs = {name for share in shares for name in share}
    functions = {name: load_function(name) for name in names if name not in theirs}
    for process in processes:
        if process is not None:
            process.wait()
    functions |= {name: load_function(name) for name in theirs}  # compiles what a process failed to
    took = time.perf_counter() - began
    log.info("compiled the training kernels in %.1f s; they are kept for the next run", took)
    return functions


def _by_time(name: str) -> int:
    return _SLOWEST.index(name) if name in _SLOWEST else len(_SLOWEST)


def _compile_elsewhere(names: Sequence[str]) -> subprocess.Popen[bytes] | None:
    """Compile into the cache in another process: Numba compiles one function at a time."""
    code = f"from {__name__} import load_function\nfor name in {list(names)!r}: load_function(name)"
    if not config._config_fname:
        first = "from operant.toolchain.child import ignore_numba_settings as ignore"
        code = f"{first}\nignore()\n{code}"
    nothing = subprocess.DEVNULL
    try:
        return subprocess.Popen(
            python_command("-c", code),
            env=python_environment(),
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
        )
    except OSError:
        return None


def _source(name: str) -> tuple[str, str]:
    """Name and text of the module that a function is compiled from."""
    file = _FILE_OF.get(name, name)
    return f"fused_{file}", f"{(_HERE / f'{file}.py').read_text()}\n# {_machine()}\n"


@cache
def load_function(name: str) -> Any:
    """A compiled function, Numba's ``CFunc``: from its cache, or compiled now."""
    return getattr(load_module(*_source(name)), name).compile()


def _is_cached(name: str) -> bool:
    """Whether Numba will find the function in its cache, as far as one can tell from the names."""
    path = module_path(*_source(name))
    return any((path.parent / "__pycache__").glob(f"{path.stem}.{name}-*.nbi"))


@cache
def _machine() -> str:
    """Which machine the code is compiled for, and by what."""
    asked = [getattr(numba.config, name, None) for name in ("CPU_NAME", "CPU_FEATURES")]
    return repr((numba.__version__, get_host_cpu_name(), *asked))
