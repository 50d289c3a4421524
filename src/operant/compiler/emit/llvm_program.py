"""A recorded program as LLVM instructions, for Numba.

Unlike `numba_source`, which prints source, this makes an intrinsic: there is no function to
compile, each use becomes instructions of the function that uses it. For the mathematics of kernels
that are written by hand.
"""

# mypy: disable-error-code="no-untyped-call, call-arg, misc"

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from operant.compiler.emit.program_source import COMPOSED, word_program
from operant.compiler.recording.trace import BOOL, FLOAT, INT, Node, Program
from operant.compiler.runtime.intrinsics import whole_number

_TYPES = {FLOAT: ir.FloatType(), INT: ir.IntType(32), BOOL: ir.IntType(1)}
_FAST = ("contract",)
"""As in generated kernels: fused multiply-adds and nothing else."""
_FLOAT_OPS = {"add": "fadd", "subtract": "fsub", "multiply": "fmul", "divide": "fdiv"}
_INT_OPS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "and": "and_",
    "or": "or_",
    "xor": "xor",
    "shift_left": "shl",
    "shift_right": "ashr",
}
_COMPARISONS = {"less": "<", "less_equal": "<=", "equal": "==", "not_equal": "!="}
_INSTRUCTIONS = ("floor", "ceil", "sqrt")


def recorded(function: Callable[..., Any]) -> Program:
    """What a function of floats computes; it returns a tuple, or one symbol."""
    program = Program()
    inputs = [program.input(name, FLOAT) for name in inspect.signature(function).parameters]
    found = function(*inputs)
    outputs = found if isinstance(found, tuple) else (found,)
    program.outputs += [output.index for output in outputs]
    return program


def formula(function: Callable[..., Any]) -> Any:
    """A function in the language, of floats, as an intrinsic for Numba functions.

    It takes float32 and returns a tuple of float32, also for one result.
    """
    program = recorded(function)
    names = list(inspect.signature(function).parameters)
    result = types.UniTuple(types.float32, len(program.outputs))

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = instructions(builder, program, args)
        return context.make_tuple(builder, signature.return_type, values)

    def typed(*given: Any) -> Any:
        return result(*[types.float32] * len(names)), generate

    # An intrinsic is told its arguments by the names of its parameters.
    scope: dict[str, Any] = {"typed": typed}
    exec(f"def {function.__name__}(typing_context, {', '.join(names)}): return typed()", scope)
    return intrinsic(scope[function.__name__])


def instructions(builder: Any, program: Program, args: Sequence[Any]) -> list[Any]:
    """Append what a program computes from `args`; the values of its outputs."""
    known = dict(zip(program.inputs, args, strict=True))
    values: list[Any] = []
    for node in program.nodes:
        values.append(_value(builder, program, node, [values[arg] for arg in node.args], known))
    return [values[output] for output in program.outputs]


def _value(
    builder: Any, program: Program, node: Node, args: list[Any], known: dict[str, Any]
) -> Any:
    kind = program.nodes[node.args[0]].dtype if node.args else node.dtype
    match node.op:
        case "input":
            return known[str(node.value)]
        case "constant":
            return ir.Constant(_TYPES[node.dtype], node.value)
        case "where":
            return builder.select(*args)
        case "minimum" | "maximum":
            return _extremum(builder, node.op, kind, *args)
        case "negative":
            return builder.fneg(args[0]) if kind == FLOAT else builder.neg(args[0])
        case "abs" if kind == FLOAT:
            return _call(builder, "fabs", args[0])
        case "not":
            return builder.not_(args[0])
        case "to_float":
            convert = builder.uitofp if kind == BOOL else builder.sitofp
            return convert(args[0], _TYPES[FLOAT])
        case "to_int":
            if kind == FLOAT:
                return whole_number(builder, args[0])
            return builder.zext(args[0], _TYPES[INT])
        case "bits_of" | "float_of":
            return builder.bitcast(args[0], _TYPES[node.dtype])
        case op if op in _INSTRUCTIONS:
            return _call(builder, op, args[0])
        case op if op in _COMPARISONS:
            compare = builder.icmp_unsigned if kind == BOOL else builder.icmp_signed
            if kind == FLOAT:  # NaN is not equal to anything
                not_equal = op == "not_equal"
                compare = builder.fcmp_unordered if not_equal else builder.fcmp_ordered
            return compare(_COMPARISONS[op], *args)
        case op if op in COMPOSED:
            return instructions(builder, word_program(op), args)[0]
        case op if kind == FLOAT and op in _FLOAT_OPS:
            return getattr(builder, _FLOAT_OPS[op])(*args, flags=_FAST)
        case op if op in _INT_OPS:
            return getattr(builder, _INT_OPS[op])(*args)
    raise NotImplementedError(f"{node.op} of {kind} has no LLVM form here")


def _extremum(builder: Any, op: str, kind: str, a: Any, b: Any) -> Any:
    """The smaller or larger of two; NaN if either is."""
    sign = "<" if op == "minimum" else ">"
    if kind == INT:
        return builder.select(builder.icmp_signed(sign, a, b), a, b)
    if isinstance(a, ir.Constant) and a.constant == a.constant:  # never NaN: one instruction
        return builder.select(builder.fcmp_ordered(sign, a, b), a, b)
    if isinstance(b, ir.Constant) and b.constant == b.constant:
        return builder.select(builder.fcmp_ordered(f"{sign}=", b, a), b, a)
    wins = builder.or_(builder.fcmp_ordered(sign, a, b), builder.fcmp_unordered("uno", a, a))
    return builder.select(wins, a, b)


def _call(builder: Any, name: str, x: Any) -> Any:
    return builder.call(builder.module.declare_intrinsic(f"llvm.{name}", [x.type]), [x])
