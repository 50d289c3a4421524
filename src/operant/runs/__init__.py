"""A run is a directory; everything else only reads it."""
