"""What a run asks of its machine: processor time, memory, and the GPU's own figures."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

HARDWARE = (
    "cpu_percent",
    "memory_mb",
    "gpu_percent",
    "gpu_memory_mb",
    "gpu_celsius",
    "gpu_watts",
)
"""Figures of `Hardware`; ``cpu_percent`` is of one core, so several may pass 100."""
_EVERY_S = 1.0
_NONE = (float("nan"),) * 4


class Hardware:
    """Figures of this process and of one GPU, sampled about once a second.

    `figures` takes microseconds: memory is asked for once a second, and the GPU, whose driver may
    take milliseconds, by a thread of its own. What cannot be known is NaN.

    Args:
        GPU: the GPU's number; None for no GPU.
    """

    def __init__(self, gpu: int | None = None) -> None:
        self._asked, self._worked = time.monotonic(), _worked()
        self._process: tuple[float, float] = (float("nan"), _memory_mb())
        self._gpu: tuple[float, ...] = _NONE
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        if gpu is not None:
            self._thread = threading.Thread(target=self._watch, args=(gpu,), daemon=True)
            self._thread.start()

    def figures(self) -> tuple[float, ...]:
        """One number for each name in `HARDWARE`."""
        now = time.monotonic()
        if now - self._asked >= _EVERY_S:
            worked = _worked()
            share = 100 * (worked - self._worked) / (now - self._asked)
            self._asked, self._worked = now, worked
            self._process = share, _memory_mb()
        return (*self._process, *self._gpu)

    def close(self) -> None:
        """Let the GPU be. May be repeated."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(timeout=2 * _EVERY_S)
            self._thread = None

    def _watch(self, gpu: int) -> None:
        nvml = _nvml()
        if nvml is None:
            return
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(_physical(gpu))
            while not self._over.wait(_EVERY_S):
                self._gpu = _gpu_figures(nvml, handle)
        except nvml.NVMLError:
            self._gpu = _NONE  # a driver that does not say


def _worked() -> float:
    """Seconds that all threads of this process have computed."""
    times = os.times()
    return times.user + times.system


def _memory_mb() -> float:
    import psutil

    try:
        return float(psutil.Process().memory_info().rss) / 1e6  # type: ignore[no-untyped-call]
    except (psutil.Error, OSError):
        return float("nan")


def _nvml() -> Any | None:
    """The driver's library, if it and its Python package are there."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no package, no driver, another version of it
        return None
    return pynvml


def _physical(gpu: int) -> int:
    """The driver's number of a GPU that this process may have been shown under another one."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return int(shown[gpu]) if gpu < len(shown) and shown[gpu].strip().isdigit() else gpu


def _gpu_figures(nvml: Any, handle: Any) -> tuple[float, ...]:
    found = []
    for ask in (
        lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / 1e6,
        lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
    ):
        try:
            found.append(float(ask()))  # type: ignore[no-untyped-call]
        except nvml.NVMLError:
            found.append(float("nan"))
    return tuple(found)
