"""A process that holds some environments of a batch: ``python -m`` this file, with the number of
the worker, whether it spins (1 or 0), and four open files: the channel, the shared memory, that of
the bells, and a pipe that closes when the batch's process ends."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from dataclasses import replace
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from operant.backends.foreign import channel as c
from operant.backends.foreign.agent_block import env_block
from operant.backends.foreign.block import EnvBlock, MakeEnv
from operant.backends.foreign.errors import ForeignEnvError, in_words
from operant.backends.foreign.memory import Memory
from operant.backends.foreign.module_files import FilesFinder
from operant.backends.foreign.probe import probe


def main(number: int, spins: int, control: int, shared: int, bells: int, parent: int) -> None:
    """Do what comes over the channel until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the batch's process to answer
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    channel = c.Channel(socket.socket(fileno=control), c.worker_bells(bells, number, bool(spins)))
    block: EnvBlock | None = None
    try:
        _, setup = channel.receive_told()
        modules, _, pickled = setup.partition(b"\n")
        sys.path[:], files = json.loads(modules)  # as there: what made the environments is there
        sys.meta_path.append(FilesFinder(files))
        while True:
            letter, payload = channel.receive()
            if letter == c.PROBE:
                _answered(channel, lambda: _probed(pickled, payload))  # noqa: B023
            elif letter == c.MAKE:
                block = _answered(channel, lambda: _made(pickled, payload, shared))  # noqa: B023
                if block is None:
                    break
            elif block is None:
                break
            elif letter == c.STEP:
                _answered(channel, block.step_all)
            elif letter == c.STEP_SOME:
                _step_some(channel, block, json.loads(payload))
            elif letter == c.END:
                break
            else:
                _answered(channel, lambda: _other(block, letter, payload))  # noqa: B023
    except c.GoneError:
        pass
    finally:
        if block is not None:
            block.close()


def _loaded(pickled: bytes) -> MakeEnv:
    try:
        return cloudpickle.loads(pickled)  # type: ignore[no-any-return]
    except BaseException as error:
        raise ForeignEnvError(
            f"make_env cannot be loaded in a worker process: {in_words(error)}",
            traceback=traceback.format_exc(),
        ) from None


def _probed(pickled: bytes, mask_in_obs: bytes) -> bytes:
    """What an environment is, or why it is none: a `Probe` or a TypeError or ValueError."""
    try:
        found: Any = probe(_loaded(pickled), False, json.loads(mask_in_obs))[0]
    except (TypeError, ValueError) as error:
        found = type(error)(str(error))
    try:
        return cloudpickle.dumps(found)  # type: ignore[no-any-return]
    except Exception:  # something in its registration; it is for information only
        return cloudpickle.dumps(replace(found, spec=None))  # type: ignore[no-any-return]


def _step_some(channel: c.Channel, block: EnvBlock, indices: list[int]) -> None:
    """Step these, and tell of each when it is done."""
    for index in indices:
        try:
            block.step_some([index])
        except ForeignEnvError as error:
            channel.tell(c.FAILED, json.dumps(error.facts()).encode())
        else:
            channel.tell(c.DONE, json.dumps(index).encode())


def end_with(parent: int) -> None:
    """End with the batch's process, in the middle of a step too, and with what was started here."""
    os.read(parent, 1)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _made(pickled: bytes, setup: bytes, shared: int) -> EnvBlock:
    layouts, num_envs, first, end = cloudpickle.loads(setup)
    rows = num_envs * layouts.rows_each
    memory = Memory.allocate(layouts.observation, layouts.action, rows, layouts.mask_size, shared)
    return env_block(_loaded(pickled), layouts, memory, first, end)


def _answered(channel: c.Channel, work: Any) -> Any:
    """Do something and say so, or what went wrong."""
    try:
        result = work()
    except ForeignEnvError as error:
        channel.send(c.FAILED, json.dumps(error.facts()).encode())
        return None
    except c.GoneError:
        raise
    except BaseException as error:
        facts = {"message": in_words(error), "traceback": traceback.format_exc()}
        channel.send(c.FAILED, json.dumps(facts).encode())
        return None
    channel.send(c.DONE, result if isinstance(result, bytes) else b"")
    return result


def _other(block: EnvBlock, letter: bytes, payload: bytes) -> bytes | None:
    if letter == c.RESET:
        block.reset(*pickle.loads(payload))
    elif letter == c.STATES:
        return json.dumps([state.decode() for state in block.states()]).encode()
    elif letter == c.SET_STATES:
        block.set_states([state.encode() for state in json.loads(payload)])
    elif letter == c.RENDER:
        return pickle.dumps(block.render(int(payload)))
    return None


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
