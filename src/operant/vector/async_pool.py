"""`AsyncEnvPool`: environments that need not wait for each other."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from operant.backends.foreign.actions import nested, packed_actions
from operant.backends.foreign.block import MakeEnv
from operant.backends.foreign.choose_executor import Options, start
from operant.backends.foreign.part_steps import PartSteps
from operant.backends.foreign.seeds import env_seed
from operant.vector.arguments import checked_count
from operant.vector.gymnasium_ids import known_id
from operant.vector.seeding import checked_seed, fresh_seed

_MAX_ENVS = 2**20


class AsyncEnvPool:
    """`num_envs` environments of which those that are done first are answered first.

    ::

        pool = AsyncEnvPool("CartPole-v1", num_envs=64, batch_size=16)
        pool.reset(seed=0)
        while True:
            obs, reward, terminated, truncated, info = pool.recv()
            pool.send(policy(obs), info["env_id"])

    Each environment plays what it would in a plain loop: its seed is `env_seed` of (seed, index),
    and an episode that ends begins again in the same step. Which environments a batch has depends
    on how long they take.

    Args:
        env: makes one environment, or an id of Gymnasium's such as ``"ALE/Pong-v5"``.
        num_envs: how many.
        batch_size: environments in a batch of `recv`; all unless given.
        backend: ``"processes"``, ``"threads"``, ``"serial"`` or ``"auto"``.
        workers: processes or threads; one for each core unless given.
        on_worker_death: see `operant.vector.foreign_batch.ForeignBatch`.
        step_timeout_s: see there.
        context: see there.

    Raises:
        ValueError, TypeError: what an argument may not be.
        ForeignEnvError: an environment raised, or has other spaces than the first.
    """

    def __init__(
        self,
        env: MakeEnv | str,
        num_envs: int,
        batch_size: int | None = None,
        *,
        backend: str = "processes",
        workers: int | None = None,
        on_worker_death: str = "raise",
        step_timeout_s: float = 60.0,
        context: str = "spawn",
    ) -> None:
        self.num_envs = checked_count("num_envs", num_envs, _MAX_ENVS)
        self.batch_size = (
            num_envs if batch_size is None else checked_count("batch_size", batch_size, num_envs)
        )
        if workers is not None:
            workers = checked_count("workers", workers, _MAX_ENVS)
        make_env: MakeEnv = known_id(env) if isinstance(env, str) else env
        options = Options(workers, on_worker_death, step_timeout_s, context)
        chosen = start(make_env, self.num_envs, backend, options)
        if chosen.probe.layouts.agents:
            chosen.executor.close()
            raise ValueError(
                f"{chosen.probe.name} has several agents, which wait for each other; use "
                "operant.vector.foreign_batch.ForeignBatch"
            )
        self._executor, self._memory = chosen.executor, chosen.executor.memory
        self._finalizer = weakref.finalize(self, chosen.executor.close)
        self.backend, self.backend_reason = chosen.backend, chosen.reason
        self.workers = chosen.executor.workers
        self._layouts = chosen.probe.layouts
        self.single_observation_space = self._layouts.observation.space
        self.single_action_space = self._layouts.action.space
        self._ready: list[int] = []
        self._stepping = PartSteps(chosen.executor)
        self._held: set[int] = set()
        """Received, and not sent an action yet."""

    def reset(self, seed: int | None = None) -> None:
        """Begin new episodes in all environments; `recv` gives their first observations.

        Args:
            seed: of the pool; None: a new one.

        Raises:
            ValueError: a bad seed, or a closed pool.
            ForeignEnvError: an environment failed.
        """
        self._check_open()
        self._stepping.wait_for_all()
        seed = fresh_seed() if seed is None else checked_seed(seed)
        self._executor.reset([(i, env_seed(seed, i)) for i in range(self.num_envs)])
        for array in (self._memory.reward, self._memory.terminated, self._memory.truncated):
            array[...] = 0
        self._ready, self._held = list(range(self.num_envs)), set()

    def send(self, actions: Any, env_id: Any) -> None:
        """Let environments step; returns at once.

        Args:
            actions: ``[K, ...]``, as ``single_action_space`` has them.
            env_id: int ``[K]``: which, all of them received and not sent to since.

        Raises:
            ValueError, TypeError: what may not be sent; nothing was.
            ForeignEnvError: the pool has been closed because one hung.
        """
        self._check_open()
        indices = np.asarray(env_id)
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            raise TypeError(f"env_id must be integers [K], got {indices.dtype} {indices.shape}")
        listed = indices.tolist()
        wrong = [index for index in listed if index not in self._held]
        if wrong or len(set(listed)) != len(listed):
            raise ValueError(
                f"env_id must name environments once that recv() gave last, got {wrong or listed}"
            )
        rows = self._memory.action[indices]
        packed_actions(self._layouts.action, actions, rows)
        self._memory.action[indices] = rows
        self._held.difference_update(listed)
        self._stepping.begin(listed)

    def recv(self) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """The next `batch_size` environments that are done: observations, rewards float64,
        terminated, truncated and info, the caller's. Waits for them.

        Info has ``env_id``, int64, and if episodes ended ``final_obs``, as the observations, of
        which the rows of ``_final_obs`` count.

        Raises:
            ValueError: fewer than that are stepping.
            ForeignEnvError: an environment failed; the others can be received.
        """
        self._check_open()
        if len(self._ready) + len(self._stepping) < self.batch_size:
            raise ValueError(
                f"recv() waits for {self.batch_size} environments, and only "
                f"{len(self._ready) + len(self._stepping)} are stepping; call reset() or send()"
            )
        while len(self._ready) < self.batch_size:
            self._ready += self._stepping.wait_for_some()
        chosen, self._ready = self._ready[: self.batch_size], self._ready[self.batch_size :]
        self._held.update(chosen)
        indices, memory, layout = np.array(chosen), self._memory, self._layouts.observation
        terminated, truncated = memory.terminated[indices], memory.truncated[indices]
        info: dict[str, Any] = {"env_id": indices}
        ended = terminated | truncated
        if ended.any():
            info |= {"final_obs": nested(layout, memory.final_obs[indices]), "_final_obs": ended}
        obs = nested(layout, memory.obs[indices])
        return obs, memory.reward[indices], terminated, truncated, info

    def close(self) -> None:
        """End the workers and close the environments; again is harmless."""
        self._finalizer()

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise ValueError("this pool is closed; make a new one")
