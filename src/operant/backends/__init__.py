"""How a batch of environments is run, one package a target: memory and launches, no semantics."""
