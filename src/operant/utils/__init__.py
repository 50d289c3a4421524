"""Tools for loops of one's own."""

from __future__ import annotations

from operant.utils.logger import Logger
from operant.utils.windows import Window, WindowMetrics, chosen_infos

TUILogger = Logger

__all__ = ["Logger", "TUILogger", "Window", "WindowMetrics", "chosen_infos"]
