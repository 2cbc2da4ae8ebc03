"""Eight float32 at once, as a value that kernels can load, compute with and store.

LLVM leaves a loop over the few lanes of small arrays scalar, since it cannot know that the arrays
do not overlap. Here the vector operations are named. On every CPU they become its own
instructions: a vector is one AVX register, or two of SSE or NEON. Addresses are in bytes.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import models, overload, register_model

from plancha_engine.kernels.compiling import intrinsic

LANES = 8
LINE = 64  # bytes in a cache line
FLOAT, INDEX, INT32 = ir.FloatType(), ir.IntType(64), ir.IntType(32)
VECTOR = ir.VectorType(FLOAT, LANES)


class VectorType(types.Type):
    """The type; `vector` is its only instance."""

    def __init__(self) -> None:
        super().__init__(name="Vector")


vector = VectorType()


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: Any) -> None:
        super().__init__(manager, numba_type, VECTOR)  # type: ignore[no-untyped-call]


def load_vector(builder: Any, pointer: Any) -> Any:
    """Eight floats from a float pointer of any alignment."""
    return builder.load(builder.bitcast(pointer, VECTOR.as_pointer()), align=4)


def store_vector(builder: Any, value: Any, pointer: Any) -> None:
    """Eight floats to a float pointer of any alignment."""
    builder.store(value, builder.bitcast(pointer, VECTOR.as_pointer()), align=4)


def broadcast(builder: Any, scalar: Any) -> Any:
    """A float in all lanes."""
    undefined = ir.Constant(VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, scalar, INT32(0))
    return builder.shuffle_vector(first, undefined, ir.VectorType(INT32, LANES)([0] * LANES))


def call_llvm(builder: Any, name: str, *arguments: Any) -> Any:
    """LLVM's function `name` for floats or vectors of them, whichever the arguments are."""
    kind = arguments[0].type
    full = f"llvm.{name}.{'f32' if kind == FLOAT else f'v{LANES}f32'}"
    signature = ir.FunctionType(kind, [kind] * len(arguments))
    function = builder.module.globals.get(full) or ir.Function(builder.module, signature, full)
    return builder.call(function, arguments)


def fetch(builder: Any, address: Any) -> None:
    """Begin to read the cache line at an address, which need not be valid."""
    pointer = builder.inttoptr(address, ir.IntType(8).as_pointer())
    name, read, keep, data = "llvm.prefetch.p0i8", 0, 2, 1
    signature = ir.FunctionType(ir.VoidType(), [pointer.type, INT32, INT32, INT32])
    function = builder.module.globals.get(name) or ir.Function(builder.module, signature, name)
    builder.call(function, [pointer, INT32(read), INT32(keep), INT32(data)])


@intrinsic
def load(typing: Any, address: Any) -> Any:
    """The vector at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return load_vector(builder, builder.inttoptr(arguments[0], FLOAT.as_pointer()))

    return vector(types.intp), generate


@intrinsic
def store(typing: Any, address: Any, value: Any) -> Any:
    """Put a vector at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        store_vector(builder, arguments[1], builder.inttoptr(arguments[0], FLOAT.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.intp, vector), generate


@intrinsic
def fill(typing: Any, scalar: Any) -> Any:
    """A vector of one float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return broadcast(builder, arguments[0])

    return vector(types.float32), generate


@intrinsic
def maximum(typing: Any, a: Any, b: Any) -> Any:
    """Lane by lane `b` where it is greater, else `a`: NaN in `b` does not count."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b = arguments
        return builder.select(builder.fcmp_ordered(">", b, a), b, a)

    return vector(vector, vector), generate


@intrinsic
def highest(typing: Any, x: Any) -> Any:
    """The greatest lane, a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def greater(a: Any, b: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", b, a), b, a)

        return _reduce(builder, arguments[0], greater)

    return types.float32(vector), generate


@intrinsic
def total(typing: Any, x: Any) -> Any:
    """The sum of the lanes, a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _reduce(builder, arguments[0], builder.fadd)

    return types.float32(vector), generate


def _reduce(builder: Any, value: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """Half with half, until one lane is left."""
    undefined = ir.Constant(VECTOR, ir.Undefined)
    half = LANES // 2
    while half:
        order = [lane + half if lane < half else lane for lane in range(LANES)]
        swapped = builder.shuffle_vector(value, undefined, ir.VectorType(INT32, LANES)(order))
        value = combine(value, swapped)
        half //= 2
    return builder.extract_element(value, INT32(0))


@intrinsic
def floor(typing: Any, x: Any) -> Any:
    """Of a float32 or a vector."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return call_llvm(builder, "floor", arguments[0])

    return x(x), generate


@intrinsic
def power_of_two(typing: Any, exponent: Any) -> Any:
    """2^n for whole n from -126 to 127, of a float32 or a vector."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = arguments[0].type
        whole = INT32 if kind == FLOAT else ir.VectorType(INT32, LANES)

        def constant(value: int) -> Any:
            return whole(value) if kind == FLOAT else whole([value] * LANES)

        biased = builder.add(builder.fptosi(arguments[0], whole), constant(127))
        return builder.bitcast(builder.shl(biased, constant(23)), kind)

    return exponent(exponent), generate


@intrinsic
def zero_below(typing: Any, x: Any, limit: Any, value: Any) -> Any:
    """0 where x is less than the float32 `limit`, else `value`; float32s or vectors."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, limit, value = arguments
        zero = ir.Constant(value.type, None)
        limits = limit if x.type == FLOAT else broadcast(builder, limit)
        return builder.select(builder.fcmp_ordered("<", x, limits), zero, value)

    return value(x, types.float32, value), generate


def _define_operator(operation: Callable[[Any, Any], Any], instruction: str) -> None:
    """Between two vectors, or a vector and a float32 that counts for every lane."""

    @intrinsic
    def apply(typing: Any, a: Any, b: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            a, b = (x if x.type == VECTOR else broadcast(builder, x) for x in arguments)
            return getattr(builder, instruction)(a, b)

        return vector(a, b), generate

    def operate(a: Any, b: Any) -> Any:
        return apply(a, b)

    @overload(operation)
    def choose(a: Any, b: Any) -> Any:
        return operate if vector in (a, b) and {a, b} <= {vector, types.float32} else None


_define_operator(operator.add, "fadd")
_define_operator(operator.sub, "fsub")
_define_operator(operator.mul, "fmul")
