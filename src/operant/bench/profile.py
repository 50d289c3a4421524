"""``operant profile``: how fast one environment is, alone, in training, and with evaluations.

Modes take turns: in each round every mode works for a while, and its figure is the median over the
rounds. A step of training counts when it was collected and trained on; steps of evaluations do not.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from operant.bench.env_clock import timed_steps
from operant.bench.rounds import Rounds, shares
from operant.bench.training import PARTS, Evaluations, Round, TimedTrainer

if TYPE_CHECKING:
    from operant.lang.env import Env
    from operant.ppo.config import Config
    from operant.vector.foreign_env import ForeignEnv

__all__ = ["MODES", "Evaluations", "Job", "Mode", "Result", "measure", "open_mode", "record"]

MODES = ("env_only", "trainer", "trainer_eval")
EVALUATIONS, MOST_STEPS = 10, 100_000
"""Evaluations in a run of ``run.total_steps``, and training steps between two at most, if nothing
else is said."""


@dataclass(frozen=True)
class Job:
    """What is measured, and for how long.

    Raises:
        ValueError: an unknown mode.
    """

    env: type[Env] | ForeignEnv
    config: Config
    modes: tuple[str, ...] = MODES
    seconds: float = 1.0
    """What a mode's round should at least take."""
    repeats: int = 5
    """Rounds."""
    evaluations: Evaluations | None = None
    """Of the mode ``trainer_eval``; None, or zeros in it: ten in a run, or more in a long one, of
    as many episodes as ``run.eval_episodes``."""

    def __post_init__(self) -> None:
        for mode in self.modes:
            if mode not in MODES:
                raise ValueError(f"--mode must be one of {', '.join(MODES)}, got {mode!r}")


@dataclass
class Result:
    """What a mode ran with, and its rounds."""

    mode: str
    device: str
    backend: str
    num_envs: int
    threads: int
    engine: str | None = None
    """None: nothing was trained."""
    env_split: str = "measured"
    evaluations: Evaluations | None = None
    rounds: list[Round] = field(default_factory=list)

    @property
    def sps(self) -> Rounds:
        """Steps a second."""
        return Rounds(tuple(one.sps for one in self.rounds))

    @property
    def split(self) -> dict[str, float]:
        """Shares of the time by part."""
        return shares([one.parts for one in self.rounds])


class Mode(Protocol):
    """Something that works in rounds."""

    @property
    def result(self) -> Result:
        """What it runs with, without rounds."""

    def prepare(self, seconds: float) -> None:
        """Compile, and find out how much can be done in `seconds`."""

    def work(self) -> Round:
        """One round."""

    def close(self) -> None:
        """Give back what it holds."""


class EnvOnly:
    """The trainer's batch of environments, with random actions made beforehand.

    A GPU's steps are captured in a graph and timed by its own clock.
    """

    def __init__(self, job: Job) -> None:
        from operant.ppo.batch import make_env
        from operant.ppo.engines.choose import choose_device

        self._device = choose_device(job.config.run.device)
        self._env = make_env(job.config, job.env, self._device)
        self._env.reset(seed=job.config.run.seed)
        self._steps = 1

    @property
    def result(self) -> Result:
        """See `Mode`."""
        env = self._env
        return Result(
            "env_only", str(self._device), env.backend, env.num_envs, env.describe().workers
        )

    def prepare(self, seconds: float) -> None:
        """See `Mode`."""
        self._timed = timed_steps(self._env, self._device.type)
        self._timed(3)
        self._steps = max(1, round(seconds / self._timed(3)))

    def work(self) -> Round:
        """See `Mode`."""
        seconds = self._timed(self._steps) * self._steps
        parts = {**dict.fromkeys(PARTS, 0.0), "env": seconds}
        return Round(self._steps * self._env.num_envs, seconds, parts)

    def close(self) -> None:
        """See `Mode`."""
        self._env.close()


class Training:
    """PPO with its whole configuration; with evaluations, if the mode says so."""

    def __init__(self, job: Job, mode: str) -> None:
        self._mode = mode
        self._evaluations = _evaluations(job) if mode == "trainer_eval" else None
        self._trainer = TimedTrainer(job.env, job.config, self._evaluations)
        self._iterations = 1

    @property
    def result(self) -> Result:
        """See `Mode`."""
        ppo, evaluations = self._trainer.ppo, self._evaluations
        if evaluations is not None:  # what it came to, in whole iterations
            every = self._trainer.unit * self._trainer.rollout
            evaluations = replace(evaluations, every_steps=every)
        return Result(
            self._mode,
            str(ppo.device),
            ppo.env.backend,
            ppo.env.num_envs,
            ppo.engine.threads,
            ppo.engine.name,
            self._trainer.env_split,
            evaluations,
        )

    def prepare(self, seconds: float) -> None:
        """See `Mode`."""
        once = self._trainer.warm_up()
        self._iterations = self._trainer.iterations_for(seconds, once)

    def work(self) -> Round:
        """See `Mode`."""
        return self._trainer.train(self._iterations)

    def close(self) -> None:
        """See `Mode`."""
        self._trainer.close()


def _evaluations(job: Job) -> Evaluations:
    """What the job asks for, or what a run would do.

    Raises:
        ValueError: an episode might never end.
    """
    from operant.training.evaluate import time_limit

    config = job.config
    if time_limit(job.env, config.env) is None:
        raise ValueError(
            f"{config.env.id} has no time limit, so an evaluation might never end; leave out "
            "--mode trainer_eval, or set one: --set env.max_episode_steps=1000"
        )
    every = min(max(1, config.run.total_steps // EVALUATIONS), MOST_STEPS)
    found = job.evaluations or Evaluations(every, 0)
    episodes = found.episodes or config.run.eval_episodes or 100
    return Evaluations(found.every_steps or every, episodes)


def open_mode(job: Job, mode: str) -> Mode:
    """A mode, made but not yet compiled.

    Raises:
        ValueError, TypeError, MemoryError: something in the configuration does not fit.
    """
    return EnvOnly(job) if mode == "env_only" else Training(job, mode)


def measure(job: Job, modes: Sequence[Mode]) -> Generator[str, None, list[Result]]:
    """Let the modes take turns; yields what is being done, before it is done, and returns results.

    The modes were prepared; they are closed here.
    """
    rounds: list[list[Round]] = [[] for _ in modes]
    try:
        for number in range(job.repeats):
            for mode, done in zip(modes, rounds, strict=True):
                yield f"round {number + 1} of {job.repeats}: {mode.result.mode}"
                done.append(mode.work())
        return [replace(mode.result, rounds=done) for mode, done in zip(modes, rounds, strict=True)]
    finally:
        for mode in modes:
            mode.close()


def record(result: Result) -> dict[str, Any]:
    """A mode's figures for the artifact, without what they are judged by."""
    evaluations = result.evaluations
    return {
        "mode": result.mode,
        "device": result.device,
        "backend": result.backend,
        "engine": result.engine,
        "num_envs": result.num_envs,
        "threads": result.threads,
        "sps": result.sps.record(),
        "split": result.split,
        "env_split": result.env_split,
        "evaluation": None
        if evaluations is None
        else {"every_steps": evaluations.every_steps, "episodes": evaluations.episodes},
    }
