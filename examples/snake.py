from gymnasium.spaces import Box, Discrete

import operant
from operant.lang import Arrays, int32, to_float, to_int

SIZE = 8
CELLS = SIZE * SIZE
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left
REACH = 3  # cells that the snake sees in each direction
VIEW = 2 * REACH + 1


def drop_food(state, random):
    """Put food on a free cell: the one with so many free cells before it."""
    before = random.integers(CELLS - state.length[0])
    for cell in range(CELLS):
        if state.body[cell] == 0:
            if before == 0:
                state.food[0] = cell
            before -= 1


class Snake(operant.Env):
    class State(Arrays):
        body = int32[CELLS]  # for how many more steps the snake covers the cell
        head = int32[2]
        food = int32[1]
        length = int32[1]

    observation_space = Box(-1.0, 1.0, (VIEW * VIEW + 2,))
    action_space = Discrete(4)
    max_episode_steps = 500

    def reset(state, random):
        state.head[0], state.head[1] = random.integers(SIZE), random.integers(SIZE)
        state.length[0] = 1
        state.body[state.head[0] * SIZE + state.head[1]] = 1
        drop_food(state, random)

    def step(state, action, random):
        y, x = state.head[0] + MOVES[action, 0], state.head[1] + MOVES[action, 1]
        if not (0 <= y < SIZE and 0 <= x < SIZE):
            return -1.0, True
        cell = y * SIZE + x
        ate = cell == state.food[0]
        for k in range(CELLS):
            if state.body[k] > 0 and not ate:
                state.body[k] -= 1
        if state.body[cell] > 0 or state.length[0] == CELLS - 1:
            return -1.0, True
        state.length[0] += to_int(ate)
        state.head[0], state.head[1] = y, x
        state.body[cell] = state.length[0]
        if ate:
            drop_food(state, random)
        return to_float(ate), False

    def observe(state, obs):
        for k in range(VIEW * VIEW):  # the cells around the head
            y, x = state.head[0] + k // VIEW - REACH, state.head[1] + k % VIEW - REACH
            if not (0 <= y < SIZE and 0 <= x < SIZE):
                obs[k] = -1.0
            elif state.body[y * SIZE + x] > 0:
                obs[k] = -0.5 - 0.5 * to_float(state.body[y * SIZE + x]) / CELLS
        obs[VIEW * VIEW] = to_float(state.food[0] // SIZE - state.head[0]) / SIZE
        obs[VIEW * VIEW + 1] = to_float(state.food[0] % SIZE - state.head[1]) / SIZE

    render_size = (400, 400)
    render_fps = 10

    def render(state, canvas):
        canvas.fill("ink")
        canvas.view(-0.2, SIZE + 0.2, -0.2, SIZE + 0.2)
        for cell in range(CELLS):
            x, y = cell % SIZE, SIZE - 1 - cell // SIZE  # row 0 is at the top
            is_head = state.body[cell] == state.length[0]
            color = "lime" if is_head else "green" if state.body[cell] > 0 else "#364258"
            canvas.rectangle(x + 0.14, y + 0.14, 0.72, 0.72, color, margin=0.08)
            if is_head:
                canvas.circle(x + 0.3, y + 0.6, 0.08, "ink")
                canvas.circle(x + 0.7, y + 0.6, 0.08, "ink")
            if cell == state.food[0]:
                canvas.circle(x + 0.5, y + 0.45, 0.3, "red")
                canvas.line(x + 0.5, y + 0.7, x + 0.6, y + 0.85, "lime", 0.08)
