"""PPO trained in rounds, and where the time of a round goes."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from operant.bench.env_clock import clock_for
from operant.training.callbacks import Callback

if TYPE_CHECKING:
    from operant.lang.env import Env
    from operant.ppo.config import Config
    from operant.ppo.ppo import PPO
    from operant.vector.foreign_env import ForeignEnv

PARTS = ("env", "policy", "advantages", "update", "other")
"""Of the time of training; ``policy`` is a rollout less its environments."""


@dataclass(frozen=True)
class Round:
    """What was done in one go, and how long its parts took; they add up to `seconds`."""

    steps: int
    seconds: float
    parts: dict[str, float]

    @property
    def sps(self) -> float:
        """Steps a second."""
        return self.steps / self.seconds


@dataclass(frozen=True)
class Evaluations:
    """Whole episodes with the most probable actions, again and again while training."""

    every_steps: int
    """Training steps between two; rounded up to whole iterations."""
    episodes: int


class TimedTrainer:
    """A trainer that goes on for some iterations at a time.

    Schedules are those of a run of ``run.total_steps``; whoever goes on longer trains at the rate
    of its end. So the policy, and with it the length of episodes, changes as it does in a run.

    Args:
        env: the environment.
        config: the whole configuration.
        evaluations: what comes on top of training.
    """

    def __init__(
        self, env: type[Env] | ForeignEnv, config: Config, evaluations: Evaluations | None = None
    ) -> None:
        from operant.ppo.ppo import PPO

        self.ppo = PPO(env, config)
        self.rollout = len(self.ppo.engine.buffer)
        """Steps of an iteration."""
        self.unit = 1
        """Iterations of which a round is a multiple: one, or all up to an evaluation."""
        if evaluations is not None:
            self.unit = math.ceil(evaluations.every_steps / self.rollout)
        self._evaluations = evaluations
        self._clock = clock_for(self.ppo)
        self.env_split = self._clock.kind

    def train(self, iterations: int) -> Round:
        """Train, and evaluate after each `unit`-th iteration."""
        ppo, watch = self.ppo, _Watch(self, iterations)
        end = ppo.steps + iterations * self.rollout
        self._clock.take()  # of nothing that counts
        began = time.perf_counter()
        ppo.learn(max(end, ppo.config.run.total_steps), watch, progress=False)
        seconds = time.perf_counter() - began
        parts = watch.parts
        # A GPU's clock and ours need not agree to the last microsecond.
        parts["other"] = max(seconds - sum(parts.values()), 0.0)
        return Round(iterations * self.rollout, seconds, parts)

    def warm_up(self) -> float:
        """Train a little, which compiles and wakes threads; seconds that a `unit` then takes."""
        self.train(1)
        units = 2 if self.unit == 1 else 1
        return self.train(units * self.unit).seconds / units

    def iterations_for(self, seconds: float, once: float) -> int:
        """Iterations of a round of at least `seconds`, where a `unit` takes `once`."""
        return self.unit * max(1, math.ceil(seconds / once))

    def evaluate(self) -> None:
        """Play the episodes of one evaluation."""
        from operant.training.evaluate import evaluate

        assert self._evaluations is not None
        ppo = self.ppo
        evaluate(
            ppo.agent,
            ppo.env,
            ppo.config.env,
            episodes=self._evaluations.episodes,
            seed=ppo.config.run.seed + 1,  # other episodes than those trained on
        )

    @property
    def evaluates(self) -> bool:
        """Whether evaluations belong to it."""
        return self._evaluations is not None

    def env_seconds(self) -> float:
        """What the environments took of the last rollout, which took no less."""
        return min(self._clock.take(), self.ppo.timings.collect)

    def close_clock(self) -> None:
        """Leave the environments untimed; the trainer goes on without rounds."""
        self._clock.close()

    def close(self) -> None:
        """Give back environments and threads."""
        self.close_clock()
        self.ppo.env.close()


class _Watch(Callback):
    """Adds up the parts of iterations, evaluates when it is time, and ends the round."""

    def __init__(self, trainer: TimedTrainer, iterations: int) -> None:
        self._trainer, self._iterations, self._done = trainer, iterations, 0
        names = [*PARTS[:-1], *(["eval"] if trainer.evaluates else [])]
        self.parts = dict.fromkeys(names, 0.0)

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        """An iteration is over."""
        collect, advantages, update = ppo.timings
        env = self._trainer.env_seconds()
        parts = self.parts
        parts["env"] += env
        parts["policy"] += collect - env
        parts["advantages"] += advantages
        parts["update"] += update
        self._done += 1
        if self._trainer.evaluates and self._done % self._trainer.unit == 0:
            began = time.perf_counter()
            self._trainer.evaluate()
            parts["eval"] += time.perf_counter() - began
        if self._done == self._iterations:
            ppo.stop()
