"""``operant bench env`` for environments that operant does not compile."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from operant.cli.screen import mistakes, output, short

if TYPE_CHECKING:
    from operant.vector.foreign_env import ForeignEnv


def bench_foreign(
    envs: Sequence[ForeignEnv],
    num_envs: Sequence[int],
    workers: Sequence[int],
    peers: Sequence[str],
    backends: Sequence[str],
    compute_us: float,
    repeats: int,
    seconds: float,
) -> list[dict[str, Any]]:
    """Measure environments of Gymnasium's API, and one that computes for `compute_us` if that is
    more than 0; the records."""
    from operant.bench.foreign_env import (
        Computing,
        foreign_contenders,
        foreign_records,
        measure_foreign,
        turns_of,
    )
    from operant.cli.bench import show_progress
    from operant.vector.foreign_env import ForeignEnv

    found = []
    with mistakes():
        asked = list(envs)
        if compute_us:
            make = partial(Computing, turns_of(compute_us))
            asked.append(ForeignEnv(f"computes {compute_us:g} us", make))
        teams = [
            foreign_contenders(env, num_envs or [64], workers, peers, backends) for env in asked
        ]
    for everyone in teams:
        show_progress(measure_foreign(everyone, repeats, seconds), len(everyone) * (repeats + 1))
        found += foreign_records(everyone)
    return found


def print_foreign(found: Sequence[dict[str, Any]]) -> None:
    """The records as a table."""
    from operant.cli.bench import print_figures

    peers = list(dict.fromkeys(peer for row in found for peer in row["ratio_to"]))
    heads = ["system", "env", "envs", "workers", "steps/s", "+-", "us over", "of cores"]
    heads += [f"x {peer.replace('gymnasium', 'gym')}" for peer in peers]
    rows = []
    for row in found:
        spread = (row["sps_max"] - row["sps_min"]) / row["sps"] / 2
        cells = [f"{row['system']} {row['backend']}".strip(), row["env"], str(row["num_envs"])]
        cells += [str(row["workers"]), short(row["sps"]), f"{spread:.0%}"]
        cells += [f"{row['overhead_us']:.2f}", f"{row['share_of_cores']:.2f}"]
        cells += [f"{row['ratio_to'][p]:.2f}" if p in row["ratio_to"] else "" for p in peers]
        rows.append(cells)
    print_figures(heads, rows)
    output.print(
        "us over: microseconds that a step takes longer than in the plain loop (serial) on as many "
        "cores; of cores: steps/s against that loop's times the cores",
        style="dim",
    )
