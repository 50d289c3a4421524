"""What generated text calls on each target."""
