"""`ForkServer`: a process that has imported what workers need, and forks them.

It is started anew for a batch, so that nothing that the user's process has imported, opened or
started is in it; it has one thread, so that a fork of it is whole. Forking takes milliseconds where
an interpreter that imports takes half a second.

Over a pair of sockets it is sent the numbers of a worker, with its open files, and answers with a
process id; when a worker ends it tells how.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import NoReturn

import numpy as np

from operant.backends.foreign import worker
from operant.backends.foreign.launch import Process, worker_environment
from operant.toolchain.child import python_command

_BYTES = 1 << 12
_START_S = 120.0


class ForkServer:
    """See `Launcher`: its workers are forks of a server of its own."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._ended: dict[int, int] = {}
        self._started: list[int] = []
        self._rest = b""
        with theirs:
            self._server = subprocess.Popen(
                python_command("-m", "operant.backends.foreign.fork_server", str(theirs.fileno())),
                env=worker_environment(),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                process_group=0,
            )

    def start(self, numbers: tuple[int, ...], fds: tuple[int, ...]) -> Process:
        """See `Launcher`.

        Raises:
            RuntimeError: the server has ended.
        """
        until = time.monotonic() + _START_S
        try:
            socket.send_fds(self._socket, [json.dumps(numbers).encode() + b"\n"], list(fds))
            while not self._started:
                self.hear(until - time.monotonic())
        except (OSError, TimeoutError):
            raise RuntimeError("the server that starts worker processes has ended") from None
        return _Forked(self, self._started.pop())

    def hear(self, seconds: float) -> None:
        """Take in what the server says, waiting at most so long.

        Raises:
            TimeoutError: it said nothing.
            ConnectionError: it has ended.
        """
        if not select.select([self._socket], [], [], max(seconds, 0.0))[0]:
            raise TimeoutError
        data = self._socket.recv(_BYTES)
        if not data:
            raise ConnectionError
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            pid, code = json.loads(line)
            if code is None:
                self._started.append(pid)
            else:
                self._ended[pid] = code

    def exit_code(self, pid: int, seconds: float) -> int | None:
        """How a worker ended; None: it has not, within this time."""
        until = time.monotonic() + seconds
        while pid not in self._ended:
            try:
                self.hear(until - time.monotonic())
            except TimeoutError:
                return None
            except OSError:  # the server was killed, and nobody else knows
                return None if _exists(pid) else -signal.SIGKILL
        return self._ended[pid]

    def close(self) -> None:
        """See `Launcher`; after its workers have ended."""
        self._socket.close()
        self._server.kill()
        self._server.wait()


class _Forked:
    """See `Process`."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server, self.pid = server, pid

    def poll(self) -> int | None:
        return self._server.exit_code(self.pid, 0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._server.exit_code(self.pid, 1e9 if timeout is None else timeout)
        if code is None:
            raise subprocess.TimeoutExpired("worker", timeout or 0.0)
        return code

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def main(number: int) -> None:
    """Fork workers until the other end of the socket closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with suppress(ConnectionError), socket.socket(fileno=number) as end:
        while True:
            ready, _, _ = select.select([end.fileno(), read], [], [])
            if read in ready:
                os.read(read, _BYTES)
                _tell_ended(end)
            if end.fileno() in ready:
                data, fds, _, _ = socket.recv_fds(end, _BYTES, 8)
                if not data:
                    return
                pid = os.fork()
                if pid == 0:
                    os.close(read)
                    os.close(write)
                    end.close()
                    _work(json.loads(data), fds)
                end.sendall(json.dumps([pid, None]).encode() + b"\n")
                for fd in fds:
                    os.close(fd)


def _tell_ended(end: socket.socket) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            end.sendall(json.dumps([pid, os.waitstatus_to_exitcode(status)]).encode() + b"\n")


def _work(numbers: list[int], fds: list[int]) -> NoReturn:
    """Be a worker."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setpgid(0, 0)
        np.random.seed()  # else all forks draw the same
        worker.main(*numbers, *fds)
        code = 0
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]))
