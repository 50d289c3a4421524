"""How quiet a machine was while something was measured on it, and how fast."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

MOST_BUSY = 0.25
"""Cores that other processes may use on average."""
MOST_UNSTEADY = 0.1
"""How far apart the quartiles of the probe may lie, relative to its median."""
_PROBE = 20_000


def probe_speed() -> float:
    """Passes a second of a loop that needs nothing but a core: the best of three, about 3 ms."""
    return _PROBE / min(_loop() for _ in range(3))


def _loop() -> float:
    began, value = time.perf_counter(), 1
    for _ in range(_PROBE):
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
    return time.perf_counter() - began


@dataclass(frozen=True)
class Noise:
    """What is known of the machine over a measurement."""

    speed: float
    """Median of the probe: compare figures of two days through it."""
    unsteady: float
    """Between the quartiles of the probe, relative to the median."""
    busy: float
    """Cores that were not ours and not idle, on average; what a hypervisor took is included."""

    @property
    def trouble(self) -> str:
        """Why nothing can be said of speed on such a machine; empty if it can."""
        if self.busy > MOST_BUSY:
            return (
                f"others used {self.busy:.2f} cores of this machine while it was measured "
                f"({MOST_BUSY} is the most)"
            )
        if self.unsteady > MOST_UNSTEADY:
            return (
                f"the speed of this machine's cores varied by {self.unsteady:.0%} while it was "
                f"measured ({MOST_UNSTEADY:.0%} is the most)"
            )
        return ""

    def record(self) -> dict[str, float]:
        """For JSON."""
        return {
            "probe_speed": round(self.speed, 1),
            "probe_unsteady": round(self.unsteady, 4),
            "others_cores": round(self.busy, 3),
        }


class NoiseMeter:
    """Watches the machine from when it is made until `read`; `probe` it in each round."""

    def __init__(self) -> None:
        self._probes: list[float] = []
        self._began = time.monotonic()
        self._all, self._own = _busy_s(), _own_s()

    def probe(self) -> None:
        """Measure the probe."""
        self._probes.append(probe_speed())

    def read(self) -> Noise:
        """What it amounts to so far. The probe is measured once more."""
        self.probe()
        passed = max(time.monotonic() - self._began, 1e-9)
        others = (_busy_s() - self._all) - (_own_s() - self._own)
        median = statistics.median(self._probes)
        low, high = min(self._probes), max(self._probes)
        if len(self._probes) > 1:
            low, _, high = statistics.quantiles(self._probes, n=4, method="inclusive")
        return Noise(median, (high - low) / median, max(0.0, others / passed))


_BUSY = ("user", "nice", "system", "irq", "softirq", "steal")


def _busy_s() -> float:
    """Seconds that the cores of this machine have worked, for anybody."""
    import psutil

    times: Any = psutil.cpu_times()  # type: ignore[no-untyped-call]
    return sum(float(getattr(times, name, 0.0)) for name in _BUSY)


def _own_s() -> float:
    """Seconds that they have worked for this process and what it started."""
    import psutil

    here: Any = psutil.Process()  # type: ignore[no-untyped-call]
    found = here.cpu_times()
    total = found.user + found.system + found.children_user + found.children_system
    for child in here.children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.Error:  # it has ended: its time is this process's then
            continue
        total += times.user + times.system
    return float(total)
