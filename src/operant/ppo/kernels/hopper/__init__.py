"""Kernels in CUDA C++, compiled while the program runs: where Triton would be the limit."""
