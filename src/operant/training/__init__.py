"""What every algorithm trains with: a trainer, its configuration, callbacks, checkpoints, runs."""
