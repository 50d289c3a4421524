"""A session of training in a run directory: start or resume, train, evaluate, report."""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from torch import nn

from operant.lang.env import Env
from operant.runs.directory import Lock, Run, run_name
from operant.runs.logs import cut_log
from operant.runs.metrics_layout import Status
from operant.toolchain.files import replace_file, sweep
from operant.toolchain.git import git_commit
from operant.toolchain.machine import commit, machine
from operant.training.add_on import AddOn
from operant.training.callbacks import Callback
from operant.training.config import BaseConfig
from operant.training.config_file import to_toml
from operant.training.evaluate import Evaluated
from operant.training.guard import NonFiniteError
from operant.training.init_from import Origin, take_weights
from operant.training.ranks import gather_bytes
from operant.training.recorder import Recorder
from operant.training.resume import resumed_trainer
from operant.training.snapshot import not_saved_note
from operant.training.trainer import Trainer
from operant.vector.foreign_env import ForeignEnv

T = TypeVar("T", bound=Trainer)
MOST_LOG_BYTES = 1 << 20
"""Of ``train.log``; the older part of a longer one goes when the run is resumed."""


class Session(Generic[T]):
    """One process's share of a run. While it lasts, no other process can train the run.

    An algorithm has a subclass, whose `trainer_type` is the algorithm.

    Attributes:
        run: the directory.
        trainer: the trainer.
        resumed: the step it continues from; None for a new run.
        notes: what the user should know, a sentence each; also in the run's log.
    """

    trainer_type: type[T]

    def __init__(
        self,
        run: Run,
        trainer: T,
        resumed: int | None,
        lock: Lock,
        notes: Iterable[str] = (),
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        self.run, self.trainer, self.resumed, self._lock = run, trainer, resumed, lock
        self.evaluator = trainer.evaluator() if trainer.config.run.eval_every else None
        sweep(run.path)  # what a killed process left half written
        cut_log(run.log_file, MOST_LOG_BYTES)
        replace_file(run.config_file, to_toml(trainer.config).encode())  # a resumed one may differ
        run.write_info(
            _info(run) | _identity(trainer) | ({"init_from": dict(origin)} if origin else {})
        )
        gather_bytes(trainer.shards.group, str(run.path.resolve()).encode())  # for the other ranks
        self.recorder = Recorder(run, trainer, self.evaluator.metrics if self.evaluator else ())
        what = "started" if resumed is None else f"resumed at step {resumed:,}"
        run.log(f"{what}: {trainer.config.env.id}, seed {trainer.config.run.seed}")
        if origin and resumed is None:
            run.log(f"weights of {origin['run']} at step {origin['step']:,}: {origin['path']}")
        if trainer.shards.group.size > 1:
            run.log(f"{trainer.shards.count} shards on {trainer.shards.group.size} ranks")
        run.log(f"engine {trainer.engine_name} ({trainer.engine_reason}) on {trainer.device}")
        unsaved = not_saved_note(trainer.env)
        self.notes = (*notes, *self.recorder.notes, *([] if unsaved is None else [unsaved]))
        for note in self.notes:
            run.log(note)

    @classmethod
    def start(
        cls,
        config: BaseConfig,
        env: str | type[Env] | ForeignEnv,
        run_id: str = "",
        policy: nn.Module | None = None,
        init_from: Origin | None = None,
        add_ons: Sequence[AddOn] = (),
    ) -> Self:
        """A new run. Nothing of it is left if this raises.

        Args:
            config: everything it depends on.
            env: an id, a class, or what makes environments.
            run_id: its name; by default environment, date and time.
            policy: where it is not one of `operant.models`.
            init_from: whose weights and normalisers to start from, instead of new ones.
            add_ons: see `operant.training.add_on`.

        Raises:
            ValueError: the name is taken, or something in `config` or `init_from` does not fit.
            OSError: the directory cannot be written.
        """
        make: Any = cls.trainer_type
        trainer: T = make(env, config, policy=policy, add_ons=add_ons)
        if init_from is not None:
            take_weights(trainer, init_from)
        text = to_toml(trainer.config)
        name = run_name(config.env.id)
        run = Run.create(run_id, text) if run_id else Run.create_free(name, text)
        try:
            origin = None if init_from is None else init_from.record()
            return cls(run, trainer, None, run.lock(), origin=origin)
        except BaseException:
            run.remove()
            raise

    @classmethod
    def resume(
        cls,
        run: Run,
        env: str | type[Env] | ForeignEnv | None = None,
        changes: Mapping[str, Any] | None = None,
        policy: nn.Module | None = None,
        checkpoint: str = "latest",
        add_ons: Sequence[AddOn] = (),
    ) -> Self:
        """Continue a run from a checkpoint; from the beginning where it never came to save one.

        What came after that checkpoint, rows of metrics and later checkpoints, is removed. W&B is
        used only where `changes` say so: a run that came from someone else does not switch it on.

        Args:
            run: which.
            env: its environment, where that is not a registered one.
            changes: values by dotted name, for the rest of the run: a later end, another device.
            policy: where it is not one of `operant.models`.
            checkpoint: ``"latest"``, ``"best"`` or a step.
            add_ons: those it was started with.

        Raises:
            CheckpointError: the checkpoint is damaged; the message names the file.
            ValueError: `changes` has something that cannot change in the middle of a run, or
                another process trains it.
            OSError: in the place of one of its files there is a link or something else.
        """
        run.check()
        lock = run.lock()
        try:
            made = resumed_trainer(
                cls.trainer_type, run, env, dict(changes or {}), policy, checkpoint, add_ons
            )
            return cls(run, made.trainer, made.step, lock, made.notes, run.origin())
        except BaseException:
            lock.close()  # a traceback that someone keeps would keep it too
            raise

    def train(self, callbacks: Iterable[Callback] = (), progress: bool | None = None) -> None:
        """Train to the end (or until ``trainer.stop()``), then save. Ends the session.

        `progress`: see `Trainer.learn`.

        Raises:
            NonFiniteError: what the NaN guard found; the last checkpoint is the last good state.
        """
        trainer, run, status = self.trainer, self.run, Status.FAILED
        try:
            evaluator = [] if self.evaluator is None else [self.evaluator]
            called = [*evaluator, *callbacks, self.recorder]
            trainer.learn(callbacks=called, progress=progress)
            if self.recorder.saved_step != trainer.steps:
                self.recorder.save(trainer)
            status = Status.FINISHED if self.finished else Status.INTERRUPTED
            run.log(f"{status} at step {trainer.steps:,}")
        except NonFiniteError as error:
            run.log(f"stopped by the NaN guard: {error}")
            raise
        except BaseException as error:
            run.log(f"failed: {type(error).__name__}: {error}")
            raise
        finally:
            self.recorder.close(status)
            self._lock.close()

    @property
    def finished(self) -> bool:
        """Whether all steps were taken."""
        return self.trainer.steps >= self.trainer.config.run.total_steps

    def evaluate(self) -> Evaluated | None:
        """The final evaluation: whole episodes, greedy and sampled; None if not asked for, or if
        there is no time limit, so that an episode might never end."""
        config = self.trainer.config
        limit = self.trainer.env.describe().evaluation_limit
        if not config.run.eval_episodes or limit is None:
            return None
        found = self.trainer.evaluated()
        texts = (f"{one.mean_return:.2f} +- {one.std_return:.2f}" for one in found)
        self.run.log("evaluated: {} greedy, {} sampled".format(*texts))
        return found

    def report(self, evaluation: Evaluated | None) -> dict[str, Any]:
        """What the run came to, for JSON. Solved or not is a question to the greedy policy."""
        trainer, best = self.trainer, self.recorder.best
        threshold = trainer.env.describe().reward_threshold
        reached = trainer.mean_return if evaluation is None else evaluation.greedy.mean_return
        return {
            "run_id": self.run.id,
            "env": trainer.config.env.id,
            "seed": trainer.config.run.seed,
            "steps": trainer.steps,
            "iterations": trainer.iteration,
            "episodes": trainer.episodes,
            "seconds": round(trainer.seconds, 3),
            "sps": round(trainer.steps / trainer.seconds) if trainer.seconds else 0,
            "mean_return": _number(trainer.mean_return),
            **_evaluation_report(evaluation),
            "best_step": None if best is None else best[0],
            "best_return": None if best is None else _number(best[1]),
            "reward_threshold": threshold,
            "solved": None if threshold is None else bool(reached >= threshold),
            "engine": trainer.engine_name,
            "engine_reason": trainer.engine_reason,
            "device": str(trainer.device),
            "finished": self.finished,
            "path": str(self.run.path),
        }


def _evaluation_report(found: Evaluated | None) -> dict[str, Any]:
    """Of the greedy policy (most probable actions), and of the sampled one."""
    both = (None, None) if found is None else (found.greedy, found.sampled)
    report: dict[str, Any] = {}
    for name, one in zip(("eval", "eval_sampled"), both, strict=True):
        report[f"{name}_return"] = None if one is None else _number(one.mean_return)
        report[f"{name}_std"] = None if one is None else _number(one.std_return)
    return report | {"eval_episodes": 0 if found is None else len(found.greedy.returns)}


def _number(value: float) -> float | None:
    return None if value != value else round(value, 4)  # JSON has no NaN


def _identity(trainer: Trainer) -> dict[str, Any]:
    return {
        "env": trainer.config.env.id,
        "engine": trainer.engine_name,
        "engine_reason": trainer.engine_reason,
        "device": str(trainer.device),
        "num_envs": trainer.env.num_envs * trainer.shards.group.size,
        "total_steps": trainer.config.run.total_steps,
    }


def _info(run: Run) -> dict[str, Any]:
    here = Path.cwd()
    inside = run.path.resolve() in (here, *here.parents)  # its repository would be no one's code
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "pid": os.getpid(),
        "folder": str(here),
        "git": None if inside else git_commit(here),
        "operant_commit": commit(),
        "machine": machine(),
    }
