"""The memory of training on a GPU: the rollout, and what host and GPU tell each other about it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from operant.buffers.gpu import GpuBuffer
from operant.ppo.engines.figures import FIGURES
from operant.ppo.engines.host_transfers import HostMirror
from operant.ppo.engines.tensor_addresses import TensorAddresses
from operant.ppo.job import Job
from operant.ppo.kernels.triton.moments import SPLIT
from operant.toolchain.gpus import check_memory
from operant.vector.gpu_env import CudaVecEnv

RECENT = 100
"""Episodes whose returns and lengths come with the figures."""
CARRY_BYTES = 4
"""Of an environment's discounted return, which goes on from rollout to rollout."""


class GpuMemory:
    """Tensors at fixed addresses that programs compute with, allocated once.

    The host writes to a `HostMirror` before it launches what reads it, which ends before the one
    wait of an iteration: so nothing is overwritten that is still to be copied.

    Args:
        job: its environments are on the GPU, or in main memory for Triton's interpreter.
        bytes_per_sample: what a program needs besides, for each step of an environment.
        bytes_per_env: what else is needed, for each environment.

    Raises:
        MemoryError: that does not fit on the GPU; the message says how many environments would.
    """

    step: HostMirror
    """int64 ``[1]``: the first step of the rollout."""
    keys: HostMirror
    """int64 ``[epochs, 8]``: of the orders of samples."""
    rates: HostMirror
    """float64 ``[2]``: learning rate, clip."""
    count: HostMirror
    """float64 ``[1]``: Adam's steps so far."""
    results: HostMirror
    """float64 ``[206 + 6 * minibatches of all epochs]``: what an iteration reports; the views
    ``recent``, ``checks`` and ``figures`` are its parts."""
    recent: Tensor
    """``[201]``: number of episodes, then returns and lengths of the last."""
    checks: Tensor
    """``[5]``: bad if not finite, epochs, variance of the targets, what of it is not explained,
    Adam's steps."""
    figures: Tensor
    """``[minibatches of all epochs, 6]``: see `FIGURES`."""

    def __init__(self, job: Job, bytes_per_sample: int, bytes_per_env: int = 0) -> None:
        self.job = job
        assert isinstance(job.env, CudaVecEnv)
        self.env: CudaVecEnv = job.env
        self.device = self.env.device
        envs, steps = job.env.num_envs, job.config.ppo.num_steps
        one = self._new_buffer(1, torch.device("meta"))
        self.bytes_per_env = one.nbytes + CARRY_BYTES + steps * bytes_per_sample + bytes_per_env
        """Memory that a rollout takes for each environment, the update included."""
        check_memory(self.device, envs, self.bytes_per_env, "a rollout")
        self.buffer = self._new_buffer(envs, self.device)
        self.buffer.intrinsic = job.new_stream(self.device)
        self.carry = self.zeros(envs)
        """Discounted returns that go on from rollout to rollout."""
        self.variance_parts = self.zeros(2, 2, SPLIT, dtype=torch.float64)
        self.active = self.zeros(1)
        """0 after the target KL was passed, else 1."""
        self._set_transfers()
        self.addresses = TensorAddresses(job.policy)
        """Where the policy's tensors were when a program was last told."""

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """New memory on the device."""
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def on_device(self) -> AbstractContextManager[Any]:
        """Kernels that are not PyTorch's are launched on the GPU that is the current one."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    def synchronize(self) -> None:
        """Wait for all that was launched."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _new_buffer(self, num_envs: int, device: torch.device) -> GpuBuffer:
        job, dist, obs = self.job, self.job.distribution, self.env.buffers["obs"]
        buffer = GpuBuffer(
            job.config.ppo.num_steps,
            num_envs,
            tuple(obs.shape[1:]),
            dist.action_shape,
            device=device,
            obs_dtype=obs.dtype,
            action_dtype=dist.action_dtype,
            mask_size=job.mask_size,
        )
        if job.return_normalizer is None:
            buffer.scaled_reward = buffer.reward
        return buffer

    def _set_transfers(self) -> None:
        ppo, device = self.job.config.ppo, self.device
        self.step = HostMirror((1,), torch.int64, device)
        self.keys = HostMirror((ppo.epochs, 8), torch.int64, device)
        self.rates = HostMirror((2,), torch.float64, device)
        self.count = HostMirror((1,), torch.float64, device)
        rows, recent, known = ppo.epochs * ppo.minibatches, 1 + 2 * RECENT, 1 + 2 * RECENT + 5
        self.results = HostMirror((known + rows * len(FIGURES),), torch.float64, device)
        results = self.results.gpu
        self.recent = results[:recent]
        self.checks = results[recent:known]
        self.steps_taken = self.checks[4:]
        """Adam's steps, counted on by an update."""
        self.figures = results[known:].view(rows, len(FIGURES))
