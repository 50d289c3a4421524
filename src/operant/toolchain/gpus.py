"""Which NVIDIA GPUs there are, without loading PyTorch; and what fits on them."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def interpreted() -> bool:
    """Whether Triton interprets kernels on the CPU: then ``cuda`` runs there, for tests."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


def has_triton() -> bool:
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


@lru_cache(maxsize=1)
def torch_has_cuda() -> bool:
    """Whether the PyTorch that is installed was built for NVIDIA GPUs; it is not loaded."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return False
    try:
        text = (Path(found.origin).parent / "version.py").read_text()
    except OSError:
        return False
    return re.search(r"^cuda\b.*= *['\"]", text, re.MULTILINE) is not None


@lru_cache(maxsize=1)
def gpu_count() -> int:
    """NVIDIA GPUs that this process may use, as the driver counts them."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def why_not_cuda() -> str | None:
    """Why the ``cuda`` backend cannot run here, as a sentence; None if it can."""
    if not has_triton():
        return "backend 'cuda' needs triton, which is not installed: pip install triton"
    if not interpreted() and gpu_count() == 0:
        return "backend 'cuda' needs an NVIDIA GPU, and this machine has none that can be used"
    if not interpreted() and not torch_has_cuda():
        return "backend 'cuda' needs PyTorch built for CUDA; this one was built without"
    return None


def is_hopper(device: torch.device) -> bool:
    """Whether a device is a GPU of compute capability 9."""
    import torch

    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == 9


def check_memory(device: torch.device, count: int, size: int, what: str) -> None:
    """Raise MemoryError if `what` of `count` environments, `size` bytes each, does not fit."""
    if device.type != "cuda":
        return
    import torch

    free, total = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if count * size > free:
        raise MemoryError(
            f"{what} of {count:,} environments takes {count * size / 2**30:.1f} GiB, and {device} "
            f"has {free / 2**30:.1f} of {total / 2**30:.0f} GiB left: about "
            f"{int(0.95 * free) // size:,} environments would fit"
        )
