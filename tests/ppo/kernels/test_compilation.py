"""What compiled kernels are kept under stands for all that is compiled into them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import operant
from operant.compiler.emit.numba_kernels import kernels_source
from operant.compiler.spec.rules import Rules
from operant.envs import CartPole
from operant.ppo.kernels.cpu import compilation
from operant.toolchain import reached_code
from operant.toolchain.generated_modules import module_path

ROOT = Path(operant.__file__).parent
HERE = Path(compilation.__file__).parent


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OPERANT_HOME", str(tmp_path))
    reached_code._text.cache_clear()
    yield
    reached_code._text.cache_clear()


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
    return closure([path for path in HERE.glob("*.py") if "\n@compiled\n" in path.read_text()])


def closure(waiting: list[Path]) -> list[Path]:
    """The files, and all that they import, and so on."""
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
    reached_code._text.cache_clear()


def test_the_files_are_those_one_would_expect() -> None:
    expected = {"compiler/runtime/intrinsics.py", "ppo/closed_form.py"}
    assert expected | {"compiler/runtime/numba_philox.py"} <= set(FILES)
    assert {
        f"ppo/kernels/cpu/{name}.py" for name in ("blocks", "record", "layout", "compiled_function")
    } <= set(FILES)


@pytest.mark.parametrize("file", sorted({*compilation._FILES, "forward", "collect", "train_epoch"}))
def test_what_a_function_reaches_is_what_it_imports(file: str) -> None:
    module = f"{compilation.__package__}.{file}"
    assert reached_code.reached_files([module]) == closure([HERE / f"{file}.py"])


def _file_of(name: str) -> Path:
    return HERE / f"{compilation._FILE_OF.get(name, name)}.py"


@pytest.mark.parametrize("name", ["forward", "collect", "train_epoch", "sample_gaussian"])
def test_a_function_is_compiled_again_when_anything_it_reaches_changes(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Numba looks at a function's own file alone."""
    before = module_path(*compilation._source(name))
    assert module_path(*compilation._source(name)) == before
    reached = {str(path.relative_to(ROOT)) for path in closure([_file_of(name)])}
    assert "compiler/runtime/intrinsics.py" in reached
    for file in sorted(reached):
        with monkeypatch.context() as patch:
            changed(patch, file)
            assert module_path(*compilation._source(name)) != before, file
            assert not compilation._is_cached(name)
    for file in set(FILES) - reached:
        with monkeypatch.context() as patch:
            changed(patch, file)
            assert module_path(*compilation._source(name)) == before, file


def test_kernels_of_environments_are_compiled_again_too(monkeypatch: pytest.MonkeyPatch) -> None:
    source = kernels_source(Rules.of(CartPole), "1")
    before = module_path("CartPole", source)
    for module in ("intrinsics", "numba_jobs", "numba_philox"):
        with monkeypatch.context() as patch:
            changed(patch, f"compiler/runtime/{module}.py")
            assert module_path("CartPole", source) != before, module
    reached_code._text.cache_clear()
    assert module_path("CartPole", source) == before
    assert module_path("CartPole", f"{source}\n# other") != before
