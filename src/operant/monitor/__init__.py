"""A terminal screen that watches training runs; it only reads their files."""
