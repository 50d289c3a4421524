"""The search: trials drawn from the journal and trained, until there are enough."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from operant.backends.author_mistake import env_mistake
from operant.sweep.journal import JournalError
from operant.sweep.plan import BOTH, RETURN, Plan
from operant.sweep.trial import LEAST_NEVER_S, Cut, Pruned, Trainings, Watch, scores
from operant.toolchain.errors import one_line

if TYPE_CHECKING:
    import optuna

    from operant.lang.env import Env
    from operant.sweep.study import Study, Trial
    from operant.vector.foreign_env import ForeignEnv

_LOOK_EVERY_S = 0.2
"""At what other processes are doing, when there is nothing left to draw."""


@dataclass(frozen=True)
class Search:
    """One process's share of a search.

    Args:
        env: the environment.
        study: where trials are drawn from.
        threshold: the return that counts as solved; None where there is none.
        threads: that train; 0: as many as prove fastest.
        ended: whether to end now: the budget is spent, or Ctrl-C was pressed.
        show: told of the trial's number, of its share that is done, and of its mean return.
    """

    env: type[Env] | ForeignEnv
    study: Study
    threshold: float | None
    threads: int
    ended: Callable[[], bool]
    show: Callable[[int, float, float], None] = lambda number, share, score: None

    def run(self, wait: bool) -> None:
        """Train trials until enough are finished.

        Args:
            wait: also for those that other processes train; where one of these dies, its trial is
                trained here.

        Raises:
            JournalError: the journal is damaged.
        """
        while not self.ended():
            drawn = self.study.draw()
            if drawn is not None:
                self._try(drawn)
            elif wait and self.study.others_run():
                time.sleep(_LOOK_EVERY_S)
            else:
                return

    def _try(self, drawn: optuna.Trial) -> None:
        """Train a trial, and note what became of it."""
        study, plan = self.study, self.study.plan
        try:
            config = plan.config(study.suggest(drawn)).replaced({"run.threads": self.threads})
            watch = Watch(
                lambda rung, score: plan.metric != BOTH and study.report(drawn, rung, score),
                lambda share, score: self.show(drawn.number, share, score),
                self.ended,
            )
            trainings = Trainings(
                self.env, config, plan.trial_seeds, plan.metric, self.threshold, watch
            )
            done = trainings.run()
            study.complete(drawn, scores(done, plan.metric, self.threshold))
        except Pruned:
            study.prune(drawn)
        except Cut:
            study.cut(drawn)
        except KeyboardInterrupt:
            study.cut(drawn)
            raise
        except (JournalError, OSError):
            raise
        except Exception as error:  # of this trial alone: others go on
            study.fail(drawn, env_mistake(error) or _sentence(error))


def _sentence(error: Exception) -> str:
    from operant.training.guard import NonFiniteError

    if isinstance(error, ValueError | NonFiniteError) and str(error):
        return " ".join(str(error).split())
    return one_line(error)


def best_of(trials: list[Trial], plan: Plan) -> Trial | None:
    """The complete trial with the best score, of several the first, so that the start stays unless
    something is better. For two scores the best return, of the fastest of these."""
    complete = [one for one in trials if one.scores is not None]
    return min(complete, key=lambda one: _rank(one, plan), default=None)


def front(trials: list[Trial]) -> list[Trial]:
    """The trials with (return, seconds) that no other is better than in both, the best return
    first. Those that never reached the threshold are equally slow."""
    complete = [
        (one, (one.scores[0], min(one.scores[1], LEAST_NEVER_S)))
        for one in trials
        if one.scores is not None
    ]
    kept: list[Trial] = []
    fastest = math.inf
    for one, found in sorted(complete, key=lambda pair: (-pair[1][0], pair[1][1], pair[0].number)):
        if found[1] < fastest:
            fastest = found[1]
            kept.append(one)
    return kept


def _rank(one: Trial, plan: Plan) -> tuple[float, ...]:
    """Smaller is better."""
    assert one.scores is not None
    if plan.metric == BOTH:
        return (-one.scores[0], one.scores[1], one.number)
    return (-one.scores[0] if plan.metric == RETURN else one.scores[0], one.number)


def values_of(one: Trial, plan: Plan) -> dict[str, Any]:
    """What a trial has for each option of the space, those of the start included."""
    from operant.sweep.space import value_of

    return {name: one.values.get(name, value_of(plan.base, name)) for name in plan.space.ranges}


def progress(one: Trial, plan: Plan) -> tuple[float, ...]:
    """By which trials of all ends are ranked, smaller is better: the complete ones by their score,
    then the pruned ones by how far they came and what they had there, then those that failed."""
    if one.scores is not None:
        return (0.0, *_rank(replace(one, number=0), plan))
    if one.reported:
        rung, score = one.reported[-1]
        return (1.0, -rung, -score)
    return (2.0,)
