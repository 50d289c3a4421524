"""Fuse what a policy does in a step and in a minibatch by `torch.compile`, where that pays."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from operant.ppo.engines.captured_graph import first_line
from operant.ppo.engines.torch_policy import PolicyFunctions
from operant.ppo.engines.torch_program import TorchProgram
from operant.training.config import RunConfig

WORTH = {"max": 16_000_000_000, "on": 1_000_000_000}
"""Steps of a run from which compiling pays. Standard PPO on CartPole with 8192 environments on an
H200, bf16: 32 million steps a second without, 63 with it (compiled in 12 to 20 s), 82 with products
chosen by measurement too (83 s)."""
_MOST: dict[str, Any] = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "TRITON,ATEN"}
"""Choose products by measurement, also such that bias and activation become a part of."""
log = logging.getLogger("operant.compile")


def compile_level(config: RunConfig) -> str:
    """``"off"``, ``"on"`` or ``"max"``: what is worth its time for the steps of a run."""
    if config.compile != "auto":
        return config.compile
    return next((level for level, steps in WORTH.items() if config.total_steps >= steps), "off")


def compile_functions(program: TorchProgram, level: str, warm_up: Callable[[], None]) -> bool:
    """Replace what a program calls for a step and a minibatch by compiled functions; whether that
    works here.

    Args:
        level: ``"on"`` or ``"max"``.
        warm_up: runs the whole program, and leaves no trace of it. What it calls is compiled then.
    """
    plain = program.functions
    program.functions = PolicyFunctions(*(_compiled(function, level) for function in plain))
    began = time.perf_counter()
    log.debug("compiling the policy for the GPU")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"torch\._inductor")  # advice to PyTorch
            warm_up()
    except Exception as error:  # whatever the compiler stumbles over, it works without
        program.functions = plain
        torch._dynamo.reset()
        log.info("torch.compile cannot do this policy (%s); without it", first_line(error))
        return False
    log.info("compiled the policy in %.1f s", time.perf_counter() - began)
    return True


def _compiled(function: Callable[..., Any], level: str) -> Callable[..., Any]:
    options = dict(_MOST) if level == "max" else None
    if options and hasattr(torch._inductor.config, "autotune_num_choices_displayed"):
        options["autotune_num_choices_displayed"] = 0  # no table for each product
    found: Callable[..., Any] = torch.compile(function, dynamic=False, options=options)
    return found
