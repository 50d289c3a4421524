"""Which ways of running environments there are, and which one a caller gets."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode

from operant.compiler.spec.buffers import Buffers
from operant.compiler.spec.native_rules import NativeRules, is_native
from operant.compiler.spec.rules import Rules
from operant.toolchain.gpus import why_not_cuda


class Backend(Protocol):
    """What `VecEnv` asks of a backend: all methods work on the buffers it was created with."""

    def reset(self, mask: np.ndarray, now_us: int) -> None:
        """Begin a new episode in the environments of `mask`, bool ``[num_envs]``."""

    def observe(self) -> None:
        """Write the observations and the masks from the states."""

    def state_changed(self) -> None:
        """Note that someone else wrote to the buffers."""

    def use(self, rules: Rules) -> None:
        """Go on with other values of the float parameters."""

    def step(self, actions: np.ndarray, now_us: int) -> int:
        """One step of every environment; how many finished, or -1 (nobody stepped) if an action
        is out of range or not finite. `actions`: contiguous, int32, int64 or float32."""

    def close(self) -> None:
        """Release threads."""


Create = Callable[[Rules, Buffers, int, AutoresetMode, int], Backend]


@dataclass(frozen=True)
class Choice:
    """A backend and why it was chosen."""

    name: str
    reason: str
    threads: bool
    create: Create


def _create_reference(
    rules: Rules, buffers: Buffers, max_steps: int, mode: AutoresetMode, workers: int
) -> Backend:
    from operant.backends.reference.numbers import ReferenceBackend
    from operant.compiler.spec.array_rules import ArrayRules

    if isinstance(rules, ArrayRules):
        from operant.backends.reference.arrays import ArrayReferenceBackend

        return ArrayReferenceBackend(rules, buffers, max_steps, mode)
    return ReferenceBackend(rules, buffers, max_steps, mode)


def _create_compiled(
    rules: Rules, buffers: Buffers, max_steps: int, mode: AutoresetMode, workers: int
) -> Backend:
    from operant.backends.cpu.kernels import NumbaBackend

    return NumbaBackend(rules, buffers, max_steps, mode, workers)


def available_backends(env: object = None) -> list[str]:
    """The backends that can run `env`, an environment class, on this machine, the slowest first.

    Without `env` those for an environment that is written in Python.
    """
    if is_native(env):
        return ["native"]
    there = {"reference": True, "cpu": _has_numba(), "cuda": why_not_cuda() is None}
    return [name for name, found in there.items() if found]


IMPLEMENTATIONS = ("auto", "reference", "native")


def backend_of(name: str, impl: str | None, env: object = None) -> str:
    """The backend for a batch in main memory, from what a caller says of both.

    ``impl="native"`` is the compiled implementation of the environment class `env`, whichever
    backend that is: ``cpu`` (or ``cuda``, where `name` says so) for one in Python, ``native`` for a
    game in C. ``"reference"`` is plain Python; ``"auto"`` and None leave the choice to `name`.

    Raises:
        ValueError: an unknown `impl`, one that `name` contradicts, or that `env` does not have.
    """
    if impl is not None and impl not in IMPLEMENTATIONS:
        raise ValueError(f"impl must be 'reference', 'native' or 'auto', got {impl!r}")
    if impl in (None, "auto"):
        return name
    if impl == "reference" and is_native(env):
        raise ValueError(
            f"{getattr(env, '__qualname__', env)} is a game in C, which has no reference "
            "implementation in Python; leave impl out, or write impl='native'"
        )
    if name == "auto":
        return "native" if is_native(env) else {"native": "cpu"}.get(impl, impl)
    if (name == "reference") != (impl == "reference"):
        meant = "plain Python" if impl == "reference" else "the compiled implementation"
        raise ValueError(f"impl={impl!r} is {meant}, but backend={name!r} was given; leave one out")
    return name


def choose_backend(name: Any, rules: Rules | None = None) -> Choice:
    """The backend of this name for a batch of NumPy arrays, or for ``"auto"`` the fastest one.

    Raises:
        ValueError: no such backend, or it cannot run here, or not with `rules`.
    """
    if isinstance(rules, NativeRules):
        return _choose_for_library(name, rules)
    if name == "native":
        raise ValueError(
            "backend 'native' runs games in C, which operant.vector.native.load() has loaded; for "
            "the compiled implementation of an environment in Python write impl='native' or "
            "backend='cpu'"
        )
    if name == "reference":
        return Choice("reference", "asked for", False, _create_reference)
    if name == "cpu":
        _check_numba("cpu")
        return Choice("cpu", "asked for", True, _create_compiled)
    if name == "auto":
        if _has_numba():
            return Choice("cpu", "auto: the fastest backend present", True, _create_compiled)
        return Choice("reference", "auto: numba is not installed", False, _create_reference)
    if isinstance(name, str) and name.partition(":")[0] == "cuda":
        raise ValueError(f"a batch on {name!r} holds tensors: make it with operant.make()")
    raise ValueError(f"backend must be 'auto', 'reference', 'cpu' or 'cuda', got {name!r}")


def _choose_for_library(name: Any, rules: NativeRules) -> Choice:
    if name not in ("auto", "native"):
        raise ValueError(
            f"{rules.env.__qualname__} is a game in C, which backend 'native' runs and no other; "
            f"got {name!r}"
        )
    _check_numba("native")
    reason = "asked for" if name == "native" else "auto: it is a compiled library"
    return Choice("native", reason, True, _create_compiled)


def host_backend(env: object = None) -> str:
    """The fastest backend for a batch of `env`, an environment class, in main memory."""
    if is_native(env):
        return "native"
    return "cpu" if _has_numba() else "reference"


def _check_numba(backend: str) -> None:
    if not _has_numba():
        raise ValueError(
            f"backend {backend!r} needs numba, which is not installed: pip install numba"
        )


def _has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None
