"""Names and limits that configurations know, importable without a framework."""

ACTIVATION_NAMES = ("tanh", "relu", "silu")

IMAGE_NAMES = ("auto", "nature", "impala", "small", "grid", "flat")
"""What encodes images: see `operant.models.pixels`."""

CHANNEL_NAMES = ("auto", "first", "last")
"""Where the channels of an image are among its axes."""

LOG_STD_RANGE = (-20.0, 20.0)
"""Logarithms of standard deviations beyond these count as these: exp must stay finite. So wide that
no training gets there, for beyond them the gradient is 0 and there is no way back."""

VALUE_HEADS = ("linear", "popart")
"""What returns values: a linear layer, or `operant.models.PopArtValueHead`."""

BONUS_NAMES = ("rnd", "icm", "count")
"""Intrinsic rewards of the library: see `operant.models.bonus`."""

COUNT_FORMS = ("sqrt", "first")
"""What an episodic count pays: see `operant.models.episodic_count`."""
