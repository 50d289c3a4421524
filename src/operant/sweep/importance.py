"""Which options mattered: PED-ANOVA over all trials, pruned ones included."""

from __future__ import annotations

import optuna
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import TrialState

from operant.sweep.search import progress
from operant.sweep.study import Study, _quiet

LEAST_TRIALS = 20
"""The best tenth of fewer says nothing."""


def importances(study: Study) -> dict[str, float]:
    """A share for each option, the largest first; they add up to 1. Empty where too few trials
    are there to tell.

    PED-ANOVA asks in which options the best tenth of the trials differ from all of them. It knows
    ranks only, so pruned trials take part: by how far they came, then by what they had there.
    """
    trials = [one for one in study.finished() if set(one.values) == set(study.plan.space.ranges)]
    if len(trials) < LEAST_TRIALS:
        return {}
    ranks = sorted({progress(one, study.plan) for one in trials})
    drawn = study.optuna.get_trials(deepcopy=False)
    with _quiet():
        ranked = optuna.create_study(direction="minimize")
        for one in trials:
            ranked.add_trial(
                optuna.trial.create_trial(
                    state=TrialState.COMPLETE,
                    params=drawn[one.number].params,
                    distributions=study.distributions,
                    value=float(ranks.index(progress(one, study.plan))),
                )
            )
        found = optuna.importance.get_param_importances(
            ranked, evaluator=PedAnovaImportanceEvaluator()
        )
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))
