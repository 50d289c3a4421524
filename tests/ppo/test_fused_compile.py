"""The fused engine's kernels compile for GPUs that this machine does not have."""

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

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from operant.vector.registry import get_env
from operant.compiler.spec.rules import Rules
from operant.models.actor_critic import policy_for
from operant.ppo.kernels.triton import adam, copies, episodes, moments, rows, samples, update
from operant.ppo.kernels.triton import weights
from operant.ppo.kernels.triton.networks import Networks
from operant.ppo.kernels.triton.rollout_launch import rollout_kernel, rollout_options
from operant.ppo.kernels.triton.rollout_source import Acting

POINTERS = {name: "i32" for name in ("one_hot", "parts", "firsts", "ints", "records")}
POINTERS |= {name: "i32" for name in ("places", "offsets", "numbers")}
POINTERS |= {name: "i64" for name in ("keys", "first_step", "addresses")}
POINTERS |= {name: "i1" for name in ("flags", "terminated", "truncated", "action_mask")}
POINTERS |= {name: "fp64" for name in ("clip", "rate", "steps")}
NUMBERS = {name: "i32" for name in ("job", "count", "size", "stride", "num_envs", "max_steps")}
NUMBERS |= {name: "i32" for name in ("most", "segments", "policy_low", "policy_high")}
NUMBERS |= {"host_ns": "i64"}


def compiled(kernel, arch, given, pointers):
    """What is known of a kernel after compiling it with what a launch is given."""
    names = kernel.arg_names
    constants = {name: value for name, value in given.items() if name in names}
    kinds = POINTERS | pointers
    signature = {
        name: "constexpr"
        if name in constants
        else NUMBERS.get(name) or "*" + kinds.get(name, "fp32")
        for name in names
    }
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={
            (k,): [["tt.divisibility", 16]]
            for k, name in enumerate(names)
            if signature[name].startswith("*")
        },
    )
    options = {name: value for name, value in given.items() if name not in names}
    asm = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options).asm
    words = ("wgmma.mma_async", "mma.sync", "tcgen05.mma")
    products = sum(asm["ptx"].count(word) for word in words)
    ordered = [word for word in asm["ptx"].split() if word.startswith(("griddep", "ld.", "st."))]
    print(json.dumps({"kernel": kernel.__name__, "arch": arch, "given": str(given),
                      "cubin": len(asm["cubin"]), "products": products, "ordered": ordered}))


def job(env, hidden, activation, shared=False):
    rules = Rules.of(get_env(env))
    policy = policy_for(rules.observation.space, rules.action.space, hidden=hidden,
                        activation=activation, shared=shared)
    nets = Networks(policy, list(policy.parameters()))
    numbers = 0 if rules.action.dtype == "int" else rules.action.size
    sizes = () if numbers else (policy.actor_head.out_features,)
    acting = Acting(nets, policy.actor_head.out_features, sizes, (0,) * len(sizes), numbers, False,
                    False)
    return rules, nets, acting, numbers


def train(arch, kind, env, hidden, activation, precision, shared=False):
    rules, nets, acting, numbers = job(env, hidden, activation, shared)
    columns = samples.Columns.of(1, 0, rules.observation.size, 0.2)
    given = {
        **columns.constants(), **nets.actor.constants(), "OUTPUTS": acting.outputs,
        "DISTRIBUTION": 1 if numbers else 0, "PARTS": 1, "ONE_HOT": False, "LIMIT": 10.0,
        "ACTIVATION": {"tanh": 0, "relu": 1, "silu": 2}[activation], "QUICK": kind == "bf16",
        "PRECISION": precision, "NORMALIZE": True, "VALUE_CLIP": 0.2, "VALUE_COEF": 0.5,
        "ENTROPY_COEF": 0.01, "MINIBATCHES": 4, "TILES": 4, "PROGRAMS": 264, "BITS": 20,
        "WALK": True, "ACTOR": True, "CRITIC": shared,
    }
    given |= update.launch_options(max(hidden))
    compiled(update._train, arch, given, {"low": kind})


def play(arch, kind, env, hidden):
    rules, nets, acting, numbers = job(env, hidden, "tanh")
    given = {"STEPS": 128, "ACTIVATION": 0, "QUICK": kind == "bf16", "PRECISION": "tf32",
             "LIMIT": 10.0, "HOST_CLOCK": False, "WIDE": False, **rollout_options(1 << 14)}
    pointers = {"low": kind, "action": "fp32" if numbers else "i64"}
    compiled(rollout_kernel(rules, acting), arch, given, pointers)


for arch in (80, 90, 100):
    train(arch, "bf16", "CartPole-v1", (64, 64), "tanh", "ieee")
    play(arch, "bf16", "CartPole-v1", (64, 64))
train(90, "fp32", "Pendulum-v1", (128,), "silu", "tf32", shared=True)
train(90, "fp32", "Acrobot-v1", (32, 64, 32), "relu", "ieee")
play(90, "fp32", "Pendulum-v1", (32,))
train(90, "bf16", "Pendulum-v1", (128,), "silu", "ieee", shared=True)
step = {"EPS": 1e-5, "BETA1": 0.9, "BETA2": 0.999, "MAX_NORM": 0.5, "GUARD": True}
step |= {"PROGRAMS": 73, "SQUARES": 128, "BLOCK": 128}
add = {"PARTS": 264, "ROWS": adam.ROWS, "BLOCK": adam.ADDED}
for arch in (80, 90):
    overlap = {"OVERLAP": arch == 90, "launch_pdl": arch == 90}
    compiled(adam._step, arch, {**step, **overlap}, {"low": "bf16", "figures": "fp64"})
    compiled(adam._add, arch, {**add, **overlap, "EARLY": arch == 90}, {"figures": "fp64"})
shuffle = {"MINIBATCHES": 5, "ROWS": 8, "BLOCK": 64, "num_warps": 1}
more = {"TILES": 4, "BITS": 20, "WALK": True}
compiled(moments._parts, 90, {**shuffle, **more}, {"parts": "fp64"})
compiled(moments._merge, 90, {"MINIBATCHES": 5, "SPLIT": moments.SPLIT}, {"parts": "fp64"})
compiled(moments._added, 90, {"TILES": 4, "BLOCK": 512}, {"parts": "fp64"})
compiled(moments._variance, 90, {"SPLIT": moments.SPLIT}, {"parts": "fp64", "out": "fp64"})
look = {"ENVS": 16384, "COUNT": 2048, "CHUNK": 1024, "BLOCK": 1024}
compiled(episodes._count, 90, look, {"counts": "i32"})
compiled(episodes._last, 90, look, {"counts": "i32", "out": "fp64"})
columns = samples.Columns.of(2, 5, 4, 0.2)
compiled(samples._pack, 90, {**columns.constants(), "BLOCK": 128}, {"action": "i64"})
seen = {"ONES": 4, "ONE_HOT": False, "LIMIT": 10.0, "WORDS": rows.row_words(4, columns)}
given = {k: v for k, v in columns.constants().items() if k != "ROW"}
compiled(rows._pack, 90, {**given, **seen, "BLOCK": 128}, {"action": "i64", "out": "i32"})
compiled(weights._pack, 90, {"BLOCK": 128}, {"low": "bf16"})
compiled(copies._copy, 90, {"CHUNK": 1 << 13, "WORD": 4}, {"table": "i64"})
'''


@pytest.fixture(scope="module")
def compiled(
    tmp_path_factory: pytest.TempPathFactory, unmeasured: Callable[[], dict[str, str]]
) -> list[dict[str, Any]]:
    """What one process without the interpreter says of every kernel it compiled."""
    pytest.importorskip("triton")
    path = Path(tmp_path_factory.mktemp("compile")) / "compile_fused.py"
    path.write_text(SCRIPT)
    environ = unmeasured()
    environ.pop("TRITON_INTERPRET", None)
    done = subprocess.run([sys.executable, str(path)], env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-5000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_kernel_is_compiled(compiled: list[dict[str, Any]]) -> None:
    names = [one["kernel"] for one in compiled]
    assert names.count("_train") == 6
    assert names.count("rollout") == 4
    small = {"_step", "_add", "_parts", "_merge", "_pack", "_added", "_variance", "_last", "_copy"}
    assert small < set(names)
    assert all(one["cubin"] > 1000 for one in compiled)


def test_products_are_the_tensor_cores(compiled: list[dict[str, Any]]) -> None:
    for one in compiled:
        exact = "'PRECISION': 'ieee'" in one["given"] and "'QUICK': False" in one["given"]
        if one["kernel"] in ("_train", "rollout") and not exact:
            assert one["products"] > 0, one


def test_adam_fetches_what_it_can_before_it_waits_for_the_gradient(
    compiled: list[dict[str, Any]],
) -> None:
    fetched = {"_step": (7, 3), "_add": (2, 87)}
    for one in compiled:
        words, wait = one["ordered"], "griddepcontrol.wait;"
        assert (wait in words) == (one["kernel"] in fetched and one["arch"] >= 90), one
        if wait in words:
            before, after = words[: words.index(wait)], words[words.index(wait) :]
            counts = tuple(sum(x.startswith("ld.g") for x in part) for part in (before, after))
            assert counts == fetched[one["kernel"]]
            assert not any(x.startswith("st.") for x in before)
