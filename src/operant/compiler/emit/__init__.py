"""Programs and kernels as text for a target."""
