"""What environments and trainings compute, as digests: equal before and after a change that is to
change no result.

    python benchmarks/digests.py before.json [--device cpu] [--only NAME]
    python benchmarks/digests.py after.json --against before.json

Plays every environment on every backend in every autoreset mode, and trains every environment with
every engine of the device for three iterations of its shipped configuration, with fewer
environments. Exits with 1 if a digest differs from that in the other file, which another commit
wrote on the same machine. About two minutes on two cores; uses public names only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import operant
from operant import PPO

EXAMPLES = Path(__file__).parents[1] / "examples"
MODES = ("NextStep", "SameStep", "Disabled")
NUM_ENVS, STEPS, ITERATIONS = 48, 120, 3


def environments() -> dict[str, Any]:
    """What is played and trained: every registered environment, and those of the examples."""
    sys.path.insert(0, str(EXAMPLES))
    from catch import Catch
    from lander import Lander
    from snake import Snake

    own = ("CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1", "Acrobot-v1")
    grids = ("MultiRoom-v0", "KeyCorridor-v0", "DeepSea-v0", "SparseMountainCar-v0")
    named: dict[str, Any] = {name: name for name in (*own, "Prospector-v0", *grids)}
    return {**named, "Catch": Catch, "Lander": Lander, "Snake": Snake}


class Digest:
    """The SHA-256 of arrays with their names, dtypes and shapes."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, name: str, value: Any) -> None:
        """Add an array, a tensor on any device, or a dict of them."""
        if isinstance(value, dict):
            for key in sorted(value):
                self.add(f"{name}.{key}", value[key])
            return
        if hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        array = np.ascontiguousarray(value)
        self._hash.update(f"{name} {array.dtype} {array.shape}".encode())
        self._hash.update(array.tobytes())

    @property
    def text(self) -> str:
        """Its first 16 hexadecimal digits."""
        return self._hash.hexdigest()[:16]


def trajectory(env: Any, backend: str, mode: str) -> str:
    """The digest of everything a batch answers to random actions, and of its last state."""
    digest, random = Digest(), np.random.default_rng(5)
    batch = operant.make(env, NUM_ENVS, backend=backend, seed=11, autoreset_mode=mode)
    obs, info = batch.reset()
    digest.add("obs", obs)
    masked = "action_mask" in info
    for _ in range(STEPS if backend != "reference" else STEPS // 4):
        actions = _actions(batch, random, info["action_mask"] if masked else None)
        obs, reward, terminated, truncated, info = batch.step(actions)
        for name, value in (("obs", obs), ("reward", reward), ("over", terminated)):
            digest.add(name, value)
        digest.add("truncated", truncated)
        digest.add("info", {key: info[key] for key in info if _plain(info[key])})
        over = np.asarray(_host(terminated) | _host(truncated))
        if mode == "Disabled" and over.any():
            given = over if backend != "cuda" else _tensor(batch, over)
            obs, info = batch.reset(options={"reset_mask": given})
            digest.add("reset", obs)
    digest.add("state", dict(batch.get_state()))
    batch.close()
    return digest.text


def _host(value: Any) -> np.ndarray:
    return value.cpu().numpy() if hasattr(value, "cpu") else np.asarray(value)


def _tensor(batch: Any, value: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(value)).to(batch.device)


def _plain(value: Any) -> bool:
    return hasattr(value, "dtype") and getattr(value.dtype, "kind", "f") != "O"


def _actions(batch: Any, random: np.random.Generator, mask: Any) -> Any:
    space = batch.single_action_space
    if hasattr(space, "n"):
        if mask is None:
            actions = space.start + random.integers(space.n, size=batch.num_envs)
        else:
            actions = (random.random((batch.num_envs, int(space.n))) * _host(mask)).argmax(1)
    else:
        actions = random.uniform(space.low, space.high, (batch.num_envs, *space.shape))
        actions = actions.astype(np.float32)
    return actions if batch.backend != "cuda" else _tensor(batch, actions)


def training(env: Any, device: str, engine: str, precision: str) -> str:
    """The digest of weights, optimiser and figures after a few iterations."""
    ppo = PPO(env, num_envs=NUM_ENVS, device=device, engine=engine, precision=precision, seed=3)
    ppo.learn(ITERATIONS * NUM_ENVS * ppo.config.ppo.num_steps, progress=False)
    digest = Digest()
    digest.add("policy", dict(ppo.policy.state_dict()))
    digest.add("episodes", np.array([ppo.episodes, ppo.steps]))
    digest.add("return", np.array(ppo.mean_return))
    return f"{digest.text} {ppo.engine.name}"


def digests(device: str, only: str) -> Iterator[tuple[str, str]]:
    """Every one of a device, with its name."""
    backends = ("cuda",) if device == "cuda" else ("reference", "cpu")
    engines = ("eager", "graph", "fused") if device == "cuda" else ("eager", "fused")
    for name, env in environments().items():
        for backend in backends:
            for mode in MODES:
                label = f"play {name} {backend} {mode}"
                if only in label:
                    yield label, trajectory(env, backend, mode)
        for engine in engines:
            for precision in (
                ("fp32", "bf16") if (device, engine) == ("cuda", "fused") else ("fp32",)
            ):
                label = f"train {name} {device} {engine} {precision}"
                if only in label:
                    yield label, training(env, device, engine, precision)


def main() -> int:
    """Write the digests, compare them if asked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", default="", help="those with this in their name")
    parser.add_argument("--against", type=Path, help="a file that another commit wrote")
    options = parser.parse_args()
    found = {}
    for label, digest in digests(options.device, options.only):
        print(f"{digest}  {label}", flush=True)
        found[label] = digest
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    if options.against is None:
        return 0
    wanted = json.loads(options.against.read_text())
    differ = [label for label in found if found[label] != wanted.get(label)]
    print(f"{len(found) - len(differ)} equal, {len(differ)} differ", *differ, sep="\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
