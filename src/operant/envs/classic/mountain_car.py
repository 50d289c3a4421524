"""MountainCar-v0: rock an underpowered car out of a valley. After Moore (1990)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete, Space

from operant.envs.classic.mountain_scene import draw_mountain
from operant.lang import clip, cos, uniform, where
from operant.lang.env import Env
from operant.render.canvas import Canvas


class MountainCar(Env):
    """Push left, coast or push right; -1 for each step until the flag is reached."""

    class Params(NamedTuple):
        """Gymnasium's constants."""

        min_position: float = -1.2
        max_position: float = 0.6
        max_speed: float = 0.07
        goal_position: float = 0.5
        goal_velocity: float = 0.0
        force: float = 0.001
        gravity: float = 0.0025

    class State(NamedTuple):
        """Position along the valley and its change per step."""

        position: float
        velocity: float

    env_id = "MountainCar-v0"
    action_space = Discrete(3)
    max_episode_steps = 200
    reward_threshold = -110.0
    training = {  # solved with five seeds of five: docs/results.md
        "env.num_envs": 64,
        "policy.normalize_obs": True,
        "ppo.num_steps": 64,
        "ppo.epochs": 8,
        "ppo.minibatches": 4,
        "ppo.learning_rate": 3e-3,
        "ppo.learning_rate_schedule": "linear",
        "ppo.gamma": 0.995,
        "ppo.gae_lambda": 0.98,
        "ppo.entropy_coef": 0.0,
        "ppo.normalize_reward": True,
        "run.total_steps": 1_000_000,
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
        return MountainCar.State(uniform(random[0], -0.6, -0.4), 0.0)

    @staticmethod
    def step(state: State, action: int, params: Params) -> tuple[State, float, bool]:
        """Push, roll, stop at the left wall."""
        velocity = (
            state.velocity + (action - 1) * params.force - params.gravity * cos(3 * state.position)
        )
        velocity = clip(velocity, -params.max_speed, params.max_speed)
        position = clip(state.position + velocity, params.min_position, params.max_position)
        velocity = where((position <= params.min_position) & (velocity < 0.0), 0.0, velocity)
        terminated = (position >= params.goal_position) & (velocity >= params.goal_velocity)
        return MountainCar.State(position, velocity), -1.0, terminated

    @staticmethod
    def observe(state: State) -> tuple[float, ...]:
        """The state itself."""
        return (state.position, state.velocity)

    @staticmethod
    def render(state: State, canvas: Canvas, params: Params) -> None:
        """Draw the car in its valley and the flag at the goal."""
        low, high, goal = params.min_position, params.max_position, params.goal_position
        draw_mountain(canvas, state.position, low, high, goal)
