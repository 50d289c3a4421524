"""`Evaluator`: whole episodes with the policy as it is, now and then while it trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operant.training.callbacks import Callback
from operant.training.evaluate import Evaluated, check_limit, evaluate_both

if TYPE_CHECKING:
    from operant.training.trainer import Trainer

EVAL_METRICS = ("eval/return", "eval/return_std", "eval/length", "eval/sampled_return")
"""What an evaluation adds to the figures of its iteration: three of the greedy policy, one of the
sampled."""


class Evaluator(Callback):
    """Evaluates every ``run.eval_every`` steps, rounded up to whole iterations, and at the end.

    The environments and random numbers are its own, so training comes to the same weights with it
    as without. Which iterations it looks at depends on the step alone: a run that is resumed has
    the same figures as one that was not interrupted.

    Raises:
        ValueError: no episodes are asked for, or they might never end for want of a time limit.
    """

    metrics = EVAL_METRICS

    def __init__(self, trainer: Trainer) -> None:
        if not trainer.config.run.eval_every:
            raise ValueError("run.eval_every must be at least 1, got 0: there are no evaluations")
        if not trainer.config.run.eval_episodes:
            raise ValueError("run.eval_every needs run.eval_episodes of at least 1, got 0")
        check_limit(trainer.env, trainer.config.env)
        self._every = trainer.config.run.eval_every
        self._look_ahead(trainer)

    def _look_ahead(self, trainer: Trainer) -> None:
        """Where the next iteration is not looked at, the one after it need not wait."""
        self.watches_only = not self._due(trainer, trainer.steps + trainer.rollout_steps)

    def _due(self, trainer: Trainer, steps: int) -> bool:
        before = steps - trainer.rollout_steps
        last = steps >= trainer.config.run.total_steps
        return last or steps // self._every > before // self._every

    def on_update(self, trainer: Trainer, metrics: dict[str, float]) -> None:
        """Add `EVAL_METRICS`, if it is time."""
        if self._due(trainer, trainer.steps):
            found = evaluated(trainer)
            greedy, sampled = found.greedy, found.sampled
            figures = (greedy.mean_return, greedy.std_return, greedy.mean_length)
            metrics.update(zip(EVAL_METRICS, (*figures, sampled.mean_return), strict=True))
        self._look_ahead(trainer)


def evaluated(trainer: Trainer) -> Evaluated:
    """``run.eval_episodes`` episodes with the policy as it is; always the same ones."""
    config, training = trainer.config, trainer.policy.training
    try:
        return evaluate_both(
            trainer.agent,
            trainer.env,
            config.env,
            episodes=config.run.eval_episodes,
            seed=config.run.seed + 1,  # other episodes than those trained on
        )
    finally:
        trainer.policy.train(training)
