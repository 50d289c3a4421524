/* operant_env.h: what a game in C exports, so that Operant can play it in batches.
 *
 * A library exports the five functions below. All memory is Operant's: pointers are valid for the
 * length of a call, and arrays are contiguous, one row for each environment. A game keeps whatever
 * it remembers in its state, `state_bytes` for each environment, and nothing anywhere else: no
 * globals that change, no pointers in the state (it is copied, saved and restored as bytes). Then
 * any environment can be played by any thread, in any part of a batch, with the same result; two
 * threads never play the same environment at once. Episode statistics, time limits and automatic
 * resets are Operant's: a game is never stepped after it has terminated, before it is reset.
 */
#ifndef OPERANT_ENV_H
#define OPERANT_ENV_H

#include <stdint.h>

#define OPERANT_ABI_VERSION 1u
#define OPERANT_BOX 1            /* float32 numbers within bounds */
#define OPERANT_DISCRETE 2       /* one integer, 0 .. choices[0] - 1 */
#define OPERANT_MULTI_DISCRETE 3 /* shape[0] integers, number k of them 0 .. choices[k] - 1 */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct operant_space {
    int32_t kind;       /* one of the three above */
    int32_t num_dims;   /* Box: 1 to 4; MultiDiscrete: 1; Discrete: 0 */
    int64_t shape[4];   /* numbers along each dimension */
    int32_t choices[64];
    float low, high;    /* Box: bounds of all numbers; come as -INFINITY and INFINITY, for none */
    const float *lows;  /* Box: bounds of each number instead, static arrays; come as NULL */
    const float *highs;
} operant_space;

typedef struct operant_spec {    /* comes as zeros, except where it says so */
    uint32_t struct_size;        /* write sizeof(operant_spec) */
    int32_t max_episode_steps;   /* after which an episode is truncated; 0: no limit */
    char name[64];               /* a C identifier, ended by a zero */
    operant_space observation;
    operant_space action;
    int64_t state_bytes;         /* of one environment, such as sizeof(my_game) */
    int64_t mask_size;           /* 0, or how many actions there are: the sum of the choices */
    double reward_threshold;     /* mean return that counts as solved; comes as NAN, for none */
} operant_spec;

typedef struct operant_stream { /* names a random stream; see operant_random.h */
    uint64_t seed;
    uint32_t index;   /* of the environment in its batch */
    uint32_t episode; /* 0, 1, ... */
} operant_stream;

/* Rows: states uint8 [state_bytes], the first aligned to 64 bytes. obs: float [size] of a Box, else
 * int64_t. actions: float [size] for a Box (finite, but perhaps outside the bounds: limit them),
 * else int32_t, any that the space has, also masked ones. terminated: 0 or 1. masks: uint8
 * [mask_size], 1 where an action is allowed, at least one for each component; NULL without masks. */

/* OPERANT_ABI_VERSION, as compiled. */
uint32_t operant_abi_version(void);

/* Fill in what the game is; the same each time. */
void operant_describe(operant_spec *spec);

/* Begin an episode in `count` environments: number k plays streams[k] in row indices[k], whose state
 * comes as zeros. Write state, obs and mask of those rows only. */
void operant_reset_many(int64_t count, const int64_t *indices, const operant_stream *streams,
                        void *states, void *obs, uint8_t *masks);

/* One step of the environments in rows 0 .. count - 1. */
void operant_step_many(int64_t count, void *states, const void *actions, void *obs, float *rewards,
                       uint8_t *terminated, uint8_t *masks);

/* Write again what the last reset or step wrote to obs and masks; they follow from the state. */
void operant_observe_many(int64_t count, const void *states, void *obs, uint8_t *masks);

#ifdef __cplusplus
}
#endif
#endif
