"""Worker processes: what they do is what a plain loop does, and what happens when one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium.vector.utils import batch_space

from operant.backends.foreign.bell import AVAILABLE, SIZE, Bell
from operant.backends.foreign.errors import ForeignEnvError, StepTimeoutError, WorkerDiedError
from operant.vector.foreign_batch import ForeignBatch, env_seed

from .faulty import DIE, FINE, HANG, RAISE, Faulty, Shelves

MAKERS = {
    "CartPole": partial(gymnasium.make, "CartPole-v1", max_episode_steps=30),
    "FrozenLake": partial(gymnasium.make, "FrozenLake-v1"),
    "Taxi": partial(gymnasium.make, "Taxi-v4", max_episode_steps=20),
    "Dict": Shelves,
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_number_of_workers_changes_nothing(name: str) -> None:
    make = MAKERS[name]
    space = batch_space(make().action_space, 5)
    space.seed(0)
    actions = [space.sample() for _ in range(60)]

    def played(**options: Any) -> list[Any]:
        batch = ForeignBatch(make, 5, seed=3, **options)
        results = [batch.reset()[0], *(batch.step(action) for action in actions[:40])]
        state = batch.get_state()
        results += [batch.step(action)[:4] for action in actions[40:]]
        batch.set_state(state)
        again = [batch.step(action)[:4] for action in actions[40:]]
        np.testing.assert_equal(again, results[-20:])
        batch.close()
        return results

    one = played(backend="serial")
    assert sum("final_obs" in result[4] for result in one[1:41]) >= 2
    for backend, workers in (("processes", 1), ("processes", 2), ("threads", 2)):
        np.testing.assert_equal(played(backend=backend, workers=workers), one)
    forked = played(backend="processes", workers=4, context="forkserver")
    np.testing.assert_equal(forked, one)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no cores to choose here")
def test_workers_on_one_core_are_moved_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = os.sched_getaffinity(0)
    batch = ForeignBatch(MAKERS["CartPole"], 2, backend="processes", workers=2)
    workers = batch._executor._workers
    given: list[tuple[int, set[int]]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, to: given.append((pid, set(to))))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5})
    for found, moved in ((5, {3}), (3, {5})):
        given.clear()
        for worker in workers:
            worker.channel._bells[1]._words[1] = found
        batch._executor._spread()
        assert given == [(workers[1].process.pid, moved), (workers[1].process.pid, {3, 5})]
    workers[0].channel._bells[1]._words[1] = 5
    given.clear()
    batch._executor._spread()
    assert given == []
    monkeypatch.undo()
    batch.close()
    assert os.sched_getaffinity(0) == cores


@pytest.mark.skipif(not AVAILABLE, reason="no bells here")
@pytest.mark.parametrize("spins", [True, False])
def test_a_bell_is_heard_once_for_each_ring(spins: bool) -> None:
    memory = np.zeros(SIZE, np.uint8)
    ringer, listener = Bell(memory, spins, new=True), Bell(memory, spins, new=False)
    ringer.ring(7)
    ringer._words[1] = -1  # no core that the listener is on: it may look before it sleeps
    assert listener.wait(1.0) == 7
    assert listener.wait(0.001) is None
    ringer.ring(8)
    ringer.ring(9)
    assert [listener.wait(None), listener.wait(None)] == [9, 9]
    assert listener.wait(0) is None


def test_what_an_environment_raises_arrives_and_the_batch_can_be_reset() -> None:
    batch = ForeignBatch(Faulty, 4, backend="processes", workers=2, seed=1)
    batch.reset()
    sentence = (
        r"environment 2 \(Faulty\) raised in step\(\): KeyError: 'lost' \(faulty.py:\d+, seed"
    )
    with pytest.raises(ForeignEnvError, match=sentence) as raised:
        batch.step(np.array([FINE, FINE, RAISE, FINE]))
    assert (raised.value.env_index, raised.value.seed) == (2, env_seed(1, 2))
    assert 'raise KeyError("lost")' in raised.value.traceback
    batch.reset()
    np.testing.assert_array_equal(batch.step(np.zeros(4, int))[0][:, 0], [1, 1, 1, 1])
    with pytest.raises(WorkerDiedError, match="environments 0 to 1 was killed by SIGKILL"):
        batch.step(np.array([FINE, DIE, FINE, FINE]))
    batch.close()


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_a_killed_worker_can_be_started_again(context: str) -> None:
    options: Any = {"workers": 2, "on_worker_death": "restart", "context": context}
    batch = ForeignBatch(Faulty, 4, backend="processes", **options)
    batch.reset()
    batch.step(np.zeros(4, int))
    obs, reward, terminated, truncated, info = batch.step(np.array([FINE, DIE, FINE, FINE]))
    np.testing.assert_array_equal(obs[:, 0], [0, 0, 2, 2])
    np.testing.assert_array_equal(truncated, [True, True, False, False])
    assert not terminated.any()
    np.testing.assert_array_equal(reward, [0, 0, 1, 1])
    np.testing.assert_array_equal(info["final_obs"][:2, 0], [2, 1])  # the last that was seen
    np.testing.assert_array_equal(batch.step(np.zeros(4, int))[0][:, 0], [1, 1, 3, 3])
    batch.close()


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_an_environment_that_hangs_is_named(backend: str) -> None:
    batch = ForeignBatch(Faulty, 2, backend=backend, workers=2, step_timeout_s=2.0)
    batch.reset()
    with pytest.raises(StepTimeoutError, match="environment 1 did not answer within 2 s"):
        batch.step(np.array([FINE, HANG]))
    with pytest.raises(ForeignEnvError, match="this batch is closed: environment 1 did not"):
        batch.step(np.array([FINE, FINE]))


def test_a_factory_that_cannot_be_sent() -> None:
    lock = threading.Lock()

    def make() -> Any:
        with lock:
            return Faulty()

    with pytest.raises(TypeError, match=r"make_env cannot be sent to a process: .* \"serial\""):
        ForeignBatch(make, 2, backend="processes")
    batch = ForeignBatch(make, 2, backend="threads", workers=2)
    batch.reset()
    with pytest.raises(ForeignEnvError, match=r"environment 1 \(Faulty\) raised in step"):
        batch.step(np.array([FINE, RAISE]))
    batch.close()


PARENT = """
import signal, sys; sys.path.insert(0, sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs the tests may ignore it
import numpy as np
from faulty import Faulty, HANG
from operant.vector.foreign_batch import ForeignBatch
batch = ForeignBatch(Faulty, 2, backend="processes", workers=2)
batch.reset()
print(*(worker.process.pid for worker in batch._executor._workers), flush=True)
batch.step(np.full(2, HANG))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_parent_that_ends_leaves_nothing(
    number: signal.Signals, unmeasured: Callable[[], dict[str, str]]
) -> None:
    shared = Path("/dev/shm")
    before = set(shared.iterdir()) if shared.is_dir() else set()
    command = [sys.executable, "-c", PARENT, str(Path(__file__).parent)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=unmeasured(),
        start_new_session=True,  # a group of its own: Ctrl-C goes to all of a group
    ) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        if number == signal.SIGINT:
            os.killpg(parent.pid, number)
        else:
            parent.send_signal(number)
        said = parent.stderr.read()
    assert len(workers) == 2
    assert ("KeyboardInterrupt" in said) == (number == signal.SIGINT)
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not [worker for worker in alive if worker.status() != psutil.STATUS_ZOMBIE]
    after = set(shared.iterdir()) if shared.is_dir() else set()
    assert not [path for path in after - before if "operant" in path.name]


def test_workers_import_nothing_from_the_folder_one_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cloudpickle.py").write_text("raise SystemExit(3)")
    (tmp_path / "gymnasium.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    batch = ForeignBatch(Faulty, 2, backend="processes", workers=1)
    batch.reset()
    batch.close()


class Surroundings(Faulty):
    """Sees in its first observation what its process is like."""

    def reset(self, **kwargs: Any) -> Any:
        obs, info = super().reset(**kwargs)
        obs[0] = ("torch" in sys.modules) + 2 * (os.environ.get("OMP_NUM_THREADS") == "1")
        return obs, info


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_have_nothing_of_their_parent_and_one_thread(
    context: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch  # noqa: F401

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    batch = ForeignBatch(Surroundings, 2, backend="processes", workers=2, context=context)
    np.testing.assert_array_equal(batch.reset()[0][:, 0], [2, 2])
    batch.close()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    batch = ForeignBatch(Surroundings, 1, backend="processes", workers=1, context=context)
    np.testing.assert_array_equal(batch.reset()[0][:, 0], [0])
    batch.close()
