from typing import NamedTuple

from gymnasium.spaces import Box, Discrete

import operant
from operant.lang import minimum, uniform, where


class Lander(operant.Env):
    class State(NamedTuple):
        height: float
        speed: float

    observation_space = Box(float("-inf"), float("inf"), (2,))
    action_space = Discrete(2)
    max_episode_steps = 400

    def reset(random):
        height = uniform(random[0], 20.0, 40.0)
        return Lander.State(height, uniform(random[1], -4.0, 0.0))

    def step(state, action, random):
        gust = uniform(random[0], -0.5, 0.5)
        speed = state.speed + 0.1 * (where(action == 1, 4.0, 0.0) - 1.6 + gust)
        height = state.height + 0.1 * speed
        landing = 10.0 + 2.0 * minimum(speed + 1.0, 0.0)  # harder is worse
        reward = where(height > 0.0, -0.02, landing)
        return Lander.State(height, speed), reward, height <= 0.0

    def observe(state):
        return state

    def render(state, canvas):
        canvas.fill("navy")
        canvas.view(-40.5, 40.5, -5.0, 49.0)
        for k in range(70):  # stars
            x, y = k * 0.7549 % 1.0, k * 0.5698 % 1.0
            canvas.circle(81.0 * x - 40.5, 54.0 * y - 5.0, 0.06 + 0.05 * (k % 3), "silver")
        for x, y, r, color in ((25, 37, 5, "blue"), (23, 38, 2, "green"), (27, 35, 1.2, "green")):
            canvas.circle(x, y, r, color)  # the earth
        canvas.rectangle(-40.5, -5.0, 81.0, 5.0, "gray")
        canvas.rectangle(-8.0, -0.8, 16.0, 0.8, "amber")  # where it lands
        y = max(state.height, 0.0)
        for side in (-1.0, 1.0):
            canvas.line(side * 2.0, y + 2.6, side * 3.4, y + 0.4, "silver", 0.5)
            canvas.line(side * 2.8, y + 0.4, side * 4.2, y + 0.4, "silver", 0.7)
        hull = [(-2.2, y + 2.2), (2.2, y + 2.2), (1.3, y + 6.4), (-1.3, y + 6.4)]
        canvas.polygon(hull, "white", margin=0.6)
        canvas.circle(0.0, y + 4.8, 1.0, "blue")
        color = "green" if state.speed > -1.0 else "red"  # soft enough, or too fast
        tip = y + 4.0 + 1.5 * state.speed
        point = tip - 1.2 if state.speed < 0.0 else tip + 1.2
        canvas.line(7.5, y + 4.0, 7.5, tip, color, 0.6)
        canvas.polygon([(6.6, tip), (8.4, tip), (7.5, point)], color, margin=0.1)
