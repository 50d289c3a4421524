"""Two processes over gloo: what one is told when the other fails, dies or hangs."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from operant.toolchain.child import python_environment

CODE = """
import os, signal, sys
import torch
from operant.training.ranks import RankError, joined
group = joined(2.0)
assert [int(x) for x in group.gather(torch.tensor([group.rank]))] == [0, 1]
assert group.seconds > 0
if group.rank == 1:
    {fault}
try:
    group.gather(torch.ones(3))
except RankError as error:
    print(error.rank, error.not_finite, error)
    try:  # the others may be at another exchange: nothing is handed to them any more
        group.gather(torch.ones(5))
    except RankError as again:
        assert again is error
        print("ended")
    sys.stdout.flush()
    os._exit(0)  # not to wait for one that hangs
print("nothing happened")
"""
FAULTS = {
    "fails": "group.failed('stopped: it is NaN', True); sys.exit(1)",
    "dies": "os.kill(os.getpid(), signal.SIGKILL)",
    "hangs": "os.kill(os.getpid(), signal.SIGSTOP)",
}
TOLD = {
    "fails": "1 True rank 1 stopped: it is NaN",
    "dies": "1 False rank 1 died",
    "hangs": "1 False rank 1 hangs: nothing was heard of it for 2 s",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_rank_that_cannot_go_on_is_named(fault: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = CODE.format(fault=FAULTS[fault])
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env=python_environment()
            | {"RANK": str(rank), "WORLD_SIZE": "2"}
            | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        out, _ = ranks[0].communicate(timeout=120)
    finally:
        for one in ranks:
            one.kill()
            one.wait()
    assert out.splitlines() == [TOLD[fault], "ended"]
