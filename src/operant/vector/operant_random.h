/* operant_random.h: random numbers for a game, if it has none of its own.
 *
 * Philox4x32-10, the generator of Operant's own environments, with the same numbers for the same
 * seed: keep an operant_random in the state, begin it at reset, and call operant_random_step once at
 * the beginning of each step. There is nothing else to it: no globals, no set-up.
 */
#ifndef OPERANT_RANDOM_H
#define OPERANT_RANDOM_H

#include "operant_env.h"

typedef struct operant_random {
    operant_stream stream;
    uint32_t step;     /* of the episode; 0 for the reset */
    uint32_t drawn;    /* numbers drawn in this step */
    uint32_t words[4]; /* of the block that is being drawn from */
} operant_random;

/* Four words for a counter and a key. */
static inline void operant_philox(const uint32_t counter[4], const uint32_t key[2],
                                  uint32_t words[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)c0 * 0xD2511F53u, p1 = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

/* The generator of an episode: for operant_reset_many. */
static inline operant_random operant_random_begin(operant_stream stream) {
    operant_random random = {stream, 0, 0, {0, 0, 0, 0}};
    return random;
}

/* Go on to the numbers of the next step. */
static inline void operant_random_step(operant_random *random) {
    random->step += 1;
    random->drawn = 0;
}

/* 32 random bits. */
static inline uint32_t operant_bits(operant_random *random) {
    uint32_t place = random->drawn & 3u;
    if (place == 0) {
        operant_stream s = random->stream;
        uint32_t counter[4] = {random->step, s.episode, (uint32_t)(s.seed >> 32),
                               random->drawn >> 2};
        uint32_t key[2] = {(uint32_t)s.seed, s.index};
        operant_philox(counter, key, random->words);
    }
    random->drawn += 1;
    return random->words[place];
}

/* A number from 0 up to, but not, 1: a multiple of 2^-24. */
static inline float operant_uniform(operant_random *random) {
    return (float)(operant_bits(random) >> 8) * (1.0f / 16777216.0f);
}

/* An integer from 0 to count - 1. */
static inline int32_t operant_integer(operant_random *random, int32_t count) {
    int32_t value = (int32_t)(operant_uniform(random) * (float)count);
    return value < count ? value : count - 1; /* a large float may round up */
}

#endif
