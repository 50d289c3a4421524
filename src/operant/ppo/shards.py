"""Which jobs can be cut into shards, and done by several ranks; and how one is."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from operant.ppo.batch import Source
from operant.ppo.config import Config
from operant.ppo.engines.eager import depends_on_order
from operant.ppo.job import Job
from operant.training.add_on import AddOn
from operant.training.ranks import Group
from operant.training.shards import Shards
from operant.vector.batch import is_batch

_SWITCHES = {"intrinsic": "intrinsic.kind=none", "popart": "policy.value_head=linear"}
"""What leaves an add-on out, by its name."""


def shards_for(config: Config, group: Group) -> tuple[Config, Shards]:
    """The shards that `config` means for the ranks of `group`; `config` with their number.

    Raises:
        ValueError: the ranks cannot share them, or they not the environments.
    """
    count = config.run.shards or group.size
    shards = Shards(count, group)
    if shards.one:
        return config, shards
    if config.run.mode == "async":
        what = f"{group.size} ranks" if group.size > 1 else f"{count} shards"
        raise ValueError(f"{what} train synchronously so far; leave out run.mode=async")
    envs, steps, parts = config.env.num_envs, config.ppo.num_steps, config.ppo.minibatches
    if envs % count:
        raise ValueError(
            f"env.num_envs is {envs}, which cannot be cut into {count} shards of equal size; "
            f"use {count * max(1, envs // count)}"
        )
    if envs // count * steps < parts:
        raise ValueError(
            f"ppo.minibatches is {parts}, but each of {count} shards has only "
            f"{envs // count * steps} samples of a rollout"
        )
    return config.replaced({"run.shards": count}), shards


def check_shards(
    shards: Shards, env: Source, device: torch.device, add_ons: Sequence[AddOn]
) -> None:
    """Raise ValueError for what cannot be cut into shards, before environments are made."""
    if shards.one:
        return
    what = "several ranks" if shards.group.size > 1 else "several shards"
    if is_batch(env) and shards.group.size > 1:
        raise ValueError(
            "each rank makes its own block of the environments, so PPO needs what makes them, and "
            "not a batch: an id, a class or a function"
        )
    if device.type != "cpu":
        raise ValueError(f"{what} train on the CPU so far, not on {device}; set run.device=cpu")
    if add_ons:
        name = add_ons[0].name
        advice = f"; set {_SWITCHES[name]}" if name in _SWITCHES else ""
        raise ValueError(f"{what} train without add-ons so far, and this has {name!r}{advice}")


def check_job(job: Job) -> None:
    """Raise ValueError for environments and policies that cannot be cut into shards."""
    if job.shards.one:
        return
    what = "several ranks" if job.shards.group.size > 1 else "several shards"
    why = None
    if job.shards.group.size > 1 and job.env.backend == "vector":
        why = (
            "environments are seeded one by one, and a vector environment of another library seeds "
            "its own; set env.backend=auto"
        )
    elif job.env.live_rows() is not None:
        why = "every row acts in every step, and some of these environments rest at times"
    elif job.env.device.type != "cpu":
        why = f"environments are in main memory, and these are on {job.env.device}"
    elif job.value_scale is not None:
        why = "values keep their scale, and PopArt changes it"
    elif depends_on_order(job.policy):
        why = "the policy has no dropout and no batch normalisation"
    if why is not None:
        raise ValueError(f"{what} can train only where {why}")
