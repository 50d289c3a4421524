"""Text for a terminal: from files and other programs, made harmless; figures, made short."""

from __future__ import annotations

import math


def printable(text: str, keep: str = "") -> str:
    """`text` without control characters, which a terminal would obey; those in `keep` stay."""
    return "".join(c if c.isprintable() or c in keep else "?" for c in text)


def short(number: float, decimals: int = 1) -> str:
    """A figure for a table: 149.2 M, 12.5 k, 256."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.{decimals}f} {unit}"
    return str(number) if isinstance(number, int) else f"{number:.1f}"


def bar(share: float, width: int) -> str:
    """A bar of `width` cells, to an eighth of a cell."""
    share = min(max(share, 0.0), 1.0) if math.isfinite(share) else 0.0
    eighths = round(share * width * 8)
    full, rest = divmod(eighths, 8)
    text = "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
    return text.ljust(width)[:width]
