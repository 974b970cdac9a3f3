"""Contractions that read one operand at a computed place: the weight gradient of a convolution behind a pool.

    for o, k, c: dw[o, k, c] = add[p](g[o, p] * x[argmax[o, p] + k, c])

The place is the same for all that an argmax meets: a tile of vectors, as many as registers hold, collects everything
between two changes of the place, and for each of them an address is computed once. Terms on
conditions (``compact.py``) are compacted: those that count are listed first, a vector of factors at a time. Rare cases,
such as a sample with NaN of which all places count, have a sum of their own behind this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pullback.compiler.schedules.cost import LONGEST_LIST, MOST_COLUMN_VECTORS
from pullback.compiler.schedules.schedule import Schedule
from pullback.compiler.target import Processor
from pullback.loops import (
    Apply,
    Axis,
    Expression,
    Kernel,
    Literal,
    Load,
    Placeholder,
    Reduce,
    Store,
    operands_of,
    rare_case,
    turns_of,
    unlikely,
    walk,
)

__all__ = [
    "IndexedContraction",
    "can_compact",
    "find_indexed_contraction",
    "indexed_sum",
    "vector_width",
    "vectors_of_row",
    "with_columns_last",
]


@dataclass(frozen=True, eq=False)
class IndexedContraction(Schedule):
    """A kernel of such sums.

    A tile is some turns of ``row``, if there is such an axis, by all of ``columns``, the last of which carries the
    lanes. The operand at a computed place is ``right``; ``left`` does not depend on the columns. Of the terms those
    count that are ``chosen``, if there is such a condition.
    """

    name: ClassVar[str] = "sums at computed places"

    outer: tuple[Axis, ...]
    row: Axis | None
    columns: tuple[Axis, ...]
    left: Expression
    right: Load
    over: tuple[Axis, ...]
    accumulator: Placeholder
    stores: tuple[Store, ...]
    chosen: Expression | None

    def __str__(self) -> str:
        return self.name if self.chosen is None else f"{self.name}, compacted"


def indexed_sum(kernel: Kernel) -> tuple[Expression, Load] | None:
    """The factors of the kernel's only reduction, if it is such a sum."""
    reduce = kernel.only_reduction
    return None if reduce is None or not reduce.adds_floats else _operands(_usual(reduce.body))


def _usual(body: Expression) -> Expression:
    """What is summed but in rare cases."""
    case = rare_case(body)
    return body if case is None else case.usual


def _operands(term: Expression) -> tuple[Expression, Load] | None:
    """The factors, the one at a computed place last."""
    factors = operands_of(term, "multiply")
    for left, right in (factors, factors[::-1]) if factors else ():
        if isinstance(right, Load) and right.dynamic and right.guard is None:
            return left, right
    return None


def _columns(kernel: Kernel, left: Expression, right: Load) -> list[Axis]:
    """Axes along which the place does not change, those of the widest steps first; the last steps by one element."""
    fixed = left.axes.union(*(index.axes for index, _ in right.dynamic))
    columns = [axis for axis in kernel.axes if axis not in fixed and right.offset.coefficient(axis) > 0]
    return sorted(columns, key=right.offset.coefficient, reverse=True)


def with_columns_last(kernel: Kernel) -> Kernel:
    """The kernel with the columns as its last axes, in the order of memory, so that they can be joined."""
    factors = indexed_sum(kernel)
    columns = [] if factors is None else _columns(kernel, *factors)
    return Kernel((*(axis for axis in kernel.axes if axis not in columns), *columns), kernel.stores)


def find_indexed_contraction(kernel: Kernel, lanes: int, target: Processor) -> IndexedContraction | None:
    """The kernel in this form, if there are columns that lie along memory."""
    reduce = _outermost(kernel)
    if reduce is None or not reduce.adds_floats:
        return None
    term, chosen = _without_condition(_usual(reduce.body))
    found = _operands(term)
    if found is None or any(isinstance(e, Reduce) for e in walk(term)):
        return None
    left, right = found
    columns = _columns(kernel, left, right)
    if chosen is not None and (
        chosen.axes.intersection(columns) or not can_compact(left, right, reduce.over, lanes, target)
    ):
        return None
    if not columns or right.offset.coefficient(columns[-1]) != 1 or columns[0] is kernel.axes[0]:
        return None
    if -(-columns[-1].extent // lanes) > MOST_COLUMN_VECTORS:
        return None
    outer = [axis for axis in kernel.axes if axis not in columns]
    while len(columns) > 1 and vectors_of_row(columns, lanes) > MOST_COLUMN_VECTORS:
        outer.append(columns.pop(0))
    inner = [axis for axis in outer[1:] if axis not in right.offset.axes]
    row = inner[-1] if inner else None
    accumulator = Placeholder("accumulator", kernel.axes, reduce.dtype)
    total = _or_rare(reduce, accumulator)
    return IndexedContraction(
        tuple(axis for axis in outer if axis is not row),
        row,
        tuple(columns),
        left,
        right,
        reduce.over,
        accumulator,
        kernel.with_reductions(lambda each: total if each is reduce else each).stores,
        chosen,
    )


def _outermost(kernel: Kernel) -> Reduce | None:
    """The only reduction of a plain kernel, those inside it left aside."""
    if not kernel.is_plain:
        return None
    parts = walk(*(store.value for store in kernel.stores), enter=lambda e: not isinstance(e, Reduce))
    found = [e for e in parts if isinstance(e, Reduce)]
    return found[0] if len(found) == 1 else None


def _without_condition(body: Expression) -> tuple[Expression, Expression | None]:
    """A term of the sum, and the condition on those that count."""
    masked = operands_of(body, "where")
    if not masked or not isinstance(masked[2], Literal) or masked[2].value != 0:
        return body, None
    return masked[1], masked[0]


def _or_rare(reduce: Reduce, accumulator: Placeholder) -> Expression:
    """The accumulator, unless some terms are rare cases: then the sum as it stands."""
    case = rare_case(reduce.body)
    if case is None:
        return accumulator
    over = tuple(axis for axis in reduce.over if axis in case.condition.axes)
    if over:
        condition, total = unlikely(Reduce("maximum", over, case.condition)), reduce
    else:
        condition, total = case.condition, Reduce("add", reduce.over, case.rare, reduce.dtype)
    return Apply("where", (condition, total, accumulator), reduce.dtype)


def can_compact(left: Expression, right: Load, over: Sequence[Axis], lanes: int, target: Processor) -> bool:
    """Whether the target compacts vectors of the factors ``left``, and a list of them and their places stays near."""
    whole = lanes * left.dtype.itemsize == target.vector_bytes and left.dtype == right.dtype
    near = turns_of(over) <= LONGEST_LIST
    return target.compresses and whole and near and right.buffer.size < 2**31


def vector_width(axis: Axis, lanes: int) -> int:
    """Lanes of a vector along ``axis``: no more than hold all of it."""
    return min(lanes, max(2, 1 << (axis.extent - 1).bit_length()))


def vectors_of_row(columns: Sequence[Axis], lanes: int) -> int:
    """Vectors of one row."""
    return turns_of(columns[:-1]) * -(-columns[-1].extent // lanes)
