"""Operant: reinforcement learning at full speed, in Python.

``import operant`` is light: compilers load when a compiled environment is first made.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if (
    sys.argv[:1] == ["-m"]  # Python looks for the module to run
    and any(
        re.fullmatch(r"-[a-zA-Z]*m ?operant(\..*)?", words)  # -m operant, -Bm operant, -moperant
        for words in (*sys.orig_argv, *map(" ".join, pairwise(sys.orig_argv)))
    )
    and not sys.flags.safe_path
):
    del sys.path[0]  # of `python -m operant`: the folder one stands in, which may be anyone's

from operant.envs import register  # and with it every environment's id, for Gymnasium
from operant.lang.env import definition_checks
from operant.version import __version__

if TYPE_CHECKING:
    from operant import buffers, envs, lang, models, spaces, utils
    from operant.lang.env import Env
    from operant.ppo.config import Config
    from operant.ppo.ppo import PPO
    from operant.training.callbacks import Callback
    from operant.vector.async_pool import AsyncEnvPool
    from operant.vector.env import VecEnv
    from operant.vector.inspect import inspect
    from operant.vector.make import make

_ATTRIBUTES = {
    "AsyncEnvPool": "operant.vector.async_pool",
    "Callback": "operant.training.callbacks",
    "Config": "operant.ppo.config",
    "Env": "operant.lang.env",
    "PPO": "operant.ppo.ppo",
    "VecEnv": "operant.vector.env",
    "inspect": "operant.vector.inspect",
    "make": "operant.vector.make",
}
_MODULES = ("buffers", "envs", "lang", "models", "spaces", "utils")

_ELSEWHERE = {
    **dict.fromkeys(("A2C", "DDPG", "DQN", "SAC", "TD3", "TRPO"), "PPO is the only algorithm"),
    "Environment": "write operant.Env",
    "evaluate_policy": "write operant.training.evaluate.evaluate, or `operant eval RUN`",
    "load": "write PPO.load(path)",
    "make_vec": "write operant.make(env, num_envs=8)",
    "make_vec_env": "write operant.make(env, num_envs=8)",
    "train": "write PPO(env).learn(total_steps)",
}
"""What other libraries have at the top, and what it is here."""

__all__ = [
    "PPO",
    "AsyncEnvPool",
    "Callback",
    "Config",
    "Env",
    "VecEnv",
    "__version__",
    "buffers",
    "envs",
    "inspect",
    "lang",
    "make",
    "models",
    "register",
    "spaces",
    "utils",
]


def _check_definition(env: type[Any]) -> None:
    import_module("operant.compiler.spec.definition").check_definition(env)


definition_checks.append(_check_definition)


def __getattr__(name: str) -> Any:
    if name in _ATTRIBUTES:
        return getattr(import_module(_ATTRIBUTES[name]), name)
    if name in _MODULES:
        return import_module(f"operant.{name}")
    import difflib

    near = difflib.get_close_matches(name, __all__, 1)
    advice = f"; {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
    advice = advice or (f"; did you mean {near[0]}?" if near else "")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{advice}")


def __dir__() -> list[str]:
    return sorted(__all__)
