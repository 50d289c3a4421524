// A rollout: every step of every environment in one launch (sm_90, bfloat16).
//
// A warp acts for ROWS environments: they are the rows of its products, and a lane steps one (of 16,
// two lanes the same). What a product gives is packed to bfloat16 in registers, where it is the next product's first operand:
// activations never leave them. Weights lie in shared memory, in the order in which lanes want them.
//
// Nobody waits for values, so the critic has a warp of its own beside each acting one, which hands
// it inputs through a ring of shared memory: while one warp steps environments, the other keeps the
// units busy that compute tanh, which are what bounds a rollout. A final observation goes through
// the ring too. Actor and critic in one network need no second warp.
//
// Before this text stand: `warps.cu`, the words of `operant.compiler.runtime.cuda_words`, the constants of the
// job with the offsets in shared memory, a struct of constants for each network, and the rules of
// the environment as functions of one environment.

struct Rollout {
  float* floats;                            // state: rows that are `stride` apart
  int* ints;
  u8* flags;
  int* records;                             // [num_envs][RECORD_SIZE]
  Seen* obs;                                // [steps + 1][num_envs][OBS_SIZE]
  float* reward;                            // [steps][num_envs], and so on
  u8 *terminated, *truncated, *action_mask; // the last: [steps + 1][num_envs][MASK_SIZE]
  Action* action;
  float *log_prob, *value, *final_value;    // of values there are steps + 1
  Seen* final_obs;
  float4* report;
  const u16* low;                           // weights in bfloat16
  const float* full;                        // and in float32
  const float* statistics;                  // [2][OBS_SIZE]: means, 1 / deviations
  const float* bounds;                      // [2][NUMBERS]: of the numbers of an action
  float* hints;                             // [2][programs]: NaN where something was not finite
  const long long* first_step;
  long long stride;
  int num_envs, steps, max_steps, programs;
  u32 seed_low, seed_high;                  // of the policy's random numbers
};

constexpr int ROWS = 16 * TILES;               // environments of a warp
constexpr int ROW_WORDS = INPUTS / 2 + 4;      // so that rows begin in different banks
constexpr int VECTORS = (ONES + 8) / 8;         // 16-byte vectors of a row that are ever written
constexpr bool FEW = VECTORS == 1;              // inputs: half a product is enough for them
constexpr int HEAD_WORDS = Actor::OUTPUTS | 1; // the same
constexpr int THREADS = 32 * PAIRS * (SHARED ? 1 : 2);

DEVICE float not_a_number() { return __int_as_float(0x7fc00000); }
DEVICE float infinity() { return __int_as_float(0x7f800000); }

// Networks ----------------------------------------------------------------------------------------
DEVICE float activated(float z) {
  if (ACTIVATION == TANH) return quick_tanh(z);
  if (ACTIVATION == RELU) return fmaxf(z, 0.0f);
  return __fdividef(z, 1.0f + __expf(-z));
}

// Which fragment, of 16 rows and 8 columns, is the `number`-th of a layer's matrix. Two that follow
// each other are fetched together: neighbouring columns, of the head neighbouring rows. Of few
// inputs half a fragment is left, and four are fetched together.
template <class N, int L>
DEVICE void fragment_at(int number, int& row, int& column) {
  constexpr int steps = N::size(L) / 16, tiles = N::tiles(L);
  row = 16 * (L < N::DEPTH ? number / tiles : number % steps);
  column = 8 * (L < N::DEPTH ? number % tiles : number / steps);
}

// Copy a network to shared memory.
template <class N, int L = 0>
DEVICE void load(const Rollout& r, char* memory) {
  constexpr int fragments = N::size(L) / 16 * N::tiles(L), columns = N::columns(L);
  const u16* from = r.low + N::matrix(L);
#pragma unroll 4
  for (int k = threadIdx.x; k < 32 * fragments; k += THREADS) {
    const int number = k / 32, lane = k % 32;
    int row, column;
    fragment_at<N, L>(number, row, column);
    const u16* own = from + (row + lane % 4 * 2) * columns + column + lane / 4;
    if (FEW && L == 0) {
      u32* to = (u32*)(memory + N::weights(L)) + (number / 4 * 32 + lane) * 4 + number % 4;
      *to = own[0] | (u32)own[columns] << 16;
      continue;
    }
    uint2* to = (uint2*)(memory + N::weights(L)) + (number / 2 * 32 + lane) * 2 + number % 2;
    *to = make_uint2(own[0] | (u32)own[columns] << 16,
                     own[8 * columns] | (u32)own[9 * columns] << 16);
  }
  if (L > 0)
    for (int k = threadIdx.x; k < 8 * N::tiles(L); k += THREADS)
      ((float*)(memory + N::biases(L)))[k] = r.full[N::bias(L) + k];
  if constexpr (L < N::DEPTH) load<N, L + 1>(r, memory);
}

// A network as a lane sees it. What fits is held in registers all the time, because shared memory
// could not deliver all weights to all warps in the time that their activations take.
template <class N, int HELD>
struct Weights {
  const char* memory;
  int lane;
  uint4 held[HELD > 0 ? HELD : 1];

  // Those of layer L before which so many pairs of fragments are held: the first layer's, then the
  // head's, then the others'.
  static constexpr __device__ int before(int l) {
    int sum = 0;
    if (l > 0) sum += pairs(0);
    if (l > 0 && l < N::DEPTH) sum += pairs(N::DEPTH);
    for (int k = 1; k < l && l < N::DEPTH; ++k) sum += pairs(k);
    return sum;
  }
  static constexpr __device__ int pairs(int l) {
    return N::size(l) / 16 * N::tiles(l) / (FEW && l == 0 ? 4 : 2);
  }

  DEVICE_MEMBER Weights(const char* memory, int lane) : memory(memory), lane(lane) {
    hold<0>();
    hold<N::DEPTH>();
    if constexpr (N::DEPTH > 1) hold<1>();
    if constexpr (N::DEPTH > 2) hold<2>();
  }

  template <int L>
  DEVICE_MEMBER uint4 fetch(int pair) const {
    return ((const uint4*)(memory + N::weights(L)))[pair * 32 + lane];
  }

  template <int L>
  DEVICE_MEMBER void hold() {
#pragma unroll
    for (int k = 0; k < pairs(L); ++k)
      if (before(L) + k < HELD) held[before(L) + k < HELD ? before(L) + k : 0] = fetch<L>(k);
  }

  template <int L>
  DEVICE_MEMBER uint4 two_fragments(int pair) const {
    const int number = before(L) + pair;
    return number < HELD ? held[number < HELD ? number : 0] : fetch<L>(pair);
  }
};

// Two columns of a layer's biases, as a sum of products begins with them.
template <class N, int L>
DEVICE void begin_sum(float (&sum)[4], const char* memory, int lane, int tile) {
  float2 bias = make_float2(0.0f, 0.0f);
  if constexpr (L > 0) bias = ((const float2*)(memory + N::biases(L)))[4 * tile + lane % 4];
  sum[0] = sum[2] = bias.x, sum[1] = sum[3] = bias.y;
}

// From layer L on: `x` are operands of products, `out` the head, as products give it.
template <int L, class N, int HELD>
DEVICE void layers(const Weights<N, HELD>& net, const u32 (&x)[TILES][N::size(L) / 4],
                   float (&out)[TILES][N::tiles(N::DEPTH)][4]) {
  constexpr int steps = N::size(L) / 16, tiles = N::tiles(L);
  if constexpr (L < N::DEPTH) {
    u32 h[TILES][N::size(L + 1) / 4];
#pragma unroll
    for (int pair = 0; pair < tiles / 2; ++pair) {
      float sum[TILES][2][4];
#pragma unroll
      for (int i = 0; i < TILES; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) begin_sum<N, L>(sum[i][j], net.memory, net.lane, 2 * pair + j);
      if constexpr (FEW && L == 0) {
        const uint4 b = net.template two_fragments<L>(pair / 2);
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
          short_product(sum[i][0], x[i], pair % 2 ? b.z : b.x);
          short_product(sum[i][1], x[i], pair % 2 ? b.w : b.y);
        }
      } else {
#pragma unroll
        for (int k = 0; k < steps; ++k) {
          const uint4 b = net.template two_fragments<L>(k * (tiles / 2) + pair);
#pragma unroll
          for (int i = 0; i < TILES; ++i) {
            product(sum[i][0], x[i] + 4 * k, b.x, b.y);
            product(sum[i][1], x[i] + 4 * k, b.z, b.w);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < TILES; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          h[i][4 * pair + j] = packed(activated(sum[i][j / 2][2 * (j % 2)]),
                                      activated(sum[i][j / 2][2 * (j % 2) + 1]));
    }
    layers<L + 1>(net, h, out);
  } else {
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
      float other[TILES][4] = {};  // two sums, each of which waits half as often
#pragma unroll
      for (int i = 0; i < TILES; ++i) begin_sum<N, L>(out[i][tile], net.memory, net.lane, tile);
#pragma unroll
      for (int k = 0; k < steps; k += 2) {
        const uint4 b = net.template two_fragments<L>((tile * steps + k) / 2);
#pragma unroll
        for (int i = 0; i < TILES; ++i) {
          product(out[i][tile], x[i] + 4 * k, b.x, b.y);
          product(other[i], x[i] + 4 * k + 4, b.z, b.w);
        }
      }
#pragma unroll
      for (int i = 0; i < TILES; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) out[i][tile][j] += other[i][j];
    }
  }
}

// Inputs ------------------------------------------------------------------------------------------
// What the networks see of an observation: a row of inputs in bfloat16.
DEVICE void write_row(u32* row, const float* statistics, const Number (&o)[OBS_SIZE]) {
  uint4* vectors = (uint4*)row;
  if constexpr (ONE_HOT) {
    constexpr int sizes[] = {SEEN_SIZES}, starts[] = {SEEN_STARTS};
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) vectors[k] = make_uint4(0, 0, 0, 0);
    u16* columns = (u16*)row;
    columns[ONES] = 0x3F80;
    int at = 0;
#pragma unroll
    for (int k = 0; k < OBS_SIZE; ++k) {
      const int column = (int)o[k] - starts[k];
      if (column >= 0 && column < sizes[k]) columns[at + column] = 0x3F80;
      at += sizes[k];
    }
  } else {
    float x[8 * VECTORS];
#pragma unroll
    for (int k = 0; k < 8 * VECTORS; ++k) x[k] = k == ONES ? 1.0f : 0.0f;
#pragma unroll
    for (int k = 0; k < OBS_SIZE; ++k) {
      x[k] = (float)o[k];
      if (LIMIT > 0.0f)
        x[k] = fminf(fmaxf((x[k] - statistics[k]) * statistics[OBS_SIZE + k], -LIMIT), LIMIT);
    }
#pragma unroll
    for (int k = 0; k < VECTORS; ++k)
      vectors[k] = make_uint4(packed(x[8 * k], x[8 * k + 1]), packed(x[8 * k + 2], x[8 * k + 3]),
                             packed(x[8 * k + 4], x[8 * k + 5]), packed(x[8 * k + 6], x[8 * k + 7]));
  }
}

DEVICE void read_rows(const u32* rows, int lane, u32 (&x)[TILES][INPUTS / 4]) {
#pragma unroll
  for (int i = 0; i < TILES; ++i)
#pragma unroll
    for (int j = 0; j < INPUTS / 4; ++j)
      x[i][j] = rows[(16 * i + lane / 4 + j % 2 * 8) * ROW_WORDS + j / 2 * 4 + lane % 4];
}

// Shared memory of one acting warp and its critic.
struct Pair {
  char* memory;

  DEVICE_MEMBER u32* rows(u32 slot) const {
    return (u32*)(memory + AT_RING) + slot * ROWS * ROW_WORDS;
  }
  DEVICE_MEMBER u32* cut(u32 slot) const { return (u32*)(memory + AT_CUT) + slot; }
  DEVICE_MEMBER u64* full(u32 slot) const { return (u64*)(memory + AT_BARRIERS) + slot; }
  DEVICE_MEMBER u64* empty(u32 slot) const { return (u64*)(memory + AT_BARRIERS) + RING + slot; }
  DEVICE_MEMBER float* head() const { return (float*)(memory + AT_HEAD); }
  DEVICE_MEMBER float* draws() const { return (float*)(memory + AT_DRAWS); }
};

// Put inputs into the ring; `cut` is not 0 for final observations: whose values are wanted.
DEVICE void hand_over(const Pair& pair, const float* statistics, const Number (&o)[OBS_SIZE],
                      u32 cut, u32 sent, int lane) {
  const u32 slot = sent % RING;
  if (!SHARED) wait_for(pair.empty(slot), sent / RING + 1);
  if (lane < ROWS) write_row(pair.rows(slot) + lane * ROW_WORDS, statistics, o);
  if (lane == 0) *pair.cut(slot) = cut;
  __syncwarp();
  if (!SHARED) arrive(pair.full(slot));
}

// Acting ------------------------------------------------------------------------------------------
// Heads, from where products leave them to the lanes that act: those of `ROWS` rows.
DEVICE void spread(const float (&out)[TILES][Actor::tiles(Actor::DEPTH)][4], float* head, int lane,
                   float (&own)[Actor::OUTPUTS]) {
#pragma unroll
  for (int i = 0; i < TILES; ++i)
#pragma unroll
    for (int j = 0; j < 4 * Actor::tiles(Actor::DEPTH); ++j) {
      const int column = j / 4 * 8 + lane % 4 * 2 + j % 2, row = 16 * i + lane / 4 + j % 4 / 2 * 8;
      if (column < Actor::OUTPUTS) head[row * HEAD_WORDS + column] = out[i][j / 4][j % 4];
    }
  __syncwarp();
#pragma unroll
  for (int j = 0; j < Actor::OUTPUTS; ++j) own[j] = head[lane % ROWS * HEAD_WORDS + j];
}

// Draw an action from a head, write it, and give what the environment is told; the logarithm of its
// probability. `z` are uniform numbers.
DEVICE float act(const Rollout& r, const float* constants, const float (&head)[Actor::OUTPUTS],
                 const bool (&allowed)[MASK_ROOM], const float (&z)[DRAWS], Row row, bool here,
                 Told (&told)[ACTIONS]) {
  float log_prob = 0.0f;
  if constexpr (NUMBERS > 0) {
#pragma unroll
    for (int k = 0; k < NUMBERS; ++k) {
      const float given = BY_STATE ? head[BY_STATE ? NUMBERS + k : 0] : constants[k];
      const float low = constants[NUMBERS + k], high = constants[2 * NUMBERS + k];
      const float log_std = fminf(fmaxf(given, LOWEST), HIGHEST);
      const float normal = sqrtf(-2.0f * logf(1.0f - z[k])) * cospif(2.0f * z[NUMBERS + k]);
      const float action = head[k] + __expf(log_std) * normal;
      // Not from `normal`: the action is rounded, and it is what the update will look at.
      const float miss = (action - head[k]) * __expf(-log_std);
      log_prob += -0.5f * miss * miss - HALF_LOG_2PI - log_std;
      if (here) r.action[row * NUMBERS + k] = action;
      told[k] = action < low ? low : action > high ? high : action;
    }
  } else {
    constexpr int sizes[] = {CATEGORIES}, starts[] = {STARTS};
    int first = 0;
#pragma unroll
    for (int part = 0; part < ACTIONS; ++part) {
      float logits[LARGEST], sums[LARGEST], largest = -infinity(), total = 0.0f;
#pragma unroll
      for (int j = 0; j < sizes[part]; ++j) {
        const bool can = MASK_SIZE == 0 || allowed[MASK_SIZE == 0 ? 0 : first + j];
        logits[j] = can ? head[first + j] : -infinity();
        largest = fmaxf(largest, logits[j]);
      }
#pragma unroll
      for (int j = 0; j < sizes[part]; ++j) {
        total += logits[j] > -infinity() ? __expf(logits[j] - largest) : 0.0f;
        sums[j] = total;
      }
      // The first whose sum exceeds a number below `total`: never one of probability 0. If logits
      // are no numbers there is none, and the last is taken.
      const float reached = z[part] * total;
      int taken = 0;
      float chosen = logits[0];
#pragma unroll
      for (int j = 0; j + 1 < sizes[part]; ++j)
        if (sums[j] <= reached) taken = j + 1, chosen = logits[j + 1];
      log_prob += chosen - (largest + __logf(total));
      if (here) r.action[row * ACTIONS + part] = taken;
      told[part] = taken + starts[part];
      first += sizes[part];
    }
  }
  return log_prob;
}

// Uniform numbers of a counter and a key.
template <int COUNT>
DEVICE void draw(float (&u)[COUNT], u32 c0, u32 c1, u32 c2, u32 block, u32 k0, u32 k1) {
#pragma unroll
  for (int k = 0; k < COUNT; k += 4) {
    u32 c[4] = {c0, c1, c2, block + k / 4};
    philox(c, k0, k1);
#pragma unroll
    for (int j = k; j < COUNT && j < k + 4; ++j) u[j] = unit(c[j - k]);
  }
}

// Numbers that are put aside in shared memory: else the compiler draws them where they are wanted,
// and everyone waits, instead of here, where there are activations to wait for anyway.
template <int COUNT>
DEVICE void put_aside(const float (&u)[COUNT], float* draws, int lane) {
#pragma unroll
  for (int k = 0; k < COUNT; ++k) draws[32 * k + lane] = u[k];
}

template <int COUNT>
DEVICE void take_back(float (&u)[COUNT], const float* draws, int lane) {
#pragma unroll
  for (int k = 0; k < COUNT; ++k) u[k] = draws[32 * k + lane];
}

// Writing -----------------------------------------------------------------------------------------
DEVICE void write_obs(Seen* to, const Number (&o)[OBS_SIZE]) {
  if constexpr (sizeof(Seen) == 4 && OBS_SIZE % 4 == 0) {
#pragma unroll
    for (int k = 0; k < OBS_SIZE / 4; ++k)
      ((float4*)to)[k] = make_float4(o[4 * k], o[4 * k + 1], o[4 * k + 2], o[4 * k + 3]);
  } else if constexpr (sizeof(Seen) == 4 && OBS_SIZE % 2 == 0) {
#pragma unroll
    for (int k = 0; k < OBS_SIZE / 2; ++k)
      ((float2*)to)[k] = make_float2(o[2 * k], o[2 * k + 1]);
  } else {
#pragma unroll
    for (int k = 0; k < OBS_SIZE; ++k) to[k] = o[k];
  }
}

DEVICE void write_mask(const Rollout& r, Row row, const bool (&allowed)[MASK_ROOM]) {
#pragma unroll
  for (int k = 0; k < MASK_SIZE; ++k) r.action_mask[row * MASK_SIZE + k] = allowed[k];
}

// 0 as long as all numbers were finite, else NaN.
DEVICE float hinted(float hint, float number, const Number (&o)[OBS_SIZE]) {
  if (sizeof(Seen) == 4) {
#pragma unroll
    for (int k = 0; k < OBS_SIZE; ++k) number += (float)o[k];
  }
  return hint + 0.0f * number;
}

// The warp that acts ------------------------------------------------------------------------------
DEVICE void play(const Rollout& r, char* memory, const Pair& pair, int program, int lane) {
  const int i = program * ROWS + lane % ROWS;
  const bool here = lane < ROWS && i < r.num_envs;
  const float* statistics = (const float*)(memory + AT_STATISTICS);
  const float* constants = (const float*)(memory + AT_CONSTANTS);
  const int now = ticks();
  const u64 first_step = *r.first_step;
  int* record = r.records + (long long)i * RECORD_SIZE;
  const bool loaded = i < r.num_envs;
  int start = loaded ? record[START] : 0, episode = loaded ? record[EPISODE] : 0;
  const u32 index = loaded ? record[INDEX] : 0, seed_low = loaded ? record[SEED_LOW] : 0;
  const u32 seed_high = loaded ? record[SEED_HIGH] : 0;
  State s = {};
  int steps = 0;
  float total = 0.0f;
  if (loaded) {
    load_state(r, i, s);
    steps = r.ints[STEPS_ROW * r.stride + i];
    total = r.floats[RETURN_ROW * r.stride + i];
  }
  bool ended = false, allowed[MASK_ROOM] = {};
  Row row = i;
  Number o[OBS_SIZE];
  observe(s, o);
  if (MASK_SIZE > 0) mask_actions(s, allowed);
  if (here) write_obs(r.obs + row * OBS_SIZE, o), write_mask(r, row, allowed);
  float hint = hinted(0.0f, 0.0f, o);
  const Weights<Actor, ACTOR_HELD> net(memory, lane);
  u32 sent = 0;

  for (int t = 0;; ++t) {
    u32 x[TILES][INPUTS / 4];
    float out[TILES][Actor::tiles(Actor::DEPTH)][4], head[Actor::OUTPUTS], z[DRAWS];
    hand_over(pair, statistics, o, 0, sent, lane);
    if (!SHARED && t == r.steps) break;
    read_rows(pair.rows(sent % RING), lane, x);
    ++sent;
    const u64 step = first_step + t;
    draw(z, (u32)step, (u32)(step >> 32), r.seed_high, POLICY_BLOCK, r.seed_low, i);
    float u[STEP_ROOM];
    if (STEP_DRAWS > 0) draw(u, steps + 1, episode - 1, seed_high, 0, seed_low, index);
    layers<0>(net, x, out);
    put_aside(z, pair.draws(), lane);
    if (STEP_DRAWS > 0) put_aside(u, pair.draws() + 32 * DRAWS, lane);
    spread(out, pair.head(), lane, head);
    if (SHARED) {
      if (here) r.value[row] = head[Actor::OUTPUTS - 1];
      if (t == r.steps) break;
    }
    take_back(z, pair.draws(), lane);
    if (STEP_DRAWS > 0) take_back(u, pair.draws() + 32 * DRAWS, lane);
    Told told[ACTIONS];
    const float log_prob = act(r, constants, head, allowed, z, row, here, told);
    float gained;
    bool over;
    State n;
    step_env(s, told, u, n, gained, over);
    steps = added(steps, 1);
    total += gained;
    const bool late = steps >= r.max_steps, cut = late && !over && i < r.num_envs;
    ended = (over || late) && i < r.num_envs;
    observe(n, o);
    if (here) {
      r.log_prob[row] = log_prob;
      r.reward[row] = gained;
      r.terminated[row] = over;
      r.truncated[row] = late;
    }
    // Values of observations after which nothing comes but for the time limit.
    float last = 0.0f;
    const u32 cuts = __ballot_sync(0xFFFFFFFFu, cut);
    if (cuts != 0) {
      if (cut) hint = hinted(hint, 0.0f, o);  // relu and limits would hide what is not a number
      hand_over(pair, statistics, o, cuts, sent, lane);
      if constexpr (SHARED) {
        read_rows(pair.rows(sent % RING), lane, x);
        layers<0>(net, x, out);
        spread(out, pair.head(), lane, head);
        if (cut) last = head[Actor::OUTPUTS - 1];
      }
      ++sent;
    }
    if (here && (SHARED || !cut)) r.final_value[row] = last;
    if (__any_sync(0xFFFFFFFFu, ended)) {
      if (ended) {
        if (here) {
          const float seconds = (float)subtracted(now, start) * 16.384e-6f;
          r.report[row] = make_float4(total, __int_as_float(steps), seconds, 0.0f);
          write_obs(r.final_obs + row * OBS_SIZE, o);
        }
        float w[RESET_ROOM];
        if (RESET_DRAWS > 0) draw(w, 0, episode, seed_high, 0, seed_low, index);
        reset_env(w, n);
        observe(n, o);
        steps = 0;
        total = 0.0f;
        episode = added(episode, 1);
        start = now;
      }
      __syncwarp();
    }
    row += r.num_envs;
    hint = hinted(hint, log_prob + gained + last, o);
    s = n;
    if (MASK_SIZE > 0) mask_actions(s, allowed);
    if (here) write_obs(r.obs + row * OBS_SIZE, o), write_mask(r, row, allowed);
  }

  const bool bad = __any_sync(0xFFFFFFFFu, here && hint != hint);
  if (lane == 0) r.hints[program] = bad ? not_a_number() : 0.0f;
  if (here) {
    store_state(r, i, s);
    r.ints[STEPS_ROW * r.stride + i] = steps;
    r.floats[RETURN_ROW * r.stride + i] = total;
    r.flags[DONE_ROW * r.stride + i] = ended;
    record[EPISODE] = episode;
    record[START] = start;
  }
}

// The warp of its critic --------------------------------------------------------------------------
template <class N>
DEVICE void judge(const Rollout& r, const char* memory, const Pair& pair, int program, int lane) {
  const int first = program * ROWS + lane / 4;
  Row row = first;  // of the values wanted next
  const Weights<N, CRITIC_HELD> net(memory, lane);
  bool bad = false;
  int t = 0;
  for (u32 taken = 0; t <= r.steps; ++taken) {
    const u32 slot = taken % RING;
    u32 x[TILES][INPUTS / 4];
    float out[TILES][N::tiles(N::DEPTH)][4];
    wait_for(pair.full(slot), taken / RING);
    const u32 cuts = *pair.cut(slot);
    read_rows(pair.rows(slot), lane, x);
    arrive(pair.empty(slot));
    layers<0>(net, x, out);
#pragma unroll
    for (int j = 0; j < 2 * TILES; ++j) {
      const float value = out[j / 2][0][j % 2 * 2];
      const bool here = lane % 4 == 0 && first + 8 * j < r.num_envs;
      if (cuts == 0) {
        if (here) r.value[row + 8 * j] = value;
      } else if (here && cuts >> (lane / 4 + 8 * j) & 1) {
        r.final_value[row + 8 * j - r.num_envs] = value;
        bad = bad || !(fabsf(value) < infinity());
      }
    }
    if (cuts == 0) row += r.num_envs, ++t;
  }
  bad = __any_sync(0xFFFFFFFFu, bad);
  if (lane == 0) r.hints[r.programs + program] = bad ? not_a_number() : 0.0f;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_A_PROCESSOR)
    rollout(const Rollout r) {
  extern __shared__ __align__(1024) char memory[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  load<Actor>(r, memory);
  if constexpr (!SHARED) load<Critic>(r, memory);
  float* statistics = (float*)(memory + AT_STATISTICS);
  float* constants = (float*)(memory + AT_CONSTANTS);
  if (LIMIT > 0.0f)
    for (int k = threadIdx.x; k < 2 * OBS_SIZE; k += THREADS) statistics[k] = r.statistics[k];
  for (int k = threadIdx.x; k < NUMBERS; k += THREADS) {
    constants[k] = r.full[Actor::LOG_STD + k];
    constants[NUMBERS + k] = r.bounds[k], constants[2 * NUMBERS + k] = r.bounds[NUMBERS + k];
  }
  for (int k = threadIdx.x; k < PAIRS * PAIR_BYTES / 4; k += THREADS)
    ((u32*)(memory + AT_PAIRS))[k] = 0;
  __syncthreads();
  const Pair pair = {memory + AT_PAIRS + warp % PAIRS * PAIR_BYTES};
  if (warp < PAIRS && lane < 2 * RING) begin_barrier(pair.full(lane));
  __syncthreads();
  const int program = blockIdx.x * PAIRS + warp % PAIRS;
  if (program * ROWS >= r.num_envs) return;
  if (warp < PAIRS) play(r, memory, pair, program, lane);
  else if constexpr (!SHARED) judge<Critic>(r, memory, pair, program, lane);
}
