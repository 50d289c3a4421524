"""Copies of what an iteration changes, so that it can be taken back."""

from __future__ import annotations

import torch
from torch import Tensor

from operant.ppo.engines.figures import trained_tensors
from operant.ppo.engines.gpu_memory import CARRY_BYTES, GpuMemory
from operant.ppo.job import Job
from operant.ppo.kernels.triton.copies import Copies
from operant.vector.gpu_env import CudaVecEnv


class Backup:
    """Copies that a rollout begins with, on the device.

    Of the policy and the optimiser, if the NaN guard is on; of all that an iteration changes but
    for the rollout itself, where it may be begun before it is asked for (`whole`).
    """

    def __init__(self, memory: GpuMemory, whole: bool) -> None:
        self._memory, self._whole = memory, whole
        self.originals: list[Tensor] = []
        self.copies: list[Tensor] = []
        """As many; first of all, of what is trained."""

    def connect(self) -> None:
        """Find the tensors, and memory for their copies."""
        self.originals = self._to_copy()
        self.copies = [torch.empty_like(tensor) for tensor in self.originals]
        if self._whole:
            self._save_all = Copies(self.copies, self.originals)

    def _to_copy(self) -> list[Tensor]:
        memory = self._memory
        if self._whole:
            return [*trained_tensors(memory.job), memory.carry, *memory.env.memory()]
        return trained_tensors(memory.job) if memory.job.config.run.nan_guard else []

    def save(self) -> None:
        """Fill the copies. Launched as a part of the rollout."""
        if self._whole:
            self._save_all()
        else:
            copy_all(self.copies, self.originals)

    @torch.no_grad()
    def restore(self) -> None:
        """Put all copies back to where they were made of."""
        copy_all(self.originals, self.copies)

    @torch.no_grad()
    def restore_trained(self) -> None:
        """Put those of what is trained into the tensors that the policy has now."""
        trained = trained_tensors(self._memory.job)
        for tensor, good in zip(trained, self.copies[: len(trained)], strict=True):
            tensor.copy_(good)


def whole_backup_bytes(job: Job) -> int:
    """Memory that the copies of all take for each environment."""
    assert isinstance(job.env, CudaVecEnv)
    return sum(kept.nbytes for kept in job.env.memory()) // job.env.num_envs + CARRY_BYTES


def copy_all(copies: list[Tensor], tensors: list[Tensor]) -> None:
    """Copy `tensors` to `copies`, those of one dtype at a time: PyTorch does it by one kernel."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        pairs = zip(copies, tensors, strict=True)
        to, own = zip(*(pair for pair in pairs if pair[1].dtype == dtype), strict=True)
        torch._foreach_copy_(to, own)
