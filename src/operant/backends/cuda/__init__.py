"""The ``cuda`` backend: how its kernels are launched."""
