"""Trials that are drawn by several processes, lost by some, and read by whoever comes later."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from operant.ppo.config import Config
from operant.sweep.plan import BOTH, RETURN, SECONDS, Plan
from operant.sweep.search import best_of, front, progress, values_of
from operant.sweep.space import Choices, Interval, Space
from operant.sweep.study import Study

SPACE = Space(
    {
        "ppo.learning_rate": Interval(1e-4, 1e-2, log=True),
        "ppo.epochs": Interval(1, 9, step=2, whole=True),
        "policy.hidden": Choices(((8,), (16,))),
    }
)


def plan(metric: str = RETURN, trials: int = 6, **changes: Any) -> Plan:
    values = {"policy.hidden": [8], "ppo.epochs": 3, "env.id": "CartPole-v1"} | changes
    return Plan("CartPole-v1", metric, SPACE, Config().replaced(values), trials, 2)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))


@pytest.fixture
def opened() -> Iterator[Callable[..., Study]]:
    """Opens studies, and closes them in the end."""
    studies: list[Study] = []

    def open_study(name: str, new: Plan | None = None) -> Study:
        studies.append(Study.open(name) if new is None else Study.create(name, new))
        return studies[-1]

    yield open_study
    for one in studies:
        one.close()


Opened = Callable[..., Study]


def drawn_values(study: Study, count: int) -> list[dict[str, Any]]:
    found = []
    for number in range(count):
        one = study.draw()
        assert one is not None
        found.append(study.suggest(one))
        study.complete(one, [float(number)] * len(study.plan.directions))
    return found


def test_the_configuration_it_begins_with_is_trial_0(opened: Opened) -> None:
    study = opened("a", plan())
    values = drawn_values(study, 6)
    assert values[0] == {"ppo.learning_rate": 2e-3, "ppo.epochs": 3, "policy.hidden": (8,)}
    assert all(SPACE.ranges[name].contains(x) for one in values for name, x in one.items())
    assert study.draw() is None
    assert [one.is_start for one in study.trials()] == [True] + [False] * 5


def test_what_the_space_does_not_hold_stays_as_it_is_in_trial_0(opened: Opened) -> None:
    study = opened("a", plan(**{"ppo.epochs": 4}))  # no odd number
    assert drawn_values(study, 1) == [{"ppo.learning_rate": 2e-3, "policy.hidden": (8,)}]
    assert values_of(study.trials()[0], study.plan)["ppo.epochs"] == 4


def test_the_same_seed_draws_the_same_trials_also_when_it_is_continued(opened: Opened) -> None:
    whole = drawn_values(opened("a", plan()), 6)
    assert len({str(values) for values in whole}) == 6
    study = opened("b", plan())
    parts = drawn_values(study, 3)
    study.close()
    again = opened("b")
    for number in range(3, 6):
        one = again.draw()
        assert one is not None
        parts.append(again.suggest(one))
        again.complete(one, [float(number)])
    assert parts == whole
    assert drawn_values(opened("c", plan(**{"run.seed": 7})), 6) != whole


def test_two_processes_never_draw_too_many(opened: Opened) -> None:
    one, other = opened("a", plan(trials=3)), opened("a")
    drawn = [one.draw(), other.draw(), one.draw()]
    assert [trial.number for trial in drawn if trial] == [0, 1, 2]
    assert one.draw() is None
    assert other.draw() is None
    assert other.others_run()
    assert one.claim()
    assert not other.claim()
    one.close()
    assert other.claim()


def test_a_trial_whose_process_is_gone_is_tried_again(opened: Opened) -> None:
    lost, other = opened("a", plan(trials=3)), opened("a")
    first, second = lost.draw(), lost.draw()
    assert first is not None
    assert second is not None
    lost.suggest(first)
    values = lost.suggest(second)
    lost._held.close()  # as the system does when it is killed
    assert [one.state for one in other.trials()] == ["running", "running"]
    again = other.draw()
    assert again is not None
    assert other.suggest(again)["ppo.epochs"] == 3  # the start comes first again
    assert other.trials()[again.number].is_start
    again = other.draw()
    assert again is not None
    assert other.suggest(again) == values
    assert other.draw() is not None
    assert other.draw() is None
    assert [one.state for one in other.trials()[:2]] == ["cut", "cut"]
    assert other.finished() == []


def test_a_trial_that_was_cut_does_not_count(opened: Opened) -> None:
    study = opened("a", plan(trials=1))
    one = study.draw()
    assert one is not None
    values = study.suggest(one)
    study.cut(one)
    again = study.draw()
    assert again is not None
    assert study.suggest(again) == values
    study.fail(again, "no luck")
    assert [(one.state, one.error) for one in study.finished()] == [("failed", "no luck")]


def test_the_worst_of_three_are_pruned_and_the_start_never_is(opened: Opened) -> None:
    study = opened("a", plan(trials=7))
    pruned = []
    for score in (0.0, 9.0, 8.0, 7.0, 6.0, 10.0, 5.0):
        one = study.draw()
        assert one is not None
        study.suggest(one)
        pruned.append(study.report(one, 1, score))
        if pruned[-1]:
            study.prune(one)
        else:
            study.complete(one, [score])
    # One in three of those that came so far goes on, and at least one.
    assert pruned == [False, False, True, True, True, False, True]
    best = best_of(study.finished(), study.plan)
    assert best is not None
    assert best.number == 5
    order = sorted(study.finished(), key=lambda one: progress(one, study.plan))
    assert [one.number for one in order] == [5, 1, 0, 2, 3, 4, 6]


def test_the_start_is_not_pruned_whoever_was_faster(opened: Opened) -> None:
    study = opened("a", plan())
    drawn = [one for one in (study.draw() for _ in range(5)) if one is not None]
    for one in drawn[2:]:
        study.report(one, 1, 9.0)
    assert study.report(drawn[1], 1, 0.0)
    assert not study.report(drawn[0], 1, 0.0)


def test_of_equal_trials_the_first_is_the_best(opened: Opened) -> None:
    study = opened("a", plan(SECONDS))
    for seconds in (2.0, 1.0, 1.0):
        one = study.draw()
        assert one is not None
        study.suggest(one)
        study.complete(one, [seconds])
    best = best_of(study.finished(), study.plan)
    assert best is not None
    assert best.number == 1


def test_the_front_of_two_scores(opened: Opened) -> None:
    study = opened("a", plan(BOTH))
    for scores in ((1.0, 1.0), (3.0, 3.0), (2.0, 5.0), (3.0, 2.0), (9.0, 1e9), (8.0, 1e9 - 5)):
        one = study.draw()
        assert one is not None
        study.suggest(one)
        study.complete(one, scores)
    assert [one.number for one in front(study.finished())] == [4, 3, 0]


def test_more_trials_than_before(opened: Opened) -> None:
    study = opened("a", plan(trials=1))
    drawn_values(study, 1)
    assert study.draw() is None
    study.extend(2)
    assert opened("a").draw() is not None


def test_names(opened: Opened) -> None:
    opened("a", plan())
    with pytest.raises(ValueError, match="there is a sweep 'a' already; join or continue it"):
        Study.create("a", plan())
    assert [path.name for path in (Path(opened("a").folder).parent).iterdir()] == ["a"]
    for name in ("", "../a", ".a", "a/b"):
        with pytest.raises(ValueError, match="a sweep's name has letters"):
            Study.open(name)
    with pytest.raises(ValueError, match=r"cannot read .*none.*sweep.json: No such file"):
        Study.open("none")


def finished_journal(opened: Opened) -> Path:
    study = opened("a", plan())
    drawn_values(study, 2)
    study.close()
    return study.folder / "journal.jsonl"


CREATED = {"op_code": 4, "worker_id": "x", "study_id": 0, "datetime_start": None}
FLOAT = json.dumps({"name": "FloatDistribution", "attributes": {"low": 0, "high": 1}})


@pytest.mark.parametrize(
    "entry",
    [
        {"op_code": 4, "worker_id": "x", "study_id": 0},
        {"op_code": 4, "worker_id": "x", "study_id": {}, "datetime_start": None},
        CREATED | {"state": 99},
        CREATED | {"state": 1, "values": ["high"], "datetime_complete": "2026-01-01T00:00:00"},
        CREATED | {"state": 1, "values": [1, 2], "datetime_complete": "2026-01-01T00:00:00"},
        CREATED | {"state": 1, "values": None, "datetime_complete": "2026-01-01T00:00:00"},
        CREATED | {"state": 1, "values": [float("nan")]},
        CREATED | {"intermediate_values": {"1": "x"}},
        CREATED | {"intermediate_values": {"x": 1.0}},
        CREATED | {"distributions": {"ppo.epochs": "{}"}, "params": {"ppo.epochs": 1}},
        CREATED | {"distributions": {"ppo.epochs": FLOAT}, "params": {"ppo.epochs": 1}},
        CREATED | {"distributions": {"os.system": FLOAT}, "params": {"os.system": 1}},
        {"op_code": 1, "worker_id": "x", "study_id": 0},
        {"op_code": 7, "worker_id": "x", "trial_id": 0, "step": [], "intermediate_value": 1},
    ],
)
def test_an_entry_that_a_sweep_did_not_write(opened: Opened, entry: dict[str, Any]) -> None:
    journal = finished_journal(opened)
    running = {"op_code": 4, "worker_id": "x", "study_id": 0, "datetime_start": None}
    lines = [running, entry | ({"trial_id": 2} if entry["op_code"] == 7 else {})]
    with journal.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    with pytest.raises(ValueError, match=r"the journal .*journal.jsonl is damaged: "):
        opened("a")


def test_a_worker_that_names_a_file_elsewhere_is_dead(opened: Opened, tmp_path: Path) -> None:
    journal = finished_journal(opened)
    (tmp_path / "precious").write_text("")
    worker = "../../../precious"
    with journal.open("a") as file:
        file.write(json.dumps(CREATED | {"user_attrs": {"worker": worker}}) + "\n")
    study = opened("a")
    study.draw()
    assert study.trials()[2].state == "cut"
    assert (tmp_path / "precious").exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": 2}, "has format 2; this version reads 1"),
        ({"trials": "6"}, "damaged: trials must be int"),
        ({"trials": 0}, "so many trials or seeds there cannot be"),
        ({"metric": "speed"}, "metric 'speed' is unknown"),
        ({"space": "gamma = 3"}, "space: ppo.gamma needs a range"),
        ({"base": "[ppo]\ngamma = 3"}, "base: ppo.gamma must be at most 1.0"),
        ({"metric": "both"}, "it is about another metric than sweep.json"),
        ({"space": "gamma = { low = 0.5, high = 1 }"}, "is damaged"),
    ],
)
def test_a_plan_that_was_changed(opened: Opened, change: dict[str, Any], why: str) -> None:
    path = finished_journal(opened).with_name("sweep.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError) as caught:
        opened("a")
    assert why in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"[]", b"[" * 100_000, b"\xff"])
def test_a_plan_that_is_none(opened: Opened, data: bytes) -> None:
    path = finished_journal(opened).with_name("sweep.json")
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"sweep.json is damaged: it is (not JSON|no object)"):
        opened("a")


def test_a_plan_is_read_as_it_was_written(opened: Opened) -> None:
    new = plan(SECONDS, 17, **{"run.seed": 3})
    read = opened("a", new).plan
    assert (read.space, read.base, read.trials, read.metric) == (SPACE, new.base, 17, SECONDS)
    assert read.trial_seeds == (3, 4)
    assert not set(read.unseen_seeds(50)) & set(read.trial_seeds)
