"""How the training loop is executed."""
