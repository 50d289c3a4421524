"""Memory for rollouts, advantages, running statistics."""

from operant.buffers.advantages import gae, gae_torch
from operant.buffers.gpu import GpuBuffer
from operant.buffers.normalizer import RunningNormalizer
from operant.buffers.rollout import RolloutBuffer

__all__ = ["GpuBuffer", "RolloutBuffer", "RunningNormalizer", "gae", "gae_torch"]
