"""How the kernels of the ``cuda`` backend are launched, and what memory they need and move."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from operant.compiler.emit.program_source import COMPOSED, word_program
from operant.compiler.emit.triton_text import RECORD, rows
from operant.compiler.recording.trace import FLOAT, Program
from operant.compiler.spec.rules import NUMPY_DTYPES, TracedRules
from operant.toolchain.gpus import interpreted

KINDS = {"floats": torch.float32, "ints": torch.int32, "flags": torch.bool}
"""Dtypes of the tensors of rows, see `triton_text.rows`."""
_SMALL = 1 << 15
"""Up to so many environments a step waits for latencies, beyond for memory."""
_HEAVY = 400
"""Operations of a step from which on a thread has one environment."""
_FREE = ("input", "constant")


def launch_options(rules: TracedRules, num_envs: int) -> dict[str, Any]:
    """Block size and compiler options, found by measurement on an H200.

    Small batches are spread over as many programs as can be. For large ones a thread has two
    environments, to have enough loads in flight, unless their arithmetic needs its registers. What
    they read again next time is kept in the GPU's cache, and what they only write is not.
    """
    hints = {"KEEP": "", "PASS": ""}
    if interpreted():
        return {"BLOCK": min(1 << max(num_envs - 1, 1).bit_length(), 1 << 16), **hints}
    options: dict[str, Any] = {"enable_fp_fusion": False}
    if num_envs <= _SMALL:
        return {"BLOCK": 32, "num_warps": 1, **options, **hints}
    hints = {"KEEP": "evict_last", "PASS": "evict_first"}
    if operations(rules) > _HEAVY:
        return {"BLOCK": 64, "num_warps": 2, **options, **hints}
    return {"BLOCK": 128, "num_warps": 2, "maxnreg": 64, **options, **hints}


def operations(rules: TracedRules) -> int:
    """Operations of one step, those of words such as ``sin`` included."""
    return sum(_count(program) for program in (rules.step, rules.observe))


def _count(program: Program) -> int:
    return sum(
        _count(word_program(node.op)) if node.op in COMPOSED else node.op not in _FREE
        for node in program.nodes
    )


def step_options(num_envs: int, device: torch.device) -> dict[str, Any]:
    """Options of a step; see the kernel."""
    overlap = can_overlap(device)
    options = {"BRANCH": num_envs > _SMALL, "OVERLAP": overlap}
    return {**options, "launch_pdl": True} if overlap else options


def can_overlap(device: torch.device) -> bool:
    """Whether a kernel can start while the one before ends: from compute capability 9 on."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def bytes_per_env(rules: TracedRules) -> int:
    """Memory that one environment takes."""
    kinds = rows(rules)
    kept = sum(len(kinds[kind]) * KINDS[kind].itemsize for kind in kinds)
    seen = rules.observation.size * (4 if rules.observation.dtype == FLOAT else 8)
    return kept + 2 * seen + rules.mask_size + 4 + 1 + 1 + 16 + 4 * len(RECORD) + 1


def bytes_per_step(rules: TracedRules, action_bytes: int = 4) -> dict[str, int]:
    """Bytes that one step of one environment must move, none of them twice, by what they are for.

    What happens only at the end of an episode is not counted: final observation, report, random
    stream.
    """
    state = sum(np.dtype(NUMPY_DTYPES[kind]).itemsize for kind in rules.fields.values())
    seen = rules.observation.size * (4 if rules.observation.dtype == FLOAT else 8)
    moved = {
        "state, read and written": 2 * state,
        "action": rules.action.size * action_bytes,
        "observation": seen,
        "reward": 4,
        "terminated, truncated": 2,
        "steps of the episode, read and written": 8,
        "return of the episode, read and written": 8,
        "finished, read and written": 2,
    }
    if rules.step_draws:
        moved["random stream"] = 16
    if rules.mask_size:
        moved["action mask"] = rules.mask_size
    return moved
