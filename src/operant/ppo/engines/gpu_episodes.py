"""Episodes of a rollout on a GPU: read from there when they are looked at."""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np

from operant.buffers.gpu import GpuBuffer
from operant.ppo.engines.gpu_memory import RECENT
from operant.training.episodes import Episodes


class _Engine(Protocol):
    buffer: GpuBuffer

    def read_recent(self) -> np.ndarray: ...


class GpuEpisodes(Episodes):
    """See `Episodes`. Arrays are read from the GPU once; valid until the next rollout."""

    _engine: _Engine

    def __init__(self, engine: _Engine) -> None:
        object.__setattr__(self, "_engine", engine)

    def __len__(self) -> int:
        return int(self._engine.read_recent()[0])

    def last(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths of the last `most` episodes, 100 at most, in order."""
        recent = self._engine.read_recent()
        count = min(int(recent[0]), most, RECENT)
        returns, lengths = recent[1 : 1 + count], recent[1 + RECENT : 1 + RECENT + count]
        return returns[::-1], lengths[::-1].astype(np.int64)

    @cached_property
    def _all(self) -> tuple[np.ndarray, ...]:
        b = self._engine.buffer
        terminated, ended = b.terminated.cpu().numpy(), b.truncated.cpu().numpy()
        cut = ended & ~terminated
        step, env = np.nonzero(ended | terminated)
        report = b.report.cpu().numpy()[step, env]
        lengths = report[:, 1].copy().view(np.int32)
        return env, step, report[:, 0].copy(), lengths, cut[step, env]

    env_index = property(lambda self: self._all[0])
    step = property(lambda self: self._all[1])
    returns = property(lambda self: self._all[2])
    lengths = property(lambda self: self._all[3])
    truncated = property(lambda self: self._all[4])
