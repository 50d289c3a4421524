// One minibatch: forward, PPO's loss and backward on Hopper's tensor cores (sm_90a, bfloat16).
//
// A block trains one network on every so many-th tile, which has as many samples as a layer has
// neurons: 64 of both for each of its warpgroups. On the way forward a warpgroup has 64 samples and
// all neurons, on the way back 64 neurons and all samples: so what a product gives, packed to
// bfloat16 in registers, always is the next product's first operand, also where it is samples that
// are summed over. The second operands lie in shared memory: weights, and what the layers gave.
// Gradients of all weights stay in registers until the end.
//
// Before this text stand: the wrappers of `wgmma` (one per shape), the constants of the job, and a
// struct of constants per network (`Network0`, and `Network1` if actor and critic are two).

constexpr int SAMPLES = WIDTH;  // of a tile; WIDTH: of every hidden layer, padded to 64 or 128
constexpr int THREADS = 2 * WIDTH;
constexpr u32 SHARED_BEGIN = 1024;  // what is before is the system's; known, descriptors are too

struct Update {
  const uint4* rows;         // [count][ROW_VECTORS]: inputs in bfloat16, then float32 numbers
  const u16* low;            // weights in bfloat16
  const float* full;         // and in float32
  const float* moments;      // [jobs][2]: of the advantages
  const long long* keys;     // [epochs][8]: of the permutations
  const double* clip;
  float* gradients;          // [programs][stride]
  float* sums;               // [programs][8]
  int job, count, stride, programs;
};

// Shared memory -----------------------------------------------------------------------------------
// A tile of ROWS rows of bfloat16, in vectors of 16 bytes. Rows of 32, 64 or 128 bytes lie one after
// the other, their vectors swizzled; of longer ones first all rows' first 128 bytes. Rows of one vector
// lie one after the other too, and after them as many that are 0, because products sum over 16
// columns.
template <int COLUMNS, int ROWS>
struct Tile {
  static constexpr int bytes = COLUMNS > 64 ? 128 : 2 * COLUMNS;
  static constexpr bool narrow = bytes == 16;
  static_assert(narrow || bytes == 32 || bytes == 64 || bytes == 128, "what products can read");
  static constexpr int vectors = COLUMNS / 8;
  static constexpr u32 panel = ROWS * bytes;
  static constexpr u32 size = 2 * ROWS * (narrow ? 16 : COLUMNS);

  static __device__ __forceinline__ u32 at(u32 row, u32 vector) {
    if (narrow) return row * 16;
    constexpr u32 most = bytes / 16;
    const u32 swizzled = (vector % most) ^ ((row * bytes >> 7) & (most - 1));
    return vector / most * panel + row * bytes + (swizzled << 4);
  }

  // Descriptors for products that sum over columns, or over rows: over 16 of them from 16 * step on.
  static __device__ __forceinline__ Operand by_columns(u32 address, u32 step) {
    return described(address + 32 * step, narrow ? ROWS * 16 : 16, narrow ? 128 : 8 * bytes);
  }
  static __device__ __forceinline__ Operand by_rows(u32 address, u32 step) {
    return described(address + 16 * bytes * step, narrow ? 128 : panel, narrow ? 16 : 8 * bytes);
  }

 private:
  static __device__ __forceinline__ Operand described(u32 address, u32 leading, u32 stride) {
    constexpr u32 swizzle = bytes == 128 ? 1 : bytes == 64 ? 2 : bytes == 32 ? 3 : 0;
    return {(address >> 4) + (leading >> 4 << 16), (stride >> 4) | swizzle << 30};
  }
};
using Wide = Tile<WIDTH, WIDTH>;  // of samples and neurons, neurons and samples, or weights
using Inputs = Tile<IN, SAMPLES>;
constexpr int IN_STEPS = (IN + 15) / 16;
using First = Tile<WIDTH, 16 * IN_STEPS>;
constexpr bool HELD = BLOCKS_A_PROCESSOR < 4;  // weights that are first operands, in registers
constexpr bool KEPT = ACTIVATION == SILU;  // its slope is found from what was activated

template <class N>
struct Offsets {
  using Head = Tile<N::HEAD, WIDTH>;  // there are as many samples as neurons
  static constexpr u32 hidden = 0;                                        // results of each layer
  static constexpr u32 kept = hidden + N::DEPTH * Wide::size;             // what they came from
  static constexpr u32 back = kept + (KEPT ? N::DEPTH : 0) * Wide::size;  // gradients by that
  static constexpr u32 weights = back + (N::DEPTH - 1) * Wide::size;      // after the first layer
  static constexpr u32 first = weights + (N::DEPTH - 1) * Wide::size;     // of the first layer
  static constexpr u32 inputs = first + First::size;                      // three stages
  static constexpr u32 head = inputs + 3 * Inputs::size;                  // the head's weights
  static constexpr u32 slopes = head + Head::size;                        // gradients by its outputs
  static constexpr u32 numbers = slopes + Head::size;                     // three stages
  static constexpr u32 keys = numbers + 3 * SAMPLES * 16 * NUMBER_VECTORS;
  static constexpr u32 scalars = keys + 32;                               // clip; of advantages
  static constexpr u32 biases = scalars + 16;
  static constexpr u32 outputs = biases + 4 * (WIDTH * (N::DEPTH - 1) + 2 * N::HEAD);
  static constexpr u32 output_row = N::OUTPUTS | 1;                       // odd: no bank conflicts
  static constexpr int gathers = N::OUTPUTS + (N::ACTOR && DISTRIBUTION == GAUSSIAN ? ACTIONS : 0) + 5;
  static constexpr int gather_vectors = (gathers + 3) / 4 | 1;             // odd as well
  static constexpr u32 gathered = outputs + 4 * SAMPLES * output_row;     // sums of each row's own
  static constexpr u32 size = gathered + 16 * gather_vectors * SAMPLES;
};

__device__ __forceinline__ void store_vectors(u32 address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

__device__ __forceinline__ void load_transposed(u32 address, u32& a, u32& b, u32& c, u32& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address) : "memory");
}

__device__ __forceinline__ void fetch_vector(u32 address, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(address), "l"(from) : "memory");
}

template <class T>
__device__ __forceinline__ void fetch_matrix(u32 tile, const u16* from, int rows, int columns) {
  for (int k = threadIdx.x; k < rows * T::vectors; k += THREADS) {
    const int row = k / T::vectors, vector = k % T::vectors;
    fetch_vector(tile + T::at(row, vector), from + row * columns + 8 * vector);
  }
}

__device__ __forceinline__ void fetched() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ void show_tensor_cores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Arithmetic --------------------------------------------------------------------------------------
__device__ __forceinline__ u32 packed(float low, float high) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

__device__ __forceinline__ float lower(u32 both) { return __uint_as_float(both << 16); }
__device__ __forceinline__ float upper(u32 both) { return __uint_as_float(both & 0xFFFF0000u); }

__device__ __forceinline__ float sigmoid(float z) { return __fdividef(1.0f, 1.0f + __expf(-z)); }

__device__ __forceinline__ float activated(float z) {
  if (ACTIVATION == TANH) {
    float found;
    asm("tanh.approx.f32 %0, %1;" : "=f"(found) : "f"(z));
    return found;
  }
  if (ACTIVATION == RELU) return fmaxf(z, 0.0f);
  return z * sigmoid(z);
}

__device__ __forceinline__ float silu_slope(float z) {
  const float half = sigmoid(z);
  return half * (1.0f + z * (1.0f - half));
}

// Two gradients times the activation's slope, from what was kept of it; for tanh times h * h - 1,
// which is that slope's negative and one operation less: see `sign`.
__device__ __forceinline__ u32 through(float low, float high, u32 kept) {
  if (ACTIVATION == SILU)
    return packed(low * silu_slope(lower(kept)), high * silu_slope(upper(kept)));
  u32 both = packed(low, high);
  if (ACTIVATION == TANH) {
    u32 slope;
    asm("fma.rn.bf16x2 %0, %1, %1, %2;" : "=r"(slope) : "r"(kept), "r"(0xBF80BF80));
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(both) : "r"(both), "r"(slope));
    return both;
  }
  const u32 positive = ((kept & 0xFFFF) ? 0xFFFFu : 0u) | ((kept >> 16) ? 0xFFFF0000u : 0u);
  return both & positive;
}

// Which sample comes at a position: see operant/ppo/kernels/cpu/shuffle.py.
__device__ __forceinline__ u32 shuffled(u32 position, const u32* keys, u32 count) {
  constexpr u32 mask = (u32)((1ull << BITS) - 1), fold = (BITS + 1) / 2;
  u32 x = position;
  do {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      x = (x * keys[2 * k] + keys[2 * k + 1]) & mask;
      x ^= x >> fold;
    }
  } while (WALK && x >= count);
  return x;
}

// A tile in registers -----------------------------------------------------------------------------
// z[4j..4j+3] of a thread are columns 8j+2c, 8j+2c+1 of rows 16w+g and 16w+g+8, where w is its warp,
// g its lane / 4 and c its lane % 4; packed in pairs that is the first operand of the next product.
constexpr int PAIRS = WIDTH / 4;

__device__ __forceinline__ void store_tile(u32 tile, const u32 (&h)[PAIRS]) {
  const u32 lane = threadIdx.x % 32, matrix = lane / 8;
  const u32 offset = Wide::at(threadIdx.x / 32 * 16 + matrix % 2 * 8 + lane % 8, matrix / 2);
#pragma unroll
  for (int k = 0; k < PAIRS / 4; ++k)  // two vectors further: the bits that swizzling changes
    store_vectors(tile + k / 4 * Wide::panel + (offset ^ k % 4 * 32), h[4 * k], h[4 * k + 1],
                 h[4 * k + 2], h[4 * k + 3]);
}

// A tile's columns as rows.
__device__ __forceinline__ void load_tile(u32 tile, u32 (&h)[PAIRS]) {
  const u32 lane = threadIdx.x % 32, matrix = lane / 8;
  const u32 offset = Wide::at(matrix / 2 * 8 + lane % 8, threadIdx.x / 32 * 2 + matrix % 2);
#pragma unroll
  for (int k = 0; k < PAIRS / 4; ++k)
    load_transposed(tile + offset + 16 * k * Wide::bytes, h[4 * k], h[4 * k + 1], h[4 * k + 2],
                h[4 * k + 3]);
}

// Weights that are a first operand: 16 columns, of a matrix with so many.
__device__ __forceinline__ void load_weights(const u16* matrix, int columns, u32* a) {
  const u32 lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
  for (int k = 0; k < 4; ++k)
    a[k] = *(const u32*)(matrix + (row + k % 2 * 8) * columns + k / 2 * 8 + lane % 4 * 2);
}

__device__ __forceinline__ void activate(const float (&z)[2 * PAIRS], u32 (&h)[PAIRS]) {
#pragma unroll
  for (int j = 0; j < PAIRS; ++j) h[j] = packed(activated(z[2 * j]), activated(z[2 * j + 1]));
}

__device__ __forceinline__ void pack(const float (&z)[2 * PAIRS], u32 (&h)[PAIRS]) {
#pragma unroll
  for (int j = 0; j < PAIRS; ++j) h[j] = packed(z[2 * j], z[2 * j + 1]);
}

// Gradients by what a layer gives -> by what it came from, packed, in place of what was kept of it.
__device__ __forceinline__ void way_back(const float (&z)[2 * PAIRS], u32 (&h)[PAIRS]) {
#pragma unroll
  for (int j = 0; j < PAIRS; ++j) h[j] = through(z[2 * j], z[2 * j + 1], h[j]);
}

// The loss ----------------------------------------------------------------------------------------
struct Figures {
  float policy_loss, value_loss, entropy, kl, clipped;
};

// The clipped objective; its derivative by the log-probability.
__device__ __forceinline__ float objective(float log_prob, float old, float advantage, float clip,
                                           Figures& sum, bool here) {
  const float log_ratio = log_prob - old, ratio = expf(log_ratio);
  const float near = fminf(fmaxf(ratio, 1.0f - clip), 1.0f + clip);
  const float plain = ratio * advantage, limited = near * advantage;
  const float small =
      log_ratio * log_ratio * (0.5f + log_ratio * (1.0f / 6.0f + log_ratio * (1.0f / 24.0f)));
  const float kl = fabsf(log_ratio) < 0.05f ? small : ratio - 1.0f - log_ratio;
  if (here) {
    sum.policy_loss -= fminf(plain, limited);
    sum.kl += fmaxf(kl, 0.0f);
    sum.clipped += fabsf(ratio - 1.0f) > clip ? 1.0f : 0.0f;
  }
  return plain <= limited ? -plain : 0.0f;
}

// Gradients by the outputs of one sample's categorical distributions.
template <class N>
__device__ __forceinline__ void categorical(const float* out, const float* row, float advantage,
                                        float clip, float share, bool here, float (&g)[N::OUTPUTS],
                                        Figures& sum) {
  constexpr int sizes[] = {CATEGORIES};
  u32 allowed = 0xFFFFFFFFu;
  if (MASK >= 0) allowed = __float_as_uint(row[MASK < 0 ? 0 : MASK]);
  float log_total[PARTS], surprise[PARTS], log_prob = 0.0f, entropy = 0.0f;
#pragma unroll
  for (int part = 0, first = 0; part < PARTS; first += sizes[part], ++part) {
    const int taken = first + (int)row[ACTION + part];
    float largest = -INFINITY, total = 0.0f, weighted = 0.0f, chosen = 0.0f;
#pragma unroll
    for (int j = first; j < first + sizes[part]; ++j)
      if (MASK < 0 || allowed >> j & 1) largest = fmaxf(largest, out[j]);
#pragma unroll
    for (int j = first; j < first + sizes[part]; ++j)
      if (MASK < 0 || allowed >> j & 1) {
        const float size = __expf(out[j] - largest);
        total += size;
        weighted += size * (out[j] - largest);
        if (j == taken) chosen = out[j];
      }
    const float log_sum = __logf(total);
    log_total[part] = largest + log_sum;
    surprise[part] = log_sum - weighted / total;  // the entropy of this part
    log_prob += chosen - log_total[part];
    entropy += surprise[part];
  }
  const float lean = objective(log_prob, row[0], advantage, clip, sum, here) * share;
  if (here) sum.entropy += entropy;
#pragma unroll
  for (int part = 0, first = 0; part < PARTS; first += sizes[part], ++part) {
    const int taken = first + (int)row[ACTION + part];
#pragma unroll
    for (int j = first; j < first + sizes[part]; ++j) {
      const float log_p = out[j] - log_total[part], p = __expf(log_p);
      const float slope = lean * ((j == taken ? 1.0f : 0.0f) - p) +
                          ENTROPY_COEF * share * p * (log_p + surprise[part]);
      g[j] = here && (MASK < 0 || allowed >> j & 1) ? slope : 0.0f;
    }
  }
}

// The same of normal distributions; `by_log_std` gathers what goes to deviations that are weights.
template <class N>
__device__ __forceinline__ void numbers(const float* out, const float* row, const float* log_stds,
                                        float advantage, float clip, float share, bool here,
                                        float (&g)[N::OUTPUTS], float (&by_log_std)[ACTIONS],
                                        Figures& sum) {
  float log_prob = 0.0f, entropy = 0.0f;
#pragma unroll
  for (int j = 0; j < ACTIONS; ++j) {
    const float given = DISTRIBUTION == GAUSSIAN ? log_stds[j] : out[ACTIONS + j];
    const float log_std = fminf(fmaxf(given, LOWEST), HIGHEST);
    const float normal = (row[ACTION + j] - out[j]) * __expf(-log_std);
    log_prob += -0.5f * normal * normal - HALF_LOG_2PI - log_std;
    entropy += log_std + 0.5f + HALF_LOG_2PI;
  }
  const float lean = objective(log_prob, row[0], advantage, clip, sum, here) * share;
  if (here) sum.entropy += entropy;
#pragma unroll
  for (int j = 0; j < ACTIONS; ++j) {
    const float given = DISTRIBUTION == GAUSSIAN ? log_stds[j] : out[ACTIONS + j];
    const float log_std = fminf(fmaxf(given, LOWEST), HIGHEST);
    const float inverse = __expf(-log_std), normal = (row[ACTION + j] - out[j]) * inverse;
    const bool inside = here && given >= LOWEST && given <= HIGHEST;
    const float by_std = inside ? lean * (normal * normal - 1.0f) - ENTROPY_COEF * share : 0.0f;
    g[j] = here ? lean * normal * inverse : 0.0f;
    if (DISTRIBUTION == GAUSSIAN) by_log_std[j] += by_std;
    else g[ACTIONS + j] = by_std;
  }
}

template <class N>
__device__ __forceinline__ void actor_slopes(const float* out, const float* row,
                                             const float* log_stds, float advantage, float clip,
                                             float share, bool here, float (&g)[N::OUTPUTS],
                                             float (&by_log_std)[ACTIONS], Figures& sum) {
  if constexpr (DISTRIBUTION == CATEGORICAL)
    categorical<N>(out, row, advantage, clip, share, here, g, sum);
  else
    numbers<N>(out, row, log_stds, advantage, clip, share, here, g, by_log_std, sum);
}

__device__ __forceinline__ float value_slope(float value, const float* row, float share, bool here,
                                             Figures& sum) {
  const float error = value - row[2];
  float square = error * error, slope = error;
  if (VALUE_CLIP > 0.0f) {
    const float old = row[OLD_VALUE < 0 ? 0 : OLD_VALUE], moved = value - old;
    const float near = old + fminf(fmaxf(moved, -VALUE_CLIP), VALUE_CLIP) - row[2];
    if (!(square >= near * near || fabsf(moved) <= VALUE_CLIP)) slope = 0.0f;
    square = fmaxf(square, near * near);
  }
  if (here) sum.value_loss += 0.5f * square;
  return here ? slope * (VALUE_COEF * share) : 0.0f;
}

// The kernel --------------------------------------------------------------------------------------
template <class N>
__device__ __forceinline__ void train(const Update& u, u32 program, char* memory) {
  using At = Offsets<N>;
  static_assert(At::size <= MEMORY, "a block is given as much");
  using Head = typename At::Head;
  constexpr int LAST = N::DEPTH - 1, STEPS = WIDTH / 16, HEAD_STEPS = (N::HEAD + 15) / 16;
  constexpr u32 shared = SHARED_BEGIN;
  const u32 thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  float* biases = (float*)(memory + At::biases);
  float* outputs = (float*)(memory + At::outputs);
  float* gathered = (float*)(memory + At::gathered);

  // Weights, once.
  const u16* low = u.low + N::BASE;
  const float* full = u.full + N::BASE;
  for (u32 k = thread; k < (At::numbers - At::inputs) / 16; k += THREADS)
    *(uint4*)(memory + At::inputs + 16 * k) = make_uint4(0, 0, 0, 0);
  for (u32 k = thread; k < 4 * At::gather_vectors * SAMPLES; k += THREADS) gathered[k] = 0.0f;
  volatile float* scalars = (float*)(memory + At::scalars);  // not worth registers
  if (thread == 0) {
    scalars[0] = (float)*u.clip;
    scalars[1] = NORMALIZE ? u.moments[2 * u.job] : 0.0f;
    scalars[2] = NORMALIZE ? u.moments[2 * u.job + 1] : 1.0f;
  }
  if (thread < 8)
    ((u32*)(memory + At::keys))[thread] = (u32)u.keys[u.job / MINIBATCHES * 8 + thread];
#pragma unroll
  for (int l = 1; l < N::DEPTH; ++l)
    if (thread < WIDTH) biases[(l - 1) * WIDTH + thread] = full[N::bias(l) + thread];
  if (thread < N::HEAD) {
    biases[LAST * WIDTH + thread] = full[N::HEAD_BIAS + thread];
    biases[LAST * WIDTH + N::HEAD + thread] = full[N::LOG_STD + thread];
  }
  show_tensor_cores();  // what is 0, to a block that gets no tile
  __syncthreads();
  fetch_matrix<First>(shared + At::first, low + N::FIRST, 16 * IN_STEPS, WIDTH);
#pragma unroll
  for (int l = 1; l < N::DEPTH; ++l)
    fetch_matrix<Wide>(shared + At::weights + (l - 1) * Wide::size, low + N::matrix(l), WIDTH, WIDTH);
  fetch_matrix<Head>(shared + At::head, low + N::HEAD_MATRIX, WIDTH, N::HEAD_COLUMNS);
  u32 transposed[N::DEPTH][PAIRS], transposed_head[4 * HEAD_STEPS];
#pragma unroll
  for (int l = 1; l < N::DEPTH && HELD; ++l)
#pragma unroll
    for (int k = 0; k < PAIRS / 4; ++k)
      load_weights(low + N::matrix(l) + 16 * k, WIDTH, transposed[l] + 4 * k);
#pragma unroll
  for (int k = 0; k < HEAD_STEPS && HELD; ++k)
    load_weights(low + N::HEAD_MATRIX + 16 * k, N::HEAD_COLUMNS, transposed_head + 4 * k);

  // The minibatch.
  const int batch = u.job % MINIBATCHES, least = u.count / MINIBATCHES, rest = u.count % MINIBATCHES;
  const u32 begin = batch * least + min(batch, rest), size = least + (batch < rest);
  const u32 tiles = (size + SAMPLES - 1) / SAMPLES;
  const float share = 1.0f / (float)size;

  auto fetch = [&](u32 tile, u32 stage) {
#pragma unroll
    for (u32 k = thread; k < SAMPLES * ROW_VECTORS; k += THREADS) {
      const u32 row = k / ROW_VECTORS, vector = k % ROW_VECTORS, position = tile * SAMPLES + row;
      const u32* keys = (const u32*)(memory + At::keys);
      const u32 sample = shuffled(position < size ? begin + position : 0, keys, u.count);
      const u32 to = vector < INPUT_VECTORS
          ? At::inputs + stage * Inputs::size + Inputs::at(row, vector)
          : At::numbers + (stage * SAMPLES + row) * 16 * NUMBER_VECTORS + 16 * (vector - INPUT_VECTORS);
      fetch_vector(shared + to, u.rows + (u64)sample * ROW_VECTORS + vector);
    }
  };
  if (program < tiles) fetch(program, 0);

  float d_first[IN / 2] = {}, d_head[N::HEAD / 2] = {};
  float d[N::DEPTH][2 * PAIRS] = {}, e[N::DEPTH][IN / 2] = {};  // of layers after the first; biases
  u32 h[PAIRS] = {}, before = shared + At::inputs, stage = 0;
  // The first layer's gradient of a tile is added when the next one has begun: nobody waits for it.
  auto add_first = [&]() {
#pragma unroll
    for (int k = 0; k < STEPS; ++k)
      product_r_t1(d_first, h[4 * k], h[4 * k + 1], h[4 * k + 2], h[4 * k + 3],
                   Inputs::by_rows(before, k), 1);
    end_products();
  };
  for (u32 tile = program; tile < tiles; tile += u.programs) {
    fetched();
    show_tensor_cores();
    __syncthreads();
    const u32 x = shared + At::inputs + stage * Inputs::size, next = stage == 2 ? 0 : stage + 1;

    float z[2 * PAIRS];
    begin_products();
#pragma unroll
    for (int k = 0; k < IN_STEPS; ++k)
      product_t0_t1(z, Inputs::by_columns(x + (WIDTH > 64 ? thread / 128 * 64 * Inputs::bytes : 0), k),
                    First::by_rows(shared + At::first, k), k > 0);
    end_products();
    add_first();
    if (tile + u.programs < tiles) fetch(tile + u.programs, next);
    wait_products<0>(z);
    held(d_first), held(h);
    auto give = [&](int l) {  // what layer l gives: to the next one, and for the way back
      if (KEPT) {
        pack(z, h);
        store_tile(shared + At::kept + l * Wide::size, h);
      }
      activate(z, h);
      store_tile(shared + At::hidden + l * Wide::size, h);
    };
    give(0);
#pragma unroll
    for (int l = 1; l < N::DEPTH; ++l) {
      begin_products();
#pragma unroll
      for (int k = 0; k < STEPS; ++k)
        product_r_t1(z, h[4 * k], h[4 * k + 1], h[4 * k + 2], h[4 * k + 3],
                     Wide::by_rows(shared + At::weights + (l - 1) * Wide::size, k), k > 0);
      end_products();
      wait_products<0>(z);
#pragma unroll
      for (int j = 0; j < WIDTH / 8; ++j) {
        const float2 bias = *(const float2*)(biases + (l - 1) * WIDTH + 8 * j + lane % 4 * 2);
        z[4 * j] += bias.x, z[4 * j + 1] += bias.y, z[4 * j + 2] += bias.x, z[4 * j + 3] += bias.y;
      }
      give(l);
    }
    {
      float out[N::HEAD / 2];
      begin_products();
#pragma unroll
      for (int k = 0; k < STEPS; ++k)
        product_r_t1(out, h[4 * k], h[4 * k + 1], h[4 * k + 2], h[4 * k + 3],
                     Head::by_rows(shared + At::head, k), k > 0);
      end_products();
      wait_products<0>(out);
      const u32 row = warp * 16 + lane / 4;
#pragma unroll
      for (int j = 0; j < N::HEAD / 2; ++j) {
        const u32 column = j / 4 * 8 + lane % 4 * 2 + j % 2;
        if (column < N::OUTPUTS)
          outputs[(row + j % 4 / 2 * 8) * At::output_row + column] =
              out[j] + biases[LAST * WIDTH + column];
      }
    }
    __syncwarp();
    if (lane < 16) {
      const u32 sample = warp * 16 + lane;
      const bool here = tile * SAMPLES + sample < size;
      const float* own = outputs + sample * At::output_row;
      const float* row =
          (const float*)(memory + At::numbers) + (stage * SAMPLES + sample) * 4 * NUMBER_VECTORS;
      float g[N::OUTPUTS], by_log_std[ACTIONS] = {};
      Figures sum = {};
      if (N::ACTOR) {
        const float advantage = (row[1] - scalars[1]) * scalars[2];
        actor_slopes<N>(own, row, biases + LAST * WIDTH + N::HEAD, advantage, scalars[0], share,
                        here, g, by_log_std, sum);
      }
      if (N::CRITIC)
        g[N::OUTPUTS - 1] = value_slope(own[N::OUTPUTS - 1], row, share, here, sum);
#pragma unroll
      for (int vector = 0; vector < N::HEAD / 8; ++vector) {
        u32 words[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int j = 8 * vector + 2 * k;
          words[k] = packed(j < N::OUTPUTS ? g[j < N::OUTPUTS ? j : 0] : 0.0f,
                            j + 1 < N::OUTPUTS ? g[j + 1 < N::OUTPUTS ? j + 1 : 0] : 0.0f);
        }
        *(uint4*)(memory + At::slopes + Head::at(sample, vector)) =
            make_uint4(words[0], words[1], words[2], words[3]);
      }
      float4* sums = (float4*)(gathered + sample * 4 * At::gather_vectors);
      auto number = [&](int j) {  // of those that are gathered
        constexpr int figures = At::gathers - 5;
        if (j < N::OUTPUTS) return g[j];
        if (j < figures) return by_log_std[j - N::OUTPUTS];
        const float last[] = {sum.policy_loss, sum.value_loss, sum.entropy, sum.kl, sum.clipped};
        return j < At::gathers ? last[j - figures] : 0.0f;
      };
#pragma unroll
      for (int k = 0; k < (At::gathers + 3) / 4; ++k) {
        float4 four = sums[k];
        four.x += number(4 * k), four.y += number(4 * k + 1);
        four.z += number(4 * k + 2), four.w += number(4 * k + 3);
        sums[k] = four;
      }
    }
    show_tensor_cores();
    __syncthreads();

    // The way back.
    begin_products();
#pragma unroll
    for (int k = 0; k < HEAD_STEPS; ++k)
      if constexpr (HELD)
        product_r_t0(z, transposed_head[4 * k], transposed_head[4 * k + 1], transposed_head[4 * k + 2],
                     transposed_head[4 * k + 3], Head::by_columns(shared + At::slopes, k), k > 0);
      else
        product_t0_t0(z, Head::by_columns(shared + At::head, k),
                      Head::by_columns(shared + At::slopes, k), k > 0);
    end_products();
    load_tile(shared + At::hidden + LAST * Wide::size, h);
    begin_products();
#pragma unroll
    for (int k = 0; k < STEPS; ++k)
      product_r_t1(d_head, h[4 * k], h[4 * k + 1], h[4 * k + 2], h[4 * k + 3],
                   Head::by_rows(shared + At::slopes, k), 1);
    end_products();
    wait_products<0>(z);
    held(d_head), held(h);
    if (KEPT) load_tile(shared + At::kept + LAST * Wide::size, h);
    way_back(z, h);
#pragma unroll
    for (int l = LAST; l > 0; --l) {
      const u32 here = shared + At::back + (l - 1) * Wide::size;
      store_tile(here, h);
      begin_products();
#pragma unroll
      for (int k = 0; k < STEPS; ++k) {
        product_r_t1(d[l], h[4 * k], h[4 * k + 1], h[4 * k + 2], h[4 * k + 3],
                     Wide::by_rows(shared + At::hidden + (l - 1) * Wide::size, k), 1);
        product_r_t1(e[l], h[4 * k], h[4 * k + 1], h[4 * k + 2], h[4 * k + 3],
                     Inputs::by_rows(x, k), 1);
      }
      end_products();
      show_tensor_cores();
      __syncthreads();
#pragma unroll
      for (int k = 0; k < STEPS; ++k)
        if constexpr (HELD)
          product_r_t1(z, transposed[l][4 * k], transposed[l][4 * k + 1], transposed[l][4 * k + 2],
                       transposed[l][4 * k + 3], Wide::by_rows(here, k), k > 0);
        else
          product_t0_t1(z, Wide::by_columns(shared + At::weights + (l - 1) * Wide::size, k),
                        Wide::by_rows(here, k), k > 0);
      end_products();
      wait_products<1>(d[l]);
      held(e[l]), held(h);
      load_tile(shared + (KEPT ? At::kept : At::hidden) + (l - 1) * Wide::size, h);
      wait_products<0>(z);
      way_back(z, h);
    }
    before = x, stage = next;
  }
  begin_products();
  add_first();
  wait_products<0>(d_first);
  held(h);

  // This block's part of the gradient. With tanh it changed its sign in each layer on the way back.
  auto sign = [](int l) { return ACTIVATION == TANH && (LAST - l) % 2 == 0 ? -1.0f : 1.0f; };
  float* out = u.gradients + (u64)program * u.stride + N::BASE;
  const u32 row = warp * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < IN / 2; ++j) {
    const u32 input = j / 4 * 8 + lane % 4 * 2 + j % 2, neuron = row + j % 4 / 2 * 8;
    out[N::FIRST + input * WIDTH + neuron] = sign(0) * d_first[j];
#pragma unroll
    for (int l = 1; l < N::DEPTH; ++l)
      if (input == ONES) out[N::bias(l) + neuron] = sign(l) * e[l][j];
  }
#pragma unroll
  for (int l = 1; l < N::DEPTH; ++l)
#pragma unroll
    for (int j = 0; j < 2 * PAIRS; ++j) {
      const u32 input = j / 4 * 8 + lane % 4 * 2 + j % 2, neuron = row + j % 4 / 2 * 8;
      out[N::matrix(l) + input * WIDTH + neuron] = sign(l) * d[l][j];
    }
#pragma unroll
  for (int j = 0; j < N::HEAD / 2; ++j) {
    const u32 column = j / 4 * 8 + lane % 4 * 2 + j % 2, neuron = row + j % 4 / 2 * 8;
    out[N::HEAD_MATRIX + neuron * N::HEAD_COLUMNS + column] = d_head[j];
  }
  fetched();
  __syncthreads();
  for (u32 j = warp; j < At::gathers; j += THREADS / 32) {
    float total = 0.0f;
#pragma unroll
    for (u32 k = lane; k < SAMPLES; k += 32) total += gathered[k * 4 * At::gather_vectors + j];
#pragma unroll
    for (int k = 16; k > 0; k /= 2) total += __shfl_xor_sync(0xFFFFFFFFu, total, k);
    constexpr u32 figures = At::gathers - 5;
    if (lane > 0) continue;
    if (j < N::OUTPUTS) out[N::HEAD_BIAS + j] = total;
    else if (j < figures) out[N::LOG_STD + j - N::OUTPUTS] = total;
    else if (j == figures + 1 ? N::CRITIC : N::ACTOR) u.sums[program * 8 + j - figures] = total * share;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_A_PROCESSOR) train_networks(const Update u) {
  extern __shared__ __align__(1024) char memory[];
  if (__cvta_generic_to_shared(memory) != SHARED_BEGIN) __trap();
  asm volatile("griddepcontrol.launch_dependents;");  // who adds up may begin to wait
#if NETWORKS == 1
  train<Network0>(u, blockIdx.x, memory);
#else
  // Blocks are handed out to one processor after the other: so each gets as many of both networks.
  if (blockIdx.x < u.programs) train<Network0>(u, blockIdx.x, memory);
  else train<Network1>(u, blockIdx.x - u.programs, memory);
#endif
}
