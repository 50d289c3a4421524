"""Which machine, which versions, which commit: what a figure must be read with."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from operant.toolchain.git import git_commit, is_tracked

_PACKAGES = (
    "operant",
    "numpy",
    "numba",
    "gymnasium",
    "torch",
    "triton",
    "envpool",
    "stable-baselines3",
    "jax",
    "rejax",
)


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import psutil

    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),  # type: ignore[no-untyped-call]
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
        **_gpu(),
    }


def _gpu() -> dict[str, Any]:
    """The GPU, if PyTorch is loaded and has one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return {}
    memory = torch.cuda.get_device_properties(0).total_memory
    return {
        "gpu": torch.cuda.get_device_name(0),
        "gpu_memory_gib": round(memory / 2**30, 1),
        "cuda": torch.version.cuda,
    }


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit of the checkout this package runs from, ``-dirty`` if changed; else None."""
    here = Path(__file__)
    return git_commit(here.parent) if is_tracked(here) else None
