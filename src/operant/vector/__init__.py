"""Running many environments: the vector API and its backends."""
