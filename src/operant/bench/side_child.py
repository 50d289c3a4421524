"""One side of ``operant bench compare``: a process that measures the `operant` it imports.

It is started as a file, with another `operant` on the path, and so takes nothing from the package
that it lies in: the standard library, and names that every version has. A line of JSON in is a
request, a line of JSON out its answer: seconds by ``wall`` and by ``cpu`` (of all cores, which do
not pass while others have them), or ``{"error": "a sentence"}``.
"""

import json
import os
import sys
import time
from typing import Any

_BATCHES = 16  # different action batches, made beforehand


class Steps:
    """A batch of environments that is stepped with random actions."""

    def __init__(self, row: dict[str, Any]) -> None:
        import operant

        on_gpu = row["device"].startswith("cuda")
        make: Any = operant.make
        place = {} if on_gpu else {"workers": row["threads"]}
        options = {"backend": row["device"], "seed": 0, "copy": False, **place}
        self.env = make(row["env"], row["num_envs"], **options)
        self.env.reset()
        actions = self._actions()
        self.device = self.env.device if on_gpu else None
        self._replay = self._captured(actions) if on_gpu else None
        self._batches = actions

    def _actions(self) -> list[Any]:
        space = self.env.action_space
        space.seed(0)
        return [space.sample() for _ in range(_BATCHES)]

    def _captured(self, actions: list[Any]) -> Any:
        """Launches all batches of actions at once, as a trainer does."""
        import torch

        tensors = [torch.from_numpy(batch).to(self.env.device) for batch in actions]
        self.env.step(tensors[0])  # compiles
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for batch in tensors:
                self.env.step(batch)
        return graph.replay

    def run(self, count: int) -> dict[str, float]:
        """Seconds that `count` times 16 steps took. One before them brings memory to the caches."""
        if self._replay is not None:
            return timed(self._replay, count, self.device)
        self.env.step(self._batches[0])
        return timed(self._step_all, count, None)

    def _step_all(self) -> None:
        step = self.env.step
        for batch in self._batches:
            step(batch)

    @property
    def size(self) -> int:
        """Environment steps of a count of 1."""
        return int(_BATCHES * self.env.num_envs)

    def close(self) -> None:
        """Release it."""
        self.env.close()


_WORK: dict[str, Any] = {
    "hidden": [64, 64],
    "activation": "tanh",
    "shared": False,
    "normalize_obs": False,
    "normalize_reward": False,
    "epochs": 4,
    "minibatches": 4,
    "learning_rate": 2.5e-4,
    "learning_rate_schedule": "constant",
    "entropy_coef": 0.01,
    "target_kl": 0.0,
}
"""Standard PPO by name: versions differ in their defaults and shipped configurations."""


class Training:
    """A PPO that trains."""

    def __init__(self, row: dict[str, Any]) -> None:
        from operant.models import PPO

        options = {name: row[name] for name in ("num_envs", "num_steps", "engine", "device")}
        if not row["device"].startswith("cuda"):
            options["threads"] = row["threads"]
        self.ppo: Any = PPO(row["env"], seed=1, compile="off", **_WORK, **options)
        if self.ppo.engine.name != row["engine"]:
            raise ValueError(f"engine {self.ppo.engine.name}: {self.ppo.engine_reason}")
        self.size = row["num_envs"] * row["num_steps"]
        """Environment steps of a count of 1, an iteration."""

    def run(self, count: int) -> dict[str, float]:
        """Seconds that so many iterations took."""
        ppo = self.ppo
        return timed(lambda: ppo.learn(ppo.steps + count * self.size), 1, ppo.device)

    def close(self) -> None:
        """Release it."""
        self.ppo.env.close()


def timed(work: Any, count: int, device: Any) -> dict[str, float]:
    """Seconds that `work`, done `count` times, took; a GPU's are over when it has finished."""
    wait = _wait_for(device)
    wait()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        work()
    wait()
    cpu = max(time.process_time() - cpu, 1e-9)  # coarse on some systems
    return {"wall": time.perf_counter() - wall, "cpu": cpu}


def _wait_for(device: Any) -> Any:
    if device is None or device.type == "cpu":
        return lambda: None
    import torch

    return lambda: torch.cuda.synchronize(device)


def _import() -> Any:
    import operant

    return operant


KINDS: dict[str, Any] = {"env": Steps, "ppo": Training}


def answers(requests: Any) -> Any:
    """Do what each request asks for; yields the answers."""
    yield timed(_import, 1, None) | {"file": os.path.realpath(str(_import().__file__))}
    opened: Any = None
    for line in requests:
        request = json.loads(line)
        try:
            if request["do"] == "open":
                opened = KINDS[request["row"]["kind"]](request["row"])
                opened.run(1)
                yield {"size": opened.size, "total_cpu": time.process_time()}
            elif request["do"] == "run":
                yield opened.run(request["count"])
            else:
                opened = opened.close()
                yield {}
        except Exception as error:
            lines = str(error).strip().splitlines()
            yield {"error": lines[0] if lines else type(error).__name__}


def main() -> None:
    """Answer standard input on standard output, to which nobody else may write."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for answer in answers(sys.stdin):
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
