"""The ``cpu`` backend: kernels compiled by Numba, and the threads that run them."""
