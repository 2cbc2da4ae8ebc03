"""The one loop that everything heavy runs in: a small matrix product held in vector registers.

numba vectorises a loop over an array, but does not keep a tile of sums in registers across another
loop, which is what lets a CPU multiply at its peak. So that loop is written in LLVM's own terms;
LLVM picks the instructions (8 lanes are one AVX register, two of NEON). A tile of 6 x 16 has 12
sums, the most that AVX's 16 registers hold beside their operands.
"""

from typing import Any

from numba import types

from plancha_engine.kernels.compiling import inlined, intrinsic
from plancha_engine.kernels.vectors import (
    FLOAT,
    INDEX,
    LANES,
    VECTOR,
    broadcast,
    call_llvm,
    load_vector,
    store_vector,
)

_SIGNATURE = types.void(*[types.intp] * 9)


def _tile(rows: int, vectors: int) -> Any:
    """out[r, c] = start[r, c] + sum over k of x[r, k] w[k, c], for `rows` and 8 `vectors` columns.

    Arguments are addresses, and strides in floats: `x, x_row`, `w, w_depth`, `depth` (how
    many k, at least 1), `start, start_row`, `out, out_row`.
    """

    @intrinsic
    def tile(
        typing: Any,
        x: Any,
        x_row: Any,
        w: Any,
        w_depth: Any,
        depth: Any,
        start: Any,
        start_row: Any,
        out: Any,
        out_row: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _Loop(builder, rows, vectors).emit(*arguments)
            return context.get_dummy_value()

        return _SIGNATURE, generate

    return tile


class _Loop:
    """Emits the loop over k, with one vector of sums for every row and 8 columns."""

    def __init__(self, builder: Any, rows: int, vectors: int) -> None:
        self.builder = builder
        self.rows = rows
        self.vectors = vectors

    def emit(
        self,
        x: Any,
        x_row: Any,
        w: Any,
        w_depth: Any,
        depth: Any,
        start: Any,
        start_row: Any,
        out: Any,
        out_row: Any,
    ) -> None:
        """Load the sums from `start`, add up, store them to `out`."""
        builder = self.builder
        cells = [(r, v) for r in range(self.rows) for v in range(self.vectors)]
        begun = {cell: load_vector(builder, self._cell(start, start_row, *cell)) for cell in cells}
        rows = [self._at(x, builder.mul(x_row, INDEX(r))) for r in range(self.rows)]
        before = builder.block
        loop = builder.append_basic_block("tile")
        after = builder.append_basic_block("tile.done")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(INDEX)
        sums = {cell: builder.phi(VECTOR) for cell in cells}
        w_k = self._at(w, builder.mul(k, w_depth))
        columns = [load_vector(builder, self._offset(w_k, v * LANES)) for v in range(self.vectors)]
        added = {}
        for r in range(self.rows):
            scalar = builder.load(self._offset(rows[r], k), align=4)
            factor = broadcast(builder, scalar)
            for v in range(self.vectors):
                added[r, v] = call_llvm(builder, "fmuladd", factor, columns[v], sums[r, v])
        following = builder.add(k, INDEX(1))
        for phi, first, again in [(k, INDEX(0), following)] + [
            (sums[cell], begun[cell], added[cell]) for cell in cells
        ]:
            phi.add_incoming(first, before)
            phi.add_incoming(again, loop)
        builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)
        builder.position_at_end(after)
        for cell in cells:
            store_vector(builder, added[cell], self._cell(out, out_row, *cell))

    def _at(self, address: Any, index: Any) -> Any:
        pointer = self.builder.inttoptr(address, FLOAT.as_pointer())
        return self.builder.gep(pointer, [index])

    def _cell(self, address: Any, row_stride: Any, row: int, vector: int) -> Any:
        begin = self._at(address, self.builder.mul(row_stride, INDEX(row)))
        return self._offset(begin, vector * LANES)

    def _offset(self, pointer: Any, index: Any) -> Any:
        return self.builder.gep(pointer, [INDEX(index) if isinstance(index, int) else index])


_one, _two, _three, _four, _five, _six = (_tile(rows, 2) for rows in range(1, 7))
_narrow_eight, _narrow_one = _tile(8, 1), _tile(1, 1)


@inlined
def multiply(
    columns: int,
    rows: int,
    x: int,
    x_row: int,
    w: int,
    w_depth: int,
    depth: int,
    start: int,
    start_row: int,
    out: int,
    out_row: int,
) -> None:
    """The product of `_tile` for any number of rows, and 8 or 16 columns."""
    if columns == 8:
        multiply_8(rows, x, x_row, w, w_depth, depth, start, start_row, out, out_row)
    else:
        multiply_16(rows, x, x_row, w, w_depth, depth, start, start_row, out, out_row)


@inlined
def multiply_16(
    rows: int,
    x: int,
    x_row: int,
    w: int,
    w_depth: int,
    depth: int,
    start: int,
    start_row: int,
    out: int,
    out_row: int,
) -> None:
    """The product of `_tile` for any number of rows and 16 columns."""
    row = 0
    tiles = (rows + 5) // 6
    for left in range(tiles, 0, -1):
        height = (rows - row + left - 1) // left  # even heights: a low tile waits for its sums
        x_at, start_at = x + 4 * row * x_row, start + 4 * row * start_row
        out_at = out + 4 * row * out_row
        if height == 6:
            _six(x_at, x_row, w, w_depth, depth, start_at, start_row, out_at, out_row)
        elif height == 5:
            _five(x_at, x_row, w, w_depth, depth, start_at, start_row, out_at, out_row)
        elif height == 4:
            _four(x_at, x_row, w, w_depth, depth, start_at, start_row, out_at, out_row)
        elif height == 3:
            _three(x_at, x_row, w, w_depth, depth, start_at, start_row, out_at, out_row)
        elif height == 2:
            _two(x_at, x_row, w, w_depth, depth, start_at, start_row, out_at, out_row)
        else:
            _one(x_at, x_row, w, w_depth, depth, start_at, start_row, out_at, out_row)
        row += height


@inlined
def multiply_8(
    rows: int,
    x: int,
    x_row: int,
    w: int,
    w_depth: int,
    depth: int,
    start: int,
    start_row: int,
    out: int,
    out_row: int,
) -> None:
    """The product of `_tile` for any number of rows and 8 columns."""
    row = 0
    while row < rows:
        x_at, start_at = x + 4 * row * x_row, start + 4 * row * start_row
        out_at = out + 4 * row * out_row
        if rows - row >= 8:
            _narrow_eight(x_at, x_row, w, w_depth, depth, start_at, start_row, out_at, out_row)
            row += 8
        else:
            _narrow_one(x_at, x_row, w, w_depth, depth, start_at, start_row, out_at, out_row)
            row += 1
