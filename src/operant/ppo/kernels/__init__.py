"""Kernels that do a whole rollout, or a whole minibatch, without leaving the chip."""
