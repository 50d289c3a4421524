"""Messages between the batch and a worker process: a letter, a length, and bytes."""

from __future__ import annotations

import mmap
import os
import socket
import struct
import time
from collections.abc import Callable

import numpy as np

from operant.backends.foreign.bell import AVAILABLE, SIZE, Bell

_HEADER = struct.Struct("<cxxxI")
STEP, STEP_SOME, RESET, STATES, SET_STATES, RENDER, END = b"s", b"a", b"r", b"g", b"t", b"v", b"q"
PROBE, MAKE = b"p", b"m"
DONE, FAILED = b"k", b"e"


class GoneError(ConnectionError):
    """The other side has ended."""


_MORE = 256
"""In a bell's word, besides the letter: the message comes through the socket."""
_LOOK_S = 0.2
"""Seconds after which a process that waits looks whether the other one still exists."""


class Channel:
    """One end of a pair of sockets, and two bells for messages without bytes, which cost a fraction
    of what a socket does. Both sides take turns; after `tell` the other side uses `receive_told`.

    Args:
        end: of the pair.
        bells: to ring and to hear; None: everything goes through the socket.
        gone: whether the other side has ended; None: this process ends with it.
    """

    def __init__(
        self,
        end: socket.socket,
        bells: tuple[Bell, Bell] | None,
        gone: Callable[[], bool] | None = None,
    ) -> None:
        self.socket = end
        self._bells, self._gone = bells, gone
        self._limit_s = float("inf")

    @property
    def core(self) -> int | None:
        """Where the other side was when it rang last; None without bells."""
        return None if self._bells is None else self._bells[1].core

    @property
    def is_near(self) -> bool:
        """Whether that is the core that this process runs on."""
        return self._bells is not None and self._bells[1].is_near

    def send(self, letter: bytes, payload: bytes = b"") -> None:
        """Send a message.

        Raises:
            GoneError: nobody is there.
        """
        if self._bells is None:
            self.tell(letter, payload)
        elif payload:
            self._bells[0].ring(_MORE)  # first: one that is long waits to be read
            self.tell(letter, payload)
        else:
            self._bells[0].ring(letter[0])

    def tell(self, letter: bytes, payload: bytes) -> None:
        """Send a message without ringing, so that there may be several at once.

        Raises:
            GoneError: nobody is there.
        """
        try:
            self.socket.sendall(_HEADER.pack(letter, len(payload)) + payload)
        except OSError as error:
            raise GoneError(str(error)) from None

    def receive(self) -> tuple[bytes, bytes]:
        """Wait for a message: letter and bytes.

        Raises:
            GoneError: nobody is there.
            TimeoutError: see `limit`.
        """
        if self._bells is not None:
            word = self._heard(self._bells[1])
            if word != _MORE:
                return bytes([word]), b""
        return self.receive_told()

    def _heard(self, bell: Bell) -> int:
        if self._gone is None:
            while (word := bell.wait(None)) is None:
                pass
            return word
        began = None
        while (word := bell.wait(_LOOK_S)) is None:
            now = time.monotonic()
            began = now if began is None else began
            # Looked at first, then heard again: it may have rung and ended.
            if self._gone() and (word := bell.wait(0)) is None:
                raise GoneError("ended")
            if word is not None:
                break
            if now - began > self._limit_s - _LOOK_S:
                raise TimeoutError
        return word

    def receive_told(self) -> tuple[bytes, bytes]:
        """`receive` for what came by `tell`."""
        letter, size = _HEADER.unpack(self._read(_HEADER.size))
        return letter, self._read(size) if size else b""

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except BlockingIOError:
                raise TimeoutError from None
            except OSError as error:
                raise GoneError(str(error)) from None
            if not part:
                raise GoneError("closed")
            data += part
        return data

    def limit(self, seconds: float) -> None:
        """Let `receive` wait no longer than this."""
        self._limit_s = seconds
        # Not settimeout(), which asks the kernel twice for every message.
        value = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)


def worker_bells(
    file: int, number: int, spins: bool, new: bool = False
) -> tuple[Bell, Bell] | None:
    """The bells of a worker in an open file of `operant.backends.foreign.memory.shared_file`: those
    that it rings and hears; the other way round for the batch. None where there are no bells.

    Args:
        file: for the bells of all workers.
        number: of the worker.
        spins: whether a waiting side looks before it sleeps.
        new: whether to make them.
    """
    if not AVAILABLE:
        return None
    end = (number + 1) * 2 * SIZE
    if os.fstat(file).st_size < end:
        os.ftruncate(file, end)
    block = np.frombuffer(mmap.mmap(file, end), np.uint8)[-2 * SIZE :]
    return Bell(block[:SIZE], spins, new), Bell(block[SIZE:], spins, new)
