"""Play random programs on every target and compare them to the bit.

    python tests/fuzz --programs 200 --seed 0

Half of them have a state of numbers, half one of arrays. Each is played in plain Python, by the
``cpu`` backend with one worker and with two, and as C++ compiled for this machine; with ``--gpu``
on an NVIDIA GPU instead of in C++. Program k is always the same: ``--only K`` plays it alone.
Exits with 1 if bits differ or anything crashes, and leaves those programs in ``--keep``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from programs import attempt, check, write


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of the first; the others follow")
    parser.add_argument("--only", type=int, help="play this one alone and show its text")
    parser.add_argument("--gpu", action="store_true", help="on an NVIDIA GPU, too")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"), help="a folder")
    options = parser.parse_args()
    if options.only is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(write(options.only, Path(folder)).read_text())
            print(check(options.only, Path(folder), options.gpu))
        return 0
    numbers = range(options.seed, options.seed + options.programs)
    return report(numbers, options)


def report(numbers: range, options: argparse.Namespace) -> int:
    """Play them all, with a line of progress now and then."""
    outcomes: Counter[str] = Counter()
    began, failed = time.perf_counter(), []
    play = partial(attempt, gpu=options.gpu, keep=options.keep)
    # Not an executor: one that replaces its processes may hang (CPython issue 115634).
    with get_context("spawn").Pool(options.jobs, maxtasksperchild=40) as pool:
        for done, (number, outcome, text) in enumerate(pool.imap_unordered(play, numbers), 1):
            outcomes[outcome] += 1
            if outcome not in ("equal", "refused"):
                failed.append(number)
                print(f"program {number}: {outcome}\n{text}", flush=True)
            if done % 25 == 0 or done == len(numbers):
                counts = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
                seconds = time.perf_counter() - began
                print(f"{done} of {len(numbers)} programs, {seconds:.0f} s: {counts}", flush=True)
    print(f"{outcomes['equal']} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
