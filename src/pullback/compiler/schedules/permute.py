"""Table lookups in registers: whether all that neighbouring windows can meet fits two vectors.

    for o, k, l: dw[o, k, l] = add[p, q](g[o, p, q] * x[2p + u + k, 2q + v + l])    u, v = divmod(argmax[o, p, q], 2)

For each element of the weights one instruction moves what each window's largest element meets to its lane, wherever it
is, and no branch depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pullback.compiler.cost import BESIDE_TABLES, MOST_INSTRUCTIONS, MOST_TABLE_SUMS
from pullback.compiler.target import Processor
from pullback.loops import Apply, Axis, Expression, Literal, Load, walk

__all__ = ["Permute", "find_permute"]


@dataclass(frozen=True, eq=False)
class Permute:
    """How the elements that winners meet are found in registers.

    ``number`` says which element of its window a winner is, and ``picks`` in which lane of the two vectors that one
    lies for the first window. They begin ``starts`` elements from the window, whose elements lie up to ``reach``
    further. A block is some ``windows`` along the last axis of the sum, ``step`` elements apart; vectors serve
    ``shared`` columns.
    """

    factor: Expression
    load: Load
    over: tuple[Axis, ...]
    number: Load
    picks: tuple[int, ...]
    starts: tuple[int, ...]
    reach: int
    step: int
    windows: int
    shared: int


def find_permute(
    factor: Expression,
    load: Load,
    over: tuple[Axis, ...],
    columns: Sequence[Axis],
    rows: int,
    lanes: int,
    target: Processor,
) -> Permute | None:
    """The way to look up what ``factor`` meets, for ``rows`` rows, or ``None`` where there is none or a longer one."""
    along, column = over[-1], columns[-1]
    numbered = _numbered(load, lanes)
    step = load.offset.coefficient(along)
    if lanes != target.table_lanes or load.dtype != np.float32 or numbered is None or step < 1:
        return None
    half = lanes // 2
    if column.extent > half:
        return None
    number, offsets = numbered
    low, high = load.offset.bounds()
    if low + min(offsets) < 0 or high + max(offsets) >= load.buffer.size:
        return None
    starts = [min(offsets)]
    starts += [offset for offset in sorted(offsets) if offset >= starts[0] + half][:1]
    runs = [max(k for k, start in enumerate(starts) if offset >= start) for offset in offsets]
    within = [offset - starts[run] for run, offset in zip(runs, offsets)]
    reaches = {max(w for w, run in zip(within, runs) if run == k) for k in range(len(starts))}
    if len(reaches) > 1 or max(reaches) >= half:
        return None
    (reach,) = reaches
    whole, single = (_blocks(along, step, reach + more, lanes) for more in (column.extent - 1, 0))
    shared, blocks = (column.extent, whole) if whole == single else (1, single)
    sums = math.prod(axis.extent for axis in columns)
    instructions = blocks * (2 * sums + BESIDE_TABLES) / (along.extent * min(rows, 2))
    if not blocks or sums > MOST_TABLE_SUMS or instructions > MOST_INSTRUCTIONS:
        return None
    picks = tuple(lanes * run + place for run, place in zip(runs, within))
    windows = -(-along.extent // blocks)
    return Permute(factor, load, over, number, picks, tuple(starts), reach, step, windows, shared)


def _blocks(along: Axis, step: int, reach: int, lanes: int) -> int:
    """In how many blocks all windows are done if each needs ``reach`` elements behind its first; 0 if none fits."""
    return -(-along.extent // min(lanes // 2, (lanes - 1 - reach) // step + 1)) if reach < lanes else 0


def _numbered(load: Load, most: int) -> tuple[Load, tuple[int, ...]] | None:
    """What the computed place depends on, if that is one of ``most`` numbers, and how far each of them leads."""
    found = {e for index, _ in load.dynamic for e in walk(index) if isinstance(e, Load)}
    if len(found) != 1:
        return None
    (number,) = found
    if (
        number.dynamic
        or number.guard is not None
        or number.dtype.kind not in "iu"
        or number.dtype.itemsize != 4
    ):
        return None
    counts = [_values_of(e, number) for index, _ in load.dynamic for e in walk(index)]
    count = min((c for c in counts if c), default=0)
    if not 0 < count <= most:
        return None
    offsets = []
    for value in range(count):
        places = [(_at(index, number, value), stride) for index, stride in load.dynamic]
        if any(place is None for place, _ in places):
            return None
        offsets.append(sum(place * stride for place, stride in places if place is not None))
    return number, tuple(offsets)


def _values_of(expression: Expression, number: Load) -> int:
    """How many values ``number`` can have because a quotient of it is known to be bounded; 0 if nothing is known."""
    if not (isinstance(expression, Apply) and expression.function == "bounded"):
        return 0
    limits, value, divisor = dict(expression.attributes), expression.operands[0], 1
    while isinstance(value, Apply) and value.function in ("cast", "floor_divide"):
        if value.function == "floor_divide":
            if not isinstance(value.operands[1], Literal):
                return 0
            divisor *= int(value.operands[1].value)
        value = value.operands[0]
    return (limits["high"] + 1) * divisor if value is number and limits["low"] == 0 else 0


def _at(expression: Expression, number: Load, value: int) -> int | None:
    """The value of an index where ``number`` has ``value``, or ``None`` if it depends on anything else."""
    if expression is number:
        return value
    if isinstance(expression, Literal):
        return int(expression.value)
    if not isinstance(expression, Apply):
        return None
    known = [_at(operand, number, value) for operand in expression.operands]
    first, last = known[0], known[-1]
    if first is None or last is None:
        return None
    if expression.function in ("cast", "bounded"):
        return first
    if expression.function in ("floor_divide", "remainder"):
        return first // last if expression.function == "floor_divide" else first % last
    return None
