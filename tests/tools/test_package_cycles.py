"""Packages import in one direction; modules that are imported by name count too."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from ..modules import load

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool() -> ModuleType:
    return load(ROOT / "tools" / "package_cycles.py")


def write_tree(folder: Path, ways_up: str) -> Path:
    """A package with ``top`` above ``middle`` above ``bottom``, whose one module is `ways_up`."""
    for name, text in {
        "__init__": "import operant.top.a",  # public names: of no package
        "top/a": "from operant.middle import b",
        "middle/b": "def f():\n    import operant.bottom.c",
        "bottom/c": ways_up,
    }.items():
        file = folder / "operant" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        (file.parent / "__init__.py").touch()
    return folder


def test_the_tree_has_none(tool, capsys) -> None:
    assert tool.main([]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "way",
    [
        "import operant.top.a",
        "from operant.top import a",
        "def f():\n    from operant.top.a import name",
        "if TYPE_CHECKING:\n    from operant.top import a",
        "HOMES = {'A': 'operant.top.a'}",
        "entry_point = 'operant.top.a:main'",
        "import_module(f'operant.top.{name}')",
    ],
)
def test_every_way_to_import_counts(tool, monkeypatch, capsys, tmp_path: Path, way: str) -> None:
    monkeypatch.setattr(tool, "EXCEPTIONS", {})
    assert tool.main([str(write_tree(tmp_path, way))]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert set(lines[0].removeprefix("cycle: ").split(" -> ")) == {"top", "middle", "bottom"}
    assert any(line.startswith("    operant.bottom.c imports operant.top") for line in lines)
    assert "    operant.middle.b imports operant.bottom.c" in lines
    assert len(lines) == 4


def test_what_is_no_import_does_not_count(tool, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tool, "EXCEPTIONS", {})
    tree = write_tree(tmp_path, "'operant.top.nothing'\n'see operant.top.a'\nimport numpy.top.a")
    assert tool.main([str(tree)]) == 0


def test_an_exception_holds_for_its_import_alone(tool, monkeypatch, capsys, tmp_path: Path) -> None:
    tree = str(write_tree(tmp_path, "import operant.top.a"))
    monkeypatch.setattr(tool, "EXCEPTIONS", {("operant.bottom.c", "operant.top.a"): "reason"})
    assert tool.main([tree]) == 0
    write_tree(tmp_path, "import operant.top.a, operant.top")
    assert tool.main([tree]) == 1
    write_tree(tmp_path, "")
    capsys.readouterr()
    assert tool.main([tree]) == 1
    expected = "no longer needed in EXCEPTIONS: operant.bottom.c imports operant.top.a\n"
    assert capsys.readouterr().out == expected
