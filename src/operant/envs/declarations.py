"""Which environments the files of this package declare, read without importing them.

An environment's class says its id, time limit and threshold as plain values; the syntax tree of its
file has them. So ``import operant`` and Gymnasium know every environment, while its rules, and the
compiler with them, load when somebody asks for it. About 1 ms a file (Xeon 2.8 GHz).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from operant.vector.registry import Declaration

_ID = "env_id"
_READ = (_ID, "max_episode_steps", "reward_threshold")


def declarations(folders: Iterable[str], package: str) -> list[Declaration]:
    """What the files ``FAMILY/*.py`` of `folders` declare, by family, file and line.

    Args:
        folders: where to look, such as ``operant.envs.__path__``.
        package: the name that the folders are imported under.

    Raises:
        ValueError: a value that cannot be read without running the file; an id declared twice.
        SyntaxError: a file with an environment that is no Python.
    """
    found: dict[str, Declaration] = {}
    for file in sorted(file for folder in folders for file in Path(folder).glob("*/*.py")):
        text = file.read_text("utf-8")
        if f"{_ID} =" not in text:
            continue
        module = f"{package}.{file.parent.name}.{file.stem}"
        for one in _declared_in(ast.parse(text, str(file)), file, module):
            if one.env_id in found:
                raise ValueError(
                    f"{file}: {one.env_id!r} is already declared by {found[one.env_id].module}; "
                    "give one of them another id"
                )
            found[one.env_id] = one
    return list(found.values())


def _declared_in(tree: ast.Module, file: Path, module: str) -> Iterator[Declaration]:
    constants = dict(_assigned(tree.body))
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        given = {name: value for name, value in _assigned(node.body) if name in _READ}
        if _ID not in given:
            continue
        missing = [name for name in _READ if name not in given]
        if missing and any(ast.unparse(base).rpartition(".")[2] != "Env" for base in node.bases):
            raise ValueError(
                f"{file}:{node.lineno}: {node.name} may inherit its {missing[0]}, which is not "
                "known without importing the file; write it in this class too"
            )
        for name, value in given.items():
            if isinstance(value, ast.Name):
                given[name] = constants.get(value.id, value)
        values = {name: _value(value, f"{node.name}.{name}", file) for name, value in given.items()}
        yield Declaration(module=module, name=node.name, **values)


def _assigned(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """Every ``name = value`` and ``name: kind = value`` of a block."""
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
            yield node.target.id, node.value


def _value(node: ast.expr, name: str, file: Path) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise ValueError(
            f"{file}:{node.lineno}: {name} is {ast.unparse(node)}; write it as a plain value, or "
            "as a constant of this file, so that it is known without importing the file"
        ) from None
