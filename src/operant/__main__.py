"""``python -m operant``."""

from operant.cli import main

main()
