"""Shards: what makes the result of training independent of the number of processes.

The environments are cut into blocks of neighbours, the shards. What is computed over all of them,
gradients, moments, statistics, is computed for each shard, and added up in pairs of pairs:

    shard   0   1   2   3
             \\ /     \\ /
              \\       /
               \\     /
                  +

With two ranks each adds one pair, and both add the sums of the ranks: the same additions, so the
same bits. Only one tensor a rank travels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from safetensors.numpy import load, save
from torch import Tensor, nn

from operant.buffers.normalizer import RunningNormalizer
from operant.models.tree_normalizer import TreeNormalizer
from operant.training.episodes import Episodes
from operant.training.ranks import Alone, Group, gather_bytes

MOST_SHOWN = 16
"""Ranks whose time in the exchange is a metric of its own."""
Combine = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Shards:
    """`count` shards, divided among the ranks of `group` in order."""

    count: int = 1
    group: Group = field(default_factory=Alone)
    _waits: dict[str, list[float]] = field(default_factory=dict, compare=False, repr=False)
    """What every rank has spent in the exchange, up to now and up to the last iteration's end."""

    def __post_init__(self) -> None:
        ranks, count = self.group.size, self.count
        each = count // ranks
        if count % ranks:
            raise ValueError(
                f"run.shards is {count}, which {ranks} ranks cannot share evenly; "
                f"use {_dividing(count)} ranks, or for a new run run.shards={ranks}"
            )
        if ranks > 1 and each & (each - 1):  # a rank's shards would be no subtree of the sum
            raise ValueError(
                f"run.shards is {count}, {each} for each of {ranks} ranks; it must be a power of "
                f"two for each: {_dividing(count)} ranks can share {count} shards"
            )

    @property
    def one(self) -> bool:
        """Whether there is but one: everything is as without shards, to the bit."""
        return self.count == 1

    @property
    def local(self) -> int:
        """Shards of this rank."""
        return self.count // self.group.size

    @property
    def first(self) -> int:
        """The number of this rank's first one."""
        return self.group.rank * self.local

    def rows(self, num_rows: int) -> list[slice]:
        """The rows of each of this rank's shards in a batch of `num_rows`."""
        width = num_rows // self.local
        return [slice(k * width, (k + 1) * width) for k in range(self.local)]

    def total(self, parts: Sequence[Tensor], combine: Combine = torch.add) -> Tensor:
        """What `combine` makes of the tensors of all shards, in an order that depends on nothing
        but their number. `parts`: those of this rank's. The same on every rank."""
        mine = in_pairs(parts, combine)
        return mine if self.group.size == 1 else in_pairs(self.group.gather(mine), combine)

    # What a run's files say ---------------------------------------------------------------------
    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of figures that several ranks have."""
        names = [f"all_gather_seconds/rank_{k}" for k in range(min(self.group.size, MOST_SHOWN))]
        return ("ranks", *names) if self.group.size > 1 else ()

    def figures(self) -> dict[str, float]:
        """How many ranks there are, and seconds that each spent in the exchange, waiting for others
        mostly, since the iteration before; known by the end of `all_episodes`."""
        if self.group.size == 1:
            return {}
        now, before = self._waits["now"], self._waits.get("before", [0.0] * self.group.size)
        self._waits["before"] = now
        waited = (one - other for one, other in zip(now, before, strict=True))
        return dict(zip(self.metrics, (float(self.group.size), *waited), strict=False))

    # Environments, and what is known of each ---------------------------------------------------
    def joined(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Arrays with a row for each environment of this rank, as those of all environments."""
        if self.group.size == 1:
            return dict(arrays)
        every = [load(one) for one in gather_bytes(self.group, save(_contiguous(arrays)))]
        return {name: _stacked([one[name] for one in every]) for name in arrays}

    def own(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """This rank's rows of arrays that `joined` made."""
        ranks, rank = self.group.size, self.group.rank
        if ranks == 1:
            return dict(arrays)
        widths = {name: len(array) // ranks for name, array in arrays.items()}
        return {
            name: array[rank * widths[name] : (rank + 1) * widths[name]]
            for name, array in arrays.items()
        }

    def all_episodes(self, episodes: Episodes, most: int, rows: int) -> tuple[int, Episodes]:
        """How many episodes ended on all ranks, and the last `most` of them in order of their ends;
        `rows`: of this rank's batch."""
        if self.group.size == 1:
            return len(episodes), episodes
        kept = [getattr(episodes, name)[-most:] for name in _EPISODE]
        mine = torch.zeros(len(_EPISODE) + 1, most, dtype=torch.float64)
        for row, values in zip(mine, kept, strict=False):
            row[: len(values)] = torch.from_numpy(np.ascontiguousarray(values)).double()
        mine[0] += self.group.rank * rows
        mine[-1, 0], mine[-1, 1] = len(episodes), self.group.seconds
        found = self.group.gather(mine)
        self._waits["now"] = [float(one[-1, 1]) for one in found]
        counts = [int(one[-1, 0]) for one in found]
        columns = torch.cat(
            [one[:, : min(n, most)] for one, n in zip(found, counts, strict=True)], 1
        )
        env, step, returns, lengths, truncated, _ = columns.numpy()
        order = np.lexsort((env, step))[-most:]
        parts = (env.astype("i8"), step.astype("i8"), returns.astype("f4"), lengths.astype("i4"))
        return sum(counts), Episodes(*(x[order] for x in (*parts, truncated.astype("?"))))


_EPISODE = ("env_index", "step", "returns", "lengths", "truncated")


def _dividing(count: int) -> str:
    """The numbers of ranks that can share `count` shards, as words."""
    fits = [r for r in range(1, count + 1) if count % r == 0]
    return " or ".join(str(r) for r in fits if r == 1 or not count // r & (count // r - 1))


def _contiguous(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _stacked(parts: list[np.ndarray]) -> np.ndarray:
    """Rows of all parts; shorter ones are filled up with zeros, as in `ForeignBatch.get_state`."""
    if parts[0].ndim == 2 and len({part.shape[1] for part in parts}) > 1:
        width = max(part.shape[1] for part in parts)
        parts = [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts]
    return np.concatenate(parts)


def in_pairs(parts: Sequence[Tensor], combine: Combine = torch.add) -> Tensor:
    """Neighbours combined, then neighbours of the results, until one is left."""
    left = list(parts)
    while len(left) > 1:
        pairs = [combine(*left[k : k + 2]) for k in range(0, len(left) - 1, 2)]
        left = pairs + left[2 * len(pairs) :]
    return left[0]


# Moments ---------------------------------------------------------------------------------------
def moments(x: Tensor) -> Tensor:
    """Count, mean and sum of squared deviations of the numbers in `x`, float64 ``[3]``."""
    x = x.flatten().double()
    mean = x.mean() if len(x) else x.sum()
    return torch.stack([mean.new_tensor(len(x)), mean, (x - mean).square().sum()])


def merged_moments(one: Tensor, two: Tensor) -> Tensor:
    """The moments ``[3, ...]`` of both together (Chan et al., 1979)."""
    count = one[0] + two[0]
    share = two[0] / count.clamp(min=1)
    delta = two[1] - one[1]
    return torch.stack(
        [count, one[1] + delta * share, one[2] + two[2] + delta.square() * one[0] * share]
    )


@torch.no_grad()
def take_in(shards: Shards, normalizer: nn.Module, parts: Sequence[Tensor]) -> None:
    """Let a normaliser see what came of all shards; `parts`: of this rank's, ``[..., *shape]``.

    A `RunningNormalizer` or a `TreeNormalizer`.
    """
    if isinstance(normalizer, TreeNormalizer):
        views = [normalizer.layout.views(part) for part in parts]
        for path, one in zip(normalizer.paths, normalizer.normalizers, strict=True):
            take_in(shards, one, [view[path] for view in views])
        return
    assert isinstance(normalizer, RunningNormalizer)
    if shards.one:
        normalizer.update(parts[0])
        return
    shape = tuple(normalizer.mean.shape)
    every = [RunningNormalizer(shape) for _ in parts]
    for one, part in zip(every, parts, strict=True):
        one.update(part)
    seen = [
        torch.stack([x.expand(shape).flatten() for x in (one.count, one.mean, one.m2)])
        for one in every
    ]
    count, mean, m2 = shards.total(seen, merged_moments)
    every[0].count.copy_(count[0])
    every[0].mean.copy_(mean.view(shape))
    every[0].m2.copy_(m2.view(shape))
    normalizer.merge(every[0])
