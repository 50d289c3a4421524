"""Proximal policy optimisation: configuration, loss, trainer, engines."""
