"""Staged gathers: the rows of a contraction are gathered a tile at a time, and prefetched a tile ahead."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pullback.compiler.codegen.maps import emit_map
from pullback.compiler.codegen.nest import Ends
from pullback.compiler.codegen.prefetch import forgiving, touch
from pullback.compiler.codegen.values import Place, Values
from pullback.compiler.schedules.contraction import Contraction
from pullback.compiler.schedules.prefetch import lines_of, run_of
from pullback.compiler.schedules.staged_gather import StagedGather
from pullback.loops import Axis, Load, walk

__all__ = ["emit_staged_gather"]


def emit_staged_gather(values: Values, staged: StagedGather, product: Contraction, rows: int) -> None:
    """Gather the ``rows`` of a tile, and ask for as many that follow them."""
    f = values.f
    places = [values.places[axis] for axis in product.rows]
    with values.scope():
        *outer, first = [_value(values, place) for place in places]
        following = f.value(f"add i64 {first}, {rows}")
        with values.scope():
            _ask(values, staged, outer, following, rows)
        values.places.update(zip(staged.rows[:-1], places[:-1]))
        emit_map(values, staged.inside, staged.schedule, Ends(first, following, [rows]))
        for axis in staged.rows[:-1]:
            del values.places[axis]


def _value(values: Values, place: Place) -> str:
    if place.value is None:
        return str(place.constant)
    return values.f.value(f"add i64 {place.value}, {place.constant}") if place.constant else place.value


def _ask(values: Values, staged: StagedGather, outer: list[str], start: str, count: int) -> None:
    """Ask for what ``count`` rows from ``start`` gather, or the first ones of the next turn of the ``outer`` axes.

    Where the places come from somewhere large themselves, such as a text out of many, these are asked for one turn of
    the outer axes before.
    """
    f, (*others, along) = values.f, staged.rows
    over = f.value(f"icmp sge i64 {start}, {along.extent}") if others else ""
    loads = [forgiving(load, {}) for load in staged.gathered]
    if others:
        start = f.value(f"select i1 {over}, i64 0, i64 {start}")
        turn = _turn(values, others, outer)
        turn = f.value(f"add i64 {turn}, {f.value(f'zext i1 {over} to i64')}")
        _stand(values, others, f.value(f"add i64 {turn}, 1"))
        values.places[along] = Place(start)
        for source in dict.fromkeys(
            e for load in loads for e in _sources(load, along, values.target.far_bytes)
        ):
            with values.scope():
                touch(values, source, [0, count * source.dtype.itemsize - 1])
        _stand(values, others, turn)
        values.places.pop(along)
    values.hoist([index for load in loads for index, _ in load.dynamic], [along])
    with f.loop("0", str(count)) as loop, values.scope():
        row = f.value(f"add i64 {start}, {loop.index}")
        values.places[along] = Place(
            f.call("i64", "llvm.smin.i64", ("i64", row), ("i64", str(along.extent - 1)))
        )
        for load in loads:
            inside = [axis for axis in load.offset.axes if axis not in staged.rows]
            first = Load(load.buffer, load.offset.without(inside), load.dynamic)
            touch(values, first, lines_of(load, run_of(load, staged.kernel), values.target.line_bytes))
    for axis in staged.rows:
        values.places.pop(axis, None)


def _turn(values: Values, axes: Sequence[Axis], places: Sequence[str]) -> str:
    """The number of a turn of a nest of loops."""
    f, (total, *rest) = values.f, places
    for axis, place in zip(axes[1:], rest):
        total = f.value(f"add i64 {f.value(f'mul i64 {total}, {axis.extent}')}, {place}")
    return total


def _stand(values: Values, axes: Sequence[Axis], turn: str) -> None:
    """Put ``axes`` where they stand in a turn of their nest; those after the last are the last."""
    f, last = values.f, math.prod(axis.extent for axis in axes) - 1
    rest = f.call("i64", "llvm.smin.i64", ("i64", turn), ("i64", str(last)))
    for axis in reversed(axes[1:]):
        values.places[axis] = Place(f.value(f"urem i64 {rest}, {axis.extent}"))
        rest = f.value(f"udiv i64 {rest}, {axis.extent}")
    values.places[axes[0]] = Place(rest)


def _sources(load: Load, along: Axis, far: int) -> list[Load]:
    """Reads of arrays of so many bytes that the places of ``load`` come from, element by element."""
    found = [e for index, _ in load.dynamic for e in walk(index) if isinstance(e, Load)]
    return [
        e for e in found if e.buffer.nbytes >= far and e.offset.coefficient(along) == 1 and e.guard is None
    ]
