"""A sweep in this process: jobs beside it, signals, progress, and the winner's last trainings."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from operant.cli.compile_status import compile_status
from operant.cli.meter import follow
from operant.cli.screen import UserError, errors, mistakes
from operant.cli.sweep_report import SearchProgress, introduce
from operant.sweep.importance import importances
from operant.sweep.plan import RETURN
from operant.sweep.report import best_config, report, write_files
from operant.sweep.search import Search, best_of
from operant.sweep.study import Study, Trial
from operant.sweep.verify import Unseen, difference, keeps_evaluations, summary, verify
from operant.toolchain.child import python_command, python_environment
from operant.toolchain.machine import usable_cores

if TYPE_CHECKING:
    from operant.cli.sweep import Asked
    from operant.lang.env import Env
    from operant.vector.foreign_env import ForeignEnv

_PATIENCE_S = 30.0
"""For jobs that were told to end: the iteration that runs is finished."""


class Sweeping:
    """One command's share of a sweep.

    Args:
        env: the environment.
        study: the sweep, open.
        ends: when the budget is spent, on the monotonic clock; None: never.
        jobs: processes that search, this one included.
        unseen: seeds to train the winner on; 0: none.
        asked: what was typed.
    """

    def __init__(
        self,
        env: type[Env] | ForeignEnv,
        study: Study,
        ends: float | None,
        jobs: int,
        unseen: int,
        asked: Asked,
    ) -> None:
        self.env, self.study, self._ends, self._jobs = env, study, ends, jobs
        self._unseen, self._asked = unseen, asked
        self._stopped = False
        self._parent = 0
        self._threshold: float | None = None

    def work(self, parent: int) -> None:
        """Search, and nothing else: one of another command's jobs, which ends when that is gone."""
        self._parent = parent
        with mistakes(), self._signals():
            self._threshold = _threshold(self.env, self.study)
            self._search().run(wait=False)

    def run(self) -> tuple[dict[str, Any] | None, bool]:
        """Search, train the winner again, write everything down: the report, and whether Ctrl-C
        ended it. No report where another command goes on with the sweep.

        Raises:
            UserError: something does not fit, or the journal is damaged.
        """
        study = self.study
        with mistakes(), compile_status("starting: compiling (once for each definition)"):
            self._threshold = _threshold(self.env, study)
        host = study.claim()
        introduce(study, host)
        with mistakes(), self._signals(), self._beside() as jobs:
            with SearchProgress(study, self._ends) as progress:
                self._search(progress).run(wait=host)
            if self._stopped:
                _end(jobs)
        if not study.claim():
            with mistakes():
                progress.joined()
            return None, self._stopped
        with mistakes():
            return self._concluded(), self._stopped

    def _search(self, progress: SearchProgress | None = None) -> Search:
        threads = self.study.plan.base.run.threads
        if not threads and (self._jobs > 1 or progress is None):
            threads = max(1, usable_cores() // max(self._jobs, 1))
        show = {} if progress is None else {"show": progress.show}
        return Search(self.env, self.study, self._threshold, threads, self._ended, **show)

    def _ended(self) -> bool:
        orphaned = self._parent and os.getppid() != self._parent
        spent = self._ends is not None and time.monotonic() >= self._ends
        return bool(self._stopped or orphaned or spent)

    # The winner -----------------------------------------------------------------------------
    def _concluded(self) -> dict[str, Any]:
        """Train the winner on unseen seeds, unless the search was interrupted; the report."""
        study = self.study
        best = best_of(study.finished(), study.plan)
        wanted = best is not None and self._unseen and not self._stopped
        verification = self._verified(best) if wanted and best is not None else None
        with errors.status("drawing"):
            found = report(study, best, importances(study), verification)
            found["interrupted"] = self._stopped
            write_files(study.folder, study, best, found)
        return found

    def _verified(self, best: Trial) -> dict[str, Any]:
        plan, seeds = self.study.plan, self.study.plan.unseen_seeds(self._unseen)
        stem = _free_stem(self.study.folder.name, seeds)
        configs = {"best": keeps_evaluations(best_config(best, plan))}
        if not best.is_start:
            configs["start"] = keeps_evaluations(plan.base)
        done: dict[str, Unseen] = {}
        for name, config in configs.items():
            kept = stem if name == "best" else ""
            doing = verify(self.env, config, seeds, self._threshold, name, kept)
            done[name] = follow(doing, len(seeds))
        found: dict[str, Any] = {"unseen_seeds": list(seeds), "threshold": self._threshold}
        found |= {name: summary(one, self._threshold) for name, one in done.items()}
        if "start" in done:
            found["difference"] = difference(done["best"], done["start"])
        return found

    # Jobs -----------------------------------------------------------------------------------
    @contextmanager
    def _beside(self) -> Iterator[list[subprocess.Popen[bytes]]]:
        """The other processes, while the body runs; what one of them fails of is said."""
        jobs: list[subprocess.Popen[bytes]] = []
        with tempfile.TemporaryFile() as said:
            try:
                for _ in range(self._jobs - 1):
                    jobs.append(self._start(said))
                yield jobs
                codes = [job.wait() for job in jobs]
            except BaseException:
                _end(jobs)
                raise
            failed = [code for code in codes if code not in (0, 130)]
            if failed and not self._stopped:
                said.seek(0)
                lines = said.read().decode(errors="replace").strip().splitlines()
                why = lines[-1].removeprefix("operant: ") if lines else f"exit code {failed[0]}"
                text = f"{len(failed)} of {len(jobs)} jobs ended early: {why}"
                errors.print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)

    def _start(self, said: Any) -> subprocess.Popen[bytes]:
        asked, plan = self._asked, self.study.plan
        words = ["sweep", asked.env, f"--job-of={os.getpid()}", f"--study={self.study.folder.name}"]
        words.append(f"--jobs={self._jobs}")
        if self._ends is not None:
            words.append(f"--budget={max(self._ends - time.monotonic(), 0.001):.3f}s")
        if plan.base.env.wrappers:  # named by the user, or this sweep would not have been opened
            listed = ", ".join(f'"{name}"' for name in plan.base.env.wrappers)
            words.append(f"--set=env.wrappers=[{listed}]")
        return subprocess.Popen(
            python_command("-m", "operant", *words),
            env=python_environment(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )

    # Signals --------------------------------------------------------------------------------
    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM end the search after the iteration that runs; a second SIGINT at
        once."""
        before = {s: signal.signal(s, self._handle) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._stopped and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._stopped = True
        with suppress(OSError):
            os.write(2, b"\nending the search (Ctrl-C again: at once)\n")


def _end(jobs: list[subprocess.Popen[bytes]]) -> None:
    """Let jobs put back what they train, and end them."""
    for job in jobs:
        with suppress(OSError):
            job.terminate()
    for job in jobs:
        try:
            job.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            job.kill()
            job.wait()


def _threshold(env: type[Env] | ForeignEnv, study: Study) -> float | None:
    """The return that counts as solved; the start is built and trained for an iteration, so that
    what cannot be trained is said before anything is searched, and kernels are compiled.

    Raises:
        UserError: the metric needs a threshold, and the environment has none.
    """
    from operant.ppo.ppo import PPO

    plan = study.plan
    ppo = PPO(env, plan.base)
    try:
        threshold = ppo.env.describe().reward_threshold
        if plan.metric != RETURN and threshold is None:
            raise UserError(
                f"{plan.env} has no reward_threshold, so nothing says when it is solved; use "
                "--metric return"
            )
        ppo.learn(len(ppo.buffer), progress=False)
        return threshold
    finally:
        ppo.env.close()


def _free_stem(name: str, seeds: tuple[int, ...]) -> str:
    """Beginning of the winner's runs: a name that none has yet."""
    from operant.runs.directory import runs_folder

    stem, number = f"{name}-best", 1
    while any((Path(runs_folder()) / f"{stem}-seed{seed}").exists() for seed in seeds):
        number += 1
        stem = f"{name}-best{number}"
    return stem
