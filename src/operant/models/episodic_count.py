"""`EpisodicCount`: a bonus for what was not seen often in this episode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from operant.models.bonus import Bonus, Rollout, Setting
from operant.models.count_table import Counts, count_on_host, count_on_tensors, distinct
from operant.models.hashing import ObsHash
from operant.models.names import COUNT_FORMS

_LEAST_CAPACITY = 64


class EpisodicCount(Bonus):
    """1 / sqrt(n) for the n-th visit to an observation within an episode, or 1 for the first.

    An observation is told from others by a hash of 64 bits. An episode's first observation counts
    as visited. Each environment has a table of its own, which is empty when an episode begins.

    Args:
        form: ``"sqrt"`` or ``"first"``.
        leaves: paths of the leaves of a Dict or Tuple observation that are looked at, or one path;
            by default all.
        resolution: floats are rounded down to multiples of this; 0: they are as they are.
        capacity: observations of an episode that are told apart, at most; what finds no place gets
            no bonus. With a time limit no more memory is taken than that needs.

    Raises:
        ValueError: another form, or a bad number.
    """

    name = "count"
    figures = ("states", "new")
    normalized = False

    keys: Tensor
    stamps: Tensor
    counts: Tensor
    episode: Tensor
    last: Tensor
    registers: Tensor
    visits: Tensor

    def __init__(
        self,
        form: str = "sqrt",
        leaves: str | Sequence[str] = (),
        resolution: float = 0.0,
        capacity: int = 4096,
    ) -> None:
        super().__init__()
        if form not in COUNT_FORMS:
            raise ValueError(f"form must be {' or '.join(COUNT_FORMS)}, got {form!r}")
        if not (math.isfinite(resolution) and resolution >= 0) or capacity < 1:
            raise ValueError(
                f"resolution must be at least 0 and capacity at least 1, got {resolution} and "
                f"{capacity}"
            )
        self.form = form
        self.leaves = (leaves,) if isinstance(leaves, str) else tuple(leaves)
        self.resolution, self.capacity = resolution, capacity

    def build(self, setting: Setting) -> None:
        """See `Bonus`.

        Raises:
            ValueError: a leaf that the observations do not have.
        """
        self.hash = ObsHash(setting.layout, self.leaves, self.resolution)
        limit = setting.max_episode_steps
        states = self.capacity if limit is None else min(self.capacity, limit + 1)
        size = _LEAST_CAPACITY
        while size < 2 * states:  # half of it stays free: a place is found soon
            size *= 2
        envs = setting.num_envs
        memory = {
            "keys": torch.zeros(envs, size, dtype=torch.int64),
            "stamps": torch.zeros(envs, size, dtype=torch.int32),
            "counts": torch.zeros(envs, size, dtype=torch.int32),
            "episode": torch.zeros(envs, dtype=torch.int32),
            "last": torch.zeros(envs, dtype=torch.int64),
            "registers": torch.zeros(1 << 12, dtype=torch.int32),
            "visits": torch.zeros(2, dtype=torch.float64),
        }
        for name, tensor in memory.items():
            self.register_buffer(name, tensor)

    def reward_of(self, rollout: Rollout) -> Tensor:
        """See `Bonus`. Float32 ``[T, N]``."""
        seen = torch.cat([self.hash(rollout.obs), self.hash(rollout.last_obs)[None]])
        after = self._after(seen, rollout)
        memory = Counts(
            self.keys,
            self.stamps,
            self.counts,
            self.episode,
            self.last,
            self.registers,
            self.visits,
        )
        count = count_on_host if seen.device.type == "cpu" else count_on_tensors
        found = count(memory, seen, after, rollout.done, rollout.live)
        if self.form == "first":
            return (found == 1).float()
        return torch.where(found > 0, found.float().clamp(min=1).rsqrt(), 0.0)

    def _after(self, seen: Tensor, rollout: Rollout) -> Tensor:
        """Hashes of what followed each step, ``[T, N]``."""
        if seen.device.type != "cpu":  # how many episodes ended, only the GPU knows
            return torch.where(rollout.done, self.hash(rollout.next_obs), seen[1:])
        ended = rollout.done.flatten().nonzero().squeeze(1)
        after = seen[1:].clone()
        if len(ended):
            finals = rollout.next_obs.flatten(0, 1).index_select(0, ended)
            after.view(-1).index_copy_(0, ended, self.hash(finals))
        return after

    def rolled_back(self) -> list[Tensor]:
        """Nothing: tables belong to the episodes under way."""
        return []

    def state_figures(self) -> Mapping[str, Tensor]:
        """About how many observations have been seen since training began, and the share of the
        last rollout's steps that came to one for the first time in its episode."""
        steps, new = self.visits.unbind()
        return {"states": distinct(self.registers), "new": new / steps.clamp(min=1)}
