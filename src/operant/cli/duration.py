"""Times as they are typed: ``120s``, ``5m``, ``1h``."""

from __future__ import annotations

import re

from operant.cli.screen import UserError

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds_of(text: str, switch: str) -> float:
    """The seconds that were typed after a switch.

    Raises:
        UserError: no time, or none above 0.
    """
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", text)
    if found is None or found[2] not in _UNITS or not float(found[1]) > 0:
        raise UserError(f"{switch} must be a time such as 120s, 5m or 1h, got {text!r}")
    return float(found[1]) * _UNITS[found[2]]
