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
from typing import TYPE_CHECKING, Any

from operant.bench.peers import Setting, Trainer, find_peer
from operant.envs.registry import get_env
from operant.ppo.callbacks import Callback

if TYPE_CHECKING:
    from operant.ppo.trainer import PPO


@dataclass
class Contender:
    """A PPO, and what it reached in each round."""

    system: str
    setting: Setting
    """As asked for; once measured, what it really ran with."""
    open: Callable[[Setting], Trainer]
    rounds: list[float] = field(default_factory=list)
    collect_shares: list[float] = field(default_factory=list)

    @property
    def sps(self) -> float:
        """Median training steps per second."""
        return statistics.median(self.rounds)

    @property
    def label(self) -> str:
        """A short name for progress displays."""
        return f"{self.system} {self.setting.env}"


def contenders(setting: Setting, peers: Sequence[str]) -> list[Contender]:
    """Ours, then each peer.

    Raises:
        ValueError: an unknown environment or peer, a peer that is not installed, no such device.
    """
    from operant.ppo.engines.choose import choose_device

    device = str(choose_device(setting.device))
    setting = replace(setting, env=setting.env.removeprefix("operant/"), device=device)
    get_env(setting.env)
    found = [Contender("operant", setting, OurTrainer)]
    for name in peers:
        peer = find_peer(name)
        peer.check(setting)
        found.append(Contender(name, setting, peer.open_trainer))
    return found


class _Stopwatch(Callback):
    """Adds up where the time goes."""

    def __init__(self) -> None:
        self.collect_s = self.update_s = 0.0

    def on_update(self, ppo: PPO, metrics: dict[str, float]) -> None:
        """Add an iteration."""
        self.collect_s += metrics["collect_seconds"]
        self.update_s += metrics["update_seconds"]


class OurTrainer:
    """See `operant.bench.peers.Trainer`."""

    collect_share: float | None = None

    def __init__(self, setting: Setting) -> None:
        from operant.models import PPO
        from operant.ppo.config import Config
        from operant.ppo.threads import usable_cores

        self._ppo = PPO(setting.env, Config().replaced(_options(setting)))
        threads = setting.threads or usable_cores() if self._ppo.device.type == "cpu" else 1
        self.setting = replace(setting, engine=self._ppo.engine.name, threads=threads)

    def train(self, iterations: int) -> None:
        """Whole iterations; see `Trainer`."""
        ppo, watch = self._ppo, _Stopwatch()
        ppo.learn(ppo.steps + iterations * self.setting.rollout, watch)
        self.collect_share = watch.collect_s / (watch.collect_s + watch.update_s)

    def close(self) -> None:
        """Close the environments."""
        self._ppo.env.close()


def _options(setting: Setting) -> dict[str, Any]:
    """Everything by name, so that no shipped configuration of the environment has a say."""
    return {
        "env.num_envs": setting.num_envs,
        "policy.hidden": setting.hidden,
        "policy.activation": setting.activation,
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
            if trainer.collect_share is not None:
                contender.collect_shares.append(trainer.collect_share)
    for _, trainer, _ in running:
        trainer.close()


def _seconds_of(trainer: Trainer, iterations: int) -> float:
    began = time.perf_counter()
    trainer.train(iterations)
    return time.perf_counter() - began


def records(everyone: Sequence[Contender]) -> list[dict[str, Any]]:
    """One flat record per contender; ``ratio_to`` compares ours with each peer of the same run.

    ``collect_share`` is the share of the time that went into collecting; None where it is unknown.
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
            "sps": round(one.sps),
            "sps_min": round(min(one.rounds)),
            "sps_max": round(max(one.rounds)),
            "repeats": len(one.rounds),
            "collect_share": _share(one.collect_shares),
            "ratio_to": {
                peer.system: round(one.sps / peer.sps, 2)
                for peer in everyone
                if one.system == "operant" and peer.system != "operant"
            },
        }
        for one in everyone
    ]


def _share(rounds: Sequence[float]) -> float | None:
    return round(statistics.median(rounds), 3) if rounds else None
