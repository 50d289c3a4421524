"""Kernels for the card, in Triton: one idea per file."""
