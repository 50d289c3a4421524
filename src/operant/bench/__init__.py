"""Measuring: the frame every benchmark writes, and the benchmarks."""
