"""The JSON frame of every benchmark: which machine, which code, when, and flat records."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from operant.toolchain.machine import commit, machine


def frame(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """``{"machine", "commit", "date", "results"}`` around one flat record per measurement."""
    return {
        "machine": machine(),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "results": list(results),
    }


def write_json(target: str, data: dict[str, Any]) -> None:
    """Write to a file, or to standard output for ``-``."""
    text = json.dumps(data, indent=2)
    if target == "-":
        print(text)
        return
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")
