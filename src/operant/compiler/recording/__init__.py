"""Functions over numbers, called with symbols that record what is computed."""
