"""An update of the fused CPU engine that is cut into shards, and shared among ranks.

The kernels find the gradient of each of this rank's shards; those of all are added up in a fixed
order, see `operant.training.shards`, and every rank takes the same step.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from operant.buffers.rollout import RolloutBuffer
from operant.ppo.engines.kernel_team import KernelTeam
from operant.ppo.job import Job
from operant.ppo.kernels.cpu import layout as n
from operant.ppo.kernels.cpu.kernel_arguments import KernelArguments
from operant.ppo.kernels.cpu.shuffle import ROUNDS, shuffle_keys
from operant.training.shards import merged_moments

CHUNKS = 32
"""Parts of a minibatch that threads share, at most."""


def chunks_of(samples: int, minibatches: int, tile: int) -> int:
    """Parts that each minibatch of so many samples is cut into, for threads to share."""
    tiles = -(-samples // minibatches) // tile
    return min(max(tiles // 2, 1), CHUNKS)


class ShardedUpdate:
    """Epochs over this rank's shards, together with the other ranks.

    Args:
        job, buffer: what is trained, and on what.
        kernels: whose arguments are complete, but for functions.
        tile: samples that go through the networks at once.
    """

    functions = ("order_shard", "train_shard", "add_up", "apply")
    """Kernels that are run."""

    def __init__(self, job: Job, buffer: RolloutBuffer, kernels: KernelTeam, tile: int) -> None:
        self._job, self._kernels, self._tile = job, kernels, tile
        self._minibatches = parts = job.config.ppo.minibatches
        width = buffer.num_envs // job.shards.local
        samples = buffer.num_steps * width
        self._sizes = np.full(parts, samples // parts) + (np.arange(parts) < samples % parts)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._chunks = chunks_of(samples, parts, tile)
        self._advantage = buffer.arrays["advantage"].reshape(-1)
        self._spreads = np.zeros((parts, 2), np.float32)
        self._records: list[KernelArguments] = []
        self._own: list[dict[str, int | np.ndarray]] = []
        order = kernels.arguments.arrays["order"]
        for k in range(job.shards.local):
            self._own.append(
                {
                    "shards": job.shards.count,
                    "envs": width,
                    "row_envs": buffer.num_envs,
                    "shard_first": k * width,
                    "chunks": self._chunks,
                    "order": order[k * samples : (k + 1) * samples],
                    "keys": np.zeros(2 * ROUNDS, np.uint64),
                    "spreads": self._spreads,
                }
            )

    def train(self, iteration: int, epoch: int, threads: int) -> None:
        """An epoch: fills ``results`` of the kernels' arguments."""
        arguments, team = self._kernels.arguments, min(threads, self._chunks)
        if epoch == 0:  # parameters may be elsewhere than in the last iteration
            self._records = [arguments.copy() for _ in self._own]
            for record, own in zip(self._records, self._own, strict=True):
                record.set(**own)
        self._shuffle(iteration, epoch, team)
        results = arguments.arrays["results"]
        size = arguments["gradient_size"]
        gradient = torch.from_numpy(arguments.arrays["gradients"][:size])
        for minibatch in range(self._minibatches):
            total = self._job.shards.total(
                [self._part(record, minibatch, team) for record in self._records]
            )
            gradient.copy_(total[:size])
            samples = self._sizes[minibatch] * self._job.shards.count
            results[minibatch, : n.METRIC_COUNT] = total[size:].numpy() / samples
            arguments.set(minibatch=minibatch)
            self._kernels.call("apply")

    def _part(self, record: KernelArguments, minibatch: int, team: int) -> Tensor:
        """Gradient and sums of the metrics of a shard's part of a minibatch, float32."""
        record.set(minibatch=minibatch)
        self._kernels.run("train_shard", self._tile, team, record)
        self._kernels.call("add_up", record)
        gradient = record.arrays["gradients"][: record["gradient_size"]]
        metrics = record.arrays["metric_sums"][: n.METRIC_COUNT].astype(np.float32)
        return torch.from_numpy(np.concatenate((gradient, metrics)))

    def _shuffle(self, iteration: int, epoch: int, team: int) -> None:
        """Decide which samples each minibatch has, and how its advantages are normalised."""
        config, shards = self._job.config, self._job.shards
        found = []
        for k, record in enumerate(self._records):
            keys = shuffle_keys(config.run.seed, iteration, epoch + 1, shards.first + k)[epoch]
            record.set(keys=keys)
            self._kernels.run("order_shard", self._tile, team, record)
            found.append(self._moments(record))
        if config.ppo.normalize_advantage:
            count, mean, m2 = shards.total(found, merged_moments)
            self._spreads[:, 0] = mean.numpy()
            self._spreads[:, 1] = (1 / ((m2 / count).sqrt() + 1e-8)).numpy()

    def _moments(self, record: KernelArguments) -> Tensor:
        """Moments of a shard's advantages in each minibatch, float64 ``[3, minibatches]``."""
        a = record.arrays
        chunks = a["moments"][: n.MOMENTS * self._minibatches * self._chunks]
        first, second = chunks.reshape(self._minibatches, self._chunks, n.MOMENTS).sum(1).T
        # They are of differences from the minibatch's first advantage.
        mean = self._advantage[a["order"][self._starts]] + first / self._sizes
        m2 = np.maximum(second - first * first / self._sizes, 0.0)
        return torch.from_numpy(np.stack([self._sizes.astype(np.float64), mean, m2]))
