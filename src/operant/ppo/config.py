"""The configuration of PPO: a section of its own beside those of every algorithm."""

from __future__ import annotations

from dataclasses import dataclass, field

from operant.training.config import SCHEDULES, BaseConfig, EnvConfig, PolicyConfig, RunConfig
from operant.training.intrinsic_config import IntrinsicConfig
from operant.training.section import Section, option

ELSEWHERE = {
    "anneal_lr": "learning_rate_schedule: 'linear' or 'constant'",
    "batch_size": "minibatches: how many there are, not their size",
    "clip_coef": "clip",
    "clip_eps": "clip",
    "clip_epsilon": "clip",
    "clip_range": "clip",
    "clip_range_vf": "value_clip",
    "discount": "gamma",
    "ent_coef": "entropy_coef",
    "entropy_coeff": "entropy_coef",
    "eps": "adam_eps",
    "eps_clip": "clip",
    "gae_lam": "gae_lambda",
    "horizon": "num_steps",
    "lam": "gae_lambda",
    "lambda_": "gae_lambda",
    "lr": "learning_rate",
    "lr_schedule": "learning_rate_schedule",
    "minibatch_size": "minibatches: how many there are, not their size",
    "n_epochs": "epochs",
    "n_minibatches": "minibatches",
    "n_steps": "num_steps",
    "nminibatches": "minibatches",
    "norm_adv": "normalize_advantage",
    "norm_reward": "normalize_reward",
    "nsteps": "num_steps",
    "num_epochs": "epochs",
    "num_minibatches": "minibatches",
    "num_sgd_iter": "epochs",
    "rollout_length": "num_steps",
    "rollout_steps": "num_steps",
    "sgd_minibatch_size": "minibatches: how many there are, not their size",
    "update_epochs": "epochs",
    "vf_clip": "value_clip",
    "vf_coef": "value_coef",
    "vf_loss_coeff": "value_coef",
}
"""What options of PPO are called in other libraries, and here."""


@dataclass(frozen=True)
class PPOConfig(Section, table="ppo"):
    """The algorithm.

    The defaults were chosen by what they reach in a million steps on environments without a
    configuration of their own; `benchmarks/defaults.py` repeats the table of docs/training.md.
    """

    elsewhere = ELSEWHERE

    num_steps: int = option(64, "steps of each environment in a rollout", least=1)
    epochs: int = option(4, "passes over a rollout", least=1, most=2**16 - 1)
    minibatches: int = option(8, "updates in a pass", least=1)
    learning_rate: float = option(2e-3, "Adam's step size", above=0.0)
    learning_rate_schedule: str = option("linear", "towards 0 at the end", choices=SCHEDULES)
    gamma: float = option(0.99, "discount", least=0.0, most=1.0)
    gae_lambda: float = option(0.95, "decay of the advantage's trace", least=0.0, most=1.0)
    clip: float = option(0.2, "how far the probability ratio counts", above=0.0)
    clip_schedule: str = option("constant", "towards 0 at the end", choices=SCHEDULES)
    value_clip: float = option(0.0, "how far a value may move in an update; 0: any", least=0.0)
    value_coef: float = option(0.5, "weight of the value loss", least=0.0)
    entropy_coef: float = option(0.01, "weight of the entropy bonus", least=0.0)
    max_grad_norm: float = option(0.5, "gradients are scaled down to this; 0: never", least=0.0)
    normalize_advantage: bool = option(True, "per minibatch: mean 0, deviation 1")
    normalize_reward: bool = option(True, "divide rewards by the running deviation of returns")
    target_kl: float = option(0.0, "no further pass once the policy moved so far; 0: off", least=0)
    adam_eps: float = option(1e-5, "Adam's epsilon", above=0.0)


FIXED_BONUS = tuple(
    f"intrinsic.{name}"
    for name in ("kind", "separate_value", "hidden", "features", "count_", "random_steps")
)
"""What a bonus is made of."""


@dataclass(frozen=True)
class Config(BaseConfig):
    """Everything a run of PPO depends on."""

    is_shipped = True
    fixed = (*BaseConfig.fixed, "ppo.normalize_reward", *FIXED_BONUS)

    env: EnvConfig = field(default_factory=EnvConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    run: RunConfig = field(default_factory=RunConfig)
    intrinsic: IntrinsicConfig = field(default_factory=IntrinsicConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        batch = self.env.num_envs * self.ppo.num_steps
        if batch > 2**31:
            raise ValueError(
                f"a rollout of env.num_envs {self.env.num_envs} x ppo.num_steps "
                f"{self.ppo.num_steps} samples is too large; 2**31 is the most"
            )
        if batch < self.ppo.minibatches:
            raise ValueError(
                f"ppo.minibatches is {self.ppo.minibatches}, but a rollout has only {batch} "
                f"samples (env.num_envs {self.env.num_envs} x ppo.num_steps {self.ppo.num_steps})"
            )


dotted_name = Config.dotted_name
