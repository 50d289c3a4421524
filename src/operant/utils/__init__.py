"""Tools for loops of one's own."""

from __future__ import annotations

from operant.utils.logger import Logger

TUILogger = Logger

__all__ = ["Logger", "TUILogger"]
