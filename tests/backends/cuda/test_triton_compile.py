"""Kernels compile for GPUs that this machine does not have, and round as NumPy does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = '''
import json, sys
from typing import NamedTuple

import numpy as np
import triton
from gymnasium.spaces import MultiBinary, MultiDiscrete
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import operant
from operant.buffers import triton_scans
from operant.vector.registry import get_env
from operant.compiler.spec.rules import Rules
from operant.lang import abs, atan2, randint, to_float, where
from operant.ppo.kernels.triton import episodes, noise, order
from operant.vector.gpu_numbers import load_kernels
from operant.backends.cuda.launch import launch_options


class Own(operant.Env):
    """All kinds of fields, draws in the step, a mask, parameters that meet each other."""

    class Params(NamedTuple):
        low: float = 0.5
        high: float = 2.0

    class State(NamedTuple):
        place: int
        energy: float
        lucky: bool

    observation_space = MultiDiscrete([9, 9, 9, 9, 9, 9, 9, 9, 9, 2])
    action_space = MultiDiscrete([4, 2], start=[-2, 0])
    random_numbers = 5

    def reset(random, params):
        return Own.State(randint(random[0], 9), params.low * random[4], random[1] < 0.5)

    def step(state, action, random, params):
        place = (state.place + action[0] * action[1]) % 9
        energy = atan2(state.energy + random[4], 0.5) - where(state.lucky, 0.1, -random[0])
        after = Own.State(place, energy, random[1] < 0.5)
        over = (params.low < params.high) & (place == 0) | (abs(energy) > params.high)
        return after, where(over, 1.0, -1.0), over

    def observe(state):
        return (*[(state.place + k) // (k + 1) for k in range(9)], where(state.lucky, 1, 0))

    def action_mask(state):
        return (True, state.place < 3, state.place > 2, True, state.lucky, ~state.lucky)


POINTERS = {"ints": "i32", "flags": "i1", "records": "i32", "bad": "i32", "clock": "i32"}
POINTERS |= {name: "i1" for name in ("terminated", "truncated", "action_mask", "chosen")}
NUMBERS = {"num_envs": "i32", "stride": "i32", "max_steps": "i32", "host_ns": "i64", "envs": "i32"}
NUMBERS |= {"gamma": "fp32", "gae_lambda": "fp32"}


def compiled(kernel, arch, given, pointers=POINTERS):
    """Compile with what a launch is given: values of the kernel's constants, and options."""
    names = kernel.arg_names
    constants = {name: value for name, value in given.items() if name in names}
    signature = {
        name: "constexpr"
        if name in constants
        else NUMBERS.get(name) or "*" + pointers.get(name, "fp32")
        for name in names
    }
    aligned = {
        (k,): [["tt.divisibility", 16]]
        for k, name in enumerate(names)
        if signature[name].startswith("*")
    }
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs=aligned,
    )
    options = {name: value for name, value in given.items() if name not in names}
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options).asm


def kernels(rules, arch, modes):
    """Names and assembly of the kernels of one environment, for small or large batches."""
    module = load_kernels(rules)
    ints = "i64" if rules.observation.dtype == "int" else "fp32"
    pointers = POINTERS | {"obs": ints, "final_obs": ints}
    wide = "i64" if arch == 90 else "i32"
    pointers["action"] = wide if rules.action.dtype == "int" else "fp32"
    small, large = ({"WIDE": n > 64, **launch_options(rules, n)} for n in (64, 10**6))
    clock = {"HOST_CLOCK": False}
    for mode in modes:
        many = arch == 100 or (arch == 90 and mode == 1)
        step = {"STEPS": 1 + 3 * (mode == 2), "MODE": mode, "BRANCH": many, **clock}
        step |= {"REPORT": not many, "OVERLAP": arch >= 90, "launch_pdl": arch >= 90}
        given = (large if many else small) | step
        yield f"step {mode}", compiled(module.step, arch, given, pointers)
    yield "reset", compiled(module.reset, arch, small | clock, pointers)
    yield "observe", compiled(module.observe, arch, large, pointers)


def report(env, arch, name, asm):
    ptx = asm["ptx"]
    words = ("fma.rn", "div.full", "sqrt.approx", "griddepcontrol", "globaltimer")
    line = {"env": env, "arch": arch, "kernel": name, "cubin": len(asm["cubin"])}
    line["target"] = ptx.partition(".target ")[2].split()[0].rstrip(",")
    print(json.dumps(line | {word: ptx.count(word) for word in words}))


BLOCK = {"BLOCK": 256}
TRAINING = [
    (triton_scans._gae, {"STEPS": 37, **triton_scans._block(64)}, {}),
    (triton_scans._discounted, {"STEPS": 37, **triton_scans._block(64)}, {}),
    (noise._fill, {"SIZE": 3, "FIRST": 8, **BLOCK}, {"first_step": "i64"}),
    (order._orders, {"BITS": 10, "WALK": True, **BLOCK}, {"out": "i32", "keys": "i64"}),
    (
        episodes._last,
        {"ENVS": 1000, "COUNT": 64, "CHUNK": 8, **BLOCK},
        {"terminated": "i1", "truncated": "i1", "counts": "i32", "out": "fp64"},
    ),
]
NUMBERS |= {name: "i32" for name in ("seed_low", "seed_high", "count", "most", "segments")}


for env, arch, modes in json.loads(sys.argv[1]):
    if env == "training":
        for kernel, given, pointers in TRAINING:
            report(env, arch, kernel.__name__, compiled(kernel, arch, given, POINTERS | pointers))
        continue
    rules = Rules.of(Own if env == "Own" else get_env(env))
    for name, asm in kernels(rules, arch, modes):
        report(env, arch, name, asm)
'''
ENVS = ("CartPole-v1", "Own", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")
JOBS = [
    *[(env, 90, (0, 1, 2)) for env in ("CartPole-v1", "Own")],
    *[(env, 90, (k,)) for k, env in enumerate(ENVS[2:])],
    *[(env, arch, (k,)) for k, env in enumerate(ENVS[:2]) for arch in (80, 100)],
    *[("Pendulum-v1", 80, (2,)), ("MountainCar-v0", 100, (2,)), ("Acrobot-v1", 100, (0,))],
    *[("training", arch, ()) for arch in (80, 90, 100)],
]
TARGETS = {80: "sm_80", 90: "sm_90a", 100: "sm_100a"}


@pytest.fixture(scope="module")
def compiled(
    tmp_path_factory: pytest.TempPathFactory, unmeasured: Callable[[], dict[str, str]]
) -> list[dict[str, Any]]:
    """What one process without the interpreter says of every kernel it compiled."""
    pytest.importorskip("triton")
    path = Path(tmp_path_factory.mktemp("compile")) / "compile_kernels.py"
    path.write_text(SCRIPT)
    environ = {key: value for key, value in unmeasured().items() if key != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(path), json.dumps(JOBS)], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_kernel_is_compiled_for_its_gpu(compiled: list[dict[str, Any]]) -> None:
    assert len(compiled) == sum(len(modes) + 2 if modes else 5 for _, _, modes in JOBS)
    for kernel in compiled:
        assert kernel["target"] == TARGETS[kernel["arch"]], kernel
        assert kernel["cubin"] > 1000, kernel


def test_nothing_is_fused_or_approximate(compiled: list[dict[str, Any]]) -> None:
    for kernel in compiled:
        if kernel["env"] != "training" or kernel["kernel"] in ("_gae", "_discounted"):
            assert kernel["div.full"] == kernel["sqrt.approx"] == kernel["fma.rn"] == 0, kernel


def test_steps_overlap_where_gpus_can(compiled: list[dict[str, Any]]) -> None:
    for kernel in compiled:
        step = kernel["kernel"].startswith("step") and kernel["arch"] >= 90
        assert kernel["griddepcontrol"] == (2 if step else 0), kernel


def test_the_gpus_clock_is_read(compiled: list[dict[str, Any]]) -> None:
    for kernel in compiled:
        timed = kernel["env"] != "training" and kernel["kernel"] != "observe"
        assert (kernel["globaltimer"] > 0) == timed, kernel
