"""Kernels for GPUs, in Triton: one idea per file."""
