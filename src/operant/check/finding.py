"""What a check of an environment says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that was checked. `note`: worth reading, but no failure."""

    name: str
    passed: bool
    detail: str
    note: bool = False


class CheckFailed(Exception):  # noqa: N818  (reads as what it is: a finding)
    """What a check raises: the sentence for the report."""
