/* Numbers of operant_random.h, to be compared with those of operant.vector.philox. */
#include "operant_random.h"

void draw(uint64_t seed, uint32_t index, uint32_t episode, int32_t steps, int32_t count,
          float *uniforms, int32_t *integers) {
    operant_random random = operant_random_begin((operant_stream){seed, index, episode});
    for (int32_t step = 0; step <= steps; step++) {
        if (step) operant_random_step(&random);
        for (int32_t k = 0; k < count; k++) *uniforms++ = operant_uniform(&random);
        for (int32_t k = 0; k < count; k++) *integers++ = operant_integer(&random, 7);
    }
}
