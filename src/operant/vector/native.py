"""Games whose core is C: a shared library that follows ``operant_env.h``, as an environment class.

``python -m operant.vector.native`` prints the folder of the headers, for a compiler's ``-I``.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from operant.backends.native.child import run_trial
from operant.compiler.spec.native_abi import BOX, DISCRETE, Library, NativeError, SpaceSpec
from operant.compiler.spec.native_rules import NativeEnv, NativeState
from operant.lang.env import Env

__all__ = ["NativeError", "include_folder", "load"]

_tried: set[str] = set()  # digests of files that passed
_loaded: dict[str, tuple[str, type[Env]]] = {}  # by path: digest and class


def load(path: str | os.PathLike[str], *, trial: bool = True, timeout_s: float = 20.0) -> type[Env]:
    """The environment in a shared library, as a class for `operant.make`, PPO and the checker.

    Nothing is compiled. Before the library comes into this process it is played for a moment in
    another one, where it may crash. The same file is tried once, and gives the same class again.

    Args:
        path: the library, such as ``"libgame.so"``.
        trial: False leaves that out: for a library that was tried elsewhere.
        timeout_s: seconds that the trial may take.

    Raises:
        NativeError: it does not do what ``operant_env.h`` says; the message is the reason.
        FileNotFoundError: there is no such file.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise FileNotFoundError(f"there is no library {os.fspath(path)!r}")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    known = _loaded.get(str(file))
    try:
        if known is not None and known[0] != digest:
            raise NativeError(
                "it has changed since this process loaded it, and a process loads a file once; "
                "start a new one, or build the library under another name"
            )
        if trial and digest not in _tried:
            run_trial(file, timeout_s)
            _tried.add(digest)
        if known is None:
            _loaded[str(file)] = known = (digest, _environment(Library(file)))
    except NativeError as error:
        raise NativeError(f"{file.name} was refused: {error}") from None
    return known[1]


def include_folder() -> Path:
    """Where ``operant_env.h`` and ``operant_random.h`` are."""
    return Path(__file__).parent


def _environment(library: Library) -> type[Env]:
    spec = library.spec
    body: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": f"{spec.name}, from {library.path.name}.",
        "native_library": library,
        "State": NativeState,
        "observation_space": _space(spec.observation),
        "action_space": _space(spec.action),
        "max_episode_steps": spec.max_episode_steps,
        "reward_threshold": spec.reward_threshold,
    }
    return type(spec.name, (NativeEnv,), body)


def _space(spec: SpaceSpec) -> spaces.Space[Any]:
    if spec.kind == BOX:
        low, high = (_shaped(bounds, spec.shape) for bounds in (spec.lows, spec.highs))
        return spaces.Box(low, high, dtype=np.float32)
    if spec.kind == DISCRETE:
        return spaces.Discrete(spec.choices[0])
    return spaces.MultiDiscrete(np.array(spec.choices))


def _shaped(bounds: tuple[float, ...], shape: tuple[int, ...]) -> np.ndarray:
    values = np.array(bounds, np.float32)
    return np.full(shape, values) if values.size == 1 else values.reshape(shape)


if __name__ == "__main__":
    print(include_folder())
