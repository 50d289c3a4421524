"""The ``reference`` backend: the author's own functions, run by Python on NumPy arrays.

Nothing is compiled, so a debugger steps into ``reset``, ``step``, ``observe`` and ``action_mask``.
Every other backend is tested against this one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from operant.compiler.philox import uniforms
from operant.compiler.recording.trace import INT
from operant.compiler.spec.buffers import Buffers
from operant.compiler.spec.rules import Rules, TracedRules, call
from operant.lang.batch import batch


class ReferenceBackend:
    """Steps a batch with NumPy. Each method updates `buffers` in place."""

    def __init__(self, rules: Rules, buffers: Buffers, max_steps: int, mode: AutoresetMode) -> None:
        self._buffers = buffers
        self._max_steps = max_steps
        self._mode = mode
        self.use(rules)

    def use(self, rules: Rules) -> None:
        """Go on with other values of the float parameters."""
        self._rules = rules
        self._params = rules.params._replace(
            **{name: self._float(getattr(rules.params, name)) for name in rules.float_params}
        )

    def _float(self, value: float) -> Any:
        """A parameter, as the author's functions get it."""
        # An array of one: a NumPy scalar would follow other rules (sin in float64, 1 // 0.1 = 9).
        return batch([value])

    def reset(self, mask: np.ndarray, now_us: int) -> None:
        """Begin a new episode in the environments of `mask`, bool ``[num_envs]``."""
        b = self._buffers
        lanes = np.flatnonzero(mask)
        self._begin(lanes)
        b.episode[lanes] += np.uint32(1)
        b.steps[lanes] = 0
        b.episode_return[lanes] = 0.0
        b.start_us[lanes] = now_us
        b.done[lanes] = False
        self._observe(lanes)

    def _begin(self, lanes: np.ndarray) -> None:
        """Run the author's ``reset`` for these environments; write the states."""
        b, env = self._buffers, self._rules.env
        zeros = np.zeros(len(lanes), np.uint32)
        draws = uniforms(b.seed[lanes], b.index[lanes], b.episode[lanes], zeros, env.random_numbers)
        with np.errstate(all="ignore"):
            random = tuple(batch(u) for u in draws)
            state = call(env.reset, random=random, params=self._params)
        self._write_state(lanes, state)

    def observe(self) -> None:
        """Write the observations and the masks from the states."""
        self._observe(np.arange(self._buffers.num_envs))

    def state_changed(self) -> None:
        """Nothing is kept outside the buffers."""

    def _observe(self, lanes: np.ndarray) -> None:
        b, env = self._buffers, self._rules.env
        given = {"state": self._state(lanes), "params": self._params}
        with np.errstate(all="ignore"):
            values = call(env.observe, **given)
            allowed = call(env.action_mask, **given) if self._rules.mask_size else ()
        values = (values,) if self._rules.observation.scalar else values
        rows = b.obs.reshape(b.lanes, -1)
        for k, value in enumerate(values):
            rows[lanes, k] = value
        for k, value in enumerate(allowed):
            b.action_mask[lanes, k] = value

    def step(self, actions: np.ndarray, now_us: int) -> int:
        """One step of every environment; how many finished, or -1 if an action is bad."""
        if not self._take(actions):
            return -1
        b = self._buffers
        before = b.cut(b.done).copy()
        for report in (b.report_return, b.report_length, b.report_time_s):
            b.cut(report)[before] = 0
        reward, terminated = self._advance()
        b.cut(b.steps)[:] += 1
        b.cut(b.reward)[:] = reward
        b.cut(b.terminated)[:] = terminated
        b.cut(b.truncated)[:] = b.cut(b.steps) >= self._max_steps
        b.cut(b.episode_return)[:] += b.cut(b.reward)
        self.observe()
        done = b.cut(b.terminated) | b.cut(b.truncated)
        if self._mode == AutoresetMode.NEXT_STEP and before.any():
            self.reset(before, now_us)
            for result in (b.reward, b.terminated, b.truncated):
                b.cut(result)[before] = 0
            done &= ~before
        b.cut(b.report_return)[done] = b.cut(b.episode_return)[done]
        b.cut(b.report_length)[done] = b.cut(b.steps)[done]
        b.cut(b.report_time_s)[done] = (now_us - b.cut(b.start_us)[done]) * 1e-6
        if self._mode == AutoresetMode.SAME_STEP and done.any():
            b.cut(b.final_obs)[done] = b.cut(b.obs)[done]
            self.reset(done, now_us)
        b.cut(b.done)[:] = done
        return int(done.sum())

    def close(self) -> None:
        """Nothing to release."""

    def _take(self, actions: np.ndarray) -> bool:
        """Copy actions, ``[num_envs, ...]``, to ``buffers.action``; False if one is bad."""
        layout = self._rules.action
        rows = actions.reshape(self._buffers.num_envs, layout.size).T
        if layout.dtype == INT:
            low, high = np.array(layout.low)[:, None], np.array(layout.high)[:, None]
            good = bool(((rows >= low) & (rows < high)).all())
        else:
            good = bool(np.isfinite(rows).all())
        if good:
            for array, row in zip(self._buffers.action, rows, strict=True):
                self._buffers.cut(array)[:] = row
        return good

    def _advance(self) -> tuple[Any, Any]:
        """Run the author's ``step`` on all environments; write the states."""
        b, n = self._buffers, self._buffers.num_envs
        env, layout = self._rules.env, self._rules.action
        assert isinstance(self._rules, TracedRules)
        actions = tuple(batch(b.cut(array).copy()) for array in b.action)
        draws = uniforms(
            b.cut(b.seed),
            b.cut(b.index),
            b.cut(b.episode) - np.uint32(1),
            b.cut(b.steps) + 1,
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
        arrays = self._buffers.state.values()
        return self._rules.env.State(*[batch(array[lanes]) for array in arrays])

    def _write_state(self, lanes: np.ndarray, state: Any) -> None:
        for array, value in zip(self._buffers.state.values(), state, strict=True):
            array[lanes] = np.asarray(value).astype(array.dtype)
