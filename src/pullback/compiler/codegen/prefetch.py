"""Asking for memory before it is needed: pieces of large arrays that lie where computed indices say.

A loop that gathers rows waits for each of them as long as a hundred operations take, and the processor cannot foresee
where the next one lies. The indices are known, though: a few turns ahead they are read, and what they point to is
asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pullback.compiler.codegen.function import Function
from pullback.compiler.codegen.values import Place, Values
from pullback.compiler.schedules.prefetch import lines_of, run_of
from pullback.loops import Apply, Axis, Expression, Kernel, Literal, Load

__all__ = ["forgiving", "prefetch_ahead", "prefetch_line", "touch", "touch_piece"]

_INT64 = np.dtype(np.int64)


def prefetch_line(f: Function, address: str, cache: int = 1) -> None:
    """Ask for the line at ``address``, which need not exist, to come to the first or the second ``cache``."""
    near = ("i32", str(4 - cache))
    f.call("void", "llvm.prefetch.p0", ("ptr", address), ("i32", "0"), near, ("i32", "1"))


def prefetch_ahead(values: Values, kernel: Kernel, loads: Mapping[Load, int], row: Axis, turn: str) -> None:
    """At a ``turn`` of the loop over ``row``, ask for what turns so many later gather."""
    f = values.f
    for load, distance in loads.items():
        later = f.value(f"add i64 {turn}, {distance}")
        later = f.call("i64", "llvm.smin.i64", ("i64", later), ("i64", str(row.extent - 1)))
        with values.scope():
            values.places[row] = Place(later)
            touch_piece(values, load, kernel, row)
        values.places[row] = Place(turn)


def touch_piece(values: Values, load: Load, kernel: Kernel, row: Axis | None = None) -> None:
    """Ask for all that a kernel reads with ``load`` at one place, or at one turn of ``row``."""
    inside = [axis for axis in load.offset.axes if axis is not row]
    first = Load(load.buffer, load.offset.without(inside), load.dynamic)
    touch(values, forgiving(first, {}), lines_of(load, run_of(load, kernel), values.target.line_bytes))


def touch(values: Values, load: Load, bytes_ahead: Sequence[int]) -> None:
    """Ask for memory some bytes after where ``load`` begins to read."""
    f = values.f
    dynamic = [(values.convert_index(index)[0], stride) for index, stride in load.dynamic]
    address = values.address(load.buffer, values.element(load.buffer, load.offset, dynamic))
    for ahead in bytes_ahead:
        line = f.value(f"getelementptr i8, ptr {address}, i64 {ahead}") if ahead else address
        prefetch_line(f, line)


def forgiving(load: Load, memo: dict[Expression, Expression]) -> Load:
    """``load`` with indices out of range moved into it rather than reported: their time has not come."""
    dynamic = tuple((_forgiving_value(index, memo), stride) for index, stride in load.dynamic)
    return Load(load.buffer, load.offset, dynamic)


def _forgiving_value(expression: Expression, memo: dict[Expression, Expression]) -> Expression:
    if expression in memo:
        return memo[expression]
    new = expression
    if isinstance(expression, Load):
        new = forgiving(expression, memo)
    elif isinstance(expression, Apply):
        operands = [_forgiving_value(operand, memo) for operand in expression.operands]
        new = Apply(expression.function, operands, expression.dtype, expression.attributes)
        if expression.function == "check_index":
            most = Literal(dict(expression.attributes)["extent"] - 1, _INT64)
            new = Apply("maximum", (operands[0], Literal(0, _INT64)), _INT64)
            new = Apply("minimum", (new, most), _INT64)
    memo[expression] = new
    return new
