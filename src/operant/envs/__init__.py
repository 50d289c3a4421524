"""The environments, one a file, and their vector classes.

``operant.envs.CartPole`` holds the rules; ``operant.envs.CartPoleVecEnv(num_envs, workers=1)`` runs
a batch. Both are loaded when first named. A file of a family's folder whose class has an ``env_id``
is all that a new one takes.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from operant.envs.declarations import declarations
from operant.vector.registry import declare, env_ids, get_env, register

_DECLARED = {one.name: one for one in declarations(__path__, __name__)}
_VECTOR = "VecEnv"
declare(_DECLARED.values())

__all__ = ["Env", "env_ids", "get_env", "register"]
__all__ += [name + kind for name in _DECLARED for kind in ("", _VECTOR)]


def __getattr__(name: str) -> Any:
    if name == "Env":
        return import_module("operant.lang.env").Env
    if name in _DECLARED:
        return getattr(import_module(_DECLARED[name].module), name)
    if name.endswith(_VECTOR) and name.removesuffix(_VECTOR) in _DECLARED:
        return globals().setdefault(name, _vector_class(name))  # pickle finds the same one again
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _vector_class(name: str) -> type:
    """The class ``CartPoleVecEnv``: a `VecEnv` that knows which environment it runs."""
    from operant.vector.env import VecEnv

    env_id = _DECLARED[name.removesuffix(_VECTOR)].env_id

    def __init__(self: Any, num_envs: int = 1, workers: int | str = 1, **options: Any) -> None:  # noqa: N807
        VecEnv.__init__(self, self.env_class, num_envs, workers=workers, **options)

    body = {
        "__doc__": f"A batch of {env_id}; options as in `operant.VecEnv`.",
        "__init__": __init__,
        "__module__": __name__,
        "env_class": get_env(env_id),
    }
    return type(name, (VecEnv,), body)
