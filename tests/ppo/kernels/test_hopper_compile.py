"""The update's kernel for Hopper, compiled by NVRTC for a GPU that is not here."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from operant.compiler.spec.rules import Rules
from operant.models.actor_critic import policy_for
from operant.toolchain.nvrtc import compile_source
from operant.vector.registry import get_env

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("interpreter")  # some modules have kernels of Triton, too
DUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
JOBS = [
    ("CartPole-v1", (64, 64), "tanh", False, {}),
    ("CartPole-v1", (33, 12), "silu", True, {"VALUE_CLIP": 0.2, "OLD_VALUE": 3}),
    ("Acrobot-v1", (64, 64, 64), "relu", False, {"MASK": 6, "MASKS": 3}),
    ("Pendulum-v1", (64,), "tanh", True, {}),
    ("MountainCarContinuous-v0", (16, 7), "silu", False, {}),
    ("CartPole-v1", (64, 64), "tanh", False, {"WIDE": True}),
    ("CartPole-v1", (128, 128), "tanh", False, {}),
    ("Pendulum-v1", (128, 33), "relu", True, {}),
    ("Acrobot-v1", (128,), "tanh", True, {}),
    ("Pendulum-v1", (128, 128), "relu", True, {"WIDE": True, "VALUE_CLIP": 0.2, "OLD_VALUE": 3}),
]


def plan_of(
    env: str, hidden: tuple[int, ...], activation: str, shared: bool, more: dict[str, Any]
) -> Any:
    """The kernel of a job; WIDE: with as many inputs and outputs as it can have."""
    from gymnasium.spaces import Box, Discrete

    from operant.ppo.engines.fused_scope import WIDE_INPUTS, WIDE_OUTPUTS
    from operant.ppo.kernels.hopper.hopper_update import PANEL, update_source
    from operant.ppo.kernels.triton.layers import NUMBERS
    from operant.ppo.kernels.triton.networks import Networks
    from operant.ppo.kernels.triton.samples import Columns

    rules, more = Rules.of(get_env(env)), dict(more)
    spaces = rules.observation.space, rules.action.space
    if more.pop("WIDE", False):
        spaces = Box(-1, 1, (63,)), Discrete(31)
        if max(hidden) > PANEL:
            spaces = Box(-1, 1, (WIDE_INPUTS,)), Box(-1, 1, (WIDE_OUTPUTS,))
    policy = policy_for(*spaces, hidden=hidden, activation=activation, shared=shared)
    outputs, numbers = policy.actor_head.out_features, isinstance(spaces[1], Box)
    actions = spaces[1].shape[0] if numbers else 1
    seen = spaces[0].shape[0]
    columns = Columns.of(actions, more.get("MASKS", 0), seen, more.get("VALUE_CLIP", 0.0))
    constants = {
        **columns.constants(),
        "MINIBATCHES": 4,
        "NORMALIZE": True,
        "ACTIVATION": NUMBERS[activation],
        "DISTRIBUTION": int(numbers),
        "VALUE_CLIP": 0.0,
        "VALUE_COEF": 0.5,
        "ENTROPY_COEF": 0.01,
        **more,
    }
    least = PANEL if max(hidden) <= PANEL else 2 * PANEL
    networks = Networks(policy, list(policy.parameters()), least)
    choices = [] if numbers else [outputs]
    return update_source(networks, outputs, choices, constants, 1 << 21)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job[0]}-{job[1]}-{job[2]}")
def test_it_compiles_and_fits(nvrtc: Any, tmp_path: Path, job: tuple[Any, ...]) -> None:
    from operant.ppo.kernels.hopper.hopper_update import OPTIONS, SHARED

    plan = plan_of(*job)
    binary = compile_source(nvrtc, plan.source, ("--gpu-architecture=sm_90a", *OPTIONS))
    assert 1 <= plan.blocks <= 4
    assert plan.blocks * (plan.memory + 1024) <= SHARED
    (tmp_path / "update.cubin").write_bytes(binary)
    dumped = [
        subprocess.run(
            [DUMP, option, tmp_path / "update.cubin"], capture_output=True, text=True, check=True
        ).stdout
        for option in ("-res-usage", "-sass")
    ]
    registers, stack = (int(re.search(rf"{x}:(\d+)", dumped[0])[1]) for x in ("REG", "STACK"))
    assert registers * plan.threads * plan.blocks <= 1 << 16
    assert f"HGMMA.64x{plan.threads // 2}x16.F32.BF16" in dumped[1]
    if job in (JOBS[0], JOBS[6]):
        assert plan.blocks == (4 if job is JOBS[0] else 1)
        assert stack == 0  # nothing in memory but what is meant to be there
        assert dumped[1].count("WARPGROUP.ARRIVE") < 30  # products run by themselves
