"""C++ wrappers of Hopper's asynchronous products of a warpgroup, ``wgmma``, one for each shape.

``product_<a>_<b>(d, ..., keep)`` begins ``d = a @ b`` for 64 rows, 16 numbers to be summed over and
twice as many columns as `d` has numbers, or adds to `d` if `keep`. `a` is ``r``: four registers, or
a descriptor of shared memory; ``t1`` is an operand whose rows are what is summed over.
"""

from __future__ import annotations

_COLUMNS = (8, 16, 32, 64, 128)
_COMMON = """
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;

// A tile in shared memory, as products are told of it: the words of its descriptor.
struct Operand {
  u32 low, high;
};

template <int SIZE>
__device__ __forceinline__ void held(float (&d)[SIZE]) {
#pragma unroll
  for (int k = 0; k < SIZE; ++k) asm volatile("" : "+f"(d[k]) :: "memory");
}

template <int SIZE>
__device__ __forceinline__ void held(u32 (&d)[SIZE]) {
#pragma unroll
  for (int k = 0; k < SIZE; ++k) asm volatile("" : "+r"(d[k]) :: "memory");
}

__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Wait until all but the last `LATER` groups of products are done; `d` is one of them.
template <int LATER, int SIZE>
__device__ __forceinline__ void wait_products(float (&d)[SIZE]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(LATER) : "memory");
  held(d);
}
"""


def wrappers() -> str:
    """The text that a kernel begins with."""
    kinds = [("r", 0), ("r", 1), ("t0", 0), ("t0", 1)]
    return _COMMON + "".join(_product(n, a, b) for n in _COLUMNS for a, b in kinds)


def _product(columns: int, a: str, transposed_b: int) -> str:
    count = columns // 2
    results = ", ".join(f"%{k}" for k in range(count))
    in_registers = a == "r"
    size = 4 if in_registers else 2
    names = [f"%{count + k}" for k in range(size + 3)]
    operand = "{" + ", ".join(names[:4]) + "}" if in_registers else "a"
    transposed = f"{transposed_b}" if in_registers else f"0, {transposed_b}"
    arguments = "u32 a0, u32 a1, u32 a2, u32 a3" if in_registers else "Operand a"
    given = ["a0", "a1", "a2", "a3"] if in_registers else ["a.low", "a.high"]
    given += ["b.low", "b.high", "keep"]
    described = "" if in_registers else f"mov.b64 a, {{{names[0]}, {names[1]}}}; "
    outputs = ", ".join(f'"+f"(d[{k}])' for k in range(count))
    inputs = ", ".join(f'"r"({name})' for name in given)
    return f"""
__device__ __forceinline__ void product_{a}_t{transposed_b}(
    float (&d)[{count}], {arguments}, Operand b, int keep) {{
  asm volatile(
      "{{.reg .pred p; .reg .b64 a, b; setp.ne.b32 p, {names[size + 2]}, 0; "
      "{described}mov.b64 b, {{{names[size]}, {names[size + 1]}}}; "
      "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.bf16.bf16 "
      "{{{results}}}, {operand}, b, p, 1, 1, {transposed};}}"
      : {outputs}
      : {inputs}
      : "memory");
}}
"""
