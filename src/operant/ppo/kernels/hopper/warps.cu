// What has no name in C++: instructions of the GPU, and how warps wait for each other.
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__

// d += a @ b: 16 rows, 8 columns, summed over 16.
DEVICE void product(float (&d)[4], const u32* a, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same, summed over 8.
DEVICE void short_product(float (&d)[4], const u32* a, u32 b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b));
}

DEVICE u32 packed(float low, float high) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

DEVICE float quick_tanh(float z) {
  float found;
  asm("tanh.approx.f32 %0, %1;" : "=f"(found) : "f"(z));
  return found;
}

// A barrier of shared memory that the lanes of one warp arrive at; `turn` counts its phases.
DEVICE void begin_barrier(u64* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 32;"
               :: "r"((u32)__cvta_generic_to_shared(barrier)) : "memory");
}

DEVICE void arrive(u64* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
               :: "r"((u32)__cvta_generic_to_shared(barrier)) : "memory");
}

DEVICE void wait_for(u64* barrier, u32 turn) {
  asm volatile(
      "{.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;}"
      :: "r"((u32)__cvta_generic_to_shared(barrier)), "r"(turn & 1) : "memory");
}

DEVICE int ticks() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return (int)(now >> 14);
}
