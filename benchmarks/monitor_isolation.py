"""That the monitor cannot hurt a training, and that nothing can hurt the monitor.

    python benchmarks/monitor_isolation.py results.json [kills trainers torn eight cost fuzz]

Trains and kills real processes in a home of its own; takes about ten minutes on two cores.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HOME = Path(tempfile.mkdtemp(prefix="operant-isolation-"))
os.environ["OPERANT_HOME"] = str(HOME)

from rich.console import Console  # noqa: E402

from operant.bench.frame import frame as result_frame  # noqa: E402
from operant.bench.frame import write_json  # noqa: E402
from operant.monitor.frame import frame  # noqa: E402
from operant.monitor.source import Source  # noqa: E402
from operant.ppo.ppo import METRICS  # noqa: E402
from operant.runs.directory import Run, find_run  # noqa: E402
from operant.runs.hardware import HARDWARE, Hardware  # noqa: E402
from operant.runs.metrics_file import MetricsReader, MetricsWriter  # noqa: E402

WORDS = [sys.executable, "-m", "operant"]
STEPS = 8_000_000


def train(run_id: str, steps: int = STEPS) -> subprocess.Popen[bytes]:
    """A training on one thread, so that a monitor has a core of its own."""
    words = [*WORDS, "train", "CartPole-v1", "--seed=3", f"--run-id={run_id}", "--set"]
    words += ["run.threads=1", f"--total-steps={steps}", "--set", "run.eval_episodes=0"]
    null = subprocess.DEVNULL
    process = subprocess.Popen(words, stdin=null, stdout=null, stderr=null)
    while not (HOME / "runs" / run_id / "metrics.mmap").exists() and process.poll() is None:
        time.sleep(0.01)
    return process


def watch(run_id: str, columns: int = 80, lines: int = 24) -> tuple[subprocess.Popen[bytes], int]:
    """A monitor in a terminal of its own."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environ = {**os.environ, "TERM": "xterm-256color"}
    words = [*WORDS, "monitor", run_id]
    process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=environ)
    os.close(slave)
    os.set_blocking(master, False)
    return process, master


def drain(master: int) -> int:
    """What it drew since the last time, in bytes."""
    size = 0
    try:
        while block := os.read(master, 1 << 16):
            size += len(block)
    except (BlockingIOError, OSError):
        pass
    return size


def weights(run_id: str) -> bytes:
    """The weights of a run's last checkpoint."""
    run = find_run(run_id)
    last = max(int(p.name) for p in run.checkpoints.iterdir() if p.name.isdigit())
    files = sorted((run.checkpoints / str(last)).glob("*.safetensors"))
    return b"".join(file.read_bytes() for file in files)


def kills(count: int = 50) -> dict[str, Any]:
    """Monitors killed at random moments; the run must end as an unwatched one does."""
    train("unwatched").wait()
    random.seed(1)
    killed, drawn, rounds = 0, 0, 0
    while killed < count:
        rounds += 1
        name = f"watched-{rounds}"
        process = train(name)
        while process.poll() is None and killed < count:
            monitor, master = watch(name)
            end = time.monotonic() + random.uniform(0.1, 2.5)
            while time.monotonic() < end and process.poll() is None:
                drawn += drain(master)
                time.sleep(0.01)
            monitor.kill()
            monitor.wait()
            os.close(master)
            killed += 1
        process.wait()
        assert weights(name) == weights("unwatched"), name
    return {"monitors_killed": killed, "runs": rounds, "bytes_drawn": drawn, "weights_equal": True}


def trainers(count: int = 50) -> dict[str, Any]:
    """Trainings killed at random moments; how long until they show as stale."""
    random.seed(2)
    took, rows = [], 0
    for k in range(count):
        process = train(f"killed-{k}", 10**9)
        source = Source(find_run(f"killed-{k}"))
        end = time.monotonic() + random.uniform(0.0, 1.0)
        while time.monotonic() < end:
            view = source.read()
            assert view.live, view.status
        process.kill()
        began = time.monotonic()
        process.wait()
        view = source.read()
        while view.status != "stale":
            assert time.monotonic() - began < 10, view.status
            time.sleep(0.01)
            view = source.read()
        took.append(time.monotonic() - began)
        iterations = view.table["iteration"]
        assert np.array_equal(iterations, np.arange(1, len(iterations) + 1))
        assert np.array_equal(view.table["steps"], iterations * 4096)
        rows += len(iterations)
        shutil.rmtree(HOME / "runs" / f"killed-{k}")
    return {
        "trainers_killed": count,
        "rows_checked": rows,
        "stale_after_s_max": round(max(took), 3),
    }


def torn(reads: int = 1_000_000) -> dict[str, Any]:
    """Reads while another process writes as fast as it can; each record keeps an invariant."""
    run = Run.create("torn")
    fields = tuple(f"f{k}" for k in range(28))
    code = (
        "import sys; from pathlib import Path\n"
        "from operant.runs.metrics_file import MetricsWriter\n"
        f"w = MetricsWriter(Path(sys.argv[1]), {fields!r}, run_id='torn', capacity=64)\n"
        "i = 0\n"
        "while True:\n"
        "    w.append([i * (k + 1) for k in range(28)]); i += 1\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(run.mmap_file)])
    while not run.mmap_file.exists():
        time.sleep(0.01)
    factors = np.arange(1, 29, dtype=np.float64)
    checked = bad = gave_up = since = 0
    with MetricsReader(run.mmap_file) as reader:
        for _ in range(reads):
            found = reader.read(since)
            rows, since = found.rows, max(0, found.head - 2)
            checked += len(rows)
            gave_up += found.torn
            if len(rows):
                bad += int((rows != np.outer(rows[:, 0], factors)).any(1).sum())
    writer.kill()
    writer.wait()
    return {"reads": reads, "records_checked": checked, "violations": bad, "left_out": gave_up}


def eight() -> dict[str, Any]:
    """Eight monitors on one run at once."""
    process = train("eight")
    monitors = [watch("eight") for _ in range(8)]
    drawn = [0] * 8
    while process.poll() is None:
        for k, (_, master) in enumerate(monitors):
            drawn[k] += drain(master)
        time.sleep(0.02)
    alive = sum(monitor.poll() is None for monitor, _ in monitors)
    for monitor, _ in monitors:
        monitor.send_signal(signal.SIGKILL)
        monitor.wait()
    equal = weights("eight") == weights("unwatched") if (HOME / "runs/unwatched").exists() else None
    return {"monitors": 8, "alive_at_the_end": alive, "bytes_drawn": drawn, "weights_equal": equal}


def cost(pairs: int = 40, seconds: float = 1.5) -> dict[str, Any]:
    """Speed of one training while a monitor looks and while it is held, in turns."""
    process = train("cost", 10**9)
    source = Source(find_run("cost"))
    monitor, master = watch("cost")
    _watched(master, 4.0)  # it starts, which costs
    ratios = []
    for k in range(pairs):
        speeds = {}
        for looking in (True, False) if k % 2 else (False, True):
            monitor.send_signal(signal.SIGCONT if looking else signal.SIGSTOP)
            first, began = source.read().last("steps"), time.perf_counter()
            _watched(master, seconds)
            speeds[looking] = (source.read().last("steps") - first) / (time.perf_counter() - began)
        ratios.append(speeds[True] / speeds[False])
    monitor.send_signal(signal.SIGCONT)
    shares = {"80x24": _share(monitor, master)}
    large, other = watch("cost", 200, 60)
    _watched(other, 4.0)
    shares["200x60"] = _share(large, other)
    for one in (monitor, large, process):
        one.kill()
        one.wait()
    return {
        "pairs": pairs,
        "sps_ratio_median": round(float(np.median(ratios)), 4),
        "sps_ratio_mean": round(float(np.mean(ratios)), 4),
        "standard_error": round(float(np.std(ratios) / np.sqrt(pairs)), 4),
        "share_of_a_core": shares,
        "publish_us": _publish_us(),
    }


def _watched(master: int, seconds: float) -> None:
    """Let time pass, and read what a monitor draws."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        drain(master)
        time.sleep(0.05)


def _share(monitor: subprocess.Popen[bytes], master: int, seconds: float = 10.0) -> float:
    """What a monitor takes of a core."""
    before, began = _cpu(monitor.pid), time.perf_counter()
    _watched(master, seconds)
    return round((_cpu(monitor.pid) - before) / (time.perf_counter() - began), 4)


def _cpu(pid: int) -> float:
    import psutil

    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _publish_us(count: int = 20_000) -> float:
    run = Run.create(f"publish-{time.time_ns()}")
    values, hardware = [1.5] * len(METRICS), Hardware()
    with MetricsWriter(run.mmap_file, (*METRICS, *HARDWARE), run_id=run.id) as live:
        best = []
        for _ in range(5):
            began = time.perf_counter()
            for _ in range(count // 5):
                live.append([*values, *hardware.figures()])
            best.append((time.perf_counter() - began) / (count // 5))
    return round(float(np.median(best)) * 1e6, 2)


def fuzz(count: int = 10_000) -> dict[str, Any]:
    """Mutated metrics files, CSVs, logs and configurations."""
    train("good", 200_000).wait()
    good = find_run("good")
    names = ("metrics.mmap", "metrics.csv", "train.log", "config.toml", "info.json")
    images = {name: (good.path / name).read_bytes() for name in names}
    run = Run.create("mutated")
    random.seed(3)
    states: dict[str, int] = {}
    slowest = 0.0
    for _ in range(count):
        for name in names:
            mutate = random.random() < 0.6
            (run.path / name).write_bytes(mutated(images[name]) if mutate else images[name])
        began = time.perf_counter()
        view = Source(run).read()
        text = io.StringIO()
        Console(file=text, width=80, force_terminal=False).print(frame(view, 80))
        slowest = max(slowest, time.perf_counter() - began)
        view.to_dict()
        strange = [c for c in text.getvalue() if not c.isprintable() and c != "\n"]
        assert not strange, strange
        states[view.status] = states.get(view.status, 0) + 1
    return {"mutated": count, "states": states, "slowest_s": round(slowest, 3), "escapes": 0}


def mutated(image: bytes) -> bytes:
    """A few random damages."""
    data = bytearray(image)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(data) + 1)
        kind = random.randrange(6)
        if kind == 0:
            del data[at:]
        elif kind == 1:
            data[at:at] = b"\x1b]0;owned\x07\x1b[31m"
        elif kind == 2:
            data[at : at + 8] = random.randbytes(8)
        elif kind == 3 and len(data) >= 128:
            word = 8 * random.randrange(16)
            data[word : word + 8] = random.choice((b"\xff" * 8, bytes(8), b"\x01" + bytes(7)))
        elif kind == 4:
            data += random.randbytes(random.randrange(64))
        elif data:
            data[at % len(data)] ^= 1 << random.randrange(8)
    return bytes(data)


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "kills": kills,
    "trainers": trainers,
    "torn": torn,
    "eight": eight,
    "cost": cost,
    "fuzz": fuzz,
}


def main() -> None:
    """Run the parts and write what they found."""
    found = []
    try:
        for name in sys.argv[2:] or PARTS:
            began = time.perf_counter()
            row = {"what": name, **PARTS[name]()}
            found.append({**row, "seconds": round(time.perf_counter() - began, 1)})
            print(found[-1], flush=True)
            write_json(sys.argv[1], result_frame(found))
    finally:
        shutil.rmtree(HOME, ignore_errors=True)


if __name__ == "__main__":
    main()
