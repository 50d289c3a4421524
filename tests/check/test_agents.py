"""`operant check` of PettingZoo's environments, sound and broken."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from mpe2 import simple_spread_v3 as spread

from operant.check import agents_trial
from operant.check.finding import Finding
from operant.check.foreign_check import check_foreign
from operant.check.foreign_trial import ForeignTrial

from ..vector.knights import Knights


class Wide(Knights):
    """Its observations grow out of their space."""

    def _seen(self, who: list[str]) -> Any:
        obs, info = super()._seen(who)
        return {a: x * 100 for a, x in obs.items()}, info


class Unseeded(Knights):
    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(np.random.randint(1 << 30))


def findings(make_env: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Finding]:
    monkeypatch.setattr(agents_trial, "_MOST_STEPS", 60)
    monkeypatch.setattr(agents_trial, "_COMPARED_STEPS", 20)
    trial = ForeignTrial(make_env, lambda name, what: None)
    return {finding.name: finding for finding in trial.findings()}


@pytest.mark.parametrize(
    "make_env",
    [
        partial(spread.parallel_env, N=2, max_cycles=12),
        partial(spread.env, N=2, max_cycles=12),
        Knights,
        partial(Knights, leaf=True, squire=True),
    ],
)
def test_sound_environments_pass(make_env: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = findings(make_env, monkeypatch)
    assert all(finding.passed for finding in found.values()), found
    names = {"made", "spaces", "step", "observations", "rewards", "determinism", "seeds"}
    assert set(found) == names | {"episodes", "saving", "processes"}
    assert "an environment of PettingZoo's" in found["made"].detail
    assert "Looked" not in found["saving"].detail


@pytest.mark.parametrize(
    ("make_env", "check", "sentence"),
    [
        (partial(Knights, "spaces"), "spaces", "share one policy, and so need equal spaces"),
        (partial(Knights, "nan"), "step", "agent 'bob' of environment 0 (knights_v0) gave a rew"),
        (partial(Knights, "shape"), "step", "an observation of shape (5,); its space has"),
        (partial(Knights, "raise"), "step", "raised in step(): RuntimeError: the dragon came"),
        (partial(Knights, "four"), "step", "must return (obs, reward, terminated, truncated"),
        (Wide, "observations", "outside [-9, 9]; widen observation_space"),
        (Unseeded, "determinism", "reset(seed) must set all that is random"),
    ],
)
def test_broken_ones_fail_with_their_sentence(
    make_env: Any, check: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = findings(make_env, monkeypatch)
    assert [finding.name for finding in found.values() if not finding.passed] == [check]
    assert sentence in found[check].detail


def test_one_that_ends_its_process_is_a_finding() -> None:
    *_, last = check_foreign(partial(Knights, "exit"))
    assert (last.name, last.passed) == ("step", False)
    assert "step() 4 ended the process with exit code 3" in last.detail


def test_speed_is_told_if_wanted() -> None:
    make_env = partial(gymnasium.make, "FrozenLake-v1")
    assert "speed" not in {finding.name for finding in check_foreign(make_env, measured=False)}
