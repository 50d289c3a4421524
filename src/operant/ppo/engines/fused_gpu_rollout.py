"""The launch of a fused rollout: one kernel that plays all steps of all environments."""

from __future__ import annotations

from typing import Any

import torch

from operant.compiler.spec.rules import traced
from operant.models.encoders import OneHot
from operant.ppo.engines.fused_gpu_layout import FusedLayout
from operant.ppo.engines.gpu_memory import GpuMemory
from operant.ppo.kernels.hopper.hopper_rollout import HopperRollout
from operant.ppo.kernels.hopper.rollout_source import launch_shape, rollout_source
from operant.ppo.kernels.triton.rollout_launch import rollout_kernel, rollout_options
from operant.ppo.kernels.triton.rollout_source import Acting
from operant.ppo.kernels.triton.update import UpdateArrays
from operant.vector.gpu_numbers import TritonVecEnv
from operant.version import __version__


class FusedRollout:
    """Plays a rollout into the buffer of `memory`: by Triton, or for bf16 on Hopper by C++.

    Args:
        arrays: where the kernels read weights, statistics and what the policy's outputs mean.
    """

    def __init__(self, memory: GpuMemory, layout: FusedLayout, arrays: UpdateArrays) -> None:
        assert isinstance(memory.env, TritonVecEnv)
        self._memory, self._layout, self._arrays = memory, layout, arrays
        self._env: TritonVecEnv = memory.env
        acting = layout.acting()
        self._bounds = layout.bounds()
        self._hopper: HopperRollout | None = None
        if layout.hopper:
            self._hopper = self._new_hopper_rollout(acting)
            self.hints = self._hopper.hints
            return
        self._kernel = rollout_kernel(traced(self._env.rules), acting)
        programs = -(-self._env.num_envs // rollout_options(self._env.num_envs)["BLOCK"])
        self.hints = torch.zeros(programs, device=memory.device)
        """Float32 of each program: not finite if a number is not that it met. Values are not
        looked at."""

    def _new_hopper_rollout(self, acting: Acting) -> HopperRollout:
        layout, env, encode = self._layout, self._env, self._layout.policy.encode
        encoded = []
        if isinstance(encode, OneHot):
            encoded = list(zip(encode.sizes, encode.starts, strict=True))
        constants = {**layout.constants(), "WIDE": self._wide()}
        shape = launch_shape(env.num_envs, acting, layout.processors())
        rules = traced(env.rules)
        given = (rules, acting, encoded, constants, env.num_envs, shape, __version__)
        return HopperRollout(rollout_source(*given), self._memory.device)

    def _wide(self) -> bool:
        """Whether places in the rollout's tensors need 64 bits."""
        b = self._memory.buffer
        return any(x.numel() >= 1 << 31 for x in (b.obs, b.report, b.action, b.action_mask))

    def __call__(self) -> None:
        """Launch it on the current stream."""
        given = self._arguments()
        if self._hopper is not None:
            self._hopper(given, self._memory.buffer.num_steps)
        else:
            self._launch(given)

    def _arguments(self) -> dict[str, Any]:
        """What either kernel is told."""
        b, arrays, seed = self._memory.buffer, self._arrays, self._layout.job.config.run.seed
        return {
            **self._env.kernel_arguments(),
            "obs": b.obs,
            "reward": b.reward,
            "terminated": b.terminated,
            "truncated": b.truncated,
            "action_mask": b.action_mask,
            "action": b.action,
            "log_prob": b.log_prob,
            "value": b.values,
            "final_value": b.final_value,
            "final_obs": b.final_obs,
            "report": b.report,
            "low": arrays.low,
            "full": arrays.full,
            "statistics": arrays.statistics,
            "bounds": self._bounds,
            "first_step": self._memory.step.gpu,
            "policy_low": _signed(seed),
            "policy_high": _signed(seed >> 32),
        }

    def _launch(self, given: dict[str, Any]) -> None:
        arrays, constants, envs = self._arrays, self._layout.constants(), self._env.num_envs
        options = rollout_options(envs)
        self._kernel[(-(-envs // options["BLOCK"]),)](
            **given,
            one_hot=arrays.one_hot,
            parts=arrays.parts,
            firsts=arrays.firsts,
            hints=self.hints,
            STEPS=self._memory.buffer.num_steps,
            WIDE=self._wide(),
            **{name: constants[name] for name in ("ACTIVATION", "QUICK", "PRECISION", "LIMIT")},
            **options,
        )


def _signed(word: int) -> int:
    """The low 32 bits as an int32."""
    return word & 0x7FFFFFFF | -(word & 0x80000000)
