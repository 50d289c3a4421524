"""Read the live metrics of a run without Operant: a reader of `metrics.mmap` in NumPy alone.

    python examples/read_metrics.py ~/.operant/runs/RUN/metrics.mmap

Prints the records that the file holds now as CSV. docs/metrics-file.md describes the file.
"""

from __future__ import annotations

import sys
import zlib

import numpy as np


def read(path: str) -> tuple[list[str], list[list[float]]]:
    """Names of the fields, and the records that are whole, oldest first."""
    words = np.fromfile(path, "<u8")  # a copy; who maps a file that is then cut is killed
    if words[:1].tobytes() != b"OPERMETR" or words[1] != 1:
        raise SystemExit(f"{path} is not a metrics file of version 1")
    records_at, fields, capacity, run_id, host, names = words[2:8].tolist()
    texts = words[16 : records_at // 8].tobytes()[run_id + host :][:names]
    ring = words[records_at // 8 :].reshape(capacity, fields + 2)
    head = int(words[13])
    rows = []
    for i in range(max(0, head - capacity), head):
        record = ring[i % capacity]
        if record[0] == 2 * i + 2 and zlib.crc32(record[:-1]) == record[-1]:  # it is whole
            rows.append(record[1:-1].view("<f8").tolist())
    return texts.decode().split("\n"), rows


if __name__ == "__main__":
    names, rows = read(sys.argv[1])
    print(*names, sep=",")
    for row in rows:
        print(*row, sep=",")
