"""A trial: one configuration trained with one seed after the other, in this process.

What it is judged by while it trains is what `operant train` reports: the mean return of the last
episodes. It is looked at on *rungs*: at a third of the first seed's training, at its end, and after
3, 9, 27 seeds. Rungs are counted in thirds of a training.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from operant.ppo.config import Config
from operant.sweep.plan import RETURN, SECONDS
from operant.training.callbacks import Callback

if TYPE_CHECKING:
    from operant.lang.env import Env
    from operant.ppo.ppo import PPO
    from operant.vector.foreign_env import ForeignEnv

TRAINING = 3
"""A training in the unit of rungs."""
NEVER_S = 1e9
"""Stands for the seconds of a training that never reached the threshold: more than any that did.
What it fell short of the threshold is added."""
LEAST_NEVER_S = 1e6
"""A mean over seeds from which on one of up to 100 never reached it."""
EVAL_EPISODES = 100
"""Where the configuration asks for no evaluation: a sweep cannot do without."""


class Pruned(Exception):  # noqa: N818  (not an error)
    """Others did better up to here."""


class Cut(Exception):  # noqa: N818  (not an error)
    """The search ended before the trial did."""


class NoResultError(ValueError):
    """A training came to nothing that could be compared."""


@dataclass(frozen=True)
class Watch:
    """Who looks at a trial while it trains."""

    report: Callable[[int, float], bool] = lambda rung, score: False
    """Told of each rung and of the mean return there; whether to give up."""
    show: Callable[[float, float], None] = lambda share, score: None
    """Told of each iteration: the share of all trainings, and the mean return, or NaN."""
    ended: Callable[[], bool] = lambda: False
    """Whether the search has ended."""


@dataclass
class Trained:
    """What a training with one seed came to."""

    seed: int
    mean_return: float = math.nan
    """Of an evaluation with the most probable actions, as `operant train` ends with; of the last
    episodes where one might never end. NaN: not evaluated."""
    last_return: float = math.nan
    """Mean over the last episodes of training."""
    threshold_s: float | None = None
    """Training seconds until the mean return reached the threshold; None: it never did."""
    seconds: float = 0.0
    steps: int = 0


@dataclass
class Trainings:
    """A trial's trainings, one seed after the other.

    Args:
        env: the environment.
        config: the trial's configuration; its seed is replaced.
        seeds: of the trainings.
        metric: what they are for: without evaluations for seconds, which end at the threshold.
        threshold: the return that counts as solved; None where there is none.
        watch: who looks at it.
    """

    env: type[Env] | ForeignEnv
    config: Config
    seeds: Sequence[int]
    metric: str
    threshold: float | None
    watch: Watch = field(default_factory=Watch)
    done: list[Trained] = field(default_factory=list)

    def run(self) -> list[Trained]:
        """Train with every seed.

        Raises:
            Pruned, Cut: it was not finished.
            NoResultError: no episode ended, or the result is no number.
            ValueError, NonFiniteError: what PPO raises for the configuration, or for NaN.
        """
        for seed in self.seeds:
            self._train(self.config.replaced({"run.seed": seed}))
        return self.done

    def _train(self, config: Config) -> None:
        from operant.ppo.ppo import PPO

        ppo = PPO(self.env, config)
        try:
            looking = _Look(self)
            if not self.watch.ended():
                ppo.learn(callbacks=looking, progress=False)
            if looking.pruned:
                raise Pruned
            if ppo.steps < config.run.total_steps and not looking.solved:
                raise Cut
            one = Trained(
                config.run.seed,
                last_return=ppo.mean_return,
                threshold_s=looking.threshold_s,
                seconds=ppo.seconds,
                steps=ppo.steps,
            )
            if math.isnan(one.last_return):
                raise NoResultError(f"no episode ended in {ppo.steps:,} steps")
            if self.metric != SECONDS:
                one.mean_return = evaluated_return(ppo)
        finally:
            ppo.env.close()
        self.done.append(one)
        rung, last = TRAINING * len(self.done), TRAINING * len(self.seeds)
        score = statistics.fmean(each.last_return for each in self.done)
        if is_rung(rung) and rung < last and self.watch.report(rung, score):
            raise Pruned


class _Look(Callback):
    """Sees each iteration of a training: rungs, the threshold, the end of the search."""

    watches_only = True

    def __init__(self, trainings: Trainings) -> None:
        self._of, self._rung = trainings, 1
        self.threshold_s: float | None = None
        self.pruned = self.solved = False

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        """An iteration is over."""
        of, score = self._of, metrics["mean_return"]
        share = min(ppo.steps / ppo.config.run.total_steps, 1.0)
        of.watch.show((len(of.done) + share) / len(of.seeds), score)
        if self.threshold_s is None and reached(metrics, of.threshold):
            self.threshold_s = metrics["seconds"]
            self.solved = of.metric == SECONDS
        first = not of.done and not self.solved and not math.isnan(score)
        while first and share < 1.0 and share * TRAINING >= self._rung:
            self.pruned = self.pruned or of.watch.report(self._rung, score)
            self._rung *= 3
        if self.solved or self.pruned or of.watch.ended():
            ppo.stop()


def is_rung(thirds: int) -> bool:
    """Whether it is a power of three."""
    while thirds > 1 and thirds % 3 == 0:
        thirds //= 3
    return thirds == 1


def reached(metrics: dict[str, float], threshold: float | None) -> bool:
    """Whether the mean return has reached a threshold, over as many episodes as it is a mean of:
    a lucky first episode does not count."""
    from operant.training.trainer import WINDOW

    full = metrics["episodes"] >= WINDOW
    return threshold is not None and full and metrics["mean_return"] >= threshold


def evaluated_return(ppo: PPO) -> float:
    """Mean return of the evaluation that `operant train` ends with, with the most probable actions;
    of the last episodes where one might never end.

    Raises:
        NoResultError: it is no finite number.
    """
    from operant.training.evaluate import evaluate, time_limit

    config, env = ppo.config, ppo.env
    found = ppo.mean_return
    if time_limit(env, config.env) is not None:
        episodes, seed = config.run.eval_episodes or EVAL_EPISODES, config.run.seed + 1
        played = evaluate(ppo.agent, env, config.env, episodes=episodes, seed=seed)
        found = played.mean_return
    if not math.isfinite(found):
        raise NoResultError(f"the return of its evaluation is {found}")
    return found


def scores(done: Sequence[Trained], metric: str, threshold: float | None) -> tuple[float, ...]:
    """What trainings with several seeds are worth by a metric: means over the seeds.

    Raises:
        NoResultError: one is no finite number.
    """
    found: list[float] = []
    if metric != SECONDS:
        found.append(statistics.fmean(one.mean_return for one in done))
    if metric != RETURN:
        assert threshold is not None
        found.append(statistics.fmean(seconds_of(one, threshold) for one in done))
    if not all(map(math.isfinite, found)):
        raise NoResultError(f"its result is {', '.join(map(str, found))}")
    return tuple(found)


def seconds_of(one: Trained, threshold: float) -> float:
    """Seconds until the threshold; more than `NEVER_S` where it was not reached."""
    if one.threshold_s is not None:
        return one.threshold_s
    return NEVER_S + max(threshold - one.last_return, 0.0)


def record(one: Trained) -> dict[str, Any]:
    """For JSON, which has no NaN."""
    return {
        "seed": one.seed,
        "return": None if math.isnan(one.mean_return) else round(one.mean_return, 4),
        "last_return": None if math.isnan(one.last_return) else round(one.last_return, 4),
        "seconds_to_threshold": None if one.threshold_s is None else round(one.threshold_s, 4),
        "seconds": round(one.seconds, 3),
        "steps": one.steps,
    }
