"""Other libraries' PPO, run with our settings: one file a peer, imported when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

PEERS = {"sb3": "stable-baselines3", "rejax": "rejax"}
"""Who can take part, and the package to install for it."""


@dataclass(frozen=True)
class Setting:
    """PPO's work for everyone; a peer changes what its best figure needs and nothing else.

    Raises:
        ValueError: minibatches of different sizes: not everyone can do that.
    """

    env: str = "CartPole-v1"
    num_envs: int = 2048
    num_steps: int = 128
    epochs: int = 4
    minibatches: int = 4
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    device: str = "cpu"
    engine: str = "auto"
    threads: int = 0
    precision: str = "auto"
    compile: str = "max"
    learning_rate: float = 2.5e-4
    adam_eps: float = 1e-5
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy_coef: float = 0.01
    value_coef: float = 0.5
    max_grad_norm: float = 0.5

    def __post_init__(self) -> None:
        if self.rollout % self.minibatches:
            raise ValueError(
                f"minibatches must divide a rollout of {self.num_envs} x {self.num_steps} = "
                f"{self.rollout} steps, got {self.minibatches}"
            )

    @property
    def rollout(self) -> int:
        """Environment steps of one iteration."""
        return self.num_envs * self.num_steps


class Trainer(Protocol):
    """A PPO that is ready to train."""

    flops_per_step: float | None
    """Operations of the networks' matrix products for a step, if known."""
    shares: dict[str, float] | None
    """Shares of the last `train`'s time by part of an iteration, if known."""

    @property
    def setting(self) -> Setting:
        """What it really runs with."""

    def train(self, iterations: int) -> None:
        """Collect and train on so many rollouts; returns when all of it is done."""

    def close(self) -> None:
        """Give back environments and threads."""


class Peer(Protocol):
    """What the module of a peer has."""

    def check(self, setting: Setting) -> None:
        """Raise ValueError unless the peer is there and can do it."""

    def open_trainer(self, setting: Setting) -> Trainer:
        """The peer's PPO, at the peer's best."""


def find_peer(name: str) -> Peer:
    """The peer of that name, which may still be missing its package; see `Peer.check`.

    Raises:
        ValueError: unknown; the message has the known ones.
    """
    if name not in PEERS:
        raise ValueError(f"unknown peer {name!r}; known: {', '.join(PEERS)}")
    peer: Peer = import_module(f"{__name__}.{name}")
    return peer


def not_usable(name: str, error: ImportError) -> ValueError:
    """What to tell the user of a peer whose import failed."""
    package = PEERS[name]
    if isinstance(error, ModuleNotFoundError) and error.name == package.replace("-", "_"):
        return ValueError(f"the peer {name} is not installed: pip install {package}")
    return ValueError(
        f"the peer {name} is installed but does not import ({error}); "
        "docs/benchmarks.md has versions that work together"
    )
