"""What to write instead of what functions over arrays cannot say, in the author's own words.

Each function takes a piece of the author's source and gives the end of an error message: what came,
and what to write. File and line are put before it by who asks.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable
from typing import Any

DRAWS = ("uniform", "integers", "chance", "normal")
"""What the argument `random` draws."""
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
_NO_TEXT = (
    "there is no text in compiled code; to see a value, set a breakpoint with backend='reference'; "
    "text for a picture belongs into render()"
)
_NO_TRY = "`try` is not compiled, and nothing raises in compiled code; ask before, with `if`"
_STATEMENTS: dict[type[ast.stmt], str] = {
    ast.Try: _NO_TRY,
    ast.TryStar: _NO_TRY,
    ast.AsyncFunctionDef: "`async` is not compiled; write a plain function above the class",
    ast.With: "`with` is not compiled; open files outside the environment",
    ast.Import: "`import` belongs at the top of the file, not into a compiled function",
    ast.ImportFrom: "`import` belongs at the top of the file, not into a compiled function",
    ast.Delete: "`del` is not compiled; leave it out, variables end with the function",
    ast.Assert: "`assert` is not compiled; leave it out (`operant check` looks for bad indices, "
    "NaN and bounds)",
    ast.Raise: "`raise` is not compiled; to end the episode, write: return reward, True",
    ast.ClassDef: "a class inside a function is not compiled; keep its numbers in arrays of State",
    ast.Match: "`match` is not compiled; write if x == 0: ... elif x == 1: ... else: ...",
}
_OTHERS: dict[type[ast.expr], str] = {
    ast.JoinedStr: f"an f-string is not compiled: {_NO_TEXT}",
    ast.Yield: "`yield` is not compiled; a step returns once: return reward, terminated",
    ast.YieldFrom: "`yield` is not compiled; a step returns once: return reward, terminated",
    ast.Await: "`await` is not compiled; call a plain function",
    ast.Starred: "`*` is not compiled; write the values one by one",
    ast.Slice: "a slice is not compiled; write a loop over range(), element by element",
}
_SWAP = "write a loop that swaps element k with element random.integers(k + 1)"
_DRAWS = {
    **dict.fromkeys(("random", "rand"), "write random.uniform()"),
    "randint": "write random.integers(low, high), which ends at high - 1",
    "randrange": "write random.integers(low, high)",
    **dict.fromkeys(
        ("randn", "gauss", "normalvariate", "standard_normal"), "write random.normal()"
    ),
    **dict.fromkeys(("choice", "choices", "sample"), "write TABLE[random.integers(len(TABLE))]"),
    **dict.fromkeys(("shuffle", "permutation"), _SWAP),
    "seed": "leave it out: reset(seed=...) sets the seed on every backend",
    "default_rng": "leave it out: `random` is an argument of reset() and step()",
    **{name: f"write random.{name}(...)" for name in DRAWS},
}
_METHODS = {
    "fill": "{0}[:] = value",
    "copy": "a loop that copies element by element into another array of State",
    "append": "{0}[n] = value, with the count n kept in State (n = int32[1]): arrays keep their "
    "size",
    "shape": "len({0}), or a constant such as SIZE above the class",
    "size": "len({0}), or a constant such as SIZE above the class",
    "item": "{0}[0]",
    "astype": "to_float(x) or to_int(x) of one element",
    "tolist": "{0}[k] for one element",
}
_LOOPS = {
    "sum": ("total = {zero}", "total += {element}"),
    "prod": ("total = {one}", "total *= {element}"),
    "mean": ("total = 0.0", "total += {element}"),
    "any": ("found = False", "found = found or {truth}"),
    "all": ("found = True", "found = found and {truth}"),
    "min": ("least = {first}", "least = min(least, {element})"),
    "max": ("most = {first}", "most = max(most, {element})"),
    "amin": ("least = {first}", "least = min(least, {element})"),
    "amax": ("most = {first}", "most = max(most, {element})"),
    "count_nonzero": ("total = 0", "total += to_int({truth})"),
    "argmin": (
        "best, least = 0, {first}",
        "if {element} < least: best, least = {index}, {element}",
    ),
    "argmax": ("best, most = 0, {first}", "if {element} > most: best, most = {index}, {element}"),
}
LOOPS = frozenset(_LOOPS)
"""Functions of whole arrays, which are written as loops."""
_CALLS = {
    "float32": "write to_float(x)",
    **dict.fromkeys(("int32", "uint8", "int64"), "write to_int(x)"),
    **dict.fromkeys(("boolean", "bool_"), "write x != 0"),
    "round": "write floor(x + 0.5), and to_int() of that for an int",
    "divmod": "write q, r = a // b, a % b",
    "pow": "write x * x, or exp(y * log(x))",
    "sorted": "arrays are not sorted; write loops that swap elements",
    "reversed": "write for k in range(n), and array[n - 1 - k]",
    "enumerate": "write for k in range(n), and array[k]",
    "zip": "write for k in range(n), and both arrays[k]",
    "map": "write for k in range(n)",
    "filter": "write for k in range(n), and an if",
    "list": "keep numbers in an array of State, such as values = int32[8]",
    "tuple": "keep numbers in an array of State, such as values = int32[8]",
    "set": "keep a truth value for each member in State: members = boolean[8]",
    "dict": "keep numbers in an array of State, with names for its indices: FUEL, HULL = range(2)",
    "str": _NO_TEXT,
    "repr": _NO_TEXT,
    "format": _NO_TEXT,
    "input": "a step asks nobody; whoever plays gives `action`",
    "open": "read files above the class, into a table such as LEVEL = np.loadtxt(...)",
    "isinstance": "a variable is an int, a float or a bool, and which one is known",
    "type": "a variable is an int, a float or a bool, and which one is known",
    "getattr": "write state.name",
    "setattr": "write state.name[0] = value",
}


def statement_advice(node: ast.stmt) -> str:
    """For a statement that is not compiled."""
    match node:
        case ast.Global(names=[name, *_]) | ast.Nonlocal(names=[name, *_]):
            word = "global" if isinstance(node, ast.Global) else "nonlocal"
            return (
                f"`{word} {name}`: a step changes nothing but the state; add {name} = int32[1] (or "
                f"float32[1]) to State and write state.{name}[0]"
            )
        case ast.FunctionDef(name=name):
            given = ast.unparse(node.args)
            return f"a function inside a function; write def {name}({given}): above the class"
        case ast.AnnAssign(target=target):
            return f"{ast.unparse(target)} has no value; write {ast.unparse(target)} = 0"
        case ast.Expr(value=ast.Yield() | ast.YieldFrom() | ast.Await() | ast.JoinedStr() as value):
            return expression_advice(value)
        case ast.Expr(value=ast.ListComp() | ast.GeneratorExp() as value):
            return expression_advice(value)
        case ast.Expr(value=value):
            text = ast.unparse(value)
            return f"`{text}` alone does nothing; give it a name (x = {text}) or leave it out"
    word = type(node).__name__.removeprefix("Async").lower()
    return _STATEMENTS.get(type(node), f"`{word}` is not compiled; write numbers, arrays and loops")


def expression_advice(node: ast.expr) -> str:
    """For an expression that is not compiled."""
    match node:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            values = ", ".join(map(ast.unparse, elements)) or "0"
            comma = "," if len(elements) < 2 else ""
            return (
                f"`{ast.unparse(node)}`: lists are not compiled; numbers that change are an array "
                f"of State (values = int32[{max(1, len(elements))}]), constants a table above the "
                f"class (VALUES = ({values}{comma}))"
            )
        case ast.Dict():
            return (
                "a dict is not compiled; keep its numbers in an array, with names for the indices: "
                "FUEL, HULL = range(2), then state.ship[FUEL]"
            )
        case ast.Set():
            return "a set is not compiled; write x == 1 or x == 2"
        case ast.Lambda(args=given, body=body):
            text = f"def f({ast.unparse(given)}): return {ast.unparse(body)}"
            return f"a lambda is not compiled; write above the class: {text}"
        case ast.NamedExpr(target=target, value=value):
            before = f"{ast.unparse(target)} = {ast.unparse(value)}"
            return f"`:=` is not compiled; write {before} on a line of its own before"
        case ast.Constant(value=None):
            return "None is no number; write -1 for nobody, or keep a truth value in boolean[1]"
        case ast.Constant(value=value):
            return f"{value!r} is no int, float or bool"
    if isinstance(node, _COMPREHENSIONS):
        return _comprehension_advice(node)
    name = type(node).__name__
    return _OTHERS.get(type(node), f"{name} is not compiled; write numbers, arrays and loops")


def _comprehension_advice(
    node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp,
) -> str:
    first = node.generators[0]
    place, value = (
        (node.key, node.value) if isinstance(node, ast.DictComp) else (first.target, node.elt)
    )
    heads = " ".join(map(_loop, node.generators))
    what = "a generator" if isinstance(node, ast.GeneratorExp) else "a comprehension"
    return (
        f"{what} is not compiled; write a loop that fills an array of State: "
        f"{heads} state.values[{ast.unparse(place)}] = {ast.unparse(value)}"
    )


def _loop(part: ast.comprehension) -> str:
    """One ``for ... in ... if ...`` of a comprehension as lines of a loop."""
    over, target = ast.unparse(part.iter), ast.unparse(part.target)
    head = f"for {target} in {over}:"
    if isinstance(part.iter, ast.Name | ast.Attribute | ast.Subscript):  # an array
        head = f"for index in range(len({over})): {target} = {over}[index];"
    return head + "".join(f" if {ast.unparse(test)}:" for test in part.ifs)


def loop_advice(name: str, node: ast.Call, shape: tuple[int, ...] = (), kind: str = "int") -> str:
    """For ``sum()``, ``any()`` and others of whole arrays, or of a generator: the loop.

    `shape` and `kind` are those of the array, if it is one.
    """
    begin, each = _LOOPS[name]
    given = node.args[0] if node.args else None
    if given is None and isinstance(node.func, ast.Attribute):  # state.board.sum()
        given = node.func.value
    head, element, first, index = "for k in range(n):", "array[k]", "array[0]", "k"
    if isinstance(given, ast.GeneratorExp | ast.ListComp):
        head = " ".join(map(_loop, given.generators))
        element = ast.unparse(given.elt)
        kind = "bool" if isinstance(given.elt, ast.Compare | ast.BoolOp) else kind
        first = "the first of them"
    elif given is not None and shape:
        names, head = loops(shape)
        element = f"{ast.unparse(given)}[{names}]"
        first = f"{ast.unparse(given)}[{', '.join('0' * len(shape))}]"
        index = names if len(shape) == 1 else f"({names})"
        if len(shape) == 2:
            index = f"y * {shape[1]} + x"
    truth = element if kind == "bool" else f"{element} != 0"
    added = f"to_int({element})" if kind == "bool" and name in ("sum", "prod", "mean") else element
    zero, one = ("0.0", "1.0") if kind == "float" else ("0", "1")
    words = {"zero": zero, "one": one, "first": first, "element": added, "truth": truth}
    words["index"] = index
    start, body = begin.format(**words), each.format(**words)
    return f"{ast.unparse(node.func)}() is not compiled; write {start}, then {head} {body}"


def loops(shape: tuple[int, ...]) -> tuple[str, str]:
    """The indices of an array, ``y, x``, and the loops over them."""
    names = ["k"] if len(shape) == 1 else ["z", "y", "x"][-len(shape) :]
    if len(shape) > 3:
        names = [f"k{axis}" for axis in range(len(shape))]
    pairs = zip(names, shape, strict=True)
    return ", ".join(names), " ".join(f"for {name} in range({size}):" for name, size in pairs)


def call_advice(text: str, name: str) -> str:
    """For a function that is not compiled, called `text`, whose own name is `name`."""
    instead = _CALLS.get(name, "write it above the class with def, of numbers and arrays")
    return f"{text}() is not compiled; {instead}"


def draw_advice(name: str) -> str:
    """For ``random.randint()`` and others that `random` does not have."""
    known = ", ".join(f"random.{draw}()" for draw in DRAWS)
    return _DRAWS.get(name, f"there are {known}")


def method_advice(array: str, name: str) -> str:
    """For an attribute of an array: ``state.board.copy``."""
    instead = _METHODS.get(name)
    text = f"{array}.{name} is not compiled"
    if instead is None:
        return f"{text}; read and write its elements, {array}[k], in a loop"
    return f"{text}; write {instead.format(array)}"


def membership_advice(node: ast.Compare) -> str:
    """For ``x in (1, 2)`` and ``x is None``."""
    strange = (ast.In, ast.NotIn, ast.Is, ast.IsNot)
    k = next(k for k, operation in enumerate(node.ops) if isinstance(operation, strange))
    operation, right = node.ops[k], node.comparators[k]
    left = ast.unparse([node.left, *node.comparators][k])
    if isinstance(right, ast.Constant) and right.value is None:
        return f"{left} is never None in compiled code; write -1 for nobody, and {left} == -1"
    if isinstance(operation, ast.Is | ast.IsNot):
        sign = "==" if isinstance(operation, ast.Is) else "!="
        return f"`is` is not compiled; write {left} {sign} {ast.unparse(right)}"
    inside = isinstance(operation, ast.In)
    text = "`in` is not compiled" if inside else "`not in` is not compiled"
    if isinstance(right, ast.Tuple | ast.List | ast.Set) and 0 < len(right.elts) <= 6:
        sign, word = ("==", " or ") if inside else ("!=", " and ")
        parts = word.join(f"{left} {sign} {ast.unparse(part)}" for part in right.elts)
        return f"{text}; write {parts}"
    if isinstance(right, ast.Call) and ast.unparse(right.func) == "range" and len(right.args) < 3:
        low, high = ["0", *map(ast.unparse, right.args)][-2:]
        test = f"{low} <= {left} < {high}"
        return f"{text}; write {test if inside else f'not ({test})'}"
    is_array = isinstance(right, ast.Name | ast.Attribute | ast.Subscript)
    array, size = (ast.unparse(right), f"len({ast.unparse(right)})") if is_array else ("array", "n")
    loop = f"for k in range({size}): found = found or {array}[k] == {left}"
    return f"{text}; write found = False, then {loop}"


def tuples_advice(node: ast.Compare) -> str:
    """For ``(a, b) == (c, d)``: the parts one by one; empty where it is another comparison."""
    match node:
        case ast.Compare(
            left=ast.Tuple(elts=left),
            ops=[ast.Eq() | ast.NotEq() as operation],
            comparators=[ast.Tuple(elts=right)],
        ) if len(left) == len(right) > 0:
            sign, word = ("==", " and ") if isinstance(operation, ast.Eq) else ("!=", " or ")
            pairs = zip(map(ast.unparse, left), map(ast.unparse, right), strict=True)
            parts = word.join(f"{a} {sign} {b}" for a, b in pairs)
            return f"tuples are not compared; write {parts}"
    return ""


def dict_advice(name: str, table: dict[Any, Any], index: ast.expr) -> str:
    """For ``MOVES[action]`` of a dict of the module: the table that holds the same."""
    if list(table) != list(range(len(table))) or not table:
        return f"write {name} = (1, 2) and a name for each index: WOOD = 0"
    values = repr(tuple(table.values()))
    values = values if len(values) <= 60 else f"({table[0]!r}, ...)"
    part = isinstance(table[0], tuple | list)
    read = f"{name}[{ast.unparse(index)}{', 0' if part else ''}]"
    return f"write {name} = {values}, a table, and {read}"


def for_advice(node: ast.For, shape: tuple[int, ...] = ()) -> str:
    """For a loop that is not over a range; `shape` is of what it is over, if that is an array."""
    if node.orelse:
        return "for ... else is not compiled; set found = False before, True at the break, and ask"
    over, target = node.iter, node.target
    called = ast.unparse(over.func) if isinstance(over, ast.Call) else ""
    if called == "range":
        return "a loop has one variable and plain limits: for k in range(n)"
    if isinstance(over, ast.List | ast.Tuple):
        values = ", ".join(map(ast.unparse, over.elts))
        return (
            f"a loop is over range(); put VALUES = ({values}) above the class, and write for k in "
            f"range({len(over.elts)}): {ast.unparse(target)} = VALUES[k]"
        )
    arrays = over.args if isinstance(over, ast.Call) else [over]
    known = called in ("", "enumerate", "zip", "reversed") and bool(arrays)
    if not known or not all(
        isinstance(part, ast.Name | ast.Attribute | ast.Subscript) for part in arrays
    ):
        return "a loop is over range(); write for k in range(n), and array[k] in it"
    if called == "enumerate" and isinstance(target, ast.Tuple):
        target = target.elts[-1]
    taken = {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
    k = next(letter for letter in ("k", "i", "j", "index") if letter not in taken)
    size = str(shape[0]) if shape else "n"
    place = f"{size} - 1 - {k}" if called == "reversed" else k
    parts = [f"{ast.unparse(part)}[{place}]" for part in arrays]
    if isinstance(target, ast.Tuple) and called == "":
        parts = [f"{parts[0][:-1]}, {axis}]" for axis in range(len(target.elts))]
    names = ", ".join(map(ast.unparse, target.elts if isinstance(target, ast.Tuple) else [target]))
    return f"a loop is over range(); write for {k} in range({size}): {names} = {', '.join(parts)}"


def near(name: str, known: Iterable[str]) -> str:
    """``; did you mean board?`` for a name that is much like one of the known; else nothing."""
    close = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f"; did you mean {close[0]}?" if close else ""
