"""Gymnasium's spaces as memory: one aligned row a sample, a typed view a leaf."""

from operant.spaces.batches import flatten, layout, unflatten
from operant.spaces.rows import Leaf, ObsLayout

__all__ = ["Leaf", "ObsLayout", "flatten", "layout", "unflatten"]
