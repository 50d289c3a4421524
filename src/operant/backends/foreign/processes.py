"""`Processes`: environments in worker processes, which share the memory of the batch."""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import cloudpickle  # type: ignore[import-untyped]

from operant.backends.foreign import channel as c
from operant.backends.foreign.block import MakeEnv, blocks
from operant.backends.foreign.errors import (
    ForeignEnvError,
    StepTimeoutError,
    WorkerDiedError,
    some_envs,
)
from operant.backends.foreign.executor import SeedPairs
from operant.backends.foreign.fork_server import ForkServer
from operant.backends.foreign.launch import Launcher, Spawn
from operant.backends.foreign.memory import Memory, shared_file
from operant.backends.foreign.module_files import module_files
from operant.backends.foreign.probe import Probe
from operant.backends.foreign.seeds import env_seed
from operant.toolchain.machine import usable_cores

_START_S = 120.0
_END_S = 2.0
_LOOK_STEPS = 16
"""Steps after which the cores of the workers are looked at."""


class _Worker:
    """A process and the environments in it."""

    def __init__(
        self, launcher: Launcher, number: int, workers: int, envs: range, files: tuple[int, int]
    ) -> None:
        self.number, self.envs = number, envs
        self.stepping: list[int] = []
        """Submitted, and not done yet, in order."""
        ours, theirs = socket.socketpair()
        alive_read, self._alive = os.pipe()
        # With more workers than cores spinning would take a core that another one needs to finish.
        spins = workers <= usable_cores()
        heard, rung = c.worker_bells(files[1], number, spins, new=True) or (None, None)
        try:
            self.process = launcher.start(
                (number, int(spins)), (theirs.fileno(), *files, alive_read)
            )
        except BaseException:
            ours.close()
            os.close(self._alive)
            raise
        finally:
            theirs.close()
            os.close(alive_read)
        bells = None if heard is None or rung is None else (rung, heard)
        self.channel = c.Channel(ours, bells, lambda: self.process.poll() is not None)
        self.channel.limit(_START_S)

    def end(self, seconds: float) -> None:
        """End it: if it takes longer than this, by force. Processes that its environments have
        started end with it."""
        self.channel.socket.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(max(seconds, 0))
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1

    def epitaph(self) -> str:
        """How it ended, in words."""
        try:
            code = self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "closed its channel"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"


class Processes:
    """See `Executor`. Each worker holds neighbouring environments.

    Raises:
        TypeError: `make_env` cannot be sent to a process.
        ForeignEnvError: an environment could not be made.
    """

    def __init__(
        self,
        make_env: MakeEnv,
        found: Probe | None,
        num_envs: int,
        workers: int,
        restart: bool = False,
        timeout_s: float = 60.0,
        context: str = "spawn",
        mask_in_obs: bool = False,
    ) -> None:
        if why := why_not_sent(make_env):
            raise TypeError(
                f'{why}; make what it holds inside, or use backend="threads" or "serial"'
            )
        self.workers, self._restart, self._timeout_s = workers, restart, timeout_s
        modules = json.dumps([sys.path, module_files()])
        self._make_env = modules.encode() + b"\n" + cloudpickle.dumps(make_env)
        self._num_envs = num_envs
        self._acting: Any = True
        """Rows that the last step is for, of environments with several agents."""
        self._sent: list[_Worker] = []
        """Asked for something, and not answered yet."""
        self._seeds: dict[int, int] = {}
        self._lives = self._steps = 0
        self._closed = ""
        self._workers: list[_Worker] = []
        self._shared, self._bells = shared_file(), shared_file()
        self._launcher: Launcher = ForkServer() if context == "forkserver" else Spawn()
        try:
            for envs in blocks(num_envs, workers):
                self._workers.append(self._started(len(self._workers), envs))
            self.probe = found or self._probed(self._workers[0], mask_in_obs)
            observation, action, mask_size, *_ = self._layouts = self.probe.layouts
            rows = num_envs * self._layouts.rows_each
            self.memory = Memory.allocate(observation, action, rows, mask_size, self._shared)
            for worker in self._workers:
                self._make(worker)
            for worker in self._workers:
                self._answer(worker, "was made", _START_S)
                worker.channel.limit(timeout_s)
        except BaseException:
            self.close(at_once=True)
            raise

    def _started(self, number: int, envs: range) -> _Worker:
        worker = _Worker(self._launcher, number, self.workers, envs, (self._shared, self._bells))
        with suppress(c.GoneError):  # its answer will say so
            worker.channel.tell(c.MAKE, self._make_env)
        return worker

    def _probed(self, worker: _Worker, mask_in_obs: bool) -> Probe:
        """What an environment is, as a worker sees it."""
        with suppress(c.GoneError):
            worker.channel.send(c.PROBE, json.dumps(mask_in_obs).encode())
        found: Probe | Exception = pickle.loads(self._answer(worker, "was made", _START_S))
        if isinstance(found, Exception):
            raise found
        return found

    def _make(self, worker: _Worker) -> None:
        """Have a worker make its environments; it answers."""
        envs = worker.envs
        setup = cloudpickle.dumps((self._layouts, self._num_envs, envs.start, envs.stop))
        with suppress(c.GoneError):
            worker.channel.send(c.MAKE, setup)

    def _died(self, worker: _Worker, doing: str) -> WorkerDiedError:
        return WorkerDiedError(
            f"the process of {some_envs(worker.envs)} {worker.epitaph()} while it {doing}",
            worker.envs[0],
        )

    def _give_up(self, envs: range | list[int], doing: str, limit_s: float) -> NoReturn:
        """Close the batch because environments hang."""
        self.close(at_once=True)
        self._closed = f"{some_envs(envs)} did not answer in time"
        raise StepTimeoutError(
            f"{some_envs(envs)} did not answer within {limit_s:g} s while it {doing}; the batch is "
            "closed. If a step may take that long, raise it: env.step_timeout, step_timeout_s",
            envs[0],
        )

    def _check_open(self) -> None:
        if self._closed:
            raise ForeignEnvError(f"this batch is closed: {self._closed}; make a new one")

    def _answer(self, worker: _Worker, doing: str, limit_s: float | None = None) -> bytes:
        try:
            letter, payload = worker.channel.receive()
        except c.GoneError:
            raise self._died(worker, doing) from None
        except TimeoutError:
            self._give_up(worker.envs, doing, limit_s or self._timeout_s)
        if letter == c.FAILED:
            raise ForeignEnvError.of(json.loads(payload))
        return payload

    def _all(self, letter: bytes, payloads: Sequence[bytes] | None, doing: str) -> list[bytes]:
        """Ask every worker for something; their answers, or the first error when all are in."""
        self._check_open()
        while self._sent:  # of a call that was interrupted, by Ctrl-C for example
            self._answer(self._sent.pop(), "finished an interrupted call")
        found = [b""] * len(self._workers)
        failures: dict[int, ForeignEnvError] = {}
        # One that shares this process's core comes to work when this one sleeps: it is asked last,
        # and waited for first.
        for worker in sorted(self._workers, key=lambda worker: worker.channel.is_near):
            try:  # noqa: SIM105 - suppress() takes 1 us
                worker.channel.send(letter, b"" if payloads is None else payloads[worker.number])
            except c.GoneError:  # its answer will say so
                pass
            self._sent.append(worker)
        while self._sent:
            worker = self._sent[-1]
            try:
                found[worker.number] = self._answer(worker, doing)
            except WorkerDiedError as error:
                if self._restart and letter in (c.STEP, c.RESET):
                    self._start_again(worker.number, cut=letter == c.STEP)
                else:
                    failures[worker.number] = error
            except StepTimeoutError:
                self._sent = []
                raise
            except ForeignEnvError as error:
                failures[worker.number] = error
            self._sent.pop()
        if failures:
            raise failures[min(failures)]
        return found

    def _start_again(self, k: int, cut: bool) -> None:
        """A new process for the environments of one that died; their episodes are truncated."""
        envs = self._workers[k].envs
        each = self._layouts.rows_each
        rows = slice(envs.start * each, envs.stop * each)
        if cut:
            memory = self.memory
            memory.final_obs[rows] = memory.obs[rows]
            memory.reward[rows] = 0
            memory.terminated[rows] = False
            memory.truncated[rows] = True if self._acting is True else self._acting[rows]
        self._workers[k].end(0)
        worker = self._workers[k] = self._started(k, envs)
        self._make(worker)
        self._answer(worker, "was made again", _START_S)
        worker.channel.limit(self._timeout_s)
        self._lives += 1
        seeds = [(i, env_seed(self._seeds.get(i, 0), i, self._lives)) for i in envs]
        worker.channel.send(c.RESET, pickle.dumps((seeds, None)))
        self._answer(worker, "was reset")

    def _spread(self) -> None:
        """Move workers that are found on one core to cores of their own. Kernels of virtual
        machines may put processes that sleep often together, where they take turns.

        They are free to be moved again at once, so that this takes no core from anyone."""
        cores = [worker.channel.core for worker in self._workers]
        for k, worker in enumerate(self._workers):
            if cores[k] is None or cores[k] not in cores[:k]:
                continue
            with suppress(OSError):  # it has ended
                allowed = os.sched_getaffinity(worker.process.pid)
                if free := sorted(allowed.difference(cores)):
                    cores[k] = free[0]
                    os.sched_setaffinity(worker.process.pid, free[:1])
                    os.sched_setaffinity(worker.process.pid, allowed)

    def step(self) -> None:
        """See `Executor`."""
        self._steps += 1
        if self._steps % _LOOK_STEPS == 0 and len(self._workers) <= usable_cores():
            self._spread()
        if self._layouts.agents:
            self._acting = self.memory.live.copy()
        self._all(c.STEP, None, "stepped")

    def reset(self, seeds: SeedPairs, options: Any = None) -> None:
        """See `Executor`."""
        self._seeds |= {index: seed for index, seed in seeds if seed is not None}
        parts = [[pair for pair in seeds if pair[0] in worker.envs] for worker in self._workers]
        self._all(c.RESET, [pickle.dumps((part, options)) for part in parts], "was reset")

    def states(self) -> list[bytes]:
        """See `Executor`."""
        answers = self._all(c.STATES, None, "was saved")
        return [state.encode() for answer in answers for state in json.loads(answer)]

    def set_states(self, states: Sequence[bytes]) -> None:
        """See `Executor`.

        Raises:
            ValueError: they are of other environments.
        """
        parts = [[states[i].decode() for i in worker.envs] for worker in self._workers]
        try:
            self._all(c.SET_STATES, [json.dumps(part).encode() for part in parts], "was set")
        except WorkerDiedError:
            raise
        except ForeignEnvError as error:
            raise ValueError(str(error)) from None

    def render(self, index: int) -> Any:
        """See `Executor`."""
        worker = next(worker for worker in self._workers if index in worker.envs)
        with suppress(c.GoneError):  # the answer will say so
            worker.channel.send(c.RENDER, str(index).encode())
        return pickle.loads(self._answer(worker, "was drawn"))

    def submit(self, indices: Sequence[int]) -> None:
        """See `Executor`."""
        self._check_open()
        for worker in self._workers:
            mine = [index for index in indices if index in worker.envs]
            if mine:
                with suppress(c.GoneError):  # `ready` will say so
                    worker.channel.send(c.STEP_SOME, json.dumps(mine).encode())
                worker.stepping += mine

    def ready(self) -> list[int]:
        """See `Executor`."""
        self._check_open()
        busy = {worker.channel.socket: k for k, worker in enumerate(self._workers)}
        answering, _, _ = select.select(
            [end for end, k in busy.items() if self._workers[k].stepping], [], [], self._timeout_s
        )
        found: list[int] = []
        if not answering:
            waiting = sorted(index for worker in self._workers for index in worker.stepping)
            self._give_up(waiting, "stepped", self._timeout_s)
        for end in answering:
            found += self._told(busy[end])
        return found

    def _told(self, k: int) -> list[int]:
        """Which environments a worker says are done; all of them if it has died."""
        worker = self._workers[k]
        try:
            letter, payload = worker.channel.receive_told()
        except c.GoneError:
            if not self._restart:
                raise self._died(worker, "stepped") from None
            stepping = worker.stepping
            self._start_again(k, cut=True)
            return stepping
        facts = json.loads(payload)
        worker.stepping.remove(facts if letter == c.DONE else facts["env_index"])
        if letter == c.FAILED:
            raise ForeignEnvError.of(facts)
        return [facts]

    def close(self, at_once: bool = False) -> None:
        """See `Executor`."""
        workers, self._workers = self._workers, []
        self._closed = self._closed or "close() was called"
        for worker in workers:
            with suppress(OSError):  # it has ended already
                worker.channel.send(c.END)
        deadline = time.monotonic() + (0 if at_once else _END_S)
        for worker in workers:
            worker.end(deadline - time.monotonic())
        if self._shared >= 0:
            os.close(self._shared)
            os.close(self._bells)
            self._shared = -1
            self._launcher.close()


def why_not_sent(make_env: MakeEnv) -> str | None:
    """Why a function cannot be sent to a process, in words; None: it can."""
    try:
        cloudpickle.dumps(make_env)
    except Exception as error:
        return f"make_env cannot be sent to a process: {type(error).__name__}: {error}"
    return None
