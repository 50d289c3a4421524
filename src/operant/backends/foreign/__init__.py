"""Environments of Gymnasium's API as a batch: one after the other, in threads, or in processes."""
