"""Tasks made to measure exploration, one a file."""
