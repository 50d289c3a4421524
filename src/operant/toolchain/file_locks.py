"""`fcntl`, the locks of files, which only POSIX systems have; elsewhere a sentence that says so."""

from __future__ import annotations

__all__ = ["fcntl"]

try:
    import fcntl
except ImportError:
    raise ImportError(
        "Operant needs the file locks of Linux or macOS (Python's module fcntl), which this "
        "system does not have; on Windows, install and run it inside WSL 2"
    ) from None
