"""Gymnasium's spaces as memory: one aligned row an observation, a typed view a leaf."""
