"""MountainCarContinuous-v0: the mountain car with a throttle instead of three gears."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Space

from operant.envs.classic.mountain_scene import draw_mountain
from operant.lang import clip, cos, uniform, where
from operant.lang.env import Env
from operant.render.canvas import Canvas


class MountainCarContinuous(Env):
    """Choose a force in [-1, 1]; +100 at the flag, minus a tenth of the squared force per step."""

    class Params(NamedTuple):
        """Gymnasium's constants."""

        min_position: float = -1.2
        max_position: float = 0.6
        max_speed: float = 0.07
        goal_position: float = 0.45
        goal_velocity: float = 0.0
        power: float = 0.0015
        gravity: float = 0.0025

    class State(NamedTuple):
        """Position along the valley and its change per step."""

        position: float
        velocity: float

    env_id = "MountainCarContinuous-v0"
    action_space = Box(-1.0, 1.0, (1,), np.float32)
    max_episode_steps = 999
    reward_threshold = 90.0
    training = {  # solved with five seeds of five: docs/results.md
        "env.num_envs": 64,
        "policy.normalize_obs": True,
        "ppo.num_steps": 64,
        "ppo.epochs": 6,
        "ppo.minibatches": 4,
        "ppo.learning_rate": 1e-3,
        "ppo.learning_rate_schedule": "linear",
        "ppo.gamma": 0.999,
        "ppo.gae_lambda": 0.95,
        "ppo.entropy_coef": 0.0,
        "ppo.normalize_reward": True,
        "run.total_steps": 300_000,
    }

    @staticmethod
    def observation_space(params: Params) -> Space[Any]:
        """Position and velocity within their limits."""
        low = np.array([params.min_position, -params.max_speed], np.float32)
        high = np.array([params.max_position, params.max_speed], np.float32)
        return Box(low, high, dtype=np.float32)

    @staticmethod
    def reset(random: tuple[float, ...]) -> State:
        """Somewhere near the bottom, at rest."""
        return MountainCarContinuous.State(uniform(random[0], -0.6, -0.4), 0.0)

    @staticmethod
    def step(state: State, action: tuple[float], params: Params) -> tuple[State, float, bool]:
        """Push, roll, stop at the left wall. As in Gymnasium the cost is of the unlimited force."""
        force = clip(action[0], -1.0, 1.0)
        velocity = state.velocity + force * params.power - params.gravity * cos(3 * state.position)
        velocity = clip(velocity, -params.max_speed, params.max_speed)
        position = clip(state.position + velocity, params.min_position, params.max_position)
        velocity = where((position <= params.min_position) & (velocity < 0.0), 0.0, velocity)
        terminated = (position >= params.goal_position) & (velocity >= params.goal_velocity)
        reward = where(terminated, 100.0, 0.0) - 0.1 * action[0] ** 2
        return MountainCarContinuous.State(position, velocity), reward, terminated

    @staticmethod
    def observe(state: State) -> tuple[float, ...]:
        """The state itself."""
        return (state.position, state.velocity)

    @staticmethod
    def render(state: State, canvas: Canvas, params: Params) -> None:
        """Draw the car in its valley and the flag at the goal."""
        low, high, goal = params.min_position, params.max_position, params.goal_position
        draw_mountain(canvas, state.position, low, high, goal)
