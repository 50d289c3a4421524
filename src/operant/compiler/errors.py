"""What compiled code raises for an author's mistake while it runs."""

from __future__ import annotations


class RulesError(IndexError):
    """An index lay outside its array, in compiled code; the message begins with file and line."""


class RulesOverflowError(OverflowError):
    """An int did not fit into its array, in compiled code; the message begins with file, line."""


class EndlessLoopError(RuntimeError):
    """A ``while`` of an environment does not end; the message begins with file and line."""
