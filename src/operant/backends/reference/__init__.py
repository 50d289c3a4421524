"""The ``reference`` backend: the author's own functions, run by Python."""
