"""The instructions that generated Numba code needs and Numba itself does not offer.

- `select`: a choice without a branch, so that a loop stays one basic block and vectorises.
- `floor`, `ceil`, `sqrt`, `fabs`: the float32 instruction (``math.floor`` goes through int64).
- `minimum`, `maximum`: of two float32; NaN if either is.
- `whole32`: an int of a float, defined for every float. `bits_of`, `float_of`: reinterpret 32 bits.
- `flags_of_64`: 64 truth values as one word. `trailing_zeros`: of such a word that is not zero.
- `at`, `shifted`, `address_of`, `address_at`: memory known by address. `call_reset`,
  `call_address`: functions.
- `prefer_wide_vectors`: 512 bits where the machine has them.
- `atomic_load`, `atomic_store`, `atomic_add`, `atomic_replace`: what threads tell each other.

Access to memory that is known not to overlap is in `alias_scopes`.
"""

# mypy: disable-error-code="no-untyped-call, call-arg"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _float_instruction(name: str) -> Any:
    @intrinsic
    def instruction(typing_context: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            function = builder.module.declare_intrinsic(f"llvm.{name}", [args[0].type])
            return builder.call(function, args)

        return x(x), generate

    return instruction


floor = _float_instruction("floor")
ceil = _float_instruction("ceil")
sqrt = _float_instruction("sqrt")
fabs = _float_instruction("fabs")


@intrinsic
def select(typing_context: Any, condition: Any, a: Any, b: Any) -> Any:
    """`a` if `condition` else `b`, both already computed and of one type."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(args[0], args[1], args[2])

    return a(types.boolean, a, a), generate


def _reinterpret(source: Any, target: Any, llvm_type: ir.Type) -> Any:
    @intrinsic
    def cast(typing_context: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], llvm_type)

        return target(source), generate

    return cast


bits_of = _reinterpret(types.float32, types.int32, ir.IntType(32))
float_of = _reinterpret(types.int32, types.float32, ir.FloatType())


def whole_number(builder: Any, x: Any) -> Any:
    """Append what rounds a float32 towards zero; beyond 32 bits, and for NaN, the least int."""
    size = builder.call(builder.module.declare_intrinsic("llvm.fabs", [x.type]), [x])
    fits = builder.fcmp_ordered("<", size, ir.Constant(x.type, 2.0**31))
    kind = ir.IntType(32)
    return builder.select(fits, builder.fptosi(x, kind), ir.Constant(kind, -(2**31)))


@intrinsic
def whole32(typing_context: Any, x: Any) -> Any:
    """A float32 rounded towards zero, as an int32; see `whole_number`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return whole_number(builder, args[0])

    return types.int32(types.float32), generate


@intrinsic
def at(typing_context: Any, address: Any, dtype: Any) -> Any:
    """A pointer to numbers of `dtype` at an integer address; the caller keeps the memory alive.

    ``p[i]`` is its i-th number. There is less to compile than with an array, which is seven values
    and takes negative indices.
    """
    result = types.CPointer(dtype.instance_type)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(result))

    return result(types.uint64, dtype), generate


@intrinsic
def shifted(typing_context: Any, pointer: Any, count: Any) -> Any:
    """The pointer `count` numbers further on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]], inbounds=True)

    return pointer(pointer, types.intp), generate


@intrinsic
def address_of(typing_context: Any, array: Any) -> Any:
    """Where the data of an array begins, as an int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(array)(context, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), generate


@intrinsic
def address_at(typing_context: Any, pointer: Any, index: Any) -> Any:
    """Where ``pointer[index]`` is, as an int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ptrtoint(builder.gep(args[0], [args[1]]), ir.IntType(64))

    return types.int64(pointer, types.intp), generate


@intrinsic
def call_reset(
    typing_context: Any, address: Any, lo: Any, hi: Any, chosen: Any, now_us: Any, table: Any
) -> Any:
    """Call the function ``void(int64, int64, int64*, int64, int64)`` at an address.

    A function called by name is compiled again as a part of its caller.
    """
    arguments = (types.int64, types.int64, chosen, types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [arg.type for arg in args[1:]])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(types.uint64, *arguments), generate


@intrinsic
def call_address(typing_context: Any, address: Any, arguments: Any) -> Any:
    """Call the function at an address with a tuple of int64; it returns an int64."""
    count = len(arguments)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)] * count)
        values = [builder.extract_value(args[1], k) for k in range(count)]
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), values)

    return types.int64(types.uint64, types.UniTuple(types.int64, count)), generate


@intrinsic
def prefer_wide_vectors(typing_context: Any) -> Any:
    """Let the calling function use 512-bit vectors; nothing changes where there are none.

    LLVM holds back to 256 bits on AVX-512 machines, for fear of lower clocks. On a Xeon of 2023
    (Emerald Rapids) the wide loops took 45 us instead of 101 for 4096 Acrobots, 9.6 instead of 15.2
    for Pendulums.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # llvmlite's own add() knows plain attributes only, LLVM takes "key"="value" as well.
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def flags_of_64(typing_context: Any, flags: Any, start: Any) -> Any:
    """Which of the 64 bytes from ``flags[start]`` are not zero, as the bits of a uint64."""
    vector = ir.VectorType(ir.IntType(8), 64)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = builder.bitcast(builder.gep(args[0], [args[1]]), vector.as_pointer())
        bits = builder.icmp_unsigned("!=", builder.load(source, align=1), vector([0] * 64))
        return builder.bitcast(bits, ir.IntType(64))

    return types.uint64(flags, types.intp), generate


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """How many low bits of a non-zero uint64 are zero, as an intp."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = builder.module.declare_intrinsic(
            "llvm.cttz",
            [ir.IntType(64)],
            ir.FunctionType(ir.IntType(64), [ir.IntType(64), ir.IntType(1)]),
        )
        return builder.call(function, [args[0], ir.Constant(ir.IntType(1), 1)])

    return types.intp(types.uint64), generate


def _extremum(comparison: str) -> Any:
    @intrinsic
    def extremum(typing_context: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            wins = builder.fcmp_ordered(comparison, args[0], args[1])
            nan = builder.fcmp_unordered("uno", args[0], args[0])
            return builder.select(builder.or_(wins, nan), args[0], args[1])

        return a(a, a), generate

    return extremum


minimum = _extremum("<")
maximum = _extremum(">")


@intrinsic
def atomic_load(typing_context: Any, array: Any, index: Any) -> Any:
    """``array[index]`` at a pointer to int64, and everything its writer wrote before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(builder.gep(args[0], [args[1]]), "seq_cst", 8)

    return types.int64(array, types.intp), generate


@intrinsic
def atomic_store(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """``array[index] = value`` at a pointer to int64; its reader sees what was written before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[2], builder.gep(args[0], [args[1]]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.int64), generate


@intrinsic
def atomic_add(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Add to ``array[index]`` at a pointer to int64 in one go; what it was before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", builder.gep(args[0], [args[1]]), args[2], "seq_cst")

    return types.int64(array, types.intp, types.int64), generate


@intrinsic
def atomic_replace(typing_context: Any, array: Any, index: Any, old: Any, new: Any) -> Any:
    """Set ``array[index]`` at a pointer to int64 to `new` if it is `old`; whether it was."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = builder.gep(args[0], [args[1]])
        pair = builder.cmpxchg(target, args[2], args[3], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(array, types.intp, types.int64, types.int64), generate
