"""Does a fast configuration still learn? Train it, and look.

An environment with a ``reward_threshold`` must be solved, with every seed. Others must come as far
as the configuration that tuning started from, with the same steps and seeds: at least 90 % of its
way from what an untrained policy reaches.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from operant.bench.tune import Measured
from operant.ppo.config import Config
from operant.training.callbacks import Callback
from operant.training.guard import NonFiniteError

if TYPE_CHECKING:
    from operant.lang.env import Env
    from operant.ppo.ppo import PPO

SHARE = 0.9
"""Of the base's progress that a candidate must make where there is no threshold."""
_SHOW_EVERY_S = 1.0


@dataclass(frozen=True)
class Criterion:
    """What a mean return is held to."""

    threshold: float | None
    """Return from which the task is solved."""
    untrained: float | None = None
    """Mean return of policies that learned nothing, where there is no threshold."""
    base: float | None = None
    """Mean return that the base configuration reaches, where there is no threshold."""

    def passed(self, returns: Sequence[float]) -> bool:
        """Whether returns, one for each seed, are good enough."""
        if any(value != value for value in returns):
            return False  # NaN: no episode ended, or training stopped
        if self.threshold is not None:
            return all(value >= self.threshold for value in returns)
        progress = self.progress(returns)
        assert self.base is not None
        return statistics.fmean(returns) >= self.base if progress is None else progress >= SHARE

    def progress(self, returns: Sequence[float]) -> float | None:
        """Way from untrained to the base, as a share; None where the base went nowhere."""
        if self.untrained is None or self.base is None or self.base <= self.untrained:
            return None
        return (statistics.fmean(returns) - self.untrained) / (self.base - self.untrained)

    @property
    def text(self) -> str:
        """In words."""
        if self.threshold is not None:
            return f"return {self.threshold:g} with every seed"
        return f"{SHARE:.0%} of the way from {self.untrained:.4g} (untrained) to {self.base:.4g}"


@dataclass
class Trial:
    """A candidate that was trained."""

    measured: Measured
    config: Config
    returns: list[float] = field(default_factory=list)
    """Mean return of each seed's evaluation."""
    seconds: float = 0.0
    """Of training, over all seeds."""
    converged: bool = False
    problem: str = ""


@dataclass(frozen=True)
class Verification:
    """Who was tried, in order; the last one that converged is the choice."""

    criterion: Criterion
    trials: list[Trial]

    @property
    def chosen(self) -> Trial | None:
        """The fastest that converged, if one did."""
        return next((trial for trial in self.trials if trial.converged), None)


def verify(
    env: type[Env], base: Config, candidates: Sequence[Measured], steps: int, seeds: Sequence[int]
) -> Generator[str, None, Verification]:
    """Train candidates, the fastest first, until one converges; yields what is being done.

    The base is the last to be tried: what is slower cannot win. Candidates that differ in their
    threads alone learn the same, to the bit, and are trained once.

    Args:
        env: the environment.
        base: the configuration that tuning started from.
        candidates: the fastest first.
        steps: of each training.
        seeds: a training for each.
    """
    criterion = Criterion(env.reward_threshold)
    if criterion.threshold is None:
        criterion = yield from _reference(env, base, steps, seeds)
    trials: list[Trial] = []
    for one in candidates:
        assert one.cell.config is not None
        trial = Trial(one, one.cell.config.replaced({"run.total_steps": steps}))
        twin = next((other for other in trials if _learns_as(trial, other)), None)
        trials.append(trial)
        if twin is None:
            yield from _try(env, trial, criterion, seeds)
        else:
            trial.returns, trial.problem = twin.returns, twin.problem
            trial.converged = twin.converged
        if trial.converged or one.cell.is_base:
            break
    return Verification(criterion, trials)


def _learns_as(one: Trial, other: Trial) -> bool:
    same = {"run.threads": 0, "env.workers": 1}
    return one.config.replaced(same) == other.config.replaced(same)


def _reference(
    env: type[Env], base: Config, steps: int, seeds: Sequence[int]
) -> Generator[str, None, Criterion]:
    """What the base reaches, and what it starts from."""
    before, after = [], []
    for seed in seeds:
        config = base.replaced({"run.total_steps": steps, "run.seed": seed})
        ppo = _open(env, config)
        before.append(_return_of(ppo))
        yield from _learn(ppo, f"what the base reaches, seed {seed}")
        after.append(_return_of(ppo))
        ppo.env.close()
    return Criterion(None, statistics.fmean(before), statistics.fmean(after))


def _try(
    env: type[Env], trial: Trial, criterion: Criterion, seeds: Sequence[int]
) -> Generator[str, None, None]:
    """Train a candidate with each seed, until one shows that it does not do."""
    label = trial.measured.cell.label
    for seed in seeds:
        try:
            ppo = _open(env, trial.config.replaced({"run.seed": seed}))
            yield from _learn(ppo, f"verifying {label}, seed {seed}")
            trial.returns.append(_return_of(ppo))
            trial.seconds += ppo.seconds
            ppo.env.close()
        except NonFiniteError as error:
            trial.problem = str(error)
            return
        if criterion.threshold is not None and not criterion.passed(trial.returns):
            return
    trial.converged = criterion.passed(trial.returns)


def _open(env: type[Env], config: Config) -> PPO:
    from operant.ppo.ppo import PPO

    return PPO(env, config)


def _learn(ppo: PPO, text: str) -> Generator[str, None, None]:
    """Train to the end, and tell how far it is from time to time."""
    total = ppo.config.run.total_steps
    while ppo.steps < total:
        reached = f", return {ppo.mean_return:.4g}" if ppo.recent else ""
        yield f"{text}: {ppo.steps / total:.0%}{reached}"
        ppo.learn(total, _Pause(_SHOW_EVERY_S), progress=False)


class _Pause(Callback):
    """Ends `learn` after some seconds; the next call goes on with the same schedules."""

    watches_only = True

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        """Look at the clock."""
        if time.monotonic() >= self._end:
            ppo.stop()


def _return_of(ppo: PPO) -> float:
    """Mean return of an evaluation; that of the last episodes where one might never end."""
    from operant.training.evaluate import evaluate, time_limit

    config, env = ppo.config, ppo.env
    if time_limit(env, config.env) is None:
        return ppo.mean_return
    episodes = config.run.eval_episodes or 100
    found = evaluate(ppo.agent, env, config.env, episodes=episodes, seed=config.run.seed + 1)
    return found.mean_return


def record(found: Verification) -> dict[str, Any]:
    """For JSON."""
    criterion = found.criterion
    return {
        "reward_threshold": criterion.threshold,
        "untrained_return": criterion.untrained,
        "base_return": criterion.base,
        "needed": criterion.text,
        "trials": [
            {
                "values": dict(trial.measured.cell.values),
                "base": trial.measured.cell.is_base,
                "returns": [_number(value) for value in trial.returns],
                "progress": _number(criterion.progress(trial.returns)) if trial.returns else None,
                "train_seconds": round(trial.seconds, 3),
                "converged": trial.converged,
                "problem": trial.problem or None,
            }
            for trial in found.trials
        ],
    }


def _number(value: float | None) -> float | None:
    return None if value is None or value != value else round(value, 4)  # JSON has no NaN
