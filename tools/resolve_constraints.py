"""Resolve the package and its extras under constraints.txt, for machines that are not this one.

    pip install uv && python tools/resolve_constraints.py

A machine may find wheels of its own (a build of torch for CPUs, say), and then an installation
proves nothing about anybody else's. Here uv resolves from the public registry alone: settings and
environment variables of pip and uv are left out, and so are wheels that lie on this machine.

Prints a row for each system, Python and choice of extras. Exit code 1: one of them has no
solution, a package is not pinned, or a pin is needed nowhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[1]
SYSTEMS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "aarch64-apple-darwin")
PYTHONS = ("3.11", "3.12", "3.13")
EXTRAS: dict[str, tuple[str, ...]] = {
    "none": (),
    "test": ("--extra", "test"),
    "docs": ("--extra", "docs"),
    "all": ("--all-extras",),
}
MACOS = "14.0"  # the oldest that torch has wheels for; uv would assume 13


def name_of(package: str) -> str:
    """The name as registries compare it: ``Jinja2`` and ``jinja2`` are one."""
    return re.sub(r"[-_.]+", "-", package).lower()


def pins(text: str) -> dict[str, str]:
    """Versions by package, of lines such as ``numpy==2.4.6``."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.MULTILINE)
    return {name_of(package): version for package, version in found}


def environment() -> dict[str, str]:
    """The variables for uv: nothing that could name another registry, or wheels on this disk."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_"))}
    return kept | {"MACOSX_DEPLOYMENT_TARGET": MACOS}


def resolve(uv: str, system: str, python: str, extras: str) -> tuple[str, str]:
    """What would be installed, as lines ``package==version``; and the reason if nothing can be."""
    command = [uv, "pip", "compile", "pyproject.toml", "-c", "constraints.txt", *EXTRAS[extras]]
    command += ["--no-config", "--no-sources", "--no-header", "--no-annotate", "--quiet"]
    command += ["--python-platform", system, "--python-version", python, "--only-binary", ":all:"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    return (done.stdout, "") if done.returncode == 0 else ("", done.stderr.strip())


def main() -> int:
    """Resolve everything, print the table, and return the exit code."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        print("uv is not installed; write: pip install uv", file=sys.stderr)
        return 1
    pinned = pins((ROOT / "constraints.txt").read_text())
    needed: set[str] = set()
    reasons: dict[str, list[str]] = {}  # by what uv says, the rows where it says so
    print(f"{'system':26}  python  extras  packages  torch    triton")
    rows = list(product(SYSTEMS, PYTHONS, EXTRAS))
    with ThreadPoolExecutor(4) as pool:  # mostly waiting for the registry
        answers = pool.map(lambda row: resolve(uv, *row), rows)
        for (system, python, extras), (output, reason) in zip(rows, answers, strict=True):
            found = pins(output)
            needed |= found.keys()
            row = f"{system:26}  {python:6}  {extras:6}  "
            if reason:
                reasons.setdefault(reason, []).append(f"{system} {python} {extras}")
                print(row + "no solution")
            else:
                print(f"{row}{len(found):<8}  {found['torch']:7}  {found.get('triton', '-')}")
    troubles = [f"{', '.join(where)}: {reason}" for reason, where in reasons.items()]
    troubles += [f"not pinned: {name}" for name in sorted(needed - pinned.keys())]
    if not troubles:  # where nothing was resolved, nothing seems needed
        troubles += [f"pinned, and nothing needs it: {n}" for n in sorted(pinned.keys() - needed)]
    print("\n".join(["", *troubles] if troubles else ["", "all resolve"]))
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
