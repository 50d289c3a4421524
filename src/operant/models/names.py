"""Names that configurations may use, importable without a framework."""

ACTIVATION_NAMES = ("tanh", "relu", "silu")
