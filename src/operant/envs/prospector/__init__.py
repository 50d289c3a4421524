"""Prospector, the mining and trading game: rules, belt, ship, picture, pilots without training."""
