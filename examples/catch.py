from gymnasium.spaces import Box, Discrete

import operant
from operant.lang import Arrays, int32, to_float

WIDTH, HEIGHT = 9, 10
LEFT, STAY, RIGHT = range(3)


class Catch(operant.Env):
    class State(Arrays):
        basket = int32[1]  # its column
        fruit = int32[2]  # column, and rows fallen
        left = int32[1]  # fruits still to come

    observation_space = Box(-1.0, 1.0, (3,))
    action_space = Discrete(3)
    max_episode_steps = 200
    reward_threshold = 9.0
    render_size = (270, 300)

    def reset(state, random):
        state.basket[0] = WIDTH // 2
        state.fruit[0] = random.integers(WIDTH)
        state.left[0] = 10

    def step(state, action, random):
        if action == LEFT and state.basket[0] > 0:
            state.basket[0] -= 1
        elif action == RIGHT and state.basket[0] < WIDTH - 1:
            state.basket[0] += 1
        state.fruit[1] += 1
        reward = 0.0
        if state.fruit[1] == HEIGHT - 1:
            reward = 1.0 if state.fruit[0] == state.basket[0] else -1.0
            state.fruit[0], state.fruit[1] = random.integers(WIDTH), 0
            state.left[0] -= 1
        return reward, state.left[0] == 0

    def observe(state, obs):
        obs[0] = to_float(state.fruit[0] - state.basket[0]) / WIDTH
        obs[1] = to_float(state.fruit[1]) / HEIGHT
        obs[2] = to_float(state.basket[0]) / WIDTH

    def render(state, canvas):
        canvas.view(-0.5, WIDTH - 0.5, -0.5, HEIGHT - 0.5)
        x, fallen = state.basket[0], state.fruit[1]
        canvas.circle(state.fruit[0], HEIGHT - 1 - fallen, 0.35, (228, 88, 84))
        rim, foot = [(x - 0.5, 0.2), (x + 0.5, 0.2)], [(x + 0.3, -0.4), (x - 0.3, -0.4)]
        canvas.polygon(rim + foot, (44, 54, 72))
