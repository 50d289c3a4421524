"""The rollout's kernel for Hopper, compiled by NVRTC for a GPU that is not here."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from operant.compiler.spec.rules import Rules
from operant.models.actor_critic import policy_for
from operant.toolchain.nvrtc import EXACT, compile_source
from operant.vector.registry import get_env

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("interpreter")  # some modules have kernels of Triton, too
DUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
PROCESSORS = 132
JOBS = [
    ("CartPole-v1", (64, 64), "tanh", False, 16384),
    ("CartPole-v1", (64, 64), "tanh", False, 65536),
    ("CartPole-v1", (128, 128), "tanh", False, 16384),
    ("CartPole-v1", (64, 64), "silu", True, 2048),
    ("Pendulum-v1", (64, 64), "tanh", False, 16384),
    ("Acrobot-v1", (64, 64), "tanh", False, 16384),
    ("Acrobot-v1", (64, 32, 64), "relu", False, 100_000),
    ("MountainCar-v0", (64,), "tanh", True, 7),
    ("MountainCarContinuous-v0", (20, 7), "relu", False, 33),
]


def acting_of(env: str, hidden: tuple[int, ...], activation: str, shared: bool) -> Any:
    from operant.ppo.kernels.hopper.hopper_update import PANEL
    from operant.ppo.kernels.triton.networks import Networks
    from operant.ppo.kernels.triton.rollout_source import Acting

    rules = Rules.of(get_env(env))
    spaces = rules.observation.space, rules.action.space
    policy = policy_for(*spaces, hidden=hidden, activation=activation, shared=shared)
    outputs = policy.actor_head.out_features
    numbers = 0 if rules.action.dtype == "int" else rules.action.size
    sizes = () if numbers else (outputs,)
    networks = Networks(policy, list(policy.parameters()), PANEL)
    return rules, Acting(networks, outputs, sizes, (0,) * len(sizes), numbers, False, False)


def plan_of(job: tuple[Any, ...], **more: Any) -> Any:
    from operant.ppo.kernels.hopper.rollout_source import launch_shape, rollout_source
    from operant.ppo.kernels.triton.layers import NUMBERS

    *network, num_envs = job
    rules, acting = acting_of(*network)
    shape = launch_shape(num_envs, acting, PROCESSORS)
    constants = {"ACTIVATION": NUMBERS[job[2]], "LIMIT": 0.0, "WIDE": False, **more}
    return rollout_source(rules, acting, [], constants, num_envs, shape, "0"), shape


def counts(job: tuple[Any, ...], tiles: int) -> tuple[int, int]:
    """Products and activations of the text: nothing was lost on the way, nothing is done twice."""
    _, acting = acting_of(*job[:4])
    nets, products, activations = acting.networks, 0, 0
    passes = [(nets.actor, acting.outputs + nets.shared)] * (2 if nets.shared else 1)
    for net, outputs in passes if nets.shared else [*passes, (nets.critic, 1)]:
        sizes = [net.inputs, *net.widths]
        columns = [*net.widths, -(-outputs // 8) * 8]
        steps = [size // 16 for size in sizes]
        products += tiles * sum(n * c // 8 for n, c in zip(steps, columns, strict=True))
        activations += tiles * sum(net.widths) // 2
    return products, activations


@pytest.mark.parametrize("job", JOBS, ids=lambda job: "-".join(map(str, job)))
def test_it_compiles_and_fits(nvrtc: Any, tmp_path: Path, job: tuple[Any, ...]) -> None:
    plan, shape = plan_of(job)
    binary = compile_source(nvrtc, plan.source, ("--gpu-architecture=sm_90", *EXACT))
    (tmp_path / "rollout.cubin").write_bytes(binary)
    dumped = [
        subprocess.run(
            [DUMP, option, tmp_path / "rollout.cubin"], capture_output=True, text=True, check=True
        ).stdout
        for option in ("-res-usage", "-sass")
    ]
    registers, stack = (int(re.search(rf"{x}:(\d+)", dumped[0])[1]) for x in ("REG", "STACK"))
    assert registers * plan.threads * shape.blocks <= 1 << 16
    assert plan.memory <= 227 << 10
    products, activations = counts(job, shape.tiles)
    assert len(re.findall(r"\bHMMA\.", dumped[1])) == products
    assert dumped[1].count("MUFU.TANH") == (activations if job[2] == "tanh" else 0)
    if shape.tiles == 1:
        assert stack == 0  # all that a step needs is in registers
    assert stack <= 128  # else a few numbers that rarely change


@pytest.mark.parametrize("more", [{"WIDE": True}, {"LIMIT": 10.0}], ids=str)
def test_options(nvrtc: Any, more: dict[str, Any]) -> None:
    plan, _ = plan_of(JOBS[0], **more)
    assert compile_source(nvrtc, plan.source, ("--gpu-architecture=sm_90", *EXACT))


@pytest.mark.parametrize("shared", [False, True], ids=["two networks", "one network"])
@pytest.mark.parametrize("hidden", [(64, 64), (128, 128)], ids=str)
@pytest.mark.parametrize("num_envs", [1, 16, 2048, 4096, 16384, 16896, 16897, 65536, 1_000_003])
def test_environments_are_shared_out(num_envs: int, hidden: tuple[int, ...], shared: bool) -> None:
    from operant.ppo.kernels.hopper.rollout_source import launch_shape

    _, acting = acting_of("CartPole-v1", hidden, "tanh", shared)
    shape = launch_shape(num_envs, acting, PROCESSORS)
    blocks = -(-num_envs // shape.rows)
    assert shape.blocks >= 1
    assert shape.tiles == 1 or num_envs > PROCESSORS * 64  # no more at once than there is work
    if num_envs >= 16 * PROCESSORS * shape.tiles:
        assert blocks >= PROCESSORS * 0.9  # everyone has something to do
