"""``operant bench report``: results as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from operant.cli.screen import UserError, errors, literal, mistakes, output

EXAMPLE = "Example:  operant bench report benchmarks/results --out report.html"


def report(
    places: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|FOLDER...", help="What --json of the other commands wrote."),
    ],
    out: Annotated[Path, Option(metavar="FILE", help="The page to write.")] = Path("report.html"),
    title: Annotated[str, Option(help="Its title.")] = "Operant, measured",
) -> None:
    """A static page with charts: one HTML file, light and dark, that needs nothing else."""
    from operant.bench.report.page import page
    from operant.bench.report.sources import find_sources
    from operant.toolchain.files import exporting

    for place in places:
        if not place.exists():
            raise UserError(f"there is no file or folder {str(place)!r}")
    found = find_sources(places)
    for trouble in found.troubles:
        errors.print(f"left out: {literal(trouble)}", style="yellow", soft_wrap=True)
    with mistakes():
        text = page(found, title)
        with exporting(out) as staged:
            staged.write_text(text, encoding="utf-8")
    output.print(f"{len(found.sources)} files: {literal(out)}", soft_wrap=True)
