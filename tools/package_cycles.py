"""Print the packages of Operant that import each other in a circle.

    python tools/package_cycles.py [SOURCE]

import-linter (``pyproject.toml``) checks the order of the layers by import statements. Modules
that are imported by name, ``import_module("operant.ppo.ppo")``, escape it; here they count like
every other import: a string that is the name of a module, or the beginning of an f-string.

Prints a line for each cycle with the imports that close it. Exit code 1: there is one that is not
among `EXCEPTIONS`, or an exception that no import needs any more.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

ROOT = "operant"
# (who imports, what): why it may.
EXCEPTIONS = {
    (
        "operant.models",
        "operant.ppo.ppo",
    ): "the public name operant.models.PPO stays where users have it; looked up when asked for",
}


def modules_in(source: Path) -> dict[str, Path]:
    """Every module below `source`, the folder that holds the package, with its file."""
    found = {}
    for file in sorted(source.glob(f"{ROOT}/**/*.py")):
        parts = file.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imported(tree: ast.AST, modules: dict[str, Path]) -> Iterator[str]:
    """The modules that a file imports: at its top, in functions, for types, and by name."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                candidates = [name.name for name in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                longer = [f"{module}.{name.name}" for name in names]
                candidates = [name if name in modules else module for name in longer]
            case ast.Constant(value=str(text)):
                candidates = [text.partition(":")[0]]  # "module:name" is an entry point
            case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if "." in text:
                candidates = [text.rpartition(".")[0]]
            case _:
                continue
        yield from (name for name in candidates if name in modules)


def package_of(module: str) -> str:
    """The package below the root that a module stands in; the root itself has none: ``""``."""
    return ".".join(module.split(".")[1:2])


def package_imports(source: Path) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """By (package, package it imports): the imports of modules that say so.

    The root package is left out: it is the public names of all others.
    """
    modules = modules_in(source)
    edges: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for module, file in modules.items():
        for name in imported(ast.parse(file.read_text()), modules):
            pair = (package_of(module), package_of(name))
            if all(pair) and pair[0] != pair[1]:
                edges.setdefault(pair, set()).add((module, name))
    return edges


def cycles(edges: dict[tuple[str, str], set[tuple[str, str]]]) -> list[list[str]]:
    """One cycle after the other, as packages ``[a, b, a]``: a imports b, which imports a.

    Each is searched for without the import that closed the one before.
    """
    left = set(edges)
    found = []
    while True:
        sorter: TopologicalSorter[str] = TopologicalSorter()
        for importer, name in sorted(left):
            sorter.add(importer, name)
        try:
            sorter.prepare()
        except CycleError as error:
            cycle = error.args[1][::-1]  # graphlib tells it from the imported one to the importer
            found.append(cycle)
            left.discard((cycle[0], cycle[1]))
        else:
            return found


def main(arguments: list[str]) -> int:
    """Print what is wrong, or that nothing is, and return the exit code."""
    source = Path(arguments[0]) if arguments else Path(__file__).parents[1] / "src"
    edges = package_imports(source)
    used = {one for reasons in edges.values() for one in reasons} & EXCEPTIONS.keys()
    edges = {pair: left for pair, found in edges.items() if (left := found - EXCEPTIONS.keys())}
    troubles = []
    for cycle in cycles(edges):
        troubles.append("cycle: " + " -> ".join(cycle))
        for pair in pairwise(cycle):
            troubles += [f"    {who} imports {what}" for who, what in sorted(edges[pair])]
    for who, what in sorted(EXCEPTIONS.keys() - used):
        troubles.append(f"no longer needed in EXCEPTIONS: {who} imports {what}")
    print("\n".join(troubles) or f"no cycles; {len(used)} imports are excepted")
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
