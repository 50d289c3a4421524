"""``operant sweep``: hyper-parameters searched for with Optuna, and the winner trained again.

A space (`space`) and a configuration to start from are written down once (`plan`); processes draw
trials of it from one journal (`journal`, `study`), train them (`trial`, `search`), and train the
best again on seeds that no trial had (`verify`). Optuna is imported by `journal`, `study` and
`importance` alone.
"""
