"""CartPole-v1: balance a pole on a cart. After Barto, Sutton and Anderson (1983)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, Space

from operant.lang import abs, cos, sin, uniform, where
from operant.lang.env import Env
from operant.render.canvas import AMBER, BLUE, INK, PAPER, STEEL, Canvas


class CartPole(Env):
    """Push a cart left or right so that the pole on it does not fall; +1 for each step."""

    class Params(NamedTuple):
        """Gymnasium's constants; `length` is half the pole's."""

        gravity: float = 9.8
        masscart: float = 1.0
        masspole: float = 0.1
        length: float = 0.5
        force_mag: float = 10.0
        tau: float = 0.02
        x_threshold: float = 2.4
        theta_threshold_radians: float = 12 * 2 * math.pi / 360
        reset_bound: float = 0.05
        kinematics_integrator: str = "euler"
        sutton_barto_reward: bool = False

    class State(NamedTuple):
        """Metres, radians, and their rates."""

        x: float
        x_dot: float
        theta: float
        theta_dot: float

    env_id = "CartPole-v1"
    action_space = Discrete(2)
    max_episode_steps = 500
    reward_threshold = 475.0
    render_fps = 50
    training = {  # solved with five seeds of five: docs/results.md
        "env.num_envs": 128,
        "policy.normalize_obs": False,
        "ppo.num_steps": 32,
        "ppo.epochs": 4,
        "ppo.minibatches": 4,
        "ppo.learning_rate": 4e-3,
        "ppo.learning_rate_schedule": "linear",
        "ppo.gamma": 0.98,
        "ppo.gae_lambda": 0.9,
        "ppo.entropy_coef": 0.0,
        "ppo.normalize_reward": False,
        "run.total_steps": 200_000,
    }

    @staticmethod
    def observation_space(params: Params) -> Space[Any]:
        """Twice the limits, so that the last observation of an episode is inside."""
        high = [params.x_threshold * 2, np.inf, params.theta_threshold_radians * 2, np.inf]
        return Box(-np.array(high, np.float32), np.array(high, np.float32), dtype=np.float32)

    @staticmethod
    def reset(random: tuple[float, ...], params: Params) -> State:
        """Everything near zero."""
        x, x_dot, theta, theta_dot = random
        bound = params.reset_bound
        return CartPole.State(
            uniform(x, -bound, bound),
            uniform(x_dot, -bound, bound),
            uniform(theta, -bound, bound),
            uniform(theta_dot, -bound, bound),
        )

    @staticmethod
    def step(state: State, action: int, params: Params) -> tuple[State, float, bool]:
        """One Euler step of `tau` seconds; over when the cart leaves or the pole falls."""
        total_mass = params.masscart + params.masspole
        polemass_length = params.masspole * params.length
        force = where(action == 1, params.force_mag, -params.force_mag)
        costheta, sintheta = cos(state.theta), sin(state.theta)

        temp = (force + polemass_length * state.theta_dot**2 * sintheta) / total_mass
        theta_acc = (params.gravity * sintheta - costheta * temp) / (
            params.length * (4.0 / 3.0 - params.masspole * costheta**2 / total_mass)
        )
        x_acc = temp - polemass_length * theta_acc * costheta / total_mass

        x_dot = state.x_dot + params.tau * x_acc
        theta_dot = state.theta_dot + params.tau * theta_acc
        if params.kinematics_integrator == "euler":
            x = state.x + params.tau * state.x_dot
            theta = state.theta + params.tau * state.theta_dot
        else:  # semi-implicit
            x = state.x + params.tau * x_dot
            theta = state.theta + params.tau * theta_dot

        terminated = (abs(x) > params.x_threshold) | (abs(theta) > params.theta_threshold_radians)
        reward = where(terminated, -1.0, 0.0) if params.sutton_barto_reward else 1.0
        return CartPole.State(x, x_dot, theta, theta_dot), reward, terminated

    @staticmethod
    def observe(state: State) -> tuple[float, ...]:
        """The state itself."""
        return (state.x, state.x_dot, state.theta, state.theta_dot)

    @staticmethod
    def render(state: State, canvas: Canvas, params: Params) -> None:
        """Draw cart, rail and pole to scale; the picture ends where the rail does."""
        edge = params.x_threshold
        height = 2 * edge * canvas.height / canvas.width
        canvas.fill(PAPER)
        canvas.view(-edge, edge, -height / 4, height * 3 / 4)
        canvas.line(-edge, 0.0, edge, 0.0, STEEL, 0.03)

        x, axle = state.x, 0.06
        left, right = x - 0.17, x + 0.17
        canvas.polygon([(left, -0.09), (right, -0.09), (right, 0.09), (left, 0.09)], BLUE, 0.03)
        reach = 2 * params.length - 0.04  # The pole's round end adds the rest.
        tip_x, tip_y = x + reach * math.sin(state.theta), axle + reach * math.cos(state.theta)
        canvas.line(x, axle, tip_x, tip_y, AMBER, 0.08)
        canvas.circle(x, axle, 0.02, INK)
