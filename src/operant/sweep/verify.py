"""The winner, trained again on seeds that no trial had, beside the configuration it began with.

A search chooses by luck too: of many trials the best had the luckiest seeds. What the winner is
worth is what it reaches with others.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from operant.ppo.config import Config
from operant.sweep.trial import Trained, reached, record
from operant.training.callbacks import Callback
from operant.training.guard import NonFiniteError

if TYPE_CHECKING:
    from operant.lang.env import Env
    from operant.ppo.ppo import PPO
    from operant.vector.foreign_env import ForeignEnv


@dataclass(frozen=True)
class Unseen:
    """A configuration's trainings on unseen seeds; those that ended with NaN have none."""

    done: list[Trained]
    runs: list[str]
    """Names of the runs; empty where they are none."""

    def returns(self) -> list[float]:
        """Mean return of each seed's evaluation."""
        return [one.mean_return for one in self.done]


def verify(
    env: type[Env] | ForeignEnv,
    config: Config,
    seeds: Sequence[int],
    threshold: float | None,
    what: str,
    run_stem: str = "",
) -> Generator[str, None, Unseen]:
    """Train a configuration with each seed, and evaluate; yields what is being done.

    Args:
        env: the environment.
        config: what to train; its seed is replaced.
        seeds: a training for each.
        threshold: the return that counts as solved; None where there is none.
        what: its name, for what is yielded.
        run_stem: beginning of the names of the runs that are kept; empty: none are.
    """
    done, runs = [], []
    for seed in seeds:
        yield f"{what}, unseen seed {seed}"
        one = config.replaced({"run.seed": seed})
        name = f"{run_stem}-seed{seed}" if run_stem else ""
        try:
            done.append(_run(env, one, threshold, name) if name else _train(env, one, threshold))
        except NonFiniteError:
            done.append(Trained(seed))
        runs += [name] if name else []
    return Unseen(done, runs)


def _run(
    env: type[Env] | ForeignEnv, config: Config, threshold: float | None, name: str
) -> Trained:
    """A training that is kept as a run."""
    from operant.ppo.session import Session

    session, looking = Session.start(config, env, name), _Threshold(threshold)
    try:
        session.train([looking], progress=False)
        found = session.evaluate()
        reached_return = session.ppo.mean_return if found is None else found.greedy.mean_return
        return _trained(session.ppo, reached_return, looking)
    finally:
        session.ppo.env.close()


def _train(env: type[Env] | ForeignEnv, config: Config, threshold: float | None) -> Trained:
    """The same, and nothing is kept."""
    from operant.ppo.ppo import PPO
    from operant.training.evaluate import time_limit

    ppo, looking = PPO(env, config), _Threshold(threshold)
    try:
        ppo.learn(callbacks=looking, progress=False)
        limited = time_limit(ppo.env, config.env) is not None
        found = ppo.evaluated().greedy.mean_return if limited else ppo.mean_return
        return _trained(ppo, found, looking)
    finally:
        ppo.env.close()


def _trained(ppo: PPO, mean_return: float, looking: _Threshold) -> Trained:
    return Trained(
        ppo.config.run.seed,
        mean_return,
        ppo.mean_return,
        looking.seconds,
        ppo.seconds,
        ppo.steps,
    )


class _Threshold(Callback):
    """Notes when the mean return reached a threshold."""

    watches_only = True

    def __init__(self, threshold: float | None) -> None:
        self._threshold = threshold
        self.seconds: float | None = None

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        """An iteration is over."""
        if self.seconds is None and reached(metrics, self._threshold):
            self.seconds = metrics["seconds"]


def summary(unseen: Unseen, threshold: float | None) -> dict[str, Any]:
    """Means over the seeds with their 95 % intervals, for JSON."""
    returns = np.array(unseen.returns(), np.float64)
    seconds = [one.threshold_s for one in unseen.done]
    known = np.array([x for x in seconds if x is not None], np.float64)
    solved = None if threshold is None else int((returns >= threshold).sum())
    return {
        "seeds": [record(one) for one in unseen.done],
        "mean_return": _mean(returns),
        "interval": _interval(returns),
        "solved": solved,
        "seconds_to_threshold": _mean(known) if len(known) == len(seconds) else None,
        "seconds_interval": _interval(known) if len(known) == len(seconds) else None,
        "runs": unseen.runs,
    }


def difference(winner: Unseen, start: Unseen) -> dict[str, Any]:
    """By how much the winner's returns are higher, seed by seed: both had the same."""
    found = np.array(winner.returns(), np.float64) - np.array(start.returns(), np.float64)
    return {"mean": _mean(found), "interval": _interval(found)}


def _mean(values: np.ndarray) -> float | None:
    mean = float(values.mean()) if len(values) else math.nan
    return round(mean, 4) if math.isfinite(mean) else None


def _interval(values: np.ndarray) -> list[float] | None:
    from operant.render.seed_bands import mean_of

    if len(values) < 2 or not np.isfinite(values).all():
        return None
    mean, half = map(float, mean_of(values))
    return [round(mean - half, 4), round(mean + half, 4)]


def keeps_evaluations(config: Config) -> Config:
    """The configuration with an evaluation at the end, which verification cannot do without."""
    from operant.sweep.trial import EVAL_EPISODES

    if config.run.eval_episodes:
        return config
    return config.replaced({"run.eval_episodes": EVAL_EPISODES})
