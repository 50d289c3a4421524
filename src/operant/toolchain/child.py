"""Python processes that this one starts, and Numba, take nothing from the folder one stands in.

Python puts the working directory first on the path of ``python -m`` and ``python -c``, so a
``numba.py`` that lies there would be run. What a user names (``file.py:Class``) is loaded by name.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path


def python_command(*arguments: str) -> list[str]:
    """The command line of a Python process with a safe path."""
    return [sys.executable, "-P", *arguments]


def python_environment() -> dict[str, str]:
    """The variables of such a process: its own children are safe too, and it finds this package."""
    package = Path(__file__).parents[2]
    found = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    if package.name not in ("site-packages", "dist-packages") and str(package) not in found:
        found.insert(0, str(package))  # a checkout, perhaps found in the folder one stands in
    return os.environ | {"PYTHONPATH": os.pathsep.join(found), "PYTHONSAFEPATH": "1"}


def ignore_numba_settings() -> None:
    """Keep Numba from a ``.numba_config.yaml`` there, which names files that it overwrites and
    folders whose pickled code it runs."""
    shown = sys.modules.get("yaml")
    sys.modules["yaml"] = None  # type: ignore[assignment]  # Numba leaves the file alone then
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it does
            from numba.core import config
    finally:
        del sys.modules["yaml"]
        if shown is not None:
            sys.modules["yaml"] = shown
    config._config_fname = ""  # it would look again whenever it compiles
