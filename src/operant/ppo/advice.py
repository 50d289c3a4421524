"""What people type who know other libraries, and what it is called here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OPTIONS = {
    "activation_fn": "policy.activation",
    "anneal_lr": "ppo.learning_rate_schedule",
    "batch_size": "ppo.minibatches",
    "clip_coef": "ppo.clip",
    "clip_eps": "ppo.clip",
    "clip_epsilon": "ppo.clip",
    "clip_range": "ppo.clip",
    "clip_range_vf": "ppo.value_clip",
    "discount": "ppo.gamma",
    "ent_coef": "ppo.entropy_coef",
    "entropy_coeff": "ppo.entropy_coef",
    "env_id": "env.id",
    "env_impl": "env.impl",
    "env_kwargs": "env.params",
    "eps": "ppo.adam_eps",
    "eps_clip": "ppo.clip",
    "gae_lam": "ppo.gae_lambda",
    "hidden_sizes": "policy.hidden",
    "horizon": "ppo.num_steps",
    "lam": "ppo.gae_lambda",
    "lambda_": "ppo.gae_lambda",
    "lr": "ppo.learning_rate",
    "lr_schedule": "ppo.learning_rate_schedule",
    "max_timesteps": "run.total_steps",
    "minibatch_size": "ppo.minibatches",
    "n_envs": "env.num_envs",
    "n_epochs": "ppo.epochs",
    "n_jobs": "run.threads",
    "n_minibatches": "ppo.minibatches",
    "n_steps": "ppo.num_steps",
    "n_timesteps": "run.total_steps",
    "net_arch": "policy.hidden",
    "nminibatches": "ppo.minibatches",
    "norm_adv": "ppo.normalize_advantage",
    "norm_obs": "policy.normalize_obs",
    "norm_reward": "ppo.normalize_reward",
    "nsteps": "ppo.num_steps",
    "num_env": "env.num_envs",
    "num_epochs": "ppo.epochs",
    "num_minibatches": "ppo.minibatches",
    "num_sgd_iter": "ppo.epochs",
    "num_threads": "run.threads",
    "num_timesteps": "run.total_steps",
    "num_workers": "env.workers",
    "policy_kwargs": "policy.hidden",
    "ppo_env_impl": "env.impl",
    "random_state": "run.seed",
    "rollout_length": "ppo.num_steps",
    "rollout_steps": "ppo.num_steps",
    "sgd_minibatch_size": "ppo.minibatches",
    "tensorboard_log": "run.tensorboard",
    "timesteps": "run.total_steps",
    "total_timesteps": "run.total_steps",
    "update_epochs": "ppo.epochs",
    "vf_clip": "ppo.value_clip",
    "vf_coef": "ppo.value_coef",
    "vf_loss_coeff": "ppo.value_coef",
}
"""Names of options elsewhere, and ours."""

ALIASES = {"ppo_env_impl": "env.impl"}
"""Those that mean the same as ours, value for value: accepted, with a warning."""

_NOTES = {
    "anneal_lr": "'linear' or 'constant'",
    "batch_size": "how many there are, not their size",
    "minibatch_size": "how many there are, not their size",
    "policy_kwargs": "options of the network are options like all others: hidden, activation",
    "sgd_minibatch_size": "how many there are, not their size",
    "tensorboard_log": "true or false; the events go to the run's folder",
}

_LEARN = {
    "callback": "callbacks=...",
    "n_timesteps": "total_steps=...",
    "num_timesteps": "total_steps=...",
    "progress_bar": "progress=True or False",
    "steps": "total_steps=...",
    "timesteps": "total_steps=...",
    "total_timesteps": "total_steps=...",
    "verbose": "progress=True or False",
}


def known_as(key: str) -> str | None:
    """What an option of another library is called here, in words; None if nobody knows it.

    >>> known_as("ppo.lr"), known_as("lr")
    ('here it is ppo.learning_rate', 'here it is learning_rate (ppo.learning_rate)')
    """
    _, dot, name = key.lower().replace("-", "_").rpartition(".")
    if name == "verbose":
        return "learn(progress=False) is silent"
    ours = OPTIONS.get(name)
    if ours is None:
        return None
    note = _NOTES.get(name, "")
    if dot:
        return f"here it is {ours}" + (f": {note}" if note else "")
    return f"here it is {ours.partition('.')[2]} ({ours})" + (f": {note}" if note else "")


def refuse_arguments(unknown: Mapping[str, Any]) -> None:
    """Raise TypeError for arguments that ``learn`` does not have, with what to write."""
    for name, value in unknown.items():
        if name == "reset_num_timesteps":
            text = "learn() goes on where it stopped: total_steps counts the earlier steps too"
        elif name in _LEARN:
            text = f"learn() takes {_LEARN[name]}"
        elif name in OPTIONS:
            text = f"options are PPO's: PPO(env, {OPTIONS[name].partition('.')[2]}=...)"
        else:
            text = "learn() takes total_steps, callbacks and progress"
        raise TypeError(f"{text}; got {name}={value!r}")
