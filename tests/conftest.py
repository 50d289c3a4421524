"""Compiled kernels go to a folder that outlives a run, so that a second run compiles nothing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

os.environ.setdefault("OPERANT_HOME", str(Path(tempfile.gettempdir()) / "operant-tests"))
