/* Plays a game without Operant, on memory of exactly the right size: for sanitizers to watch.
 *
 * usage: driver ENVIRONMENTS STEPS. Linked with the game. Prints how many episodes ended. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "operant_random.h"

static void *array(int64_t count, int64_t bytes) {
    return bytes ? aligned_alloc(64, (size_t)((count * bytes + 63) / 64 * 64)) : NULL;
}

int main(int argc, char **argv) {
    if (argc != 3 || operant_abi_version() != OPERANT_ABI_VERSION) return 2;
    int64_t count = atoll(argv[1]), steps = atoll(argv[2]), size = 1, ended = 0;
    operant_spec spec = {0};
    spec.observation.low = spec.action.low = -INFINITY;
    spec.observation.high = spec.action.high = INFINITY;
    spec.reward_threshold = NAN;
    operant_describe(&spec);
    if (spec.action.kind != OPERANT_DISCRETE || spec.observation.kind != OPERANT_BOX) return 3;
    for (int k = 0; k < spec.observation.num_dims; k++) size *= spec.observation.shape[k];
    char *states = array(count, spec.state_bytes);
    float *obs = malloc((size_t)(count * size) * sizeof(float));
    float *rewards = malloc((size_t)count * sizeof(float));
    uint8_t *terminated = malloc((size_t)count), *masks = malloc((size_t)(count * spec.mask_size));
    int32_t *actions = malloc((size_t)count * sizeof(int32_t));
    operant_random random = operant_random_begin((operant_stream){7, 0, 0});
    for (int64_t k = 0; k < count * spec.state_bytes; k++) states[k] = 0;
    for (int64_t k = 0; k < count; k++) {
        operant_stream stream = {1, (uint32_t)k, 0};
        operant_reset_many(1, &k, &stream, states, obs, masks);
    }
    for (int64_t step = 1; step <= steps; step++) {
        operant_random_step(&random);
        for (int64_t k = 0; k < count; k++) {
            actions[k] = operant_integer(&random, spec.action.choices[0]);
        }
        operant_step_many(count, states, actions, obs, rewards, terminated, masks);
        operant_observe_many(count, states, obs, masks);
        for (int64_t k = 0; k < count; k++) {
            if (!terminated[k]) continue;
            operant_stream stream = {1, (uint32_t)k, (uint32_t)step};
            for (int64_t byte = 0; byte < spec.state_bytes; byte++) {
                states[k * spec.state_bytes + byte] = 0;
            }
            operant_reset_many(1, &k, &stream, states, obs, masks);
            ended += 1;
        }
    }
    printf("%lld episodes ended\n", (long long)ended);
    free(states), free(obs), free(rewards), free(terminated), free(masks), free(actions);
    return 0;
}
