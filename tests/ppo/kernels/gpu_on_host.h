// A GPU on the host, for tests: what `warps.cu` and CUDA give a kernel. Blocks run one after the
// other; the threads of a block are fibers that take turns wherever one waits for others.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <ucontext.h>
#include <vector>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;
#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define DEVICE static inline
#define DEVICE_MEMBER inline

struct uint2 { u32 x, y; };
struct uint4 { u32 x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
static uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
static uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
static float2 make_float2(float x, float y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static int __float_as_int(float x) { int found; memcpy(&found, &x, 4); return found; }
static float __int_as_float(int x) { float found; memcpy(&found, &x, 4); return found; }
static float __fdividef(float a, float b) { return a / b; }
#define __expf expf
#define __logf logf
static float cospif(float x) { return (float)cos(3.14159265358979323846 * x); }

// Fibers ------------------------------------------------------------------------------------------
struct Index { u32 x; };
static Index threadIdx, blockIdx;
char memory[232448] __attribute__((aligned(1024)));

struct Barrier {
  int count = 0, turn = 0;
};
struct Warp {
  Barrier barrier;
  u32 words[32], a[2][32][4], b[2][32][2];
};
struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done = false;
  int products = 0;
};
static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static Barrier everyone;

static void yield() {
  swapcontext(&fibers[threadIdx.x].context, &scheduler);
}

static void pass(Barrier& barrier, int size) {
  const int turn = barrier.turn;
  if (++barrier.count == size) barrier.count = 0, ++barrier.turn;
  else while (barrier.turn == turn) yield();
}

static Warp& own_warp() { return warps[threadIdx.x / 32]; }
static void __syncthreads() { pass(everyone, (int)fibers.size()); }
static void __syncwarp() { pass(own_warp().barrier, 32); }

static u32 __ballot_sync(u32, bool test) {
  own_warp().words[threadIdx.x % 32] = test;
  __syncwarp();
  u32 found = 0;
  for (int k = 0; k < 32; ++k) found |= own_warp().words[k] << k;
  __syncwarp();
  return found;
}
static bool __any_sync(u32 who, bool test) { return __ballot_sync(who, test) != 0; }

// Instructions ------------------------------------------------------------------------------------
static float upper(u32 both) { return __int_as_float((int)(both & 0xFFFF0000u)); }
static float lower(u32 both) { return __int_as_float((int)(both << 16)); }

static void product(float (&d)[4], const u32* a, u32 b0, u32 b1) {
  const int lane = threadIdx.x % 32, group = lane / 4, column = lane % 4 * 2;
  Warp& warp = own_warp();
  const int turn = fibers[threadIdx.x].products++ % 2;
  memcpy(warp.a[turn][lane], a, 16);
  warp.b[turn][lane][0] = b0, warp.b[turn][lane][1] = b1;
  __syncwarp();
  for (int j = 0; j < 4; ++j) {
    const int row = group + j / 2 * 8, n = column + j % 2;
    float sum = 0.0f;
    for (int k = 0; k < 16; ++k) {
      const u32 left = warp.a[turn][row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
      const u32 right = warp.b[turn][n * 4 + k % 8 / 2][k / 8];
      sum += k % 2 ? upper(left) * upper(right) : lower(left) * lower(right);
    }
    d[j] += sum;
  }
}

static void short_product(float (&d)[4], const u32* a, u32 b) {
  const u32 padded[4] = {a[0], a[1], 0, 0};
  product(d, padded, b, 0);
}

static u32 rounded(float x) {
  const u32 bits = (u32)__float_as_int(x);
  return x != x ? 0x7FFFu : (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
}
static u32 packed(float low, float high) { return rounded(low) | rounded(high) << 16; }
static float quick_tanh(float z) { return tanhf(z); }
static void begin_barrier(u64* barrier) { *barrier = 0; }
static void arrive(u64* barrier) { *barrier += 1; }
static void wait_for(u64* barrier, u32 turn) { while ((*barrier / 32 & 1) == (turn & 1)) yield(); }
static int ticks() { return 1 << 20; }

template <class Argument>
static void run_blocks(void (*kernel)(Argument), const std::remove_const_t<Argument>& argument,
                       int blocks, int threads) {
  static void (*entry)(Argument);
  static const std::remove_const_t<Argument>* given;
  entry = kernel, given = &argument;
  for (blockIdx.x = 0; (int)blockIdx.x < blocks; ++blockIdx.x) {
    fibers = std::vector<Fiber>(threads);
    warps = std::vector<Warp>(threads / 32);
    everyone = Barrier();
    memset(memory, 0xAB, sizeof memory);
    for (Fiber& fiber : fibers) {
      constexpr size_t size = 1 << 17;
      fiber.stack.reset(new char[size]);
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = size;
      fiber.context.uc_link = &scheduler;
      makecontext(&fiber.context, (void (*)())+[]() {
        entry(*given);
        fibers[threadIdx.x].done = true;
      }, 0);
    }
    for (int left = threads; left > 0;) {
      left = 0;
      for (threadIdx.x = 0; (int)threadIdx.x < threads; ++threadIdx.x)
        if (!fibers[threadIdx.x].done) {
          swapcontext(&scheduler, &fibers[threadIdx.x].context);
          left += !fibers[threadIdx.x].done;
        }
    }
  }
}
