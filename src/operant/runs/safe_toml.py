"""TOML that anyone may have written, read in bounded time."""

from __future__ import annotations

import re
import tomllib
from typing import Any

LARGEST_BYTES = 1 << 16
"""The shipped files and what `operant config` writes have some thousand."""
_MOST_DOTS = 200
"""In a key. `tomllib` takes time by the square of them, and again for each line below a header:
64 KiB take it 0.4 s at most with these, 3 s with 900."""


def parse_toml(data: bytes, name: str) -> dict[str, Any]:
    """The tables of a configuration; `name` is what errors call it.

    Raises:
        ValueError: too large, nested too deeply, or not TOML.
    """
    if len(data) > LARGEST_BYTES:
        raise ValueError(f"{name} is too large for a configuration: more than 64 KiB")
    too_deep = f"{name} is nested too deeply for a configuration"
    if any(part.count(b".") > _MOST_DOTS for part in re.split(b"[=\n]", data)):
        raise ValueError(too_deep)
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError(f"{name} is not a TOML file: it is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name} is not a TOML file: {error}") from None
    except RecursionError:
        raise ValueError(too_deep) from None
    except ValueError as error:  # an integer of thousands of digits
        raise ValueError(f"{name}: {error}") from None
