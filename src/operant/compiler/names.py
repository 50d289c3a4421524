"""Names in generated text, which meet nothing else there.

What an author or a counter called something stands behind one letter and an underscore: ``s_speed``
is a field, ``u_8`` a random number, ``v_12`` an intermediate result. No word of Python, NumPy,
Numba, Triton, C++ or of the generated kernels begins so. Each letter is for one kind of thing, and
numbers come before names, so two things never get the same name.

States of numbers: ``s_<field>``, ``p_<parameter>``, ``a_<k>`` and ``u_<k>`` (parts of the action,
random numbers), and intermediate results ``v_<k>``, ``o_<k>``, ``m_<k>``; kernels around them have
``state_<field>``, ``new_<field>`` and ``draw_<k>``, and no other names that begin so. In Triton's
text intermediate results are a letter and digits, as no name of an author is. States of arrays,
below.
"""

from __future__ import annotations

import ast
from itertools import pairwise
from types import CodeType


def variable_name(name: str) -> str:
    """A variable or an argument of an author's function."""
    return f"v_{name}"


def part_name(name: str, k: int) -> str:
    """Part `k` of an argument that is a tuple."""
    return f"t_{k}_{name}"


def state_name(position: int) -> str:
    """The argument in this position, which is a state; its arrays are called after it."""
    return f"s_{position}"


def array_name(state: str, name: str) -> str:
    """An array of a state."""
    return f"{state}_{name}"


def function_name(name: str, number: int) -> str:
    """The function that is printed as the `number`-th."""
    return f"f_{number}_{name}"


def table_name(name: str, number: int) -> str:
    """The `number`-th table of constants."""
    return f"c_{number}_{name}"


def renamed_by_python(tree: ast.AST, code: CodeType) -> list[tuple[ast.AST, str]]:
    """Names in a function that Python itself replaces, and where: ``__x`` within a class."""
    outer = code.co_qualname.split(".")
    in_class = any("<locals>" not in pair for pair in pairwise(outer))  # a function has locals
    if not in_class:
        return []
    found = []
    for node in ast.walk(tree):
        for attribute in ("id", "arg", "attr"):
            name = getattr(node, attribute, None)
            if isinstance(name, str) and name.startswith("__") and not name.endswith("__"):
                found.append((node, name))
    return found
