"""The ``native`` backend: libraries in C, tried before they are trusted."""
