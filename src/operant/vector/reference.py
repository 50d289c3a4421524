"""The ``reference`` backend: the author's own functions, run by Python on NumPy arrays.

Nothing is compiled, so a debugger steps into ``reset``, ``step`` and ``observe``. Every other
backend is tested against this one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from operant.envs.rules import NUMPY_DTYPES, Rules, call
from operant.lang.batch import batch
from operant.lang.trace import INT
from operant.vector.buffers import Buffers
from operant.vector.philox import uniforms


class ReferenceBackend:
    """Steps a batch with NumPy. Each method updates `buffers` in place."""

    def __init__(self, rules: Rules, buffers: Buffers, max_steps: int, mode: AutoresetMode) -> None:
        self._rules = rules
        self._buffers = buffers
        self._max_steps = max_steps
        self._mode = mode
        floats = {name: np.float32(getattr(rules.params, name)) for name in rules.float_params}
        self._params = rules.params._replace(**floats)

    def reset(self, mask: np.ndarray, now_us: int) -> None:
        """Begin a new episode in the environments of `mask`, bool ``[num_envs]``."""
        b = self._buffers
        lanes = np.flatnonzero(mask)
        env = self._rules.env
        zeros = np.zeros(len(lanes), np.uint32)
        draws = uniforms(b.seed[lanes], b.index[lanes], b.episode[lanes], zeros, env.random_numbers)
        with np.errstate(all="ignore"):
            random = tuple(batch(u) for u in draws)
            state = call(env.reset, random=random, params=self._params)
        self._write_state(lanes, state)
        b.episode[lanes] += np.uint32(1)
        b.steps[lanes] = 0
        b.episode_return[lanes] = 0.0
        b.start_us[lanes] = now_us
        b.done[lanes] = False
        self._observe(lanes)

    def observe(self) -> None:
        """Write the observations from the states."""
        self._observe(np.arange(self._buffers.num_envs))

    def state_changed(self) -> None:
        """Nothing is kept outside the buffers."""

    def _observe(self, lanes: np.ndarray) -> None:
        b = self._buffers
        with np.errstate(all="ignore"):
            values = call(self._rules.env.observe, state=self._state(lanes), params=self._params)
        values = (values,) if self._rules.observation.scalar else values
        rows = b.obs.reshape(b.lanes, -1)
        for k, value in enumerate(values):
            rows[lanes, k] = value

    def take_actions(self, actions: np.ndarray) -> bool:
        """Copy actions, ``[num_envs, ...]``, to ``buffers.action``; False if one is bad."""
        layout = self._rules.action
        rows = actions.reshape(self._buffers.num_envs, layout.size).T
        if layout.dtype == INT:
            low, high = np.array(layout.low)[:, None], np.array(layout.high)[:, None]
            good = bool(((rows >= low) & (rows < high)).all())
        else:
            good = bool(np.isfinite(rows.astype(np.float32)).all())
        if good:
            self._buffers.action[:, : self._buffers.num_envs] = rows
        return good

    def step(self, now_us: int) -> int:
        """One step of every environment with ``buffers.action``; how many finished."""
        b = self._buffers
        before = b.cut("done").copy()
        for name in ("report_return", "report_length", "report_time_s"):
            b.cut(name)[before] = 0
        reward, terminated = self._advance()
        b.cut("steps")[:] += 1
        b.cut("reward")[:] = reward
        b.cut("terminated")[:] = terminated
        b.cut("truncated")[:] = b.cut("steps") >= self._max_steps
        b.cut("episode_return")[:] += b.cut("reward")
        self.observe()
        done = b.cut("terminated") | b.cut("truncated")
        if self._mode == AutoresetMode.NEXT_STEP and before.any():
            self.reset(before, now_us)
            for name in ("reward", "terminated", "truncated"):
                b.cut(name)[before] = 0
            done &= ~before
        b.cut("report_return")[done] = b.cut("episode_return")[done]
        b.cut("report_length")[done] = b.cut("steps")[done]
        b.cut("report_time_s")[done] = (now_us - b.cut("start_us")[done]) * 1e-6
        if self._mode == AutoresetMode.SAME_STEP and done.any():
            b.cut("final_obs")[done] = b.cut("obs")[done]
            self.reset(done, now_us)
        b.cut("done")[:] = done
        return int(done.sum())

    def close(self) -> None:
        """Nothing to release."""

    def _advance(self) -> tuple[Any, Any]:
        """Run the author's ``step`` on all environments; write the states."""
        b, n = self._buffers, self._buffers.num_envs
        env, layout = self._rules.env, self._rules.action
        actions = tuple(batch(row[:n].copy()) for row in b.action)
        draws = uniforms(
            b.cut("seed"),
            b.cut("index"),
            b.cut("episode") - np.uint32(1),
            b.cut("steps") + 1,
            self._rules.step_draws,
        )
        lanes = np.arange(n)
        with np.errstate(all="ignore"):  # values that a reset overwrites may be NaN
            state, reward, terminated = call(
                env.step,
                state=self._state(lanes),
                action=actions[0] if layout.scalar else actions,
                random=tuple(batch(u) for u in draws),
                params=self._params,
            )
        self._write_state(lanes, state)
        return reward, terminated

    def _state(self, lanes: np.ndarray) -> Any:
        fields = self._rules.fields
        return self._rules.env.State(
            *[batch(self._buffers.field(self._rules, name)[lanes]) for name in fields]
        )

    def _write_state(self, lanes: np.ndarray, state: Any) -> None:
        for (name, dtype), value in zip(self._rules.fields.items(), state, strict=True):
            field = self._buffers.field(self._rules, name)
            field[lanes] = np.asarray(value).astype(NUMPY_DTYPES[dtype])
