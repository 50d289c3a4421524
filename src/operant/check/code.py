"""Two checks of an environment's code: that it compiles, and that none of its functions raises."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from operant.backends.author_mistake import env_mistake
from operant.check.finding import CheckFailed
from operant.check.plays import (
    batch_of,
    count_of,
    random_actions,
    repeated_actions,
    steps_of,
)
from operant.compiler.compile_error import compiling
from operant.compiler.errors import EndlessLoopError, RulesError, RulesOverflowError
from operant.compiler.spec.array_rules import ArrayRules
from operant.compiler.spec.rules import Rules, traced
from operant.lang.env import Env
from operant.toolchain.errors import CompileError
from operant.vector.choose_backend import available_backends
from operant.vector.env import VecEnv
from operant.version import __version__

STEPS = 2048
"""Environment steps that the reference plays in search of errors, about."""


def check_compiles(env: type[Env]) -> str:
    """Compile for every backend, and run what can run here.

    Raises:
        CheckFailed: a compiler refuses.
    """
    try:
        found = [_compiled(env, name) for name in available_backends(env) if name != "reference"]
        if "cuda" not in available_backends(env):
            found.append(_compiled_without_gpu(Rules.of(env)))
    except CompileError as error:
        raise CheckFailed(str(error)) from error
    return "; ".join(found)


def _compiled(env: type[Env], backend: str) -> str:
    """Run every kernel of a backend."""
    batch = batch_of(env, 2, backend)
    try:
        batch.reset(seed=0)
        batch.step(random_actions(batch.rules.action, 2, 0))
        batch.set_state({key: values for key, values in batch.get_state().items() if key != "obs"})
        batch.close()
    except (RulesError, RulesOverflowError):  # it did compile; `check_errors` plays the same again
        return f"{backend}: compiled"
    return f"{backend}: compiled, and it runs"


def _compiled_without_gpu(rules: Rules) -> str:
    """What can be seen of the GPU's kernels where there is none."""
    with compiling(rules.env, "cuda"):
        if not isinstance(rules, ArrayRules):
            from operant.compiler.emit.triton_kernels import kernels_source

            compile(kernels_source(traced(rules), __version__), "<kernels>", "exec")
            return "cuda: its Triton source was printed; not compiled, no GPU here"
        from operant.compiler.emit.cuda_array_kernels import KERNELS, array_cuda_source
        from operant.toolchain.host_kernels import HostKernels, host_compiler

        source, _ = array_cuda_source(rules, __version__)
        if host_compiler() is None:
            return "cuda: its C++ was printed; not compiled, no GPU and no C++ compiler here"
        HostKernels(source, KERNELS)
        return "cuda: its C++ compiles on the host; not run, no GPU here"


def check_errors(env: type[Env]) -> str:
    """Play the reference, which raises where compiled code goes on with some number or other.

    In some environments an action is repeated for long, which leads to the edges of a game. The
    same episodes are played on the fastest backend of the host, and a state of arrays compared.

    Raises:
        CheckFailed: one of the functions raised, or the states differ.
    """
    steps, count = steps_of(env), 2 * count_of(env)
    rounds = max(1, STEPS // (steps * count))
    _play_both(env, 2, 1, 0)  # what `_compiled` played
    for seed in range(1, rounds + 1):
        _play_both(env, count, steps, seed)
    return f"no function raised in {rounds * steps} steps of {count} environments"


def _play_both(env: type[Env], count: int, steps: int, seed: int) -> None:
    names = [name for name in available_backends(env) if name != "cuda"]
    first, *others = (VecEnv(env, count, backend=name, seed=seed) for name in names)
    exact = isinstance(first.rules, ArrayRules)
    _tried(first.reset, "in the first reset()")
    for batch in others:
        batch.reset()
    actions = random_actions(first.rules.action, count, seed * steps)
    for step in range(steps):
        actions = repeated_actions(first.rules.action, actions, seed * steps + step)
        _tried(partial(first.step, actions), f"at step {step + 1}")
        for batch in others if exact else []:
            batch.step(actions)
            ours, theirs = batch.get_state(), first.get_state()
            for key in ours:
                if not np.array_equal(ours[key], theirs[key], equal_nan=True):
                    raise CheckFailed(
                        f"{key} differs between {names[0]} and {batch.backend} at step {step + 1} "
                        "with repeated actions"
                    )


def _tried(play: Callable[[], object], when: str) -> None:
    try:
        play()
    except Exception as error:
        said = env_mistake(error)
        if said is None:
            raise
        same = isinstance(error, IndexError | OverflowError | EndlessLoopError)
        after = "raises it too" if same else "goes on with another number"
        if isinstance(error, EndlessLoopError) and "while" not in said:
            after = "runs as long as it takes; make the loop shorter"
        raise CheckFailed(f"{said} ({when} on reference; compiled code {after})") from error
