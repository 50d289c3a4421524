"""That cutting `metrics.mmap` short, at any moment, kills neither who reads it nor who trains.

    python benchmarks/truncations.py results.json [--truncations 100000]

Two processes read without pause, each its own way, and one appends without pause, while this one
truncates their file to random lengths and puts it back. About a minute on two cores.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from operant.bench.frame import frame, write_json
from operant.runs.metrics_file import MetricsFileError, MetricsReader, MetricsWriter

FIELDS = tuple(f"f{k}" for k in range(28))
CAPACITY = 256
"""A ring of 60 kB: a store or load beyond the end of a mapped file kills from the next page on."""
READER = """
import sys
from pathlib import Path
from operant.runs.metrics_file import MetricsFileError, MetricsReader

path, keep = Path(sys.argv[1]), sys.argv[2] == "keep"
good = bad = wrong = 0
reader = None
print("ready", flush=True)
while not Path(sys.argv[3]).exists():
    for _ in range(100):
        try:
            if reader is None:
                reader = MetricsReader(path)
            rows = reader.read().rows
            good += len(rows) > 0
            wrong += int((rows != rows[:, :1]).any(1).sum())
        except MetricsFileError:
            bad += 1
            reader = None
        if not keep:
            reader = None
print(good, bad, wrong)
"""
WRITER = """
import sys
from pathlib import Path
from operant.runs.metrics_file import MetricsWriter

with MetricsWriter(
    Path(sys.argv[1]), [f"f{k}" for k in range(28)], run_id="cut", capacity=256
) as writer:
    print("ready", flush=True)
    i = 0
    while not Path(sys.argv[2]).exists():
        for _ in range(100):
            writer.append([float(i)] * 28)
            i += 1
print(i)
"""


def spawn(code: str, *words: str) -> subprocess.Popen[str]:
    """A process that has begun."""
    command = [sys.executable, "-c", code, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def finish(processes: Sequence[subprocess.Popen[str]], stop: Path) -> list[list[int]]:
    """What they counted, now that they are to stop.

    Raises:
        RuntimeError: one died.
    """
    stop.touch()
    told = [process.communicate(timeout=120)[0] for process in processes]
    codes = [process.returncode for process in processes]
    if any(codes):
        raise RuntimeError(f"a process died: {codes}, where {-signal.SIGBUS} is SIGBUS")
    return [[int(word) for word in words.split()] for words in told]


def readers(folder: Path, truncations: int) -> dict[str, Any]:
    """Two processes read a file that is cut and restored under them."""
    path, stop = folder / "metrics.mmap", folder / "stop"
    with MetricsWriter(path, FIELDS, run_id="cut", capacity=CAPACITY) as writer:
        for i in range(2 * CAPACITY):
            writer.append([float(i)] * len(FIELDS))
    image = path.read_bytes()
    processes = [spawn(READER, str(path), how, str(stop)) for how in ("keep", "fresh")]
    descriptor = os.open(path, os.O_WRONLY)
    for _ in range(truncations):
        os.ftruncate(descriptor, random.randrange(len(image)))
        if random.random() < 0.5:
            os.ftruncate(descriptor, len(image))  # as long as before, with zeros at its end
        os.pwrite(descriptor, image, 0)
        if any(process.poll() is not None for process in processes):
            break
    os.close(descriptor)
    good, bad, wrong = (sum(column) for column in zip(*finish(processes, stop), strict=True))
    return {
        "truncations": truncations,
        "crashes": 0,
        "reads_with_rows": good,
        "reads_refused": bad,
        "wrong_rows": wrong,
    }


def trainer(folder: Path, truncations: int) -> dict[str, Any]:
    """A process appends to a file that is cut under it; afterwards it can be read again."""
    path, stop = folder / "metrics.mmap", folder / "stop"
    process = spawn(WRITER, str(path), str(stop))
    size = path.stat().st_size
    for _ in range(truncations):
        os.truncate(path, random.randrange(size))
        if process.poll() is not None:
            break
    recovered_s = _recovered(path, process)
    ((rows,),) = finish([process], stop)
    with MetricsReader(path) as reader:
        found = reader.read()
    assert found.head == rows, (found.head, rows)
    assert (found.rows[-1] == rows - 1).all()
    return {
        "truncations": truncations,
        "crashes": 0,
        "rows_appended": rows,
        "recovered_s": round(recovered_s, 2),
    }


def _recovered(path: Path, process: subprocess.Popen[str]) -> float:
    """Seconds until the whole ring can be read again, or the process is dead."""
    began = time.monotonic()
    while process.poll() is None:
        try:
            with MetricsReader(path) as reader:
                if len(reader.read().rows) > CAPACITY // 2:
                    break
        except MetricsFileError:
            time.sleep(0.01)
    return time.monotonic() - began


def main() -> None:
    """Both parts, and what they found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results")
    parser.add_argument("--truncations", type=int, default=100_000)
    options = parser.parse_args()
    random.seed(0)
    found = []
    for part in (readers, trainer):
        with tempfile.TemporaryDirectory(prefix="operant-truncations-") as folder:
            began = time.perf_counter()
            row = {"what": part.__name__, **part(Path(folder), options.truncations)}
            found.append({**row, "seconds": round(time.perf_counter() - began, 1)})
            print(found[-1], file=sys.stderr, flush=True)
    write_json(options.results, frame(found))


if __name__ == "__main__":
    main()
