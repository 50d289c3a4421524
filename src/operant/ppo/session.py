"""A session of training with PPO in a run directory; see `operant.training.session`.

An asynchronous run has its schedule beside everything else, and can be repeated from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from torch import nn

from operant.lang.env import Env
from operant.ppo.config import Config
from operant.ppo.engines.async_engine import AsyncEngine
from operant.ppo.ppo import PPO
from operant.runs.directory import Lock, Run
from operant.runs.metrics_layout import Status
from operant.runs.schedule import (
    NEW_EPISODES,
    OTHER_OPTIONS,
    Schedule,
    ScheduleLog,
    read_schedule,
)
from operant.training import following, session
from operant.training.add_on import AddOn
from operant.training.callbacks import Callback
from operant.training.config_file import read_run_config
from operant.training.foreign import check_wrappers
from operant.training.snapshot import chosen_env
from operant.vector.foreign_env import ForeignEnv

CHANGES_NOTHING = (
    *("env.workers", "env.step_timeout", "run.threads", "run.checkpoint_seconds", "run.keep"),
    *("run.eval_episodes", "run.eval_every", "run.tensorboard", "run.wandb"),
)
"""Options that have no part in what is learnt."""


class Session(session.Session[PPO]):
    """One process's share of a run of PPO. `ppo` is the trainer."""

    trainer_type = PPO

    def __init__(
        self,
        run: Run,
        trainer: PPO,
        resumed: int | None,
        lock: Lock,
        notes: Iterable[str] = (),
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        self._log: ScheduleLog | None = None
        self._followed: Schedule | None = None
        engine, iteration = trainer.engine, trainer.iteration
        if isinstance(engine, AsyncEngine):  # noted before the run's configuration is another
            flags = _flags(run, trainer) if iteration else 0
            self._log = ScheduleLog(run.schedule_file, engine.shape, iteration, flags)
            engine.record(self._log)
        super().__init__(run, trainer, resumed, lock, notes, origin)

    @property
    def ppo(self) -> PPO:
        """The trainer."""
        return self.trainer

    @classmethod
    def replay(
        cls,
        source: Run,
        env: str | type[Env] | ForeignEnv | None = None,
        changes: Mapping[str, Any] | None = None,
        run_id: str = "",
        policy: nn.Module | None = None,
        add_ons: Sequence[AddOn] = (),
    ) -> Self:
        """A new run that repeats an asynchronous one by its schedule: on the same machine it ends
        with the same weights. It ends where the schedule does.

        Args:
            source: the run.
            env: its environment, where that is not a registered one.
            changes: values by dotted name, of `CHANGES_NOTHING` alone.
            run_id: name of the new run.
            policy, add_ons: those it was started with.

        Raises:
            ValueError: it is no such run, it cannot be repeated, or `changes` would change what is
                learnt.
        """
        source.check()
        config = Config().replaced(read_run_config(Config, source.config_file))
        schedule = _schedule_of(source, config)
        changes = {"run.wandb": False, **(changes or {})}
        for name, value in changes.items():
            if name not in CHANGES_NOTHING and config.replaced({name: value}) != config:
                raise ValueError(
                    f"{name} would change what is learnt, and --replay repeats {source.id} as it "
                    "was; leave it out, or start a new run"
                )
        chosen = chosen_env(config, env)
        assert isinstance(chosen, type | ForeignEnv)
        check_wrappers(config.env, changes.get("env.wrappers"))
        own = cls.start(config.replaced(changes), chosen, run_id, policy, None, add_ons)
        own._follow(source, schedule)
        return own

    def _follow(self, source: Run, schedule: Schedule) -> None:
        engine = self.ppo.engine
        assert isinstance(engine, AsyncEngine)
        try:
            engine.follow(schedule)
        except ValueError:
            self.recorder.close(Status.FAILED)
            self.run.remove()
            raise
        self._followed = schedule
        self.run.log(f"follows the schedule of {source.id}, {len(schedule):,} iterations")

    def train(self, callbacks: Iterable[Callback] = (), progress: bool | None = None) -> None:
        """See `operant.training.session.Session.train`."""
        stop = [] if self._followed is None else [_StopAfter(len(self._followed))]
        try:
            super().train([*callbacks, *stop], progress)
        finally:
            engine = self.ppo.engine
            if self._log is not None and isinstance(engine, AsyncEngine):
                self._log.close()
                engine.record(None)


class _StopAfter(Callback):
    """Ends training after so many iterations: what is scheduled ends there."""

    watches_only = True

    def __init__(self, iterations: int) -> None:
        self._iterations = iterations

    def on_update(self, trainer: Any, metrics: dict[str, float]) -> None:
        if trainer.iteration >= self._iterations:
            trainer.stop()


def _flags(run: Run, trainer: PPO) -> int:
    """What a schedule has to say of a run that is resumed."""
    kind = type(trainer.config)
    before = kind().replaced(read_run_config(kind, run.config_file))
    free = {name: _value(trainer.config, name) for name in CHANGES_NOTHING}
    other = before.replaced(free) != trainer.config
    new = trainer.env.why_not_saved is not None
    return NEW_EPISODES * new | OTHER_OPTIONS * other


def _value(config: Config, name: str) -> Any:
    section, _, key = name.partition(".")
    return getattr(getattr(config, section), key)


def _schedule_of(source: Run, config: Config) -> Schedule:
    """The schedule to repeat.

    Raises:
        ValueError: there is none, or it cannot be.
    """
    if config.run.mode != "async":
        raise ValueError(
            f"{source.id} was trained with run.mode=sync, and has no schedule: the same "
            f"configuration and seed repeat it: operant train {config.env.id} --config "
            f"{source.config_file}"
        )
    origin = source.origin()
    if origin is not None:
        raise ValueError(
            f"{source.id} began with the weights of {origin['run']}, and --replay repeats runs "
            "that began with their own"
        )
    schedule = read_schedule(source.schedule_file)
    why = schedule.why_not_followed()
    if why is not None:
        raise ValueError(f"{source.id} cannot be repeated: {why}")
    if not len(schedule):
        raise ValueError(f"{source.id} cannot be repeated: its schedule is empty")
    return schedule


class Following(following.Following[PPO]):
    """The share of a rank that follows rank 0, which has the `Session`."""

    trainer_type = PPO
