"""Text from files and other programs, made harmless for a terminal."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """`text` without control characters, which a terminal would obey; those in `keep` stay."""
    return "".join(c if c.isprintable() or c in keep else "?" for c in text)
