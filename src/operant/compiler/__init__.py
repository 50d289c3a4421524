"""From an environment class to text for a target.

- `spec`: the class with its parameters, checked: programs, layouts, memory.
- `recording`: functions over numbers, called with symbols; `parsing`: functions over arrays, read.
- `emit`: programs and whole kernels as text, for Numba, LLVM, Triton and C++.
- `runtime`: what generated text calls.
"""
