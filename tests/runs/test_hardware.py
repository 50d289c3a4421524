"""Figures of the machine, and of a GPU that is made up."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from operant.runs import hardware
from operant.runs.hardware import HARDWARE, Hardware


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_EVERY_S", 0.001)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


class NVMLError(Exception):
    pass


class Driver:
    """What `pynvml` has of functions; a name in `broken` fails."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = 0

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.asked = threading.Semaphore(0)
        self.gpu = -1

    def _answer(self, name: str, value: Any) -> Any:
        if name in self.broken:
            raise NVMLError(name)
        return value

    def nvmlInit(self) -> None:
        self._answer("init", None)

    def nvmlDeviceGetHandleByIndex(self, gpu: int) -> str:
        self.gpu = gpu
        self.asked.release()
        return self._answer("handle", "the GPU")

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        assert handle == "the GPU"
        return self._answer("rates", SimpleNamespace(gpu=87, memory=12))

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        return self._answer("memory", SimpleNamespace(used=4_000_000_000, total=10**11))

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        assert sensor == 0
        return self._answer("celsius", 61)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        self.asked.release()  # the last question of a round
        return self._answer("watts", 349_600)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


@pytest.fixture
def watch() -> Iterator[Callable[..., Hardware]]:
    """Makes a `Hardware`, which is closed whatever happens."""
    made: list[Hardware] = []

    def make(gpu: int | None = None) -> Hardware:
        made.append(Hardware(gpu))
        return made[-1]

    yield make
    for one in made:
        one.close()


def rounds(driver: Driver, count: int) -> None:
    """Wait until the driver was asked so often; the answers before the last are in."""
    for _ in range(count):
        assert driver.asked.acquire(timeout=30)


def test_processor_and_memory(watch: Callable[..., Hardware]) -> None:
    one = watch()
    first = one.figures()
    assert len(first) == len(HARDWARE)
    while math.isnan(one.figures()[0]):  # until the interval is over
        pass
    found = dict(zip(HARDWARE, one.figures(), strict=True))
    assert 0 <= found["cpu_percent"] < 100 * 1000
    resident = psutil.Process().memory_info().rss / 1e6
    assert found["memory_mb"] == pytest.approx(resident, rel=0.5)
    assert all(math.isnan(found[name]) for name in HARDWARE if name.startswith("gpu"))


def test_figures_are_kept_for_the_interval(
    watch: Callable[..., Hardware], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=100.0, worked=10.0)
    monkeypatch.setattr(hardware.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(hardware, "_worked", lambda: clock.worked)
    monkeypatch.setattr(hardware, "_memory_mb", lambda: clock.worked * 7)
    monkeypatch.setattr(hardware, "_EVERY_S", 1.0)
    one = watch()
    assert math.isnan(one.figures()[0])
    assert one.figures()[1] == 70
    clock.now, clock.worked = 100.9, 11.0
    assert math.isnan(one.figures()[0])
    clock.now, clock.worked = 102.0, 13.0  # 3 s of work in 2 s
    assert one.figures()[:2] == (150, 91)
    clock.now, clock.worked = 102.5, 20.0
    assert one.figures()[:2] == (150, 91)
    clock.now, clock.worked = 106.0, 20.0
    assert one.figures()[:2] == (175, 140)


def test_memory_that_cannot_be_known(
    watch: Callable[..., Hardware], monkeypatch: pytest.MonkeyPatch
) -> None:
    def secret(self: psutil.Process) -> None:
        raise psutil.AccessDenied(self.pid)

    monkeypatch.setattr(psutil.Process, "memory_info", secret)
    assert math.isnan(watch().figures()[1])


def test_the_gpu(watch: Callable[..., Hardware], driver: Driver) -> None:
    one = watch(3)
    rounds(driver, 3)  # the handle and two rounds
    assert driver.gpu == 3
    assert one.figures()[2:] == (87, 4000, 61, 349.6)
    one.close()
    assert one.figures()[2:] == (87, 4000, 61, 349.6)


@pytest.mark.parametrize(
    ("shown", "gpu", "physical"),
    [
        ("", 1, 1),
        ("5", 0, 5),
        ("2, 7", 1, 7),
        ("2,7", 2, 2),
        ("GPU-8a5f,MIG-1", 1, 1),
        ("-1", 0, 0),
    ],
)
def test_the_gpu_by_the_drivers_number(
    watch: Callable[..., Hardware],
    driver: Driver,
    monkeypatch: pytest.MonkeyPatch,
    shown: str,
    gpu: int,
    physical: int,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    watch(gpu)
    rounds(driver, 1)
    assert driver.gpu == physical


@pytest.mark.parametrize(("broken", "place"), [("rates", 0), ("celsius", 2), ("watts", 3)])
def test_a_figure_that_the_driver_does_not_know(
    watch: Callable[..., Hardware], driver: Driver, broken: str, place: int
) -> None:
    driver.broken = {broken}
    one = watch(0)
    rounds(driver, 3)
    found = one.figures()[2:]
    assert [math.isnan(value) for value in found] == [k == place for k in range(4)]


@pytest.mark.parametrize("broken", ["init", "handle"])
def test_a_driver_that_fails(watch: Callable[..., Hardware], driver: Driver, broken: str) -> None:
    driver.broken = {broken}
    one = watch(0)
    assert one._thread is not None
    one._thread.join(timeout=30)
    assert not one._thread.is_alive()
    assert len(one.figures()) == len(HARDWARE)
    assert all(math.isnan(value) for value in one.figures()[2:])


def test_no_driver(watch: Callable[..., Hardware], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # an ImportError
    one = watch(0)
    assert one._thread is not None
    one._thread.join(timeout=30)
    assert all(math.isnan(value) for value in one.figures()[2:])


def test_no_gpu_asks_nobody(watch: Callable[..., Hardware], driver: Driver) -> None:
    before = threading.active_count()
    one = watch(None)
    assert threading.active_count() == before
    assert driver.gpu == -1
    one.close()


def test_close_is_repeatable(watch: Callable[..., Hardware], driver: Driver) -> None:
    one = watch(0)
    thread = one._thread
    assert thread is not None
    rounds(driver, 1)
    for _ in range(3):
        one.close()
        thread.join(timeout=30)  # `close` does not wait for long
        assert not thread.is_alive()
    assert len(one.figures()) == len(HARDWARE)
