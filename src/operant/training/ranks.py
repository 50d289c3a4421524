"""Ranks: the processes that train one policy together, and what they tell each other.

All they ever do is `Group.gather`: every rank hands in a tensor and gets those of all, in order of
the ranks. Sums are then added up by each rank in the same order, see `operant.training.shards`.
"""

from __future__ import annotations

import atexit
import datetime
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from operant.toolchain.machine import usable_cores

_START_S = 300.0
"""What a process waits for others to begin, at least: some compile more than others."""
_ROLL_CALL_S = 3.0
"""What the ranks that are left wait for word of one whose connection broke."""


class RankError(RuntimeError):
    """Training cannot go on because of a rank: it failed, died, hangs, or differs from the others.

    ``rank`` says which, ``not_finite`` whether it met NaN or infinity.
    """

    def __init__(self, rank: int, sentence: str, not_finite: bool = False) -> None:
        self.rank, self.not_finite = rank, not_finite
        super().__init__(f"rank {rank} {sentence}")


class Group(Protocol):
    """The ranks that train together, as one of them sees it."""

    rank: int
    """Which this is, from 0."""
    size: int
    """How many there are."""
    on_machine: int
    """How many of them are on this machine, and share its cores."""

    def cores(self) -> int:
        """Cores of this machine that are this rank's share."""

    seconds: float
    """Time spent in `gather` so far: what others kept this rank waiting for, mostly."""

    def gather(self, mine: Tensor) -> list[Tensor]:
        """The tensors of all ranks, which have one shape and dtype, in main memory.

        Raises:
            RankError: another rank failed, died, or was not heard of in time.
        """

    def failed(self, sentence: str, not_finite: bool = False) -> None:
        """Tell the others that this rank cannot go on: the rest of their `RankError`."""


class Alone:
    """One process: there is nobody to talk to."""

    rank, size, on_machine, seconds = 0, 1, 1, 0.0

    def cores(self) -> int:
        """See `Group`."""
        return usable_cores()

    def gather(self, mine: Tensor) -> list[Tensor]:
        """See `Group`."""
        return [mine]

    def failed(self, sentence: str, not_finite: bool = False) -> None:
        """See `Group`."""


class TorchGroup:
    """The processes that torchrun started, over gloo.

    Args:
        timeout_s: after which a rank that does not answer counts as hanging.
    """

    def __init__(self, timeout_s: float) -> None:
        import torch.distributed as dist

        to_start = datetime.timedelta(seconds=max(timeout_s, _START_S))
        try:
            if dist.is_initialized():  # by the user's script, with whatever backend
                self._group: Any = dist.new_group(backend="gloo", timeout=to_start)
            else:
                own = _own_store()
                dist.init_process_group("gloo", timeout=to_start, **own)
                atexit.register(self._leave)
                self._group = dist.group.WORLD
        except RuntimeError as error:
            number = int(os.environ["RANK"])
            raise RankError(number, f"cannot reach the others: {_first_line(error)}") from None
        self._timeout_s = timeout_s
        self._options: Any = dist.distributed_c10d.AllgatherOptions()  # type: ignore[attr-defined]
        self._options.timeout = datetime.timedelta(seconds=timeout_s)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.on_machine = int(os.environ.get("LOCAL_WORLD_SIZE", self.size))
        self.seconds = 0.0
        self._ended: RankError | None = None
        """Why the ranks no longer belong together."""
        self._store: Any = dist.distributed_c10d._get_default_store()

    def _leave(self) -> None:
        """End the group's threads: where they outlive the interpreter, the process is aborted."""
        import torch.distributed as dist

        self._group = self._store = self._options = None
        dist.destroy_process_group()

    def cores(self) -> int:
        """See `Group`."""
        return max(1, usable_cores() // self.on_machine)

    def gather(self, mine: Tensor) -> list[Tensor]:
        """See `Group`."""
        if self._ended is not None:  # the others are elsewhere: they would meet another exchange
            raise self._ended
        began = time.perf_counter()
        mine = mine.contiguous()
        found = [torch.empty_like(mine) for _ in range(self.size)]
        try:
            self._group.allgather([found], [mine], self._options).wait()
        except RuntimeError as error:
            self._ended = self._broken(error)
            raise self._ended from None
        finally:
            self.seconds += time.perf_counter() - began
        return found

    def failed(self, sentence: str, not_finite: bool = False) -> None:
        """See `Group`."""
        self._ended = self._ended or RankError(self.rank, sentence, not_finite)
        word = json.dumps([sentence, not_finite])
        with suppress(RuntimeError):  # the store went with the process that held it
            self._store.set(f"operant/failed/{self.rank}", word)

    def _broken(self, error: RuntimeError) -> RankError:
        """Who is to blame for a connection that broke, or was silent for too long."""
        hangs = "timed out" in str(error).lower()
        others = [rank for rank in range(self.size) if rank != self.rank]
        try:
            self._store.set(f"operant/here/{self.rank}", "")
            until = time.monotonic() + _ROLL_CALL_S
            while True:
                for rank in others:
                    if self._store.check([f"operant/failed/{rank}"]):
                        return RankError(
                            rank, *json.loads(self._store.get(f"operant/failed/{rank}"))
                        )
                silent = [r for r in others if not self._store.check([f"operant/here/{r}"])]
                if time.monotonic() > until or not silent:
                    break
                time.sleep(0.02)
        except RuntimeError:
            silent = []
        if not silent:
            return RankError(self.rank, f"lost its connection to the others: {_first_line(error)}")
        why = f"hangs: nothing was heard of it for {self._timeout_s:g} s" if hangs else "died"
        return RankError(silent[0], why)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


_NOTE = "operant/note/"


def _torchrun_store() -> Any:
    """The store of the process that is torchrun; it outlives this one."""
    import torch.distributed as dist

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return dist.TCPStore(  # type: ignore[attr-defined]
        host, port, is_master=False, wait_for_workers=False
    )


def _own_store() -> dict[str, Any]:
    """Where these processes find each other, if torchrun has a store: not where those before a
    restart did, whose addresses are there still."""
    import torch.distributed as dist

    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return {}
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"operant/{attempt}", _torchrun_store())  # type: ignore[attr-defined]
    return {"store": store, "rank": int(os.environ["RANK"]), "world_size": world_size()}


def note(name: str, value: str = "") -> str:
    """What this job has noted as `name`, which processes that torchrun starts again can read too;
    empty if nothing. `value`: note that instead."""
    store = _torchrun_store()
    if value:
        store.set(_NOTE + name, value)
    return store.get(_NOTE + name).decode() if store.check([_NOTE + name]) else ""


def note_reason(rank: int, reason: str) -> None:
    """Tell the others, and the process that started this one, why this rank cannot begin."""
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    with suppress(RuntimeError):  # there is no store, or no longer
        note(f"reason/{attempt}/{rank}", reason)
    for group in _joined:
        group.failed(f"stopped: {reason}")


def note_said() -> None:
    """Tell the process that started this one that the user has been told why all end."""
    with suppress(RuntimeError):
        note(f"said/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", "yes")


def said_noted(store: Any, attempt: int) -> bool:
    """Whether `note_said` was called on that attempt, for the holder of the store."""
    return bool(store.check([f"{_NOTE}said/{attempt}"]))


def reason_noted(store: Any, attempt: int, rank: int) -> str:
    """What `note_reason` said on that attempt, for the holder of the store; empty if nothing."""
    key = f"{_NOTE}reason/{attempt}/{rank}"
    return store.get(key).decode() if store.check([key]) else ""


def world_size() -> int:
    """Processes that torchrun started together with this one, this one included."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


_given = threading.local()
_joined: list[Group] = []


@contextmanager
def joined_as(group: Group) -> Iterator[None]:
    """Trainers that this thread makes meanwhile belong to `group`."""
    _given.group = group
    try:
        yield
    finally:
        _given.group = None


def joined(timeout_s: float) -> Group:
    """The group of this process: of what torchrun started, by the variables that it sets, or the
    process alone. Joined once; later calls return the same.

    Raises:
        RuntimeError: torchrun's variables are there, and the other processes are not.
    """
    given: Group | None = getattr(_given, "group", None)
    if given is not None:
        return given
    if not _joined:
        _joined.append(TorchGroup(timeout_s) if world_size() > 1 else Alone())
    return _joined[0]


def check_ranks(shards: int, timeout_s: float) -> None:
    """Raise ValueError if what was trained with so many shards (0: in one process, without) is to
    go on on several ranks: that would be another training."""
    if not shards and (size := joined(timeout_s).size) > 1:
        raise ValueError(
            f"it was trained in one process, as one shard, which {size} ranks cannot share; go on "
            "in one process, or start a new run on several ranks"
        )


def gather_bytes(group: Group, data: bytes) -> list[bytes]:
    """What every rank handed in; of any lengths."""
    if group.size == 1:
        return [data]
    sizes = [int(n) for n in group.gather(torch.tensor([len(data)]))]
    mine = torch.zeros(max(*sizes, 1), dtype=torch.uint8)
    mine[: len(data)] = torch.from_numpy(np.frombuffer(data, np.uint8).copy())
    found = group.gather(mine)
    return [one.numpy()[:size].tobytes() for one, size in zip(found, sizes, strict=True)]


def check_same(group: Group, facts: Mapping[str, str]) -> None:
    """Raise unless all ranks have the same `facts`, named for the sentence.

    Raises:
        RankError: a rank differs from rank 0; every rank raises it, and names what.
    """
    if group.size == 1:
        return
    every = [json.loads(one) for one in gather_bytes(group, json.dumps(dict(facts)).encode())]
    for rank, found in enumerate(every):
        for name, first in every[0].items():
            if found.get(name) != first:
                raise RankError(
                    rank, f"has {name} {found.get(name)}, and rank 0 has {first}; start them alike"
                )


def first_says(group: Group, flag: bool) -> bool:
    """What rank 0 says; all ranks ask at the same point."""
    if group.size == 1:
        return flag
    return bool(group.gather(torch.tensor([flag]))[0])


def anyone_says(group: Group, flag: bool) -> bool:
    """Whether any rank says yes; all ranks ask at the same point."""
    if group.size == 1:
        return flag
    return any(bool(one) for one in group.gather(torch.tensor([flag])))
