"""``operant bench env`` of what operant does not compile: steps per second of environments of
Gymnasium's API, beside a plain loop over them and other libraries' ways of running many.

Contenders take turns, and a ratio is the median of the rounds' ratios: what else the machine does
falls on all alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from operant.backends.foreign.block import MakeEnv
from operant.backends.foreign.choose_executor import BACKENDS
from operant.toolchain.machine import usable_cores
from operant.vector.foreign_batch import ForeignBatch
from operant.vector.foreign_env import ForeignEnv

SERIAL = "serial"
"""The peer that is a plain loop over ``env.step``."""
PEERS = {
    SERIAL: "gymnasium",
    "gymnasium-sync": "gymnasium",
    "gymnasium-async": "gymnasium",
    "gymnasium-vector": "gymnasium",
    "sb3-subproc": "stable-baselines3",
    "envpool": "envpool",
}
"""Who can take part, and the package to install for it."""
_BATCHES = 64
_WARM_UP = 8


class Computing(gymnasium.Env[Any, Any]):
    """Computes for a fixed number of turns in every step, in Python: it holds its core.

    Args:
        turns: see `turns_of`.
    """

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self.observation_space = spaces.Box(-1, 1, (4,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._obs = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Zeros."""
        return self._obs, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Zeros, after a while."""
        _compute(self._turns)
        return self._obs, 0.0, False, False, {}


def _compute(turns: int) -> int:
    total = 0
    for k in range(turns):
        total ^= k
    return total


def turns_of(microseconds: float) -> int:
    """How many turns take that long on this machine: the fastest of some trials."""
    trial = 20_000
    seconds = []
    for _ in range(20):
        began = time.perf_counter()
        _compute(trial)
        seconds.append(time.perf_counter() - began)
    return max(1, round(trial * microseconds * 1e-6 / min(seconds)))


@dataclass
class ForeignContender:
    """A way of running many environments, and what it reached in each round."""

    system: str
    env: str
    backend: str
    num_envs: int
    workers: int
    open: Callable[[], tuple[Callable[[np.ndarray], object], Callable[[], object]]]
    """Gives a function that steps all, and one that closes them."""
    action_space: spaces.Space[Any]
    rounds: list[float] = field(default_factory=list)
    """Environment steps per second."""

    @property
    def sps(self) -> float:
        """Median environment steps per second."""
        return statistics.median(self.rounds)

    @property
    def label(self) -> str:
        """A short name for progress displays."""
        return f"{self.system} {self.backend} {self.env} x{self.num_envs}"


def foreign_contenders(
    env: ForeignEnv,
    num_envs: Sequence[int],
    workers: Sequence[int],
    peers: Sequence[str],
    backends: Sequence[str],
) -> list[ForeignContender]:
    """Everyone who takes part: a plain loop, then ours, then each peer, at each size.

    Args:
        env: of Gymnasium's API.
        num_envs: sizes of a batch.
        workers: processes or threads; empty: one for each core.
        peers: see `PEERS`.
        backends: ours; empty: ``"processes"``.

    Raises:
        ValueError: an unknown backend or peer, or a peer that is not installed.
    """
    for peer in peers:
        _check_peer(peer)
    for backend in backends:
        if backend not in BACKENDS:
            names = ", ".join(BACKENDS)
            raise ValueError(f"backend must be one of {names} for {env.name}, got {backend!r}")
    made = env()
    made.close()
    if not isinstance(made, gymnasium.Env):
        raise ValueError(f"{env.name} is no environment of Gymnasium's, which alone are measured")
    space = made.action_space
    found = []
    for count in num_envs:
        one = partial(ForeignContender, env=env.name, num_envs=count, action_space=space)
        loop = partial(_plain_loop, env, count)
        found.append(one(SERIAL, backend="loop", workers=1, open=loop))
        for backend in backends or ["processes"]:
            for threads in [1] if backend == "serial" else (workers or [usable_cores()]):
                opened = partial(_ours, env, count, backend, threads)
                found.append(one("operant", backend=backend, workers=threads, open=opened))
        for peer in peers:
            if peer != SERIAL:
                opened = partial(_OPENED[peer], env, count)
                busy = 1 if peer == "gymnasium-sync" else count
                found.append(one(peer, backend="", workers=busy, open=opened))
    return found


def _check_peer(peer: str) -> None:
    if peer not in PEERS:
        raise ValueError(f"unknown peer {peer!r}; known: {', '.join(PEERS)}")
    if find_spec(PEERS[peer].replace("-", "_")) is None:
        raise ValueError(f"the peer {peer} is not installed: pip install {PEERS[peer]}")


Opened = tuple[Callable[[np.ndarray], object], Callable[[], object]]


def _plain_loop(make_env: MakeEnv, num_envs: int) -> Opened:
    envs = [make_env() for _ in range(num_envs)]
    for k, env in enumerate(envs):
        env.reset(seed=k)

    def step(actions: np.ndarray) -> None:
        for env, action in zip(envs, actions, strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    def close() -> None:
        for env in envs:
            env.close()

    return step, close


def _ours(make_env: MakeEnv, num_envs: int, backend: str, workers: int) -> Opened:
    batch = ForeignBatch(make_env, num_envs, backend=backend, workers=workers)
    batch.reset(seed=0)
    return batch.step, batch.close


def _sync(env: ForeignEnv, num_envs: int) -> Opened:
    return _vector(gymnasium.vector.SyncVectorEnv([env] * num_envs))


def _async(env: ForeignEnv, num_envs: int) -> Opened:
    return _vector(gymnasium.vector.AsyncVectorEnv([env] * num_envs))


def _own_vector(env: ForeignEnv, num_envs: int) -> Opened:
    """What the environment itself brings to run many; its observations may be others."""
    env_id = env.gymnasium_id
    if not env_id or gymnasium.spec(env_id).vector_entry_point is None:
        raise ValueError(
            f"{env.name} has no vector environment of its own: leave gymnasium-vector out"
        )
    mode = "vector_entry_point"
    return _vector(gymnasium.make_vec(env_id, num_envs, vectorization_mode=mode))


def _vector(env: Any) -> Opened:
    env.reset(seed=0)
    return env.step, env.close


def _sb3(env: ForeignEnv, num_envs: int) -> Opened:
    from stable_baselines3.common.vec_env import SubprocVecEnv

    envs = SubprocVecEnv([env] * num_envs)
    envs.reset()
    return envs.step, envs.close


def _envpool(env: ForeignEnv, num_envs: int) -> Opened:
    import envpool

    return _vector(envpool.make(env.gymnasium_id, env_type="gymnasium", num_envs=num_envs))


_OPENED = {
    "gymnasium-sync": _sync,
    "gymnasium-async": _async,
    "gymnasium-vector": _own_vector,
    "sb3-subproc": _sb3,
    "envpool": _envpool,
}


def measure_foreign(
    everyone: Sequence[ForeignContender], repeats: int, seconds: float
) -> Iterator[str]:
    """Fill in ``rounds`` of each contender; yields what is being done, before it is done."""
    running: list[tuple[ForeignContender, list[Any], Opened]] = []
    try:
        for one in everyone:
            yield f"starting {one.label}"
            space = one.action_space
            space.seed(0)
            actions = [
                np.stack([space.sample() for _ in range(one.num_envs)]) for _ in range(_BATCHES)
            ]
            running.append((one, actions, one.open()))
            for batch in actions[:_WARM_UP]:
                running[-1][2][0](batch)
        for number in range(repeats):
            for one, actions, (step, _) in running:
                yield f"round {number + 1} of {repeats}: {one.label}"
                count, began, passed = 0, time.perf_counter(), 0.0
                while passed < seconds:
                    step(actions[count % _BATCHES])
                    count += 1
                    passed = time.perf_counter() - began
                one.rounds.append(count * one.num_envs / passed)
    finally:
        for _, _, (_, close) in running:
            close()


def foreign_records(everyone: Sequence[ForeignContender]) -> list[dict[str, Any]]:
    """One flat record per contender. Of ours: ``ratio_to`` each peer of the same run and size, and
    beside the plain loop ``share_of_cores``, steps per second against those of the loop times the
    cores that the workers have, and ``overhead_us``, what an environment step takes longer than
    the loop's divided by that number of cores."""
    return [
        {
            "system": one.system,
            "env": one.env,
            "backend": one.backend,
            "num_envs": one.num_envs,
            "workers": one.workers,
            "sps": round(one.sps),
            "sps_min": round(min(one.rounds)),
            "sps_max": round(max(one.rounds)),
            "repeats": len(one.rounds),
            "step_us": round(1e6 / one.sps, 3),
            **_against_cores(one, everyone),
            "ratio_to": _ratios(one, everyone) if one.system == "operant" else {},
        }
        for one in everyone
    ]


def _against_cores(one: ForeignContender, everyone: Sequence[ForeignContender]) -> dict[str, float]:
    loop = next(o for o in everyone if o.system == SERIAL and o.num_envs == one.num_envs)
    cores = min(one.workers, usable_cores())
    pairs = list(zip(one.rounds, loop.rounds, strict=True))
    share = statistics.median(ours / theirs / cores for ours, theirs in pairs)
    overhead = statistics.median(1e6 / ours - 1e6 / theirs / cores for ours, theirs in pairs)
    return {"share_of_cores": round(share, 3), "overhead_us": round(overhead, 3)}


def _ratios(one: ForeignContender, everyone: Sequence[ForeignContender]) -> dict[str, float]:
    peers = [o for o in everyone if o.system != "operant" and o.num_envs == one.num_envs]
    return {
        peer.system: round(
            statistics.median(a / b for a, b in zip(one.rounds, peer.rounds, strict=True)), 2
        )
        for peer in peers
    }
