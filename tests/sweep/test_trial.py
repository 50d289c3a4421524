"""A trial's trainings: what is reported of them, when they end, and what they come to."""

from __future__ import annotations

import math

import pytest

from operant.envs.classic.cartpole import CartPole
from operant.ppo.config import Config
from operant.ppo.config_file import resolved
from operant.sweep.plan import BOTH, RETURN, SECONDS
from operant.sweep.trial import (
    LEAST_NEVER_S,
    Cut,
    NoResultError,
    Pruned,
    Trained,
    Trainings,
    Watch,
    is_rung,
    reached,
    scores,
)

SMALL = {
    "env.num_envs": 4,
    "ppo.num_steps": 16,
    "ppo.epochs": 1,
    "policy.hidden": [8],
    "run.total_steps": 64 * 12,
    "run.eval_episodes": 2,
    "run.threads": 1,
    "run.device": "cpu",
}


def small(**changes: object) -> Config:
    return resolved("CartPole-v1", SMALL | changes)


def test_rungs_are_powers_of_three() -> None:
    assert [n for n in range(1, 100) if is_rung(n)] == [1, 3, 9, 27, 81]


def test_what_is_reported_is_the_mean_return_of_training() -> None:
    reports: list[tuple[int, float]] = []
    shown: list[tuple[float, float]] = []

    def report(rung: int, score: float) -> bool:
        reports.append((rung, score))
        return False

    watch = Watch(report, lambda share, score: shown.append((share, score)))
    done = Trainings(CartPole, small(), (5, 6), RETURN, None, watch).run()
    assert [one.seed for one in done] == [5, 6]
    assert [one.steps for one in done] == [768, 768]
    assert [rung for rung, _ in reports] == [1, 3]
    assert len(shown) == 24
    assert shown[-1][0] == 1.0
    # A third of the first training is its fourth iteration; the next rung is its end.
    assert reports == [(1, shown[3][1]), (3, shown[11][1])]
    assert done[0].last_return == shown[11][1]
    assert scores(done, RETURN, None) == ((done[0].mean_return + done[1].mean_return) / 2,)


def test_a_pruned_trial_ends_at_its_rung() -> None:
    seen: list[float] = []
    watch = Watch(lambda rung, score: rung == 1, lambda share, score: seen.append(share))
    with pytest.raises(Pruned):
        Trainings(CartPole, small(), (0, 1), RETURN, None, watch).run()
    assert seen[-1] == pytest.approx(4 / 24)
    with pytest.raises(Pruned):  # at the end of the first seed
        Trainings(CartPole, small(), (0, 1), RETURN, None, Watch(lambda r, _: r == 3)).run()


def test_the_end_of_the_search_cuts_a_trial() -> None:
    calls: list[float] = []
    watch = Watch(show=lambda share, score: calls.append(share), ended=lambda: len(calls) >= 2)
    with pytest.raises(Cut):
        Trainings(CartPole, small(), (0,), RETURN, None, watch).run()
    assert len(calls) == 2
    with pytest.raises(Cut):
        Trainings(CartPole, small(), (0,), RETURN, None, Watch(ended=lambda: True)).run()


def test_training_for_speed_ends_at_the_threshold() -> None:
    config = small(**{"run.total_steps": 64 * 1000})
    (one,) = Trainings(CartPole, config, (0,), SECONDS, 12.0).run()
    assert one.steps < 64 * 1000
    assert one.threshold_s is not None
    assert 0 < one.threshold_s <= one.seconds
    assert one.last_return >= 12.0
    assert math.isnan(one.mean_return)  # nothing was evaluated
    assert scores([one], SECONDS, 12.0) == (one.threshold_s,)


def test_both_scores_come_from_whole_trainings() -> None:
    (one,) = Trainings(CartPole, small(**{"run.total_steps": 64 * 60}), (0,), BOTH, 12.0).run()
    assert one.steps == 64 * 60
    found = scores([one], BOTH, 12.0)
    assert found == (one.mean_return, one.threshold_s)


def test_who_never_reaches_the_threshold_is_slower_than_all_who_do() -> None:
    fast, slow = Trained(0, threshold_s=1.0, last_return=9), Trained(1, threshold_s=9e5)
    near, far = Trained(0, last_return=400.0), Trained(1, last_return=-400.0)
    order = [[fast, fast], [slow, slow], [fast, near], [near, near], [near, far], [far, far]]
    found = [scores(one, SECONDS, 475.0)[0] for one in order]
    assert found == sorted(set(found))
    assert [score > LEAST_NEVER_S for score in found] == [False] * 2 + [True] * 4


def test_a_lucky_first_episode_is_not_the_threshold() -> None:
    figures = {"episodes": 99.0, "mean_return": 500.0}
    assert not reached(figures, 475.0)
    assert reached(figures | {"episodes": 100.0}, 475.0)
    assert not reached(figures | {"episodes": 100.0}, None)


def test_no_result() -> None:
    short = small(**{"ppo.num_steps": 4, "ppo.minibatches": 1, "run.total_steps": 16})
    with pytest.raises(NoResultError, match="no episode ended in 16 steps"):
        Trainings(CartPole, short, (0,), RETURN, None).run()
    with pytest.raises(NoResultError, match="its result is nan"):
        scores([Trained(0)], RETURN, None)
