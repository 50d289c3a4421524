"""What ``operant check`` plays with an environment of PettingZoo's; see `foreign_trial`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from operant.backends.foreign.block import MakeEnv
from operant.backends.foreign.errors import ForeignEnvError
from operant.backends.foreign.pettingzoo import as_parallel
from operant.backends.foreign.processes import why_not_sent
from operant.backends.foreign.state import why_not_saved
from operant.check.finding import Finding
from operant.check.foreign_values import obs_fault
from operant.vector.foreign_batch import ForeignBatch
from operant.vector.random_play import random_actions, step_memory

_MOST_STEPS, _MOST_S = 1000, 3.0
_COMPARED_STEPS = 100
_SEED = 1


class AgentsTrial:
    """Plays environments that `make_env` makes as the rows of a batch, which is how they are
    trained on, and says what it finds.

    Args:
        make_env: makes one, of either API of PettingZoo's.
        say: told the name of a check and what is about to be called.
    """

    def __init__(self, make_env: MakeEnv, say: Callable[[str, str], None]) -> None:
        self._make_env, self._say = make_env, say
        self._fault = ""
        self._lengths: list[int] = []
        self._returns: list[float] = []

    def findings(self) -> Iterator[Finding]:
        """Each finding as soon as it is known; after one that ends the play there is no other."""
        name = "spaces"
        try:
            self._say(name, "its agents, spaces and reset()")
            batch = self._batch()
            each = f"observations {batch.single_observation_space}"
            each += f", actions {batch.single_action_space}"
            yield Finding(name, True, f"{len(batch.agents)} agents, each with {each}")
            name = "step"
            steps = self._play(batch)
            yield Finding(name, True, f"{steps} steps, {len(self._lengths)} episodes of agents")
            fault = self._fault
            yield Finding("observations", not fault, fault or "all in the space, no NaN")
            yield Finding("rewards", True, "finite numbers")
            name = "determinism"
            yield from self._repeated()
        except (ForeignEnvError, ValueError, TypeError) as error:
            yield Finding(name, False, str(error))
            return
        yield self._episodes()
        if why := self._why_not_saved():
            detail = f"a resumed run restarts its episodes: {why}"
            yield Finding("saving", True, detail, note=True)
        why = why_not_sent(self._make_env)
        unsent = f'{why}; without that only backend="serial" and "threads" can run it'
        detail = unsent if why else "can be sent to worker processes"
        yield Finding("processes", True, detail, note=bool(why))
        self._say("close", "close()")
        batch.close()

    def _batch(self) -> ForeignBatch:
        return ForeignBatch(lambda: _looked_at(self._make_env(), self._look), backend="serial")

    def _why_not_saved(self) -> str | None:
        env = as_parallel(self._make_env())
        try:
            return why_not_saved(env)
        finally:
            env.close()

    def _look(self, env: Any, obs: Any, when: str) -> None:
        """Note what is wrong about the observations of all agents; what is no dict of them, the
        batch refuses."""
        for agent in obs if isinstance(obs, dict) and not self._fault else ():
            if agent in env.possible_agents:
                fault = obs_fault(env.observation_space(agent), obs[agent])
                self._fault = f"agent {agent!r}: {fault} ({when})" if fault else ""
                if fault:
                    return

    def _play(self, batch: ForeignBatch) -> int:
        """Whole episodes with random actions; how many steps."""
        began, steps = time.monotonic(), 0
        self._say("reset", f"reset(seed={_SEED})")
        batch.reset(seed=_SEED)
        actions, memory = random_actions(batch), step_memory(batch)
        while steps < _MOST_STEPS and time.monotonic() - began < _MOST_S:
            steps += 1
            self._say("step", f"step() {steps}")
            ends = batch.write_step(next(actions), memory)
            if ends is not None:
                self._lengths += ends.lengths.tolist()
                self._returns += ends.returns.tolist()
        return steps

    def _repeated(self) -> Iterator[Finding]:
        """The same seed and actions in two environments, and another seed."""
        one, again, other = (self._trajectory(seed) for seed in (_SEED, _SEED, _SEED + 1))
        same = f"the same seed gives the same {_COMPARED_STEPS} steps"
        differ = (
            "the same seed and actions give something else in a second environment: reset(seed) "
            "must set all that is random"
        )
        yield Finding("determinism", one == again, same if one == again else differ)
        if one == again:
            all_same = "every seed gives the same steps: nothing is random, or seeds are ignored"
            detail = all_same if one == other else "another seed gives another episode"
            yield Finding("seeds", True, detail, note=one == other)

    def _trajectory(self, seed: int) -> list[bytes]:
        """What the first steps from a seed give."""
        self._say("determinism", f"reset(seed={seed}) and steps")
        batch = self._batch()
        batch.reset(seed=seed)
        actions, memory = random_actions(batch), step_memory(batch)
        found = []
        for _ in range(_COMPARED_STEPS):
            batch.write_step(next(actions), memory)
            found.append(b"".join(array.tobytes() for array in memory))
        batch.close()
        return found

    def _episodes(self) -> Finding:
        if not self._lengths:
            detail = "no agent's episode ended; give the environment a time limit, such as its "
            return Finding("episodes", True, f"{detail}max_cycles", note=True)
        detail = f"{len(self._lengths)} of agents with random actions: mean length "
        detail += f"{np.mean(self._lengths):.1f}, mean return {np.mean(self._returns):.4g}"
        return Finding("episodes", True, detail)


def _looked_at(env: Any, look: Callable[[Any, Any, str], None]) -> Any:
    """A parallel environment whose observations are handed to `look`."""
    from pettingzoo.utils.wrappers import (  # type: ignore[import-untyped]
        BaseParallelWrapper,
    )

    class Looked(BaseParallelWrapper):  # type: ignore[misc]
        """Hands on what it is given."""

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            """As it does."""
            found = super().reset(seed=seed, options=options)
            look(self, found[0] if isinstance(found, tuple) and found else None, "after reset()")
            return found

        def step(self, actions: Any) -> Any:
            """As it does."""
            found = super().step(actions)
            look(self, found[0] if isinstance(found, tuple) and found else None, "after step()")
            return found

    return Looked(as_parallel(env))
