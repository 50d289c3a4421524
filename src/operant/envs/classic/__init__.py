"""Classic control: Gymnasium's five tasks, one a file."""
