"""``operant profile --flame``, ``--trace`` and ``--memory``: a look inside a training."""
