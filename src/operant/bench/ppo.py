"""``operant bench ppo``: PPO training steps per second, ours beside others', in one run.

A step counts when it was collected and trained on. Contenders take turns: in each round everyone
trains for some whole iterations, and the figure is the median over the rounds.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from operant.bench.peers import Setting, Trainer, find_peer
from operant.training.callbacks import Callback
from operant.training.config import ENGINES
from operant.vector.registry import get_env

if TYPE_CHECKING:
    from operant.ppo.ppo import PPO


PARTS = ("collect", "advantages", "update")
"""Of an iteration."""


@dataclass
class Contender:
    """A PPO, and what it reached in each round."""

    system: str
    setting: Setting
    """As asked for; once measured, what it really ran with."""
    open: Callable[[Setting], Trainer]
    rounds: list[float] = field(default_factory=list)
    shares: list[dict[str, float]] = field(default_factory=list)
    flops_per_step: float | None = None
    limit_gflops: float | None = None
    """What the GPU does in a large product of the same precision."""

    @property
    def ours(self) -> bool:
        """Whether it is this library, perhaps with another engine."""
        return self.system in ("operant", *ENGINES)

    @property
    def sps(self) -> float:
        """Median training steps per second."""
        return statistics.median(self.rounds)

    @property
    def label(self) -> str:
        """A short name for progress displays."""
        return f"{self.system} {self.setting.env}"


def contenders(setting: Setting, peers: Sequence[str]) -> list[Contender]:
    """Ours, then each peer: another library, or ours with another engine, by the engine's name.

    Raises:
        ValueError: an unknown environment or peer, a peer that is not installed, no such device.
    """
    from operant.ppo.engines.choose import choose_device

    device = str(choose_device(setting.device))
    setting = replace(setting, env=setting.env.removeprefix("operant/"), device=device)
    get_env(setting.env)
    found = [Contender("operant", setting, OurTrainer)]
    for name in peers:
        if name in ENGINES[1:]:
            found.append(Contender(name, replace(setting, engine=name), OurTrainer))
            continue
        peer = find_peer(name)
        peer.check(setting)
        found.append(Contender(name, setting, peer.open_trainer))
    return found


def usual_peers(device: str, engine: str) -> list[str]:
    """Whom to compare with if nobody is named: on a GPU, our other engines there."""
    from operant.ppo.engines.choose import choose_device

    if choose_device(device).type == "cpu":
        return []
    return [name for name in ("graph", "eager") if name != engine]


class _Stopwatch(Callback):
    """Adds up where the time goes."""

    watches_only = True

    def __init__(self) -> None:
        self.seconds = [0.0, 0.0, 0.0]

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        """Add an iteration."""
        self.seconds = [a + b for a, b in zip(self.seconds, ppo.timings, strict=True)]

    @property
    def shares(self) -> dict[str, float]:
        """Of the time spent so far, by part."""
        return {
            part: seconds / sum(self.seconds)
            for part, seconds in zip(PARTS, self.seconds, strict=True)
        }


class OurTrainer:
    """See `operant.bench.peers.Trainer`."""

    def __init__(self, setting: Setting) -> None:
        from operant.models import PPO
        from operant.ppo.config import Config

        self._asked = setting
        self._ppo = PPO(setting.env, Config().replaced(_options(setting)))
        self.shares: dict[str, float] | None = None
        self.flops_per_step: float | None = flops_per_step(self._ppo)

    @property
    def setting(self) -> Setting:
        """What it runs with; the number of threads may be found while training."""
        engine = self._ppo.engine
        precision = getattr(engine, "precision", "fp32")
        compiled = self._asked.compile if getattr(engine, "compiled", False) else "off"
        return replace(
            self._asked,
            engine=engine.name,
            threads=engine.threads,
            precision=precision,
            compile=compiled,
        )

    def train(self, iterations: int) -> None:
        """Whole iterations; see `Trainer`."""
        ppo, watch = self._ppo, _Stopwatch()
        ppo.learn(ppo.steps + iterations * self.setting.rollout, watch, progress=False)
        self.shares = watch.shares

    def close(self) -> None:
        """Close the environments."""
        self._ppo.env.close()


def _options(setting: Setting) -> dict[str, Any]:
    """Everything by name, so that neither a shipped configuration nor a default has a say."""
    return {
        "env.num_envs": setting.num_envs,
        "policy.hidden": setting.hidden,
        "policy.activation": setting.activation,
        "policy.normalize_obs": False,
        "ppo.normalize_reward": False,
        "ppo.learning_rate_schedule": "constant",
        "ppo.num_steps": setting.num_steps,
        "ppo.epochs": setting.epochs,
        "ppo.minibatches": setting.minibatches,
        "ppo.learning_rate": setting.learning_rate,
        "ppo.adam_eps": setting.adam_eps,
        "ppo.gamma": setting.gamma,
        "ppo.gae_lambda": setting.gae_lambda,
        "ppo.clip": setting.clip,
        "ppo.entropy_coef": setting.entropy_coef,
        "ppo.value_coef": setting.value_coef,
        "ppo.max_grad_norm": setting.max_grad_norm,
        "run.device": setting.device,
        "run.engine": setting.engine,
        "run.threads": setting.threads,
        "run.precision": setting.precision,
        "run.compile": setting.compile,
    }


def measure(everyone: Sequence[Contender], repeats: int, seconds: float) -> Iterator[str]:
    """Fill in ``rounds`` of each contender; yields what is being done, before it is done.

    Args:
        everyone: who takes part.
        repeats: rounds that count. One iteration before them, which compiles, does not, nor does a
            second one, which says how many iterations a round has.
        seconds: what a round should at least take; rounded up to whole iterations.
    """
    running = []
    for contender in everyone:
        yield f"starting {contender.label}"
        trainer = contender.open(contender.setting)
        contender.setting = trainer.setting
        trainer.train(1)
        once = _seconds_of(trainer, 1)
        running.append((contender, trainer, max(1, math.ceil(seconds / once))))
    for round_number in range(repeats):
        for contender, trainer, iterations in running:
            yield f"round {round_number + 1} of {repeats}: {contender.label}"
            steps = iterations * trainer.setting.rollout
            contender.rounds.append(steps / _seconds_of(trainer, iterations))
            if trainer.shares is not None:
                contender.shares.append(trainer.shares)
    for contender, trainer, _ in running:
        contender.setting = trainer.setting
        contender.flops_per_step = trainer.flops_per_step
        trainer.close()
        if contender.setting.device != "cpu" and contender.flops_per_step is not None:
            contender.limit_gflops = product_gflops(
                contender.setting.device, contender.setting.precision
            )


def _seconds_of(trainer: Trainer, iterations: int) -> float:
    began = time.perf_counter()
    trainer.train(iterations)
    return time.perf_counter() - began


def records(everyone: Sequence[Contender]) -> list[dict[str, Any]]:
    """One flat record per contender; ``ratio_to`` compares ours with each peer of the same run.

    ``collect_share``, ``advantages_share`` and ``update_share`` are shares of the time, ``gflops``
    is what the networks' matrix products amount to (10**9 operations a second), ``limit_share`` is
    its part of what the GPU does in one large product of that precision; None where unknown.
    """
    return [
        {
            "system": one.system,
            "env": one.setting.env,
            "engine": one.setting.engine,
            "device": one.setting.device,
            "num_envs": one.setting.num_envs,
            "num_steps": one.setting.num_steps,
            "epochs": one.setting.epochs,
            "minibatches": one.setting.minibatches,
            "hidden": list(one.setting.hidden),
            "activation": one.setting.activation,
            "threads": one.setting.threads,
            "precision": one.setting.precision if one.ours else None,
            "compile": one.setting.compile if one.ours else None,
            "sps": round(one.sps),
            "sps_min": round(min(one.rounds)),
            "sps_max": round(max(one.rounds)),
            "repeats": len(one.rounds),
            **{f"{part}_share": _share([found[part] for found in one.shares]) for part in PARTS},
            "gflops": _gflops(one),
            "limit_gflops": one.limit_gflops,
            "limit_share": _limit_share(one),
            "ratio_to": {
                peer.system: round(one.sps / peer.sps, 2)
                for peer in everyone
                if one.system == "operant" and peer.system != "operant"
            },
        }
        for one in everyone
    ]


def flops_per_step(ppo: PPO) -> float:
    """Operations of the networks' matrix products for a step that is collected and trained on.

    A multiplication and an addition for each weight: once to act, and in each epoch once forward,
    once for the weight's own gradient, once for that of what came before, if it is not the input.
    """
    from torch import nn

    layers = [module for module in ppo.policy.modules() if isinstance(module, nn.Linear)]
    trunks = [trunk for trunk in ppo.policy.children() if isinstance(trunk, nn.Sequential)]
    first = [trunk[0] for trunk in trunks if len(trunk) > 0]
    forward = sum(2 * layer.weight.numel() for layer in layers)
    backward = 2 * forward - sum(2 * layer.weight.numel() for layer in layers if layer in first)
    return float(forward + ppo.config.ppo.epochs * (forward + backward))


def _gflops(one: Contender) -> float | None:
    return None if one.flops_per_step is None else round(one.sps * one.flops_per_step / 1e9, 1)


def _limit_share(one: Contender) -> float | None:
    reached = _gflops(one)
    return None if one.limit_gflops is None or not reached else round(reached / one.limit_gflops, 4)


@lru_cache
def product_gflops(device: str, precision: str) -> float:
    """10**9 operations a second of a product of two 8192 x 8192 matrices on a GPU; best of 5."""
    import torch

    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    size, best = 8192, math.inf
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        a, b = (
            torch.randn(size, size, device=device, dtype=kinds.get(precision, torch.float32))
            for _ in range(2)
        )
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
        for _ in range(6):
            marks[0].record()
            a @ b
            marks[1].record()
            marks[1].synchronize()
            best = min(best, marks[0].elapsed_time(marks[1]) * 1e-3)
    finally:
        torch.set_float32_matmul_precision(before)
    return round(2 * size**3 / best / 1e9, 1)


def _share(rounds: Sequence[float]) -> float | None:
    return round(statistics.median(rounds), 3) if rounds else None
