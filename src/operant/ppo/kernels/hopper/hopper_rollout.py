"""The whole rollout on Hopper GPUs in bfloat16: load and launch the kernel of ``rollout.cu``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from operant.ppo.kernels.hopper.rollout_source import RolloutPlan
from operant.toolchain.nvrtc import EXACT, Kernels

_POINTERS = (
    *("floats", "ints", "flags", "records", "obs", "reward", "terminated"),
    *("truncated", "action_mask", "action", "log_prob", "value", "final_value", "final_obs"),
    *("report", "low", "full", "statistics", "bounds", "hints", "first_step"),
)
_ARGUMENT = np.dtype(
    [(name, np.uint64) for name in _POINTERS]
    + [("stride", np.int64)]
    + [(name, np.int32) for name in ("num_envs", "steps", "max_steps", "programs")]
    + [(name, np.int32) for name in ("policy_low", "policy_high")]
)


class HopperRollout:
    """The kernel, compiled for one job.

    ``hints``, float32 ``[2 * programs]``, are 0 as long as all numbers were finite, else NaN.

    Raises:
        RuntimeError: the compiler or the driver refused, with their words.
    """

    def __init__(self, plan: RolloutPlan, device: torch.device) -> None:
        self._plan = plan
        self._kernels = Kernels(plan.source, ["rollout"], device, options=EXACT, shared=plan.memory)
        self.hints = torch.zeros(2 * plan.programs, device=device)

    def __call__(self, given: Mapping[str, Any], steps: int) -> None:
        """Play `steps` steps; `given` are the arguments of the Triton kernel, by name."""
        known = {**given, "hints": self.hints, "steps": steps, "programs": self._plan.programs}
        values = [known[name] for name in _ARGUMENT.names or ()]
        words = tuple(x.data_ptr() if isinstance(x, Tensor) else x for x in values)
        argument = np.array([words], _ARGUMENT)
        self._kernels.launch("rollout", self._plan.blocks, self._plan.threads, argument)
