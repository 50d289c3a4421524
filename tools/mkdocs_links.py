"""A hook of MkDocs: links that leave ``docs/`` work in the site as they do in the repository.

A page may link to ``../examples/lander.py`` or ``../benchmarks/results/cpu.json``. The file becomes
part of the site (under ``source/``), and the link points there. CONTRIBUTING.md and CHANGELOG.md
become pages. A link to a file that does not exist is left alone, and a strict build refuses it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")


def site_path(repository_path: str) -> str:
    """Where the site has a file that lies at this path of the repository."""
    if repository_path.startswith("docs/"):
        return repository_path.removeprefix("docs/")
    return PAGES.get(repository_path, f"source/{repository_path}")


def repository_path(target: str, page: str) -> str:
    """The path in the repository that a link means, `page` being the path of its page there."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), target))


def on_files(files: Files, config: Any) -> Files:
    """Add the files that pages link to, and the pages that lie beside ``docs/``."""
    for path, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT).as_posix()
        for _, target, _ in LINK.findall(page.read_text()):
            path = repository_path(target, name)
            place = site_path(path)
            if (
                place.startswith("source/")
                and (ROOT / path).is_file()
                and place not in files.src_uris
            ):
                files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let the links of a page point to where the site has their files."""
    here = page.file.src_uri
    source = next((path for path, place in PAGES.items() if place == here), f"docs/{here}")

    def moved(match: re.Match[str]) -> str:
        path = repository_path(match[2], source)
        if ":" in match[2] or not (ROOT / path).is_file():
            return match[0]
        place = posixpath.relpath(site_path(path), posixpath.dirname(here) or ".")
        return f"{match[1]}{place}{match[3]}"

    return LINK.sub(moved, markdown)
