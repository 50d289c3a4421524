"""Pendulum-v1: swing a pendulum up and hold it there with limited torque."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Space

from operant.lang import clip, cos, sin, uniform
from operant.lang.env import Env
from operant.render.canvas import INK, PAPER, RED, SILVER, Canvas


class Pendulum(Env):
    """Choose a torque; the cost grows with the angle from upright, the speed and the torque."""

    class Params(NamedTuple):
        """Gymnasium's constants; `g` is gravity, `m` and `l` the pendulum's mass and length."""

        g: float = 10.0
        m: float = 1.0
        l: float = 1.0  # noqa: E741  (Gymnasium's name)
        dt: float = 0.05
        max_speed: float = 8.0
        max_torque: float = 2.0

    class State(NamedTuple):
        """Angle from upright in radians, not wrapped, and its rate."""

        theta: float
        theta_dot: float

    env_id = "Pendulum-v1"
    max_episode_steps = 200
    render_size = (500, 500)
    training = {  # solved with five seeds of five: docs/results.md
        "env.num_envs": 64,
        "policy.normalize_obs": True,
        "policy.log_std": 0.5,
        "ppo.num_steps": 64,
        "ppo.epochs": 10,
        "ppo.minibatches": 4,
        "ppo.learning_rate": 1e-3,
        "ppo.learning_rate_schedule": "linear",
        "ppo.gamma": 0.98,
        "ppo.gae_lambda": 0.95,
        "ppo.entropy_coef": 0.0,
        "ppo.normalize_reward": True,
        "run.total_steps": 600_000,
    }

    @staticmethod
    def observation_space(params: Params) -> Space[Any]:
        """Cosine, sine, speed."""
        high = np.array([1.0, 1.0, params.max_speed], np.float32)
        return Box(-high, high, dtype=np.float32)

    @staticmethod
    def action_space(params: Params) -> Space[Any]:
        """One torque."""
        return Box(-params.max_torque, params.max_torque, (1,), np.float32)

    @staticmethod
    def reset(random: tuple[float, ...]) -> State:
        """Any angle, slow."""
        theta, theta_dot, *_ = random
        return Pendulum.State(uniform(theta, -math.pi, math.pi), uniform(theta_dot, -1.0, 1.0))

    @staticmethod
    def step(state: State, action: tuple[float], params: Params) -> tuple[State, float, bool]:
        """One semi-implicit Euler step of `dt` seconds; never terminates."""
        torque = clip(action[0], -params.max_torque, params.max_torque)
        angle = (state.theta + math.pi) % (2 * math.pi) - math.pi
        cost = angle**2 + 0.1 * state.theta_dot**2 + 0.001 * torque**2

        swing = 3 * params.g / (2 * params.l) * sin(state.theta)
        push = 3.0 / (params.m * params.l**2) * torque
        theta_dot = state.theta_dot + (swing + push) * params.dt
        theta_dot = clip(theta_dot, -params.max_speed, params.max_speed)
        theta = state.theta + theta_dot * params.dt
        return Pendulum.State(theta, theta_dot), -cost, False

    @staticmethod
    def observe(state: State) -> tuple[float, ...]:
        """The angle as a point on the circle, so that it has no jump."""
        return (cos(state.theta), sin(state.theta), state.theta_dot)

    @staticmethod
    def render(state: State, canvas: Canvas, params: Params) -> None:
        """Draw the rod, upright at angle zero, turning counter-clockwise."""
        length = params.l
        edge = 2.2 * length
        canvas.fill(PAPER)
        canvas.view(-edge, edge, -edge, edge)
        canvas.circle(0.0, 0.0, 1.01 * length, SILVER)
        canvas.circle(0.0, 0.0, 0.99 * length, PAPER)

        angle = state.theta + math.pi / 2
        tip_x, tip_y = length * math.cos(angle), length * math.sin(angle)
        canvas.line(0.0, 0.0, tip_x, tip_y, RED, 0.2 * length)
        canvas.circle(0.0, 0.0, 0.05 * length, INK)
