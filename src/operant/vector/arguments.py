"""What the arguments of batches are checked for, and who calls their ``reset``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv


def asked_mask(options: Mapping[str, Any] | None) -> Any:
    """The ``reset_mask`` among the options of ``reset``; None without one.

    Raises:
        ValueError: an unknown option.
        TypeError: the mask is None.
    """
    unknown = set(options or ()) - {"reset_mask"}
    if unknown:
        raise ValueError(
            f"unknown reset option {sorted(unknown)[0]!r}; the only one is 'reset_mask'"
        )
    if not options or "reset_mask" not in options:
        return None
    if options["reset_mask"] is None:
        raise TypeError("reset_mask must be a bool array, got None")
    return options["reset_mask"]


def checked_count(name: str, value: Any, most: int) -> int:
    """`value` as an int from 1 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an int, got {type(value).__name__} {value!r}")
    if not 1 <= value <= most:
        raise ValueError(f"{name} must be between 1 and {most}, got {value}")
    return int(value)


def checked_mode(mode: Any) -> AutoresetMode:
    """`mode` or what it is called, as Gymnasium's."""
    for known in AutoresetMode:
        if mode in (known, known.value, known.name):
            return known
    names = ", ".join(repr(known.value) for known in AutoresetMode)
    raise ValueError(f"autoreset_mode must be one of {names}, got {mode!r}")


def recorded_by_wrapper(env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether Gymnasium's RecordEpisodeStatistics, around `env`, is what called ``reset``.

    That wrapper refuses an info that already has its key, and tells the environment nothing of
    itself; but every wrapper's ``reset`` is on the stack of ours.
    """
    frame = sys._getframe(1).f_back
    while frame is not None:
        # Other frames stay unopened: before Python 3.13 reading f_locals leaves a copy of the
        # locals in the frame, and so keeps a caller's deleted environment alive.
        if frame.f_code.co_name == "reset":
            wrapper = frame.f_locals.get("self")
            around = isinstance(wrapper, VectorEnv) and wrapper.unwrapped is env
            if around and getattr(wrapper, "_stats_key", None) == "episode":
                return True
        frame = frame.f_back
    return False
