"""Acrobot-v1: swing a two-link chain above a line. After Sutton (1996)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, Space

from operant.lang import clip, cos, floor, sin, to_float, uniform, where
from operant.lang.env import Env
from operant.render.canvas import AMBER, BLUE, GREEN, INK, PAPER, Canvas


def _wrap(angle: float) -> float:
    """`angle` brought into [-pi, pi] by whole turns."""
    turns: float = floor((angle + math.pi) / (2 * math.pi))
    return angle - 2 * math.pi * turns


def _runge_kutta(state: Acrobot.State, torque: float, params: Acrobot.Params) -> tuple[float, ...]:
    """The classic fourth-order step of the equations of motion."""

    def ahead(slope: tuple[float, ...], time: float) -> tuple[float, ...]:
        return tuple(y + time * dy for y, dy in zip(state, slope, strict=True))

    dt = params.dt
    k1 = _derivatives(state, torque, params)
    k2 = _derivatives(ahead(k1, dt / 2), torque, params)
    k3 = _derivatives(ahead(k2, dt / 2), torque, params)
    k4 = _derivatives(ahead(k3, dt), torque, params)
    slope = tuple(a + 2 * b + 2 * c + d for a, b, c, d in zip(k1, k2, k3, k4, strict=True))
    return ahead(slope, dt / 6)


def _derivatives(
    state: tuple[float, ...], torque: float, params: Acrobot.Params
) -> tuple[float, ...]:
    """Rates of change of the two angles and of their rates."""
    theta1, theta2, rate1, rate2 = state
    m1, m2, moi, g = params.link_mass_1, params.link_mass_2, params.link_moi, params.gravity
    l1, lc1, lc2 = params.link_length_1, params.link_com_pos_1, params.link_com_pos_2
    cos2, sin2 = cos(theta2), sin(theta2)
    # cos(x - pi/2) of the original is sin(x).
    d1 = m1 * lc1**2 + m2 * (l1**2 + lc2**2 + 2 * l1 * lc2 * cos2) + 2 * moi
    d2 = m2 * (lc2**2 + l1 * lc2 * cos2) + moi
    phi2 = m2 * lc2 * g * sin(theta1 + theta2)
    phi1 = (
        -m2 * l1 * lc2 * rate2**2 * sin2
        - 2 * m2 * l1 * lc2 * rate2 * rate1 * sin2
        + (m1 * lc1 + m2 * l1) * g * sin(theta1)
        + phi2
    )
    ratio = d2 / d1
    pull = torque + ratio * phi1 - phi2
    if params.book_or_nips == "book":
        pull = pull - m2 * l1 * lc2 * rate1**2 * sin2
    acceleration2 = pull / (m2 * lc2**2 + moi - d2 * ratio)
    acceleration1 = -(d2 * acceleration2 + phi1) / d1
    return (rate1, rate2, acceleration1, acceleration2)


class Acrobot(Env):
    """Torque of -1, 0 or +1 on the middle joint; -1 for each step until the tip is up."""

    class Params(NamedTuple):
        """Gymnasium's constants: the links' lengths, masses, centres of mass and inertia."""

        dt: float = 0.2
        link_length_1: float = 1.0
        link_length_2: float = 1.0
        link_mass_1: float = 1.0
        link_mass_2: float = 1.0
        link_com_pos_1: float = 0.5
        link_com_pos_2: float = 0.5
        link_moi: float = 1.0
        max_vel_1: float = 4 * math.pi
        max_vel_2: float = 9 * math.pi
        gravity: float = 9.8
        book_or_nips: str = "book"

    class State(NamedTuple):
        """Angle of the first link from hanging, of the second from the first, and their rates."""

        theta1: float
        theta2: float
        theta1_dot: float
        theta2_dot: float

    env_id = "Acrobot-v1"
    action_space = Discrete(3)
    max_episode_steps = 500
    reward_threshold = -100.0
    render_size = (500, 500)
    render_fps = 15
    training = {  # solved with five seeds of five: docs/results.md
        "env.num_envs": 64,
        "policy.normalize_obs": True,
        "ppo.num_steps": 64,
        "ppo.epochs": 4,
        "ppo.minibatches": 4,
        "ppo.learning_rate": 1e-3,
        "ppo.learning_rate_schedule": "linear",
        "ppo.gamma": 0.99,
        "ppo.gae_lambda": 0.94,
        "ppo.entropy_coef": 0.0,
        "ppo.normalize_reward": True,
        "run.total_steps": 300_000,
    }

    @staticmethod
    def observation_space(params: Params) -> Space[Any]:
        """Cosine and sine of both angles, then both speeds."""
        high = np.array([1.0, 1.0, 1.0, 1.0, params.max_vel_1, params.max_vel_2], np.float32)
        return Box(-high, high, dtype=np.float32)

    @staticmethod
    def reset(random: tuple[float, ...]) -> State:
        """Hanging, nearly at rest."""
        return Acrobot.State(*[uniform(u, -0.1, 0.1) for u in random])

    @staticmethod
    def step(state: State, action: int, params: Params) -> tuple[State, float, bool]:
        """One Runge-Kutta step of `dt` seconds."""
        theta1, theta2, rate1, rate2 = _runge_kutta(state, to_float(action - 1), params)
        after = Acrobot.State(
            _wrap(theta1),
            _wrap(theta2),
            clip(rate1, -params.max_vel_1, params.max_vel_1),
            clip(rate2, -params.max_vel_2, params.max_vel_2),
        )
        terminated = -cos(after.theta1) - cos(after.theta2 + after.theta1) > 1.0
        return after, where(terminated, 0.0, -1.0), terminated

    @staticmethod
    def observe(state: State) -> tuple[float, ...]:
        """The angles as points on the circle, so that they have no jump."""
        return (
            cos(state.theta1),
            sin(state.theta1),
            cos(state.theta2),
            sin(state.theta2),
            state.theta1_dot,
            state.theta2_dot,
        )

    @staticmethod
    def render(state: State, canvas: Canvas, params: Params) -> None:
        """Draw both links, hanging at angle zero, and the line that the tip has to rise above."""
        edge = params.link_length_1 + params.link_length_2 + 0.2
        canvas.fill(PAPER)
        canvas.view(-edge, edge, -edge, edge)
        canvas.line(-edge, 1.0, edge, 1.0, GREEN, 0.02)

        angle = state.theta1 + state.theta2
        elbow_x = params.link_length_1 * math.sin(state.theta1)
        elbow_y = -params.link_length_1 * math.cos(state.theta1)
        tip_x = elbow_x + params.link_length_2 * math.sin(angle)
        tip_y = elbow_y - params.link_length_2 * math.cos(angle)
        canvas.line(0.0, 0.0, elbow_x, elbow_y, BLUE, 0.2)
        canvas.line(elbow_x, elbow_y, tip_x, tip_y, AMBER, 0.2)
        canvas.circle(elbow_x, elbow_y, 0.05, INK)
        canvas.circle(0.0, 0.0, 0.05, INK)
