/* Snake on a board of 8 x 8: a game whose core is C, played and learned by Operant.
 *
 * Build it (the -I option says where operant_env.h is, with the package):
 *
 *     cc -O3 -shared -fPIC -I"$(python -m operant.vector.native)" -o libsnake.so snake.c
 *
 * Then:  operant check ./libsnake.so   and   operant train ./libsnake.so
 */
#include <string.h>

#include "operant_random.h"

enum { SIDE = 8, CELLS = SIDE * SIDE, FIRST_LENGTH = 3, PATIENCE = 2 * CELLS };
enum { REACH = 3, VIEW = 2 * REACH + 1, OBS = VIEW * VIEW + 2 }; /* how far the snake sees */
enum { UP, RIGHT, DOWN, LEFT };

static const int32_t ROW_STEP[4] = {-1, 0, 1, 0};
static const int32_t COLUMN_STEP[4] = {0, 1, 0, -1};

/* All that the game remembers; Operant keeps an array of them. */
typedef struct snake {
    operant_random random;
    uint8_t body[CELLS]; /* cells of the snake, a ring: the head is at body[head] */
    uint8_t taken[CELLS];
    int32_t head, length, direction, apple;
    int32_t hungry; /* steps since the last apple */
} snake;

uint32_t operant_abi_version(void) { return OPERANT_ABI_VERSION; }

void operant_describe(operant_spec *spec) {
    spec->struct_size = sizeof(operant_spec);
    strcpy(spec->name, "Snake");
    spec->observation.kind = OPERANT_BOX; /* see observe() */
    spec->observation.num_dims = 1;
    spec->observation.shape[0] = OBS;
    spec->observation.low = -1.0f;
    spec->observation.high = 1.0f;
    spec->action.kind = OPERANT_DISCRETE;
    spec->action.choices[0] = 4;
    spec->state_bytes = sizeof(snake);
    spec->mask_size = 4;
    spec->max_episode_steps = 1000;
    spec->reward_threshold = 10.0;
}

/* Put an apple on a free cell, each with the same probability. */
static void place_apple(snake *game) {
    int32_t skip = operant_integer(&game->random, CELLS - game->length);
    for (int32_t cell = 0; cell < CELLS; cell++) {
        if (!game->taken[cell] && skip-- == 0) game->apple = cell;
    }
}

static void reset(snake *game, operant_stream stream) { /* all other bytes are zero */
    game->random = operant_random_begin(stream);
    game->direction = RIGHT;
    game->length = FIRST_LENGTH;
    game->head = FIRST_LENGTH - 1;
    int32_t row = operant_integer(&game->random, SIDE);
    for (int32_t k = 0; k < FIRST_LENGTH; k++) {
        game->body[k] = (uint8_t)(row * SIDE + 1 + k);
        game->taken[game->body[k]] = 1;
    }
    place_apple(game);
}

/* The cell that an action leads to, or -1 for the wall; going back is going on. */
static int32_t target(const snake *game, int32_t action) {
    int32_t direction = action == (game->direction + 2) % 4 ? game->direction : action;
    int32_t row = game->body[game->head] / SIDE + ROW_STEP[direction];
    int32_t column = game->body[game->head] % SIDE + COLUMN_STEP[direction];
    if (row < 0 || row >= SIDE || column < 0 || column >= SIDE) return -1;
    return row * SIDE + column;
}

static float step(snake *game, int32_t action, uint8_t *terminated) {
    operant_random_step(&game->random);
    int32_t cell = target(game, action);
    int32_t tail = game->body[(game->head - game->length + 1 + CELLS) % CELLS];
    int32_t eats = cell == game->apple;
    if (!eats) game->taken[tail] = 0; /* the tail moves on, so its cell is free */
    game->hungry = eats ? 0 : game->hungry + 1;
    *terminated = 1;
    if (cell < 0 || game->taken[cell] || game->hungry > PATIENCE) {
        if (!eats) game->taken[tail] = 1; /* the last picture shows the whole snake */
        return -1.0f;
    }
    if (action != (game->direction + 2) % 4) game->direction = action;
    game->head = (game->head + 1) % CELLS;
    game->body[game->head] = (uint8_t)cell;
    game->taken[cell] = 1;
    game->length += eats;
    if (eats && game->length == CELLS) return 10.0f; /* the board is full */
    if (eats) place_apple(game);
    *terminated = 0;
    return eats ? 1.0f : 0.0f;
}

/* As the snake sees it: the cells around its head, 1 where it would die, then the way to the apple.
 * A small network learns far more from that than from a picture of the board. */
static void observe(const snake *game, float *obs, uint8_t *mask) {
    int32_t row = game->body[game->head] / SIDE, column = game->body[game->head] % SIDE;
    for (int32_t k = 0; k < VIEW * VIEW; k++) {
        int32_t y = row + k / VIEW - REACH, x = column + k % VIEW - REACH;
        int32_t inside = y >= 0 && y < SIDE && x >= 0 && x < SIDE;
        obs[k] = inside && !game->taken[y * SIDE + x] ? 0.0f : 1.0f;
    }
    obs[OBS - 2] = (float)(game->apple / SIDE - row) / SIDE;
    obs[OBS - 1] = (float)(game->apple % SIDE - column) / SIDE;
    for (int32_t action = 0; action < 4; action++) {
        mask[action] = action != (game->direction + 2) % 4;
    }
}

void operant_reset_many(int64_t count, const int64_t *indices, const operant_stream *streams,
                        void *states, void *obs, uint8_t *masks) {
    for (int64_t k = 0; k < count; k++) {
        snake *game = (snake *)states + indices[k];
        reset(game, streams[k]);
        observe(game, (float *)obs + indices[k] * OBS, masks + indices[k] * 4);
    }
}

void operant_step_many(int64_t count, void *states, const void *actions, void *obs, float *rewards,
                       uint8_t *terminated, uint8_t *masks) {
    for (int64_t k = 0; k < count; k++) {
        snake *game = (snake *)states + k;
        rewards[k] = step(game, ((const int32_t *)actions)[k], terminated + k);
        observe(game, (float *)obs + k * OBS, masks + k * 4);
    }
}

void operant_observe_many(int64_t count, const void *states, void *obs, uint8_t *masks) {
    for (int64_t k = 0; k < count; k++) {
        observe((const snake *)states + k, (float *)obs + k * OBS, masks + k * 4);
    }
}
