"""A trainer as arrays and plain facts, and back; what a checkpoint holds.

Weights (with their normalisers), optimiser, environments, engine, random generators, counters and
configuration: everything the future of a run depends on. Nothing read here is trusted.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import nn

from operant.lang.env import Env
from operant.models.action_distributions import distribution_for
from operant.runs.checkpoint import Checkpoint, CheckpointError, find_checkpoint, load_checkpoint
from operant.training.add_on import AddOn
from operant.training.agent import Agent
from operant.training.config import AgentConfig, BaseConfig
from operant.training.config_file import parsed_config, to_toml
from operant.training.foreign import check_wrappers, foreign_batch
from operant.training.network import new_network
from operant.training.ranks import check_ranks
from operant.training.recent import Recent
from operant.vector.batch import Batch
from operant.vector.foreign_env import ForeignEnv
from operant.vector.targets import find_env
from operant.version import __version__

if TYPE_CHECKING:
    from operant.training.trainer import Trainer

T = TypeVar("T", bound="Trainer")
Source = str | type[Env] | ForeignEnv | Batch
"""What a caller may name as the environment of a checkpoint."""
C = TypeVar("C", bound=BaseConfig)
Arrays = dict[str, dict[str, np.ndarray]]
TRAINING_ONLY = ("return_normalizer.", "intrinsic_head.")
"""How tensors of a policy begin that serve training alone: what acts needs none of them."""
_LARGEST_RETURN = float(np.finfo(np.float32).max)  # they are sums in float32


def snapshot(trainer: Trainer) -> tuple[Arrays, dict[str, Any]]:
    """Everything about a trainer, as copies: arrays by file, and facts for JSON."""
    trainer.retract()
    engine = trainer.shards.joined(trainer.state())  # first: it may refuse
    model = {name: _array(tensor) for name, tensor in trainer.policy.state_dict().items()}
    optimizer = {name: _array(tensor) for name, tensor in trainer.optimizer_tensors().items()}
    random = {"torch": _array(torch.get_rng_state()), "predict": _array(trainer.random.get_state())}
    if trainer.device.type == "cuda":
        random["cuda"] = _array(torch.cuda.get_rng_state(trainer.device))
    arrays = {
        "model": model,
        "optimizer": optimizer,
        "environment": trainer.shards.joined(_env_state(trainer.env)),
        "engine": engine,
        "random": random,
        **trainer.add_ons.state(),
    }
    facts = {
        "operant": __version__,
        "policy": type(trainer.policy).__name__,
        "config": to_toml(trainer.config, comments=False),
        "iteration": trainer.iteration,
        "steps": trainer.steps,
        "episodes": trainer.episodes,
        "optimizer_steps": trainer.optimizer_steps,
        "seconds": trainer.seconds,
        "recent": _finite_pairs(trainer.recent),
    }
    if trainer.agent_returns.recent:
        every = trainer.agent_returns.recent.items()
        facts["recent_by_agent"] = {name: _finite_pairs(recent) for name, recent in every}
    return arrays, facts


def _finite_pairs(recent: Recent) -> list[list[float]]:
    return [[float(r), int(n)] for r, n in recent if math.isfinite(r)]


def _env_state(batch: Batch) -> dict[str, np.ndarray]:
    """The state of the environments; nothing where they cannot be saved."""
    return batch.get_state() if batch.why_not_saved is None else {}


def not_saved_note(batch: Batch) -> str | None:
    """The sentence for the user of environments that cannot be saved; None: they can."""
    why = batch.why_not_saved
    return why and f"{why}: when this is resumed, the environments begin new episodes"


def restored(
    cls: type[T],
    checkpoint: Checkpoint,
    env: Source | None,
    policy: nn.Module | None,
    options: Mapping[str, Any],
    add_ons: Sequence[AddOn] = (),
    kind: type[BaseConfig] | None = None,
) -> T:
    """The trainer in a checkpoint; see `Trainer.load`. `kind`: its configuration has more sections
    than the algorithm's own."""
    config = config_of(checkpoint, kind or cls.config_type)
    if not {"shards", "run.shards"} & set(options):
        check_ranks(config.run.shards, config.run.rank_timeout)
    chosen = chosen_env(config, env)
    check_wrappers(config.env, options.get("wrappers", options.get("env.wrappers")))
    if policy is None:
        _check_fits(checkpoint, config, chosen)
    make: Any = cls  # an algorithm's constructor, see `Trainer`
    trainer: T = make(chosen, config, policy=policy, add_ons=add_ons, **options)
    put_back(trainer, checkpoint)
    return trainer


def put_back(trainer: Trainer, checkpoint: Checkpoint) -> None:
    """Set a trainer to the state of a checkpoint.

    Raises:
        CheckpointError: something is missing, or has the wrong shape for this trainer.
    """
    facts, arrays = checkpoint.facts, checkpoint.arrays
    for name in ("model", "optimizer", "environment", "engine", "random"):
        if name not in arrays:
            raise CheckpointError(f"{checkpoint.path} has no {name}.safetensors")
    load_weights(trainer.policy, checkpoint)
    _put_optimizer(trainer, checkpoint)
    if trainer.config.run.nan_guard:
        check_finite(trainer.policy, checkpoint)
    try:
        if trainer.env.why_not_saved is None:  # else it begins new episodes
            trainer.env.set_state(trainer.shards.own(arrays["environment"]))
    except (ValueError, IndexError, ArithmeticError) as error:  # an author's function may refuse it
        raise CheckpointError(f"{checkpoint.path / 'environment.safetensors'}: {error}") from None
    try:
        trainer.set_state(trainer.shards.own(arrays["engine"]))
    except ValueError as error:
        raise CheckpointError(f"{checkpoint.path / 'engine.safetensors'}: {error}") from None
    try:
        torch.set_rng_state(torch.from_numpy(arrays["random"]["torch"].copy()))
        trainer.random.set_state(torch.from_numpy(arrays["random"]["predict"].copy()))
        if trainer.device.type == "cuda" and "cuda" in arrays["random"]:
            state = torch.from_numpy(arrays["random"]["cuda"].copy())
            torch.cuda.set_rng_state(state, trainer.device)
    except (KeyError, RuntimeError, TypeError) as error:
        raise CheckpointError(f"{checkpoint.path / 'random.safetensors'}: {error}") from None
    trainer.add_ons.set_state(arrays, checkpoint.path)
    where = checkpoint.path / "facts.json"
    trainer.iteration = _count(facts, "iteration", where)
    trainer.steps = _count(facts, "steps", where)
    if trainer.steps != checkpoint.step:
        raise CheckpointError(
            f"{where}: steps is {trainer.steps}, the manifest says {checkpoint.step}"
        )
    trainer.episodes = _count(facts, "episodes", where)
    trainer.seconds = _seconds(facts.get("seconds"), where)
    trainer.recent.clear()
    trainer.recent.extend(_pairs(facts.get("recent"), where))
    by_agent = facts.get("recent_by_agent", {})
    for name, recent in trainer.agent_returns.recent.items():
        recent.clear()
        recent.extend(_pairs(by_agent.get(name, []) if isinstance(by_agent, dict) else None, where))


def load_agent(
    path: Path,
    env: str | type[Env] | ForeignEnv | None = None,
    policy: nn.Module | None = None,
    device: torch.device | None = None,
    which: str = "latest",
    wrappers: Sequence[str] = (),
) -> tuple[Agent, AgentConfig, type[Env] | ForeignEnv]:
    """Only what acts, from a checkpoint: the agent, the configuration and the environment.

    `wrappers` are those that the user names, see `check_wrappers`.

    Raises:
        CheckpointError, ValueError: see `Trainer.load`.
    """
    checkpoint = load_checkpoint(locate(path, which))
    config = config_of(checkpoint, AgentConfig)
    chosen = chosen_env(config, env)
    assert isinstance(chosen, type | ForeignEnv)
    check_wrappers(config.env, wrappers)
    spaces = spaces_of(chosen, config)
    device = device or torch.device("cpu")
    if policy is None:
        _check_model(checkpoint, config, spaces)
        policy = new_network(config.policy, *spaces)
    load_weights(policy, checkpoint, optional=TRAINING_ONLY)
    distribution = getattr(policy, "distribution", None) or distribution_for(
        spaces[1], config.policy.squash
    )
    return Agent(policy.to(device), distribution, *spaces, device), config, chosen


def locate(path: Path, which: str = "latest") -> Path:
    """The checkpoint meant by a path: itself, or in a folder of checkpoints, or in a run directory.

    Raises:
        CheckpointError: there is none.
    """
    if (path / "manifest.json").is_file():
        return path
    if os.path.lexists(path / "checkpoints"):
        return find_checkpoint(path / "checkpoints", which)
    path = path.resolve() if path.is_symlink() else path  # one that the user names is followed
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a checkpoint or a run: there is no such folder")
    return find_checkpoint(path, which)


def config_of(checkpoint: Checkpoint, kind: type[C]) -> C:
    """The configuration in a checkpoint: `kind` is that of its algorithm, or `AgentConfig`.

    Raises:
        CheckpointError: missing or not valid.
    """
    where = checkpoint.path / "facts.json"
    text = checkpoint.facts.get("config")
    if not isinstance(text, str):
        raise CheckpointError(f"{where} has no configuration")
    try:
        return kind().replaced(parsed_config(kind, text.encode(), "its configuration"))
    except ValueError as error:  # an unpaired surrogate too
        raise CheckpointError(f"{where}: {error}") from None


def load_weights(policy: nn.Module, checkpoint: Checkpoint, optional: tuple[str, ...] = ()) -> None:
    """Put the weights of a checkpoint into a policy.

    Tensors whose names begin with one of `optional` may be missing on either side.

    Raises:
        CheckpointError: other names or shapes than the policy has.
    """
    where = checkpoint.path / "model.safetensors"
    arrays = checkpoint.arrays.get("model", {})
    wanted = policy.state_dict()
    differing = set(arrays) ^ set(wanted)
    if optional:
        differing = {name for name in differing if not name.startswith(optional)}
    if differing:
        odd = sorted(differing)[0]
        raise CheckpointError(
            f"{where} does not fit the policy {type(policy).__name__}: "
            f"{'missing' if odd in wanted else 'unknown'} tensor {odd!r}"
        )
    with torch.no_grad():
        for name, tensor in wanted.items():
            if name not in arrays:
                continue
            _check_tensor(arrays[name], tensor, name, where)
            tensor.copy_(torch.from_numpy(arrays[name].copy()))


def _put_optimizer(trainer: Trainer, checkpoint: Checkpoint) -> None:
    where = checkpoint.path / "optimizer.safetensors"
    arrays = checkpoint.arrays["optimizer"]
    for name, tensor in trainer.optimizer_tensors().items():
        if name not in arrays:
            raise CheckpointError(f"{where} has no entry {name}")
        _check_tensor(arrays[name], tensor, name, where)
        tensor.copy_(torch.from_numpy(arrays[name].copy()))
    facts = checkpoint.path / "facts.json"
    trainer.optimizer_steps = _count(checkpoint.facts, "optimizer_steps", facts)


def check_finite(policy: nn.Module, checkpoint: Checkpoint) -> None:
    """Raise CheckpointError for weights that the NaN guard would have stopped before a save."""
    weights = {name for name, _ in policy.named_parameters()}
    for group, arrays in checkpoint.arrays.items():
        for name, array in arrays.items():
            trained = group == "optimizer" or (group == "model" and name in weights)
            if trained and not np.isfinite(array).all():
                where = checkpoint.path / f"{group}.safetensors"
                raise CheckpointError(f"{where}: {name} has numbers that are not finite")


def _check_tensor(array: np.ndarray, like: torch.Tensor, name: str, where: Path) -> None:
    dtype = torch.from_numpy(array[:0] if array.ndim else array).dtype
    if array.shape != tuple(like.shape) or dtype != like.dtype:
        raise CheckpointError(
            f"{where}: {name} must be {like.dtype} of shape {tuple(like.shape)}, "
            f"got {dtype} of shape {array.shape}"
        )


def _check_fits(
    checkpoint: Checkpoint, config: BaseConfig, env: type[Env] | ForeignEnv | Batch
) -> None:
    """Compare sizes in the configuration with the arrays, before anything is allocated for them."""
    if not isinstance(env, type):  # others are made, and compared then
        return
    _check_model(checkpoint, config, spaces_of(env, config))
    rewards = checkpoint.arrays.get("environment", {}).get("reward", np.empty(0))
    if rewards.shape != (config.env.num_envs,):
        raise CheckpointError(
            f"{checkpoint.path / 'environment.safetensors'} holds {len(rewards)} environments, "
            f"but facts.json says {config.env.num_envs}"
        )


def _check_model(checkpoint: Checkpoint, config: BaseConfig, spaces: tuple[Any, Any]) -> None:
    """Raise CheckpointError unless layers of the sizes in `config` are in the file."""
    arrays = checkpoint.arrays.get("model", {})
    for k, size in enumerate(config.policy.hidden):
        bias = arrays.get(f"actor.{2 * k}.bias")
        if bias is None or bias.shape != (size,):
            found = "none" if bias is None else str(bias.shape)
            raise CheckpointError(
                f"{checkpoint.path / 'model.safetensors'}: hidden layer {k} must have {size} "
                f"units, got {found}; for a policy of your own pass policy=..."
            )


class UnregisteredEnvError(ValueError):
    """The environment that a checkpoint names is not registered, and none was given."""

    def __init__(self, env_id: str) -> None:
        super().__init__(
            f"the environment {env_id!r} of this checkpoint is not registered; its code is not run "
            "unless you name it: pass env=..."
        )
        self.env_id = env_id


def chosen_env(config: BaseConfig, env: Source | None) -> type[Env] | ForeignEnv | Batch:
    """`env`, or the environment that `config` names, if that is one of ours or Gymnasium's registry
    has it.

    A file or a package named in a checkpoint is not run: a checkpoint may come from anyone.

    Raises:
        UnregisteredEnvError: it is not, and none was given.
        ValueError: its package is not installed.
    """
    if env is not None and not isinstance(env, str):
        return env
    name = config.env.id if env is None else env
    try:
        return find_env(name, import_modules=env is not None)
    except ValueError as error:
        if env is not None or "not installed" in str(error):
            raise
        raise UnregisteredEnvError(config.env.id) from None


def spaces_of(env: str | type[Env] | ForeignEnv, config: BaseConfig) -> tuple[Any, Any]:
    """Observation and action space of an environment with the parameters in `config`."""
    from operant.compiler.spec.rules import Rules

    found = find_env(env) if isinstance(env, str) else env
    if isinstance(found, ForeignEnv):
        batch = foreign_batch(found, config.env, 1, backend="serial")
        batch.close()
        return batch.single_observation_space, batch.single_action_space
    rules = Rules.of(found, dict(config.env.params))
    return rules.observation.space, rules.action.space


def _array(tensor: torch.Tensor) -> np.ndarray:
    array: np.ndarray = tensor.detach().cpu().numpy().copy()
    return array


def _count(facts: Mapping[str, Any], name: str, where: Path) -> int:
    value = facts.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise CheckpointError(f"{where}: {name} must be a whole number, got {value!r}")
    return value


def _seconds(value: Any, where: Path) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise CheckpointError(f"{where}: seconds must be a number, got {value!r}")
    return float(value)


def _pairs(value: Any, where: Path) -> list[tuple[float, int]]:
    good = isinstance(value, list) and all(
        isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[0], float)
        and abs(pair[0]) <= _LARGEST_RETURN
        and isinstance(pair[1], int)
        and 0 <= pair[1] < 2**62
        for pair in value
    )
    if not good:
        raise CheckpointError(f"{where}: recent must be a list of returns and lengths")
    return [(r, n) for r, n in value]
