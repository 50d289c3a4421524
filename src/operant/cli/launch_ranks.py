"""The process that starts the ranks of ``operant train --ranks N``, on this machine.

It gives them the variables that torchrun gives, holds the store in which they find each other, and
starts all of them again when one has failed. Everything listens on the loopback interface alone.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from types import FrameType
from typing import Any

import psutil
import typer

from operant.cli.interrupts import arrived
from operant.cli.screen import Interrupted, errors, printable
from operant.toolchain.child import python_command, python_environment

_HOST = "127.0.0.1"
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
_MISTAKE, _NOT_FINITE = 2, 3
"""Exit codes after which another attempt ends in the same way."""
_PATIENCE_S = 10.0
"""For the others to notice that a rank has failed, and to say so; then they are killed."""
_PATIENCE_ASKED_S = 1.0
"""The same after Ctrl-C."""
_POLL_S = 0.05
LAUNCHER_PIPE = "OPERANT_LAUNCHER_PIPE"
"""Variable of a rank: the descriptor that ends when the launcher does."""


def launch(arguments: list[str], ranks: int, restarts: int) -> None:
    """Run ``operant train`` with `arguments` in `ranks` processes of this machine.

    Args:
        restarts: how often all begin again when one has failed in a way that another attempt may
            mend: not after a signal to this process, a user's mistake, or NaN.

    Raises:
        typer.Exit: a rank failed; rank 0's code, if it has one of its own.
        Interrupted: Ctrl-C came twice; all processes are gone.
    """
    with errors.status("starting: loading PyTorch"):
        store, port = _store()
    with _Signals() as signals:
        for attempt in range(restarts + 1):
            job = _Ranks(arguments, ranks, attempt, port)
            try:
                code = job.wait(signals)
            except KeyboardInterrupt:
                arrived()
                raise Interrupted from None
            finally:
                job.kill()
            if code == 0:
                return
            why = job.unsaid(store, attempt)
            if signals.asked == signal.SIGINT and why:
                raise Interrupted
            if why:
                text = printable(f"operant: {why}")
                errors.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
            if code in (_MISTAKE, _NOT_FINITE):
                break
            if signals.asked:
                code = 128 + signals.asked
                break
    raise typer.Exit(code)


def _store() -> tuple[Any, int]:
    """Where the ranks find each other, and its port; it outlives them."""
    import torch.distributed as dist

    listener = socket.create_server((_HOST, 0))
    port = listener.getsockname()[1]
    store = dist.TCPStore(  # type: ignore[attr-defined]
        _HOST, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )
    return store, port


class _Ranks:
    """The processes of one attempt."""

    def __init__(self, arguments: list[str], size: int, attempt: int, port: int) -> None:
        self._failed: dict[int, int] = {}
        """Exit codes by rank, in the order in which they ended; without those killed here."""
        self._lifeline, self._mine = os.pipe()
        variables = python_environment() | {
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "MASTER_ADDR": _HOST,
            "MASTER_PORT": str(port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": str(attempt),
            "GLOO_SOCKET_IFNAME": _LOOPBACK,
            LAUNCHER_PIPE: str(self._lifeline),
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        for rank in range(size):
            process = subprocess.Popen(
                python_command("-m", "operant", "train", *arguments),
                env=variables | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                pass_fds=[self._lifeline],
                start_new_session=True,  # a terminal's Ctrl-C is for the launcher to pass on
            )
            self._processes.append(process)

    def wait(self, signals: _Signals) -> int:
        """Until all have ended, or a rank failed and the others do not end: the code of the job.

        Raises:
            KeyboardInterrupt: Ctrl-C came twice.
        """
        until = None
        while len(self._failed) < len(self._processes):
            for rank, process in enumerate(self._processes):
                if rank not in self._failed and (code := process.poll()) is not None:
                    self._failed[rank] = code
            for number in signals.taken():
                self._processes[0].send_signal(number)
            if signals.twice:
                time.sleep(_PATIENCE_ASKED_S)  # rank 0 speaks
                raise KeyboardInterrupt
            if any(self._failed.values()):
                patience = _PATIENCE_ASKED_S if signals.asked else _PATIENCE_S
                until = until or time.monotonic() + patience
                if time.monotonic() > until:
                    break
            time.sleep(_POLL_S)
        codes = [self._failed[rank] for rank in sorted(self._failed)]
        return next((code for code in codes if code > 1), int(any(codes)))

    def unsaid(self, store: Any, attempt: int) -> str:
        """Why they failed, where rank 0, which speaks for all, was killed; else empty."""
        from operant.training.ranks import reason_noted, said_noted

        if self._failed.get(0, -1) >= 0 or said_noted(store, attempt):
            return ""
        rank, code = next(item for item in self._failed.items() if item[1])
        reason = reason_noted(store, attempt, rank)
        if not reason and code < 0:
            return f"rank {rank} was killed by {signal.Signals(-code).name}"
        return f"rank {rank} stopped: {reason or f'exit code {code}'}"

    def kill(self) -> None:
        """End what is left, with what it started."""
        for process in self._processes:
            if process.poll() is None:
                with suppress(psutil.Error):
                    for below in psutil.Process(process.pid).children(recursive=True):  # type: ignore[no-untyped-call]
                        below.kill()
                process.kill()
            process.wait()
        os.close(self._lifeline)
        os.close(self._mine)


class _Signals:
    """SIGINT and SIGTERM that came to this process, for rank 0, which ends training on all."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._came: list[int] = []
        self.asked = 0
        """The first that came."""
        self.twice = False
        """Whether Ctrl-C came after it."""

    def __enter__(self) -> _Signals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def taken(self) -> list[int]:
        """Those that came since the last call."""
        came, self._came = self._came, []
        return came

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._came.append(number)
        self.twice = bool(self.asked) and number == signal.SIGINT
        self.asked = self.asked or number
