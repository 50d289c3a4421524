"""`Study`: trials that several processes draw from one journal, and what became of them.

    $OPERANT_HOME/sweeps/<name>/
        sweep.json      what all of them agree on, see `operant.sweep.plan`
        journal.jsonl   what happened, see `operant.sweep.journal`
        lock            held by the process that will train the winner again
        turn            held while a trial is drawn
        workers/        a file for each process, held as long as it lives

A trial that did not come to its end, because of Ctrl-C, the budget or a kill, does not count: its
values are tried again by whoever draws next.
"""

from __future__ import annotations

import math
import os
import platform
import re
import secrets
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from operant.sweep.journal import Journal, JournalError, held
from operant.sweep.plan import BOTH, Plan, check_name, sweeps_folder
from operant.sweep.space import Choices, Range, value_of
from operant.toolchain.files import discard, make_folder, temporary_name
from operant.training.config_file import toml_value

_STUDY = "sweep"
_RANDOM_TRIALS = 10
"""Before the sampler has something to go by."""
REDUCTION = 3
"""Of the trials that come to a rung, one in so many goes on."""


class SweepTakenError(ValueError):
    """There is a sweep of that name already."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is a sweep {name!r} already; join or continue it with --study {name}"
        )
        self.name = name


@dataclass(frozen=True)
class Trial:
    """A trial as the journal has it."""

    number: int
    state: str
    """``"complete"``, ``"pruned"``, ``"failed"``, ``"running"``, ``"cut"`` or ``"waiting"``."""
    values: dict[str, Any]
    """By dotted name; options that are missing have the value of the start."""
    scores: tuple[float, ...] | None
    """Of the metric, where it is complete."""
    reported: tuple[tuple[int, float], ...]
    """Rungs, and the score that was reported at them."""
    is_start: bool
    error: str
    seconds: float


class Study:
    """A sweep's folder, open; see `create` and `open`. Close it in the end.

    Attributes:
        folder: where it is.
        plan: what is searched.
        is_host: whether this process is the one that trains the winner again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.plan = folder, Plan.read(folder)
        self.is_host = False
        self._journal = folder / "journal.jsonl"
        self._held = ExitStack()
        with self._trusting_nothing():
            storage = optuna.storages.JournalStorage(Journal(self._journal))
            self.optuna = optuna.load_study(
                study_name=_STUDY, storage=storage, sampler=self._sampler(0), pruner=_pruner()
            )
            self._check()
        self.distributions = {n: _distribution(r) for n, r in self.plan.space.ranges.items()}
        make_folder(folder / "workers")
        self.worker = f"{_host_name()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._held.enter_context(held(folder / "workers" / self.worker))

    @classmethod
    def create(cls, name: str, plan: Plan) -> Study:
        """A new sweep; its folder is there whole or not at all.

        Raises:
            SweepTakenError: there is a sweep of that name.
            ValueError: that can be no name.
        """
        check_name(name)
        path = sweeps_folder() / name
        make_folder(path.parent)
        staged = path.with_name(temporary_name(name))
        staged.mkdir()
        plan.write(staged)
        with _quiet():
            study = optuna.create_study(
                study_name=_STUDY,
                storage=optuna.storages.JournalStorage(Journal(staged / "journal.jsonl")),
                directions=plan.directions,
            )
            study.enqueue_trial(_start_values(plan), user_attrs={"start": True})
        try:
            staged.rename(path)
        except OSError:
            discard(staged)
            raise SweepTakenError(name) from None
        return cls(path)

    @classmethod
    def open(cls, name: str) -> Study:
        """A sweep that there is.

        Raises:
            ValueError: there is none, or something in its folder is damaged.
        """
        check_name(name)
        return cls(sweeps_folder() / name)

    def close(self) -> None:
        """Give back what it holds."""
        self._held.close()
        with suppress(OSError):
            (self.folder / "workers" / self.worker).unlink()

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def claim(self) -> bool:
        """Become the host, if nobody is; `is_host`."""
        if not self.is_host:
            with ExitStack() as stack:
                self.is_host = stack.enter_context(held(self.folder / "lock", wait=False))
                if self.is_host:
                    self._held.push(stack.pop_all())
        return self.is_host

    def extend(self, trials: int) -> None:
        """Search until so many trials are finished."""
        self.plan = _with_trials(self.plan, trials)
        self.plan.write(self.folder)

    # Drawing trials -------------------------------------------------------------------------
    def draw(self) -> optuna.Trial | None:
        """The next trial to train; None where enough have begun."""
        with held(self.folder / "turn"), self._trusting_nothing():
            self._revive()
            known = self.optuna.get_trials(deepcopy=False)
            if sum(_state(one) not in ("waiting", "cut") for one in known) >= self.plan.trials:
                return None
            self.optuna.sampler = self._sampler(len(known))
            with _quiet():
                drawn = self.optuna.ask()
            drawn.set_user_attr("worker", self.worker)
            return drawn

    def suggest(self, drawn: optuna.Trial) -> dict[str, Any]:
        """The values of a trial, by dotted name."""
        with self._trusting_nothing(), _quiet():
            names = self.plan.space.ranges
            if drawn.user_attrs.get("start"):
                names = {n: r for n, r in names.items() if n in _start_values(self.plan)}
            return {name: _value(one, self._suggested(drawn, name)) for name, one in names.items()}

    def _suggested(self, drawn: optuna.Trial, name: str) -> Any:
        one = self.plan.space.ranges[name]
        if isinstance(one, Choices):
            return drawn.suggest_categorical(name, [_label(value) for value in one.values])
        if one.whole:
            step = int(one.step or 1)
            return drawn.suggest_int(name, int(one.low), int(one.high), step=step, log=one.log)
        return drawn.suggest_float(name, one.low, one.high, step=one.step or None, log=one.log)

    def report(self, drawn: optuna.Trial, rung: int, score: float) -> bool:
        """Note how far a trial has come; whether it is to be pruned. The start never is."""
        with self._trusting_nothing(), _quiet():
            drawn.report(score if self.plan.directions == ("maximize",) else -score, rung)
            return drawn.should_prune() and not drawn.user_attrs.get("start")

    def complete(self, drawn: optuna.Trial, scores: Sequence[float]) -> None:
        """A trial came to its end."""
        self._tell(drawn, TrialState.COMPLETE, list(scores))

    def prune(self, drawn: optuna.Trial) -> None:
        """A trial was given up."""
        self._tell(drawn, TrialState.PRUNED)

    def fail(self, drawn: optuna.Trial, why: str) -> None:
        """A trial could not be trained."""
        with self._trusting_nothing():
            drawn.set_user_attr("error", why[:1000])
        self._tell(drawn, TrialState.FAIL)

    def cut(self, drawn: optuna.Trial) -> None:
        """A trial did not come to its end; it will be tried again."""
        with held(self.folder / "turn"), self._trusting_nothing():
            self._again(self.optuna.get_trials(deepcopy=False)[drawn.number])

    def _tell(self, drawn: optuna.Trial, state: TrialState, values: Any = None) -> None:
        with self._trusting_nothing(), _quiet():
            self.optuna.tell(drawn, values, state=state)

    def others_run(self) -> bool:
        """Whether other processes are training trials of it."""
        with held(self.folder / "turn"), self._trusting_nothing():
            self._revive()
            return any(one.state == "running" for one in self._trials())

    # Reading --------------------------------------------------------------------------------
    def trials(self) -> list[Trial]:
        """All that were drawn, in their order.

        Raises:
            JournalError: the journal is damaged.
        """
        with self._trusting_nothing():
            return self._trials()

    def finished(self) -> list[Trial]:
        """Those that count."""
        return [one for one in self.trials() if one.state in ("complete", "pruned", "failed")]

    def _trials(self) -> list[Trial]:
        return [self._trial(one) for one in self.optuna.get_trials(deepcopy=False)]

    def _trial(self, one: FrozenTrial) -> Trial:
        ranges = self.plan.space.ranges
        sign = 1 if self.plan.directions[0] == "maximize" else -1
        return Trial(
            one.number,
            _state(one),
            {n: _value(ranges[n], one.params[n]) for n in ranges if n in one.params},
            tuple(one.values) if one.state == TrialState.COMPLETE else None,
            tuple(sorted((step, sign * x) for step, x in one.intermediate_values.items())),
            one.user_attrs.get("start") is True,
            str(one.user_attrs.get("error", "")),
            one.duration.total_seconds() if one.duration else 0.0,
        )

    # Distrust -------------------------------------------------------------------------------
    @contextmanager
    def _trusting_nothing(self) -> Iterator[None]:
        """Whatever an entry of the journal makes Optuna raise is damage, in a sentence."""
        try:
            yield
        except (JournalError, OSError, MemoryError):
            raise
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            raise JournalError(self._journal, f"{type(error).__name__}: {text}") from error

    def _check(self) -> None:
        """Raise for entries that Optuna took and could not have written for this sweep."""
        names = [direction.name.lower() for direction in self.optuna.directions]
        if names != list(self.plan.directions):
            raise ValueError("it is about another metric than sweep.json")
        for one in self.optuna.get_trials(deepcopy=False):
            for name, distribution in one.distributions.items():
                if distribution != _distribution(self.plan.space.ranges[name]):
                    raise ValueError(f"trial {one.number} is of another space than sweep.json")
                if not distribution._contains(distribution.to_internal_repr(one.params[name])):
                    raise ValueError(f"trial {one.number} has a strange {name}")
            scores = one.values if one.state == TrialState.COMPLETE else []
            if one.state == TrialState.COMPLETE and len(scores or ()) != len(names):
                raise ValueError(f"trial {one.number} has no result")
            for number in (*(scores or ()), *one.intermediate_values.values()):
                if type(number) not in (int, float) or not math.isfinite(number):
                    raise ValueError(f"trial {one.number} has a result that is no number")
            self._trial(one)

    # Trials whose process is gone -----------------------------------------------------------
    def _revive(self) -> None:
        """Put back trials whose process was killed. For the holder of the turn."""
        for one in self.optuna.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if not self._lives(one.user_attrs.get("worker")):
                self._again(one)

    def _again(self, one: FrozenTrial) -> None:
        if one.params or one.user_attrs.get("start"):
            start = {"start": True} if one.user_attrs.get("start") else None
            values = _start_values(self.plan) if start else one.params
            self.optuna.enqueue_trial(values, user_attrs=start)
        with _quiet():
            self.optuna.tell(one.number, state=TrialState.FAIL)

    def _lives(self, worker: Any) -> bool:
        if worker == self.worker:
            return True
        if not isinstance(worker, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,120}", worker):
            return False
        path = self.folder / "workers" / worker
        if not path.exists():
            return False
        with held(path, wait=False) as dead:
            if dead:
                path.unlink(missing_ok=True)
            return not dead

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        """TPE, whose draws follow from the seed, the number of trials, and what these came to."""
        seed = np.random.SeedSequence([self.plan.base.run.seed, number]).generate_state(1)[0]
        with _quiet():
            return optuna.samplers.TPESampler(
                n_startup_trials=_RANDOM_TRIALS,
                multivariate=self.plan.metric != BOTH,
                constant_liar=True,  # what others are training counts as bad, so it is not repeated
                seed=int(seed),
            )


def exists(name: str) -> bool:
    """Whether there is a sweep of that name.

    Raises:
        ValueError: that can be no name.
    """
    check_name(name)
    return (sweeps_folder() / name / "sweep.json").exists()


def _with_trials(plan: Plan, trials: int) -> Plan:
    from dataclasses import replace

    return replace(plan, trials=trials)


def _pruner() -> optuna.pruners.BasePruner:
    return optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=REDUCTION)


def _state(one: FrozenTrial) -> str:
    if one.state == TrialState.FAIL:
        return "failed" if "error" in one.user_attrs else "cut"
    return one.state.name.lower()


def _start_values(plan: Plan) -> dict[str, Any]:
    """What the base has, for the options whose range contains it."""
    found = {name: value_of(plan.base, name) for name in plan.space.ranges}
    return {n: _label(v) for n, v in found.items() if plan.space.ranges[n].contains(v)}


def _distribution(one: Range) -> BaseDistribution:
    if isinstance(one, Choices):
        return CategoricalDistribution([_label(value) for value in one.values])
    if one.whole:
        return IntDistribution(int(one.low), int(one.high), one.log, int(one.step or 1))
    return FloatDistribution(one.low, one.high, one.log, one.step or None)


def _label(value: Any) -> Any:
    """A value as Optuna may have it: lists as TOML."""
    return toml_value(value) if isinstance(value, tuple) else value


def _value(one: Range, suggested: Any) -> Any:
    """The value that was meant by one of Optuna's."""
    if isinstance(one, Choices):
        return next(value for value in one.values if _label(value) == suggested)
    return suggested


def _host_name() -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", platform.node())[:40].strip("-") or "host"


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna's notes on what is experimental are not for the user of a sweep."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(level)
