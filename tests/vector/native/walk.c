/* A walk along nine places, from the middle to an end: a game that is honest, unless it is built
 * with -DLIE=... to break one promise of operant_env.h. With -DMULTI it has MultiDiscrete spaces and
 * masks, with -DCONTINUOUS a Box of actions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "operant_random.h"

enum {
    NONE, VERSION, STRUCT_SIZE, LONG_STRUCT, NO_NAME, NO_STATE, NEGATIVE_STATE, HUGE_STATE,
    NO_KIND, NO_SHAPE, HUGE_SHAPE, NEGATIVE_SHAPE, NO_CHOICES, TWO_DIMS, ODD_MASK, BAD_BOUNDS,
    HALF_BOUNDS, NEGATIVE_LIMIT, ENDLESS_THRESHOLD, GROWING_STATE, NAN_OBS, UNSET_OBS, FAR_OBS,
    NAN_REWARD, INFINITE_REWARD, ODD_FLAG, UNSET_FLAG, NO_ACTION, ODD_MASK_VALUE, WRITES_AFTER,
    WRITES_BEFORE, WRITES_STATE_AFTER, WRITES_INPUT, RESETS_OTHERS, DRAWS, COUNTS, KNOWS_ITS_PLACE,
    KNOWS_ITS_ADDRESS, RESETS_BY_GLOBAL, OTHER_VIEW, VIEW_CHANGES, CRASHES, CRASHES_AT_ONCE, ABORTS,
    LOOPS, EXITS
};
#ifndef LIE
#define LIE NONE
#endif
#ifdef MULTI
enum { OBS = 2, ACTIONS = 2, MASK = 5 };
typedef int64_t number;
#else
enum { OBS = 2, ACTIONS = 1, MASK = 0 };
typedef float number;
#endif

typedef struct walk {
    operant_random random;
    int32_t place, age;
} walk;

static int32_t called = 0;
int32_t steps_after_the_end = 0; /* for a test to read */

uint32_t operant_abi_version(void) { return LIE == VERSION ? 7 : OPERANT_ABI_VERSION; }

static void spaces(operant_spec *spec) {
    operant_space *obs = &spec->observation, *action = &spec->action;
    obs->num_dims = 1;
    obs->shape[0] = OBS;
#ifdef MULTI
    obs->kind = action->kind = OPERANT_MULTI_DISCRETE;
    obs->choices[0] = 9, obs->choices[1] = 1000;
    action->num_dims = 1;
    action->shape[0] = 2;
    action->choices[0] = 3, action->choices[1] = 2;
#else
    static const float lows[2] = {0.0f, 0.0f}, highs[2] = {8.0f, 1000.0f};
    obs->kind = OPERANT_BOX;
    obs->lows = lows;
    obs->highs = highs;
#ifdef CONTINUOUS
    action->kind = OPERANT_BOX;
    action->num_dims = 1;
    action->shape[0] = 1;
    action->low = -1.0f, action->high = 1.0f;
#else
    action->kind = OPERANT_DISCRETE;
    action->choices[0] = 2;
#endif
#endif
}

void operant_describe(operant_spec *spec) {
    if (LIE == CRASHES_AT_ONCE) abort();
    spec->struct_size = sizeof(operant_spec) + (LIE == STRUCT_SIZE ? 8 : 0);
    if (LIE == LONG_STRUCT) ((char *)spec)[sizeof(operant_spec)] = 1;
    if (LIE != NO_NAME) strcpy(spec->name, "Walk");
    spaces(spec);
    spec->state_bytes = sizeof(walk);
    spec->mask_size = MASK;
    spec->max_episode_steps = 40;
    switch (LIE) {
        case NO_STATE: spec->state_bytes = 0; break;
        case NEGATIVE_STATE: spec->state_bytes = -8; break;
        case HUGE_STATE: spec->state_bytes = (int64_t)1 << 62; break;
        case GROWING_STATE: spec->state_bytes += 8 * called++; break;
        case NO_KIND: spec->action.kind = 0; break;
        case NO_SHAPE: spec->observation.shape[0] = 0; break;
        case NEGATIVE_SHAPE: spec->observation.shape[0] = -2; break;
        case HUGE_SHAPE:
            spec->observation.num_dims = 4;
            for (int k = 0; k < 4; k++) spec->observation.shape[k] = (int64_t)1 << 40;
            break;
        case NO_CHOICES: spec->action.choices[0] = 0; break;
        case TWO_DIMS: spec->action.num_dims = 2; break;
        case ODD_MASK: spec->mask_size = 3; break;
        case BAD_BOUNDS: spec->observation.lows = spec->observation.highs = NULL;
            spec->observation.low = 2.0f, spec->observation.high = 1.0f; break;
        case HALF_BOUNDS: spec->observation.highs = NULL; break;
        case NEGATIVE_LIMIT: spec->max_episode_steps = -1; break;
        case ENDLESS_THRESHOLD: spec->reward_threshold = INFINITY; break;
        default: break;
    }
}

static void observe(const walk *game, number *obs, uint8_t *mask) {
    if (LIE != UNSET_OBS) obs[0] = (number)game->place;
    obs[1] = (number)game->age;
    if (LIE == NAN_OBS && game->age == 3) obs[0] = (number)NAN;
    if (LIE == FAR_OBS && game->age == 3) obs[0] = 9;
    for (int k = 0; k < MASK; k++) mask[k] = 1;
    if (MASK && LIE == NO_ACTION && game->age == 2) mask[0] = mask[1] = mask[2] = 0;
    if (MASK && LIE == ODD_MASK_VALUE) mask[0] = 3;
}

static int move(const void *actions, int64_t k) {
#ifdef MULTI
    const int32_t *action = (const int32_t *)actions + 2 * k;
    return (action[0] - 1) * (1 + action[1]);
#elif defined(CONTINUOUS)
    return ((const float *)actions)[k] > 0.0f ? 1 : -1;
#else
    return 2 * ((const int32_t *)actions)[k] - 1;
#endif
}

static float step(walk *game, int by, uint8_t *terminated) {
    steps_after_the_end += game->place == 0 || game->place == 8;
    operant_random_step(&game->random);
    if (operant_uniform(&game->random) < 0.1f) by = 0;
    game->place += by;
    if (game->place < 0) game->place = 0;
    if (game->place > 8) game->place = 8;
    game->age += 1;
    *terminated = game->place == 0 || game->place == 8;
    if (LIE == NAN_REWARD && game->age == 2) return NAN;
    if (LIE == INFINITE_REWARD && game->age == 2) return INFINITY;
    return game->place == 8 ? 1.0f : -0.01f;
}

void operant_reset_many(int64_t count, const int64_t *indices, const operant_stream *streams,
                        void *states, void *obs, uint8_t *masks) {
    for (int64_t k = 0; k < count; k++) {
        walk *game = (walk *)states + indices[k];
        game->random = operant_random_begin(streams[k]);
        game->place = 3 + operant_integer(&game->random, 3);
        if (LIE == RESETS_BY_GLOBAL) game->place = 3 + called++ / 6 % 3;
        observe(game, (number *)obs + OBS * indices[k], masks + MASK * indices[k]);
    }
    if (LIE == RESETS_OTHERS) ((walk *)states)[(indices[count - 1] + 1) % 6].age = 9;
}

void operant_step_many(int64_t count, void *states, const void *actions, void *obs, float *rewards,
                       uint8_t *terminated, uint8_t *masks) {
    if (LIE == CRASHES) *(volatile int *)(size_t)8 = 1;
    if (LIE == ABORTS) abort();
    if (LIE == EXITS) exit(0);
    for (volatile int forever = LIE == LOOPS; forever;) {}
    for (int64_t k = 0; k < count; k++) {
        walk *game = (walk *)states + k;
        rewards[k] = step(game, move(actions, k), terminated + k);
        observe(game, (number *)obs + OBS * k, masks + MASK * k);
        if (LIE == ODD_FLAG && terminated[k]) terminated[k] = 2;
        if (LIE == DRAWS) rewards[k] += (float)rand() / (float)RAND_MAX;
        if (LIE == COUNTS) rewards[k] += (float)called++;
        if (LIE == KNOWS_ITS_PLACE && k == 0) rewards[k] += 1.0f;
        if (LIE == KNOWS_ITS_ADDRESS) rewards[k] += (float)((size_t)game & 0xffffff);
    }
    if (LIE == UNSET_FLAG) terminated[count - 1] = 255;
    if (LIE == WRITES_AFTER) rewards[count] = 0.0f;
    if (LIE == WRITES_BEFORE) ((number *)obs)[-1] = 0;
    if (LIE == WRITES_STATE_AFTER) ((walk *)states)[count].place = 1;
    if (LIE == WRITES_INPUT) *(int32_t *)(size_t)actions ^= 1;
}

#ifndef WITHOUT_OBSERVE
void operant_observe_many(int64_t count, const void *states, void *obs, uint8_t *masks) {
    for (int64_t k = 0; k < count; k++) {
        observe((const walk *)states + k, (number *)obs + OBS * k, masks + MASK * k);
        if (LIE == OTHER_VIEW) ((number *)obs)[OBS * k] = 0;
        if (LIE == VIEW_CHANGES) ((walk *)(size_t)states)[k].age += 1;
    }
}
#endif
