"""``operant bench env``: environment steps per second, ours beside others', in one run.

Contenders take turns: in each round everyone steps for a while, and the figure is the median over
the rounds. On a shared machine the ratio of two such medians is worth more than either.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from operant.compiler.spec.rules import Rules, TracedRules
from operant.lang.env import Env
from operant.vector.choose_backend import host_backend
from operant.vector.registry import get_env
from operant.vector.step_clocks import timed_on_gpu, timed_on_host

PEERS = ("gymnasium", "envpool")
_BATCHES = 16  # different action batches, made beforehand
CARTPOLE = "gymnasium cartpole"
"""The peer every environment is also compared with: Gymnasium's NumPy CartPole."""


@dataclass
class Contender:
    """Something that steps environments, and what it reached in each round."""

    system: str
    env: str
    backend: str
    num_envs: int
    workers: int
    copy: bool
    open: Callable[[], Any]
    rounds: list[float] = field(default_factory=list)
    bandwidth: float | None = None
    """Bytes a second that the GPU copies, read and written."""
    rules: Rules | None = None
    """Those of the environment, from when it is made."""
    bytes_per_step: dict[str, int] = field(default_factory=dict)
    """What one step of one environment must move there."""

    @property
    def on_gpu(self) -> bool:
        """Whether it runs on a GPU."""
        return self.backend.partition(":")[0] == "cuda"

    @property
    def bandwidth_share(self) -> float | None:
        """Share of the GPU's copy bandwidth that the bytes of the steps amount to."""
        if self.bandwidth is None:
            return None
        return self.sps * sum(self.bytes_per_step.values()) / self.bandwidth

    @property
    def sps(self) -> float:
        """Median environment steps per second."""
        return statistics.median(self.rounds)

    @property
    def label(self) -> str:
        """A short name for progress displays."""
        return f"{self.system} {self.env} x{self.num_envs}"


def contenders(
    env_ids: Sequence[str],
    num_envs: Sequence[int],
    workers: Sequence[int],
    peers: Sequence[str],
    backends: Sequence[str],
    copy: bool,
    classes: Mapping[str, type[Env]] | None = None,
) -> list[Contender]:
    """Everyone who takes part: each combination of ours, then each peer at each size.

    Without `backends` ours run on the fastest one of the host. `classes` are those of environments
    that have no id.

    Raises:
        ValueError: an unknown environment or peer, or a peer that is not installed.
    """
    for peer in peers:
        if peer not in PEERS:
            raise ValueError(f"unknown peer {peer!r}; known: {', '.join(PEERS)}")
        if peer == "envpool":
            _import_envpool()
    found = []
    for env_id in env_ids:
        name = env_id.removeprefix("operant/")
        env = (classes or {}).get(env_id) or get_env(name)
        for count in num_envs:
            found += [
                _ours(name, env, count, threads, backend, copy)
                for backend in backends or [host_backend(env)]
                for threads in (workers if backend in ("cpu", "native") else workers[:1])
            ]
            if "gymnasium" in peers:
                found.append(_gymnasium(name, count))
            if "envpool" in peers:
                found += [_envpool(name, count, threads) for threads in workers]
    if "gymnasium" in peers and "CartPole-v1" not in [e.removeprefix("operant/") for e in env_ids]:
        found += [_gymnasium("CartPole-v1", count) for count in num_envs]
    return found


def _ours(
    env_id: str, env: type[Env], num_envs: int, workers: int, backend: str, copy: bool
) -> Contender:
    def open_env() -> Any:
        from operant.vector.make import make

        return make(env, num_envs, workers=workers, backend=backend, copy=copy, seed=0)

    return Contender("operant", env_id, backend, num_envs, workers, copy, open_env)


def _gymnasium(env_id: str, num_envs: int) -> Contender:
    import gymnasium

    numpy_version = gymnasium.spec(env_id).vector_entry_point is not None
    mode = "vector_entry_point" if numpy_version else "sync"

    def open_env() -> Any:
        return gymnasium.make_vec(env_id, num_envs, vectorization_mode=mode)

    backend = "numpy" if numpy_version else mode
    return Contender("gymnasium", env_id, backend, num_envs, 1, True, open_env)


def _import_envpool() -> Any:
    try:
        import envpool
    except ImportError:
        raise ValueError("the peer envpool is not installed: pip install envpool") from None
    return envpool


def _envpool(env_id: str, num_envs: int, workers: int) -> Contender:
    def open_env() -> Any:
        return _import_envpool().make(
            env_id, env_type="gymnasium", num_envs=num_envs, num_threads=workers
        )

    return Contender("envpool", env_id, "c++", num_envs, workers, True, open_env)


def measure(everyone: Sequence[Contender], repeats: int, seconds: float) -> Iterator[str]:
    """Fill in ``rounds`` of each contender; yields what is being done, before it is done."""
    running = []
    for contender in everyone:
        yield f"starting {contender.label}"
        env = contender.open()
        if contender.system == "operant":
            contender.backend = env.backend  # of "auto"
        env.reset()
        ours = contender.system == "operant"
        contender.rules = env.rules if ours else Rules.of(get_env(contender.env))
        actions = random_actions(contender.rules, contender.num_envs)
        began = time.perf_counter()
        env.step(actions[0])  # compiles, if anything does
        quick = time.perf_counter() - began < 5
        timed = timed_on_gpu(env, actions) if contender.on_gpu else timed_on_host(env, actions)
        once = timed(3 if quick else 1)
        running.append((contender, env, timed, max(1, round(seconds / once))))
    if any(contender.on_gpu for contender in everyone):
        yield "measuring how fast the GPU copies"
        _note_bandwidth(everyone)
    for round_number in range(repeats):
        for contender, _, timed, steps in running:
            yield f"round {round_number + 1} of {repeats}: {contender.label}"
            contender.rounds.append(contender.num_envs / timed(steps))
    for _, env, _, _ in running:
        env.close()


def random_actions(rules: Rules, num_envs: int) -> list[np.ndarray]:
    """Random action batches, int64 or float32, as a policy would hand them over."""
    layout = rules.action
    random = np.random.default_rng(0)
    shape = (num_envs, *layout.shape)
    if layout.dtype == "int":
        low, high = (np.array(bounds).reshape(layout.shape) for bounds in (layout.low, layout.high))
        return [random.integers(low, high, shape) for _ in range(_BATCHES)]
    space: Any = layout.space
    low = np.where(np.isfinite(space.low), space.low, np.minimum(space.high, 0.0) - 1.0)
    high = np.where(np.isfinite(space.high), space.high, np.maximum(low, 0.0) + 1.0)
    return [random.uniform(low, high, shape).astype(np.float32) for _ in range(_BATCHES)]


def _note_bandwidth(everyone: Sequence[Contender]) -> None:
    from operant.backends.cuda.launch import bytes_per_step

    bandwidth = copy_bandwidth()
    for one in everyone:
        rules = one.rules
        if one.on_gpu and isinstance(rules, TracedRules):  # arrays: what is touched depends
            one.bandwidth = bandwidth
            one.bytes_per_step = bytes_per_step(rules, 8 if rules.action.dtype == "int" else 4)


def copy_bandwidth() -> float:
    """Bytes a second, read and written, of a copy of a GiB on the GPU: median of ten."""
    import torch

    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda").random_(0, 255)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(12):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        seconds.append(float(start.elapsed_time(end)) * 1e-3)
    return 2 * source.numel() / statistics.median(seconds[2:])


def records(everyone: Sequence[Contender]) -> list[dict[str, Any]]:
    """One flat record per contender. ``ratio_to`` compares ours with each peer of the same run:
    same environment and size, and ``gymnasium cartpole``, Gymnasium's NumPy CartPole of that size.
    """
    return [
        {
            "system": one.system,
            "env": one.env,
            "backend": one.backend,
            "num_envs": one.num_envs,
            "workers": one.workers,
            "copy": one.copy,
            "sps": round(one.sps),
            "sps_min": round(min(one.rounds)),
            "sps_max": round(max(one.rounds)),
            "repeats": len(one.rounds),
            **_bandwidth(one),
            "ratio_to": _ratios(one, everyone) if one.system == "operant" else {},
        }
        for one in everyone
    ]


def _bandwidth(one: Contender) -> dict[str, Any]:
    if one.bandwidth is None or one.bandwidth_share is None:
        return {}
    return {
        "copy_bytes_per_second": round(one.bandwidth),
        "bytes_per_step": one.bytes_per_step,
        "bandwidth_share": round(one.bandwidth_share, 3),
    }


def _ratios(one: Contender, everyone: Sequence[Contender]) -> dict[str, float]:
    ratios = {}
    for peer in everyone:
        if peer.system == "operant" or peer.num_envs != one.num_envs:
            continue
        if peer.env == one.env and (peer.system != "envpool" or peer.workers == one.workers):
            ratios[peer.system] = round(one.sps / peer.sps, 2)
        if peer.system == "gymnasium" and peer.env == "CartPole-v1":
            ratios[CARTPOLE] = round(one.sps / peer.sps, 2)
    return ratios
