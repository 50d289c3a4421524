"""What compiled kernels are kept under stands for all that is compiled into them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import operant
from operant.ppo.kernels.numba import compiled
from operant.vector.generated import module_path

ROOT = Path(operant.__file__).parent
HERE = Path(compiled.__file__).parent


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    compiled._fingerprint.cache_clear()
    yield
    compiled._fingerprint.cache_clear()


def imported(path: Path) -> Iterator[Path]:
    """Files of Operant that a file imports from, wherever it does."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            modules = [f"{node.module}.{name.name}" for name in node.names]
            found = [file for file in map(file_of, modules) if file is not None]
            own = file_of(str(node.module)) if len(found) < len(modules) else None
            yield from [*found, *([] if own is None else [own])]
        elif isinstance(node, ast.Import):
            yield from filter(None, (file_of(name.name) for name in node.names))


def file_of(module: str) -> Path | None:
    first, *rest = module.split(".")
    path = ROOT.joinpath(*rest)
    files = [path.with_name(f"{path.name}.py"), path / "__init__.py"] if first == "operant" else []
    return next((file for file in files if file.exists()), None)


def compiled_files() -> list[Path]:
    """Files with entry points, and all of Operant's that these import, and so on."""
    waiting = [path for path in HERE.glob("*.py") if "\n@Unit\n" in path.read_text()]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += imported(path)
    return sorted(found)


FILES = [str(path.relative_to(ROOT)) for path in compiled_files()]


def changed(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    """One file reads otherwise from now on."""
    read_bytes, read_text = Path.read_bytes, Path.read_text
    end = "\n# other\n"

    def bytes_of(self: Path) -> bytes:
        return read_bytes(self) + (end.encode() if self == ROOT / file else b"")

    def text_of(self: Path, *options: Any, **more: Any) -> str:
        return read_text(self, *options, **more) + (end if self == ROOT / file else "")

    monkeypatch.setattr(Path, "read_bytes", bytes_of)
    monkeypatch.setattr(Path, "read_text", text_of)
    compiled._fingerprint.cache_clear()


def test_the_files_are_those_one_would_expect() -> None:
    expected = {"lang/intrinsics.py", "ppo/closed_form.py", "vector/numba_philox.py"}
    assert expected <= set(FILES)
    assert {f"ppo/kernels/numba/{name}.py" for name in ("blocks", "layout", "unit")} <= set(FILES)


@pytest.mark.parametrize("file", FILES)
def test_another_text_has_another_fingerprint(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    before = compiled._fingerprint()
    assert len(before) >= 16
    changed(monkeypatch, file)
    assert compiled._fingerprint() != before


@pytest.mark.parametrize("unit", ["forward", "collect"])
def test_another_fingerprint_is_another_file(monkeypatch: pytest.MonkeyPatch, unit: str) -> None:
    """So that Numba, which looks at a unit's own file alone, finds nothing that is out of date."""
    before = module_path(*compiled._source(unit))
    assert module_path(*compiled._source(unit)) == before
    changed(monkeypatch, "lang/intrinsics.py")
    after = module_path(*compiled._source(unit))
    assert after != before
    assert not compiled._is_cached(unit)
