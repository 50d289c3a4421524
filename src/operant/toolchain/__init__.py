"""Leaves that every layer may use: files, processes, GPUs, caches of compiled modules."""
