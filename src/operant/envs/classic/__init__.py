"""Classic control: Gymnasium's five tasks, and one of them with a sparse reward; one a file."""
