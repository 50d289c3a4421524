"""``operant bench run``: one suite of everything that should stay fast, and baselines of it."""
