"""What a network sees of an observation: numbers, normalised or not, or one-hot vectors."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def normalize(x, column, statistics, NUMBERS: tl.constexpr, LIMIT: tl.constexpr):  # noqa: N803
    """Numbers ``[samples, columns]`` with mean 0 and deviation 1, limited. `statistics`, float32
    ``[2, NUMBERS]``, are means and 1 / deviations."""
    here = column < NUMBERS
    mean = tl.load(statistics + column, mask=here, other=0.0)
    scale = tl.load(statistics + NUMBERS + column, mask=here, other=0.0)
    return tl.minimum(tl.maximum((x - mean[None, :]) * scale[None, :], -LIMIT), LIMIT)
