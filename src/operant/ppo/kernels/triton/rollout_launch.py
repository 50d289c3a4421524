"""Load and launch the kernel that plays a whole rollout; see `rollout_source`."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import Any

from operant.compiler.spec.rules import TracedRules
from operant.ppo.kernels.triton.rollout_source import Acting, rollout_source
from operant.toolchain.generated_modules import load_module
from operant.toolchain.gpus import interpreted
from operant.version import __version__


def rollout_kernel(rules: TracedRules, acting: Acting) -> Any:
    """The kernel ``rollout`` for an environment and a policy."""
    source = rollout_source(rules, acting, __version__)
    return _module(f"{rules.env.__name__}_rollout", source).rollout


@lru_cache(maxsize=64)
def _module(name: str, source: str) -> ModuleType:
    return load_module(name, source)


def rollout_options(num_envs: int) -> dict[str, Any]:
    """Environments of a program, and options of the compiler.

    TracedRules are computed without fused multiply-adds, as in the environment's own kernels; the
    networks' products are not concerned.
    """
    hints = {"KEEP": "", "PASS": ""}
    if interpreted():
        return {"BLOCK": max(16, min(1 << max(num_envs - 1, 1).bit_length(), 1 << 12)), **hints}
    options = {"num_warps": 1, "num_stages": 1, "enable_fp_fusion": False}
    return {"BLOCK": 16, **options, **hints}
