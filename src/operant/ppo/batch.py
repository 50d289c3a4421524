"""What a trainer is made of, from what `PPO` is given: its configuration, its batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import nn

from operant.compiler.spec.native_rules import is_native
from operant.lang.env import Env
from operant.ppo.config import Config
from operant.toolchain.gpus import why_not_cuda
from operant.training.config import BACKENDS, EnvConfig
from operant.training.config_file import resolved
from operant.training.foreign import training_batch
from operant.training.shards import Shards
from operant.vector.batch import Batch, Description, compiled_batch, is_batch
from operant.vector.choose_backend import backend_of, host_backend
from operant.vector.foreign_env import ForeignEnv
from operant.vector.make import MakesEnvs, env_of, make
from operant.vector.registry import get_env, id_of
from operant.vector.vector_batch import VectorBatch

Source = type[Env] | ForeignEnv | Batch
"""Environments to train on: a class that is compiled, others by what makes one, or a batch."""

ONE = Shards()


def check_order(env: Any, config: Any, policy: Any) -> None:
    """Raise TypeError if the arguments of `PPO` are in the order or of the kinds that others take.

    That is ``PPO("MlpPolicy", env)``.
    """
    network = "the network is policy=..., or for the built-in one hidden=... and activation=..."
    for value in (env, config, policy):
        if isinstance(value, str) and value.endswith("Policy"):
            raise TypeError(f"the environment comes first: PPO(env); {network}; got {value!r}")
    if config is not None and not isinstance(config, Config):
        raise TypeError(
            f"config must be an operant.Config, got {config!r}; single options go by their names: "
            "PPO(env, learning_rate=1e-3)"
        )
    if policy is not None and not isinstance(policy, nn.Module):
        raise TypeError(f"policy must be a torch.nn.Module, got {policy!r}; {network}")


def source_of(
    env: str | type[Env] | ForeignEnv | MakesEnvs | VectorEnv[Any, Any, Any] | Batch,
) -> Source:
    """What `PPO` is given as an environment, in one of three kinds.

    Raises:
        ValueError: an unknown id.
        TypeError: it is none; the message says what to pass instead.
    """
    if is_batch(env):
        return env
    return VectorBatch(env) if isinstance(env, VectorEnv) else env_of(env)  # type: ignore[arg-type]


def env_name(env: Source) -> str:
    """What a configuration calls an environment: its id, or the class's own name."""
    if isinstance(env, ForeignEnv):
        return env.name
    if isinstance(env, type):
        return id_of(env) or env.__qualname__
    return env.describe().name


def config_for(
    env: Source, config: Config | None, options: dict[str, Any], given_name: str = ""
) -> Config:
    """The whole configuration, from what `PPO` is given; `given_name` is the id that was.

    Raises:
        ValueError, TypeError: an unknown option, a bad value, or two that contradict each other.
    """
    name = env_name(env)
    if config is not None and config.env.id:
        if given_name and config.env.id not in (given_name, name):
            raise ValueError(f"env is {given_name!r}, but the configuration says {config.env.id!r}")
        name = config.env.id
    elif given_name and not isinstance(env, ForeignEnv):
        name = given_name
    layers = [] if config is None else [_all_values(config)]
    kind = Config if config is None else type(config)
    given = {kind.dotted_name(key): value for key, value in options.items()}
    if is_batch(env):
        given = _with_batch(given, env.num_envs, env.describe())
    return resolved(kind, name, *layers, {"env.id": name, **given})


def make_env(config: Config, env: Source, device: torch.device, shards: Shards = ONE) -> Batch:
    """The batch that `config` describes, where the policy is if nothing else is said; a batch given
    is checked and used. Of several ranks each has its own block of the environments.

    Raises:
        ValueError: a batch in another mode, or with other sizes than `config` says.
    """
    wanted, first_env = config.env, 0
    if is_batch(env):
        _check_mode(env)
        return env
    if shards.group.size > 1:
        num_envs = wanted.num_envs // shards.group.size
        wanted, first_env = replace(wanted, num_envs=num_envs), shards.group.rank * num_envs
    if isinstance(env, ForeignEnv):
        if not wanted.workers and shards.group.on_machine > 1:  # ranks share the cores
            wanted = replace(wanted, workers=shards.group.cores())
        return training_batch(env, wanted, first_env)
    assert isinstance(env, type)
    _check_compiled(wanted)
    options: dict[str, Any] = {"first_env": first_env} if first_env else {}
    batch: Batch = make(
        env,
        wanted.num_envs,
        backend=backend_for(wanted, device, env),
        workers=wanted.workers or 1,
        autoreset_mode=AutoresetMode.SAME_STEP,
        copy=False,
        max_episode_steps=wanted.max_episode_steps or None,
        **options,
        **wanted.params,
    )
    return batch


def _check_compiled(wanted: EnvConfig) -> None:
    """Raise ValueError for options that are for environments which operant does not compile."""
    for name, unset in (("wrappers", ()), ("frame_stack", 1)):
        if getattr(wanted, name) != unset:
            raise ValueError(
                f"env.{name} is for environments that operant does not compile, and it compiles "
                f"{wanted.id}; one of Gymnasium's of that name is gymnasium:{wanted.id}"
            )


def backend_for(wanted: EnvConfig, device: torch.device, env: str | type[Env]) -> str:
    """The backend that a configuration means for `env`: ``"auto"`` is on `device` where it can.

    Raises:
        ValueError: an implementation that `env` does not have.
    """
    cls = get_env(env) if isinstance(env, str) else env
    name = wanted.backend
    if wanted.impl == "reference" or (name == "auto" and is_native(cls)):
        return backend_of(name, "reference" if wanted.impl == "reference" else "native", cls)
    if name == "cuda":
        return f"cuda:{device.index or 0}"
    if name != "auto":
        return name
    if device.type == "cuda" and why_not_cuda() is None:
        return f"cuda:{device.index or 0}"
    return "cpu" if wanted.impl == "native" else host_backend()


def _check_mode(batch: Batch) -> None:
    """Raise ValueError unless episodes begin in the step in which others ended."""
    mode = batch.autoreset_mode
    if mode == AutoresetMode.SAME_STEP:
        return
    needed = f"PPO needs autoreset_mode='SameStep', this batch has {mode.value!r}"
    name, count, ours = env_name(batch), batch.num_envs, compiled_batch(batch)
    if ours is None:
        raise ValueError(f"{needed}; make the batch of {name} in that mode")
    shown = repr(name) if id_of(ours.rules.env) else name
    raise ValueError(
        f"{needed}; write operant.make({shown}, num_envs={count}, autoreset_mode='SameStep'), or "
        f"PPO({shown}, num_envs={count}), which makes the batch itself"
    )


def _with_batch(given: dict[str, Any], num_envs: int, found: Description) -> dict[str, Any]:
    """Options with the ``env`` section of a batch that exists already. Its backend is "auto" where
    no configuration could make such a batch.

    Raises:
        ValueError: an option says otherwise.
    """
    limit = found.max_episode_steps
    described = {
        "env.num_envs": num_envs // max(1, len(found.agents)),
        "env.backend": found.backend if found.backend in BACKENDS else "auto",
        "env.impl": given.get("env.impl", "auto"),  # `Config` says if the backend is another
        "env.workers": found.workers,
        "env.max_episode_steps": 0 if limit == found.own_limit else limit or 0,
        "env.params": dict(found.params),
    }
    for name, value in given.items():
        if name.startswith("env.") and described.get(name, value) != value:
            raise ValueError(
                f"{name} is {value!r}, but the batch was made with {described[name]!r}"
            )
    return {**given, **described}


def _all_values(config: Config) -> dict[str, Any]:
    return {
        f"{section}.{key}": value
        for section, table in config.to_dict().items()
        for key, value in table.items()
    }
