"""Where operant keeps its files."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """``$OPERANT_HOME``, by default ``~/.operant``. Not created here."""
    return Path(os.environ.get("OPERANT_HOME") or Path.home() / ".operant")
