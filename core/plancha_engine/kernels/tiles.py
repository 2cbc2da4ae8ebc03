"""The one loop that everything heavy runs in: a small matrix product held in vector registers.

numba vectorises a loop over an array, but does not keep a tile of sums in registers across another
loop, which is what lets a CPU multiply at its peak. So that loop is written in LLVM's own terms;
LLVM picks the instructions (8 lanes are one AVX register, two of NEON). A tile of 6 x 16 has 12
sums, the most that AVX's 16 registers hold beside their operands.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from numba import types

from plancha_engine.kernels.compiling import inlined, intrinsic
from plancha_engine.kernels.vectors import (
    FLOAT,
    INDEX,
    LANES,
    LINE,
    VECTOR,
    broadcast,
    call_llvm,
    fetch,
    load_vector,
    store_vector,
)

HEIGHT = 6


class Rows(NamedTuple):
    """Float32 rows in memory: the first one's address, and floats from one to the next."""

    address: int
    stride: int


Multiply = Callable[[int, Rows, Rows, int, Rows, Rows, int], None]


def _tile(rows: int, vectors: int) -> Any:
    """`rows` of the product and as many columns as `vectors` hold; see `multiply_16`."""

    @intrinsic
    def tile(typing: Any, x: Any, w: Any, depth: Any, start: Any, out: Any, soon: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            x, w, depth, start, out, soon = arguments
            _Loop(builder, rows, vectors).emit(x, w, depth, start, out, soon)
            return context.get_dummy_value()

        return types.void(x, w, types.intp, start, out, types.intp), generate

    return tile


class _Loop:
    """Emits the loop over the depth, with the tile's sums in vectors of 8 columns."""

    def __init__(self, builder: Any, rows: int, vectors: int) -> None:
        self.builder = builder
        self.cells = [(row, v) for row in range(rows) for v in range(vectors)]

    def emit(self, x: Any, w: Any, depth: Any, start: Any, out: Any, soon: Any) -> None:
        """Load the sums from `start`, add up, store them to `out`."""
        builder = self.builder
        begun = {cell: load_vector(builder, self._cell(start, *cell)) for cell in self.cells}
        x_rows = {row: self._cell(x, row, 0) for row, _ in self.cells}
        before = builder.block
        loop = builder.append_basic_block("tile")
        after = builder.append_basic_block("tile.done")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(INDEX)
        sums = {cell: builder.phi(VECTOR) for cell in self.cells}
        fetch(builder, builder.add(soon, builder.mul(k, INDEX(LINE))))
        added = self._add(k, x_rows, w, sums)
        following = builder.add(k, INDEX(1))
        k.add_incoming(INDEX(0), before)
        k.add_incoming(following, loop)
        for cell, phi in sums.items():
            phi.add_incoming(begun[cell], before)
            phi.add_incoming(added[cell], loop)
        builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)
        builder.position_at_end(after)
        for cell, value in added.items():
            store_vector(builder, value, self._cell(out, *cell))

    def _add(self, k: Any, x_rows: dict[int, Any], w: Any, sums: dict[Any, Any]) -> dict[Any, Any]:
        """The sums with the products of one k."""
        builder, added = self.builder, {}
        columns = {v: load_vector(builder, self._cell(w, k, v)) for _, v in self.cells}
        for row, pointer in x_rows.items():
            factor = broadcast(builder, builder.load(builder.gep(pointer, [k]), align=4))
            for v, column in columns.items():
                added[row, v] = call_llvm(builder, "fmuladd", factor, column, sums[row, v])
        return added

    def _cell(self, operand: Any, row: Any, vector: int) -> Any:
        """Pointer to a vector of a row."""
        address, stride = (self.builder.extract_value(operand, field) for field in (0, 1))
        index = INDEX(row) if isinstance(row, int) else row
        pointer = self.builder.inttoptr(address, FLOAT.as_pointer())
        first = self.builder.gep(pointer, [self.builder.mul(index, stride)])
        return self.builder.gep(first, [INDEX(vector * LANES)])


def _multiply(vectors: int) -> Multiply:
    one, two, three, four, five, six = (_tile(rows, vectors) for rows in range(1, HEIGHT + 1))

    @inlined
    def multiply(
        rows: int, x: Rows, w: Rows, depth: int, start: Rows, out: Rows, soon: int
    ) -> None:
        row = 0
        for left in range((rows + HEIGHT - 1) // HEIGHT, 0, -1):
            height = (rows - row + left - 1) // left  # even: a low tile has to wait for its sums
            x_at = Rows(x.address + 4 * row * x.stride, x.stride)
            start_at = Rows(start.address + 4 * row * start.stride, start.stride)
            out_at = Rows(out.address + 4 * row * out.stride, out.stride)
            if height == 6:
                six(x_at, w, depth, start_at, out_at, soon)
            elif height == 5:
                five(x_at, w, depth, start_at, out_at, soon)
            elif height == 4:
                four(x_at, w, depth, start_at, out_at, soon)
            elif height == 3:
                three(x_at, w, depth, start_at, out_at, soon)
            elif height == 2:
                two(x_at, w, depth, start_at, out_at, soon)
            else:
                one(x_at, w, depth, start_at, out_at, soon)
            row += height

    return multiply


multiply_8: Multiply = _multiply(1)
multiply_16: Multiply = _multiply(2)
"""out[r, c] = start[r, c] + the sum over k < depth of x[r, k] w[k, c], for 16 (8) columns c.

For any number of rows r; depth is at least 1. `out` may be `start`; a stride of 0 repeats a row.
Meanwhile `depth` cache lines from address `soon` are fetched, which will be needed soon.
"""
