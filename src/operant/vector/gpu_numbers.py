"""The ``cuda`` backend for a state of numbers: kernels generated for the environment
(`operant.compiler.emit.triton_kernels`), compiled by Triton and cached by it on disk."""

from __future__ import annotations

import time
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from operant.backends.cuda.launch import KINDS, bytes_per_env, launch_options, step_options
from operant.compiler.compile_error import compiling, refused
from operant.compiler.emit.triton_kernels import kernels_source
from operant.compiler.emit.triton_text import RECORD, rows
from operant.compiler.spec.rules import Rules, TracedRules, traced
from operant.toolchain.generated_modules import load_module
from operant.vector.base import NO_LIMIT
from operant.vector.gpu_env import CudaVecEnv, Results
from operant.version import __version__


class TritonVecEnv(CudaVecEnv):
    """See `CudaVecEnv`."""

    rules: TracedRules

    def _bytes_per_env(self) -> int:
        self.rules = traced(self.rules)
        return bytes_per_env(self.rules)

    def _allocate(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        memory: dict[str, Tensor] = {}
        views: dict[str, Tensor] = {}
        for kind, names in rows(self.rules).items():
            block = torch.zeros((len(names), self._stride), dtype=KINDS[kind], device=self.device)
            memory[kind] = block
            views |= {name: block[k, : self.num_envs] for k, name in enumerate(names)}
        return memory, views

    def _prepare(self) -> None:
        self._kernels = load_kernels(self.rules)
        self._widest = max(len(RECORD), rules_width(self.rules))
        self._launch = launch_options(self.rules, self.num_envs)
        self._launch_step = step_options(self.num_envs, self.device)

    def kernel_arguments(self) -> dict[str, Any]:
        """What a kernel of an engine's own needs to step the batch; see `triton_text`."""
        on_host = self.device.type == "cpu"
        return {
            "num_envs": self.num_envs,
            "stride": self._stride,
            "constants": self._params,
            **self._memory,
            "max_steps": self.max_episode_steps or NO_LIMIT,
            "host_ns": time.perf_counter_ns() if on_host else 0,
            "HOST_CLOCK": on_host,
        }

    def _run(self, name: str, results: Results, **arguments: Any) -> None:
        """See `CudaVecEnv`."""
        given = self.kernel_arguments()
        if name != "step":
            del given["max_steps"]
        if name == "observe":
            del given["HOST_CLOCK"]
        grid = (-(-self.num_envs // self._launch["BLOCK"]),)
        try:
            with self._on_device():
                getattr(self._kernels, name)[grid](
                    **given,
                    obs=results.obs,
                    reward=results.reward,
                    terminated=results.terminated,
                    truncated=results.truncated,
                    action_mask=results.action_mask,
                    WIDE=results.reward.numel() * self._widest >= 1 << 31,
                    **arguments,
                    **(self._launch_step if name == "step" else {}),
                    **self._launch,
                )
        except _triton_error() as error:  # compiled by its first launch
            raise refused(self.rules.env, "cuda", error) from error


def _triton_error() -> type[Exception]:
    from triton.errors import TritonError

    kind: type[Exception] = TritonError
    return kind


@lru_cache(maxsize=256)
def _module(name: str, source: str) -> ModuleType:
    return load_module(name, source)


def load_kernels(rules: TracedRules) -> ModuleType:
    """The module of kernels for these rules."""
    with compiling(rules.env, "cuda"):
        return _module(f"{rules.env.__name__}_triton", kernels_source(rules, __version__))


def rules_width(rules: Rules) -> int:
    """The most numbers that one environment has in one tensor."""
    return max(rules.observation.size, rules.action.size, rules.mask_size)
