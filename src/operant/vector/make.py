"""Making environments by name or class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from gymnasium.vector import VectorEnv

from operant.compiler.compile_error import warn_of_fallback
from operant.compiler.spec.native_rules import is_native
from operant.lang.arrays import Arrays
from operant.lang.env import Env
from operant.toolchain.gpus import gpu_count, interpreted, why_not_cuda
from operant.vector.base import BaseVecEnv
from operant.vector.choose_backend import backend_of
from operant.vector.env import VecEnv
from operant.vector.foreign_batch import ForeignBatch
from operant.vector.foreign_env import ForeignEnv, as_foreign
from operant.vector.make_foreign import make_foreign
from operant.vector.not_an_env import not_an_env
from operant.vector.registry import get_env
from operant.vector.single import SingleEnv
from operant.vector.targets import find_env

MakesEnvs = Callable[..., Any]
"""A function, or a class of ``gymnasium.Env``, that makes one environment of Gymnasium's or
PettingZoo's API."""


@overload
def make(
    env: type[Env], num_envs: int = 1, *, backend: str = ..., impl: str | None = ..., **options: Any
) -> BaseVecEnv: ...
@overload
def make(
    env: str | ForeignEnv | MakesEnvs,
    num_envs: int = 1,
    *,
    backend: str = ...,
    impl: str | None = ...,
    **options: Any,
) -> Any: ...
def make(
    env: str | type[Env] | ForeignEnv | MakesEnvs,
    num_envs: int = 1,
    *,
    backend: str = "auto",
    impl: str | None = None,
    **options: Any,
) -> BaseVecEnv | ForeignBatch:
    """A batch of environments.

    >>> env = make("CartPole-v1", num_envs=4, seed=7)
    >>> obs, info = env.reset()
    >>> obs.shape
    (4, 4)

    Args:
        env: an id such as ``"CartPole-v1"`` or ``"LunarLander-v3"``, an environment class, or a
            function that makes one environment of Gymnasium's or PettingZoo's API. What operant
            compiles is a `VecEnv` or a `CudaVecEnv`; of others it is a `ForeignBatch`, whose
            options are those of `make_foreign`.
        num_envs: how many.
        backend: ``"reference"``, ``"cpu"`` (a `VecEnv`: NumPy arrays), ``"cuda"`` or ``"cuda:1"``
            (a `CudaVecEnv`: tensors on that GPU), or ``"auto"``: the GPU if there is one.
            A game in C that `operant.vector.native.load` has loaded runs on ``"native"`` alone.
            ``batch.backend`` says which it is, and ``batch.backend_reason`` why.
        impl: ``"reference"`` (plain Python) or ``"native"`` (the compiled implementation, whichever
            backend that is): instead of a backend, and then in main memory; ``"auto"``: compiled
            where that works, in main memory.
        options: see `operant.VecEnv`: ``workers``, ``seed``, ``autoreset_mode``, ``copy``,
            ``render_mode``, ``max_episode_steps``, and the environment's own parameters.

    Raises:
        ValueError, TypeError: an unknown id or a bad option; the message says what to write.
        CompileError: the backend asked for cannot compile the environment. Under ``"auto"`` it
            runs on another one, with a `FallbackWarning`.
        MemoryError: they do not fit on the GPU; the message says how many would.
    """
    found = env_of(env)
    if isinstance(found, ForeignEnv):
        return make_foreign(found, num_envs, backend=backend, impl=impl, **options)
    env = found
    backend = backend_of(backend, impl, env)
    if not (isinstance(env, type) and issubclass(env, Env)) or is_native(env):
        return VecEnv(env, num_envs, backend=backend, **options)
    if backend == "auto" and impl is None and not interpreted() and why_not_cuda() is None:
        try:
            batch = _on_gpu(env, num_envs, "cuda", options)
        except RuntimeError as error:  # a driver or a compiler that does not work
            batch = VecEnv(env, num_envs, **options)
            reason = warn_of_fallback(env, "cuda", batch.backend, error)
            alone = batch.backend_reason == "auto: the fastest backend present"
            batch.backend_reason = reason if alone else f"{reason}; {batch.backend_reason}"
            return batch
        batch.backend_reason = "auto: the fastest backend present"
        return batch
    if isinstance(backend, str) and backend.partition(":")[0] == "cuda":
        return _on_gpu(env, num_envs, backend, options)
    return VecEnv(env, num_envs, backend=backend, **options)


def env_of(env: str | type[Env] | ForeignEnv | MakesEnvs) -> type[Env] | ForeignEnv:
    """The environment that a caller means by an id, a class or a function.

    Raises:
        ValueError: an unknown id.
        TypeError: none of these; the message says what to pass instead.
    """
    if isinstance(env, str):
        return find_env(env)
    if isinstance(env, type) and issubclass(env, Env):
        return env
    found = None if isinstance(env, VectorEnv) else as_foreign(env)
    if found is None:
        raise TypeError(not_an_env(env))
    return found


def _on_gpu(env: type[Env], num_envs: int, name: str, options: dict[str, Any]) -> BaseVecEnv:
    reason = why_not_cuda()
    if reason is not None:
        raise ValueError(reason)
    import torch

    from operant.vector.gpu_arrays import ArrayCudaVecEnv
    from operant.vector.gpu_numbers import TritonVecEnv

    number = name.partition(":")[2] or "0"
    count = 1 if interpreted() else gpu_count()
    if not number.isdecimal() or int(number) >= count:
        gpus = "one GPU, cuda:0" if count == 1 else f"GPUs cuda:0 to cuda:{count - 1}"
        raise ValueError(f"there is no backend {name!r}; this machine has {gpus}")
    device = torch.device("cpu") if interpreted() else torch.device("cuda", int(number))
    options = {key: value for key, value in options.items() if key != "workers"}
    kind = ArrayCudaVecEnv if issubclass(env.State, Arrays) else TritonVecEnv
    return kind(env, num_envs, device=device, **options)


def make_for_gymnasium(env_id: str, num_envs: int = 1, **options: Any) -> VecEnv:
    """What `gymnasium.make_vec` calls: NumPy arrays, as Gymnasium's tools expect."""
    return VecEnv(get_env(env_id), num_envs, **options)


def make_single(env_id: str, **options: Any) -> SingleEnv:
    """What `gymnasium.make` calls."""
    return SingleEnv(get_env(env_id), **options)
