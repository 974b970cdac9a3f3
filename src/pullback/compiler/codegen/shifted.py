"""Values that were computed some lanes before: what a stencil needs of its neighbours too.

The gradient of ``f(x[1:], x[:-1])`` has at each place what is computed there and what was computed one place before.
Along the lanes the second is the first, moved on by one lane, with the last lane of the vector before:

    t[i] = (x[i + 1] - x[i] ** 2) * 100        t, carried from vector to vector:   … 5 6 7 | 8 9 10 11 …
    t[i - 1]                               →   moved on by a lane                  … 4 5 6 | 7 8 9 10 …
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pullback.compiler.codegen.types import scalar_type, vector_of
from pullback.compiler.codegen.values import LaneGroup, Values
from pullback.compiler.schedules.cost import FEWEST_SHIFTED
from pullback.loops import Apply, Axis, Buffer, Expression, Load, Position, fused_product, walk

__all__ = ["Shift", "ahead_of_first", "bind_shifted", "shifts"]

_FREE = ("bounded", "rounded", "stop_gradient")


@dataclass(frozen=True)
class Shift:
    """A value that is the one of ``front`` some ``lanes`` before."""

    value: Expression
    front: Expression
    lanes: int


def shifts(axis: Axis, roots: Sequence[Expression], lanes: int, written: Collection[Buffer]) -> list[Shift]:
    """Parts of ``roots`` that are others of them at most a vector before, and cost more than to move lanes.

    What reads a buffer that is ``written`` may be another value by then.
    """
    kinds = _kinds(axis, roots, written)
    found = {shift.value: shift for shift in _behind(kinds, lanes)}
    for part in _of_one_turn(axis, roots):  # with the sum that it is added to a product is one instruction
        place = fused_product(part)
        if place is not None:
            found.pop(part.operands[place], None)
    while True:
        met = list(walk(*roots, enter=lambda part: axis in part.axes and part not in found))
        taken = [part for part in met if part in found]
        others = {part for part in met if part not in found}
        cheap = [part for part in taken if _saved(part, others) < FEWEST_SHIFTED]
        if not cheap:
            return [found[part] for part in taken]
        for part in cheap:
            del found[part]


def _of_one_turn(axis: Axis, roots: Sequence[Expression]) -> Iterator[Expression]:
    """The parts of ``roots``, but of sums along ``axis``, which are of all its turns, no operands."""
    return walk(*roots, enter=lambda part: axis in part.axes)


def _behind(kinds: dict[Expression, tuple[int, int]], lanes: int) -> Iterator[Shift]:
    """What is at most ``lanes`` behind another of its kind, which is behind no third."""
    fronts: dict[int, Expression] = {}
    for part, (kind, place) in sorted(kinds.items(), key=lambda item: -item[1][1]):
        ahead = kinds[fronts[kind]][1] - place if kind in fronts else lanes + 1
        if ahead > lanes:
            fronts[kind] = part
        elif ahead and isinstance(part, Apply):
            yield Shift(part, fronts[kind], ahead)


def _saved(part: Expression, others: Collection[Expression]) -> int:
    """The operations of ``part`` that nothing else needs."""
    inside = walk(part, enter=lambda each: each not in others)
    return sum(isinstance(e, Apply) and e.function not in _FREE and e not in others for e in inside)


def _kinds(
    axis: Axis, roots: Sequence[Expression], written: Collection[Buffer]
) -> dict[Expression, tuple[int, int]]:
    """Of each part that can be moved along ``axis`` what it is but for its place, as a number, and its place."""
    numbers: dict[Any, int] = {}
    kinds: dict[Expression, tuple[int, int]] = {}
    for part in _of_one_turn(axis, roots):
        if axis not in part.axes:
            continue
        key, place = _kind(axis, part, kinds, written)
        if key is not None:
            number = key if isinstance(key, int) else numbers.setdefault(key, len(numbers))
            kinds[part] = number, place
    return kinds


def _kind(
    axis: Axis, part: Expression, kinds: dict[Expression, tuple[int, int]], written: Collection[Buffer]
) -> tuple[Any, int]:
    """What ``part`` is but for its place, if it can be moved: a number that is known already, or anything else."""
    if isinstance(part, Load):
        if part.is_plain and part.offset.coefficient(axis) == 1 and part.buffer not in written:
            return ("load", part.buffer, part.offset.terms), part.offset.constant
    elif isinstance(part, Position):
        if part.index.coefficient(axis) == 1:
            return ("position", part.index.terms), part.index.constant
    elif isinstance(part, Apply) and part.function != "check_index":
        moving = [operand for operand in part.operands if axis in operand.axes]
        if all(operand in kinds for operand in moving):
            place = kinds[moving[0]][1]
            if part.function in _FREE and part.function != "bounded":
                return kinds[moving[0]]
            operands = tuple(
                (kinds[o][0], kinds[o][1] - place) if axis in o.axes else o for o in part.operands
            )
            return (part.function, part.attributes, part.dtype, operands), place
    return None, 0


def ahead_of_first(values: Values, found: Sequence[Shift]) -> Iterator[tuple[str, str]]:
    """For each front a vector type and the vector before the first of the group, as far as shifts reach into it."""
    lanes, axis = values.current_group.lanes, values.current_group.axis
    for front, those in _by_front(found).items():
        farthest = max(those, key=lambda shift: shift.lanes)
        kind = vector_of(scalar_type(front.dtype), lanes)
        with values.lane_group(LaneGroup(axis, 1, lanes), values.places[axis]):
            (vector,) = values.vectors(farthest.value)
        picks = [max(0, lane - lanes + farthest.lanes) for lane in range(lanes)]
        yield kind, values.f.shuffled(kind, vector, "poison", picks)


def bind_shifted(values: Values, found: Sequence[Shift], before: Sequence[str]) -> list[str]:
    """Give the group's values of shifts, the vectors of their fronts ``before`` it known; its own last ones."""
    lanes, last = values.current_group.lanes, []
    for (front, those), carried in zip(_by_front(found).items(), before):
        row = [carried, *values.vectors(front)]
        kind = vector_of(scalar_type(front.dtype), lanes)
        for shift in those:
            picks = range(lanes - shift.lanes, 2 * lanes - shift.lanes)
            moved = [values.f.shuffled(kind, a, b, picks) for a, b in pairwise(row)]
            values.bind(shift.value, moved)
        last.append(row[-1])
    return last


def _by_front(found: Sequence[Shift]) -> dict[Expression, list[Shift]]:
    """Shifts by their fronts; those that others may be made of come first."""
    fronts: dict[Expression, list[Shift]] = {}
    for shift in sorted(found, key=lambda shift: sum(1 for _ in walk(shift.front))):
        fronts.setdefault(shift.front, []).append(shift)
    return fronts
