"""What Python's own exceptions mean when an environment's function is recorded."""

from __future__ import annotations

import ast
import builtins
import difflib
import inspect
import re
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from operant.compiler.own_code import is_library
from operant.compiler.recording.trace import Symbol
from operant.lang.advice import LanguageError, expression_at, is_known_elsewhere, word_for

_SYMBOL_METHODS = {
    "astype": "to_int(x) or to_float(x)",
    "clip": "clip(x, low, high)",
    "item": "x alone: it is a number already",
    "max": "maximum(a, b)",
    "min": "minimum(a, b)",
    "round": "floor(x + 0.5)",
    "is_integer": "x == floor(x)",
}


def explain(error: Exception, env: type[Any], file: str) -> tuple[str, str]:
    """``file:line`` that an exception passed, and the sentence to say of it.

    The innermost line of the author's: in `file`, where the function stands, or in another module
    that it calls. The place is empty where it passed none: an error of the call itself.
    """
    trace, own = error.__traceback__, None
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name == file or (own is not None and not is_library(name)):
            own = trace
        trace = trace.tb_next
    said = _explained(error, env, own) or f"{type(error).__name__}: {error}"
    return ("" if own is None else f"{own.tb_frame.f_code.co_filename}:{own.tb_lineno}"), said


def hidden_refusal(error: BaseException) -> LanguageError | None:
    """The refusal that a library has caught and made another exception of."""
    cause = error.__cause__ or error.__context__
    if cause is None or isinstance(cause, LanguageError):
        return cause
    return hidden_refusal(cause)


def near(name: str, known: Iterable[str]) -> str:
    """The advice for a misspelt name: the nearest one, and all there are."""
    names = list(known)
    close = difflib.get_close_matches(name, names, 1, 0.5)
    close = close or [word for word in names if word.startswith(name) or name.startswith(word)][:1]
    better = f"; did you mean {close[0]!r}?" if close else ""
    return f"{better} (it has: {', '.join(names) or 'none'})"


def _explained(error: Exception, env: type[Any], trace: TracebackType | None) -> str:
    match error:
        case AttributeError():
            return _attribute(error, env, trace)
        case NameError():
            return _name(error, env, trace)
        case IndexError():
            return _index(error, trace)
        case KeyError():
            return f"KeyError: {error} is no key of the dict"
        case ValueError() if "unpack" in str(error):
            return _unpacking(error, env, trace)
        case TypeError() | ValueError():
            return _call(str(error), env, trace)
    return ""


def _node(trace: TracebackType | None, *kinds: type[ast.AST]) -> ast.AST | None:
    if trace is None:
        return None
    return expression_at(trace.tb_frame, trace.tb_lasti, lambda node: isinstance(node, kinds))


def _never_changes(env: type[Any], holder: str, name: str) -> str:
    new = f"{holder}._replace({name}=...)"
    if holder == "state":
        fields = ", ".join(env.State._fields)
        new = f"{env.__name__}.State({fields}), or {new}"
    return f"`{holder}.{name}` cannot be changed; make a new one: {new}"


def _attribute(error: AttributeError, env: type[Any], trace: TracebackType | None) -> str:
    node = _node(trace, ast.Attribute)
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        holder = trace and trace.tb_frame.f_locals.get(ast.unparse(node.value))
        if isinstance(holder, env.State | env.Params):
            kind = "State" if isinstance(holder, env.State) else "Params"
            if node.attr not in holder._fields:
                return f"{kind} has no field {node.attr!r}{near(node.attr, holder._fields)}"
            return _never_changes(env, ast.unparse(node.value), node.attr)
    if isinstance(error.obj, env.State | env.Params):
        kind = "State" if isinstance(error.obj, env.State) else "Params"
        if not error.obj._fields:
            return (
                f"the class has no parameter {error.name!r}; declare it: class Params(NamedTuple) "
                f"with {error.name}: float = 1.0"
            )
        return f"{kind} has no field {error.name!r}{near(str(error.name), error.obj._fields)}"
    if error.obj is env:
        return (
            f"{env.__name__} has no attribute {error.name!r}; the first argument of a classmethod "
            "is the class: write a plain function, without the decorator"
        )
    if inspect.ismodule(error.obj) and error.obj.__name__ == "operant.lang":
        return f"operant.lang has no {error.name}; {word_for(str(error.name))}"
    if isinstance(error.obj, Symbol):
        name = str(error.name)
        better = _SYMBOL_METHODS.get(name)
        advice = f"write {better}" if better else word_for(name)
        return f".{name} of a number, which has no attributes; {advice}"
    if str(error) == "can't set attribute":  # setattr(state, ...)
        return "State and Params cannot be changed; make a new one with state._replace(x=...)"
    return ""


def _name(error: NameError, env: type[Any], trace: TracebackType | None) -> str:
    from operant import lang

    name = str(error.name or re.findall(r"'(\w+)'", str(error))[0])
    said = f"the name {name!r} is not defined"
    if name == "self":
        return f"{said}: the functions are not methods; what they need is in state and params"
    if name in ("state", "action", "random", "params"):
        function = "" if trace is None else f" of {trace.tb_frame.f_code.co_name}()"
        return f"{said}; write {name} among the arguments{function}"
    if name in lang.__all__:
        return f"{said}; write from operant.lang import {name}"
    if hasattr(env, name):
        return f"{said}; write {env.__name__}.{name}"
    if is_known_elsewhere(name):
        return f"{said}; {word_for(name)}"
    if name in env.State._fields:
        return f"{said}; did you mean state.{name}?"
    frame = None if trace is None else trace.tb_frame
    known = {} if frame is None else {**vars(builtins), **frame.f_globals, **frame.f_locals}
    close = difflib.get_close_matches(name, known, 1, 0.6)
    if isinstance(error, UnboundLocalError):
        return f"{name!r} has no value yet in this line"
    if close:
        return f"{said}; did you mean {close[0]!r}?"
    return f"{said} (the functions run when the class is defined: put helpers above it)"


def _index(error: IndexError, trace: TracebackType | None) -> str:
    node = _node(trace, ast.Subscript)
    if trace is None or not isinstance(node, ast.Subscript):
        return ""
    known = {**trace.tb_frame.f_globals, **trace.tb_frame.f_locals}
    holder = known.get(ast.unparse(node.value))
    if not isinstance(holder, tuple | list) or not holder:
        return ""
    names = sorted({part.id for part in ast.walk(node.slice) if isinstance(part, ast.Name)})
    came = ", ".join(f"{name} = {known[name]}" for name in names if type(known.get(name)) is int)
    return (
        f"IndexError: {ast.unparse(node)}{came and f' with {came}'} is outside: "
        f"{ast.unparse(node.value)} holds "
        f"{len(holder)} values, 0 to {len(holder) - 1}"
    )


def _unpacking(error: ValueError, env: type[Any], trace: TracebackType | None) -> str:
    node = _node(trace, ast.Assign)
    source = ""
    if trace is not None and node is None:  # the position is that of the targets alone
        node = expression_at(trace.tb_frame, trace.tb_lasti, lambda n: isinstance(n, ast.stmt))
    if isinstance(node, ast.Assign):
        source = ast.unparse(node.value)
    said = f"{type(error).__name__}: {error}"
    if source == "random":
        return (
            f"{said} (random holds {env.random_numbers} numbers; the class says how many: "
            f"random_numbers = {_targets(node)})"
        )
    if source == "state":
        return f"{said} (state holds {len(env.State._fields)}: {', '.join(env.State._fields)})"
    return said


def _targets(node: ast.AST | None) -> int:
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    return len(target.elts) if isinstance(target, ast.Tuple | ast.List) else 1


def _call(message: str, env: type[Any], trace: TracebackType | None) -> str:
    from operant import lang

    fields = env.State._fields
    unknown = re.search(r"unexpected (?:keyword argument|field names:) .*?'(\w+)'", message)
    if message.startswith("State.__new__()") or "unexpected field names" in message:
        takes = f"State has the fields {', '.join(fields)}"
        if unknown:
            return f"State has no field {unknown[1]!r}{near(unknown[1], fields)}"
        missing = re.findall(r"'(\w+)'", message)
        if missing:
            return f"{takes}: {' and '.join(missing)} got no value"
        return f"{takes}: that is {len(fields)} values, but more were given"
    if message.startswith("super("):
        return "super() is for methods, and the functions are none; leave the line out"
    if "does not support item assignment" in message and "'State'" in message:
        return _never_changes(env, "state", fields[0]).replace(f".{fields[0]}`", "[...]`")
    if "tuple indices must be integers" in message:
        return f"a field of the state is read as state.{fields[0]}, not by its name in brackets"
    if message == "'module' object is not subscriptable":
        return "`random` is Python's module here; write random among the function's arguments"
    word = re.match(r"(\w+)\(\) (?:missing|takes|got)", message)
    if word and word[1] in lang.__all__:
        return f"{message}; write {_form(word[1])}"
    return ""


def _form(word: str) -> str:
    """How a word is called, with a number of `random` where it wants one."""
    from operant import lang

    names = list(inspect.signature(getattr(lang, word)).parameters)
    numbers = {"u": "random[0]", "u1": "random[0]", "u2": "random[1]"}
    return f"{word}({', '.join(numbers.get(name, name) for name in names)})"
