"""Nests to code: shared, serial, unrolled and vector loops, their tails, and the values that go from turn to turn."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pullback.compiler.codegen.types import scalar_type, vector_of
from pullback.compiler.codegen.values import LaneGroup, Place, Values
from pullback.compiler.codegen.vectormath import Lanes
from pullback.compiler.llvm.function import Function
from pullback.loops import Axis, Expression
from pullback.loops.nest import Kind, Level

__all__ = ["ChunkTurns", "TileTurns", "add_products", "each_place", "emit_nest", "sums_of_products"]

Carried = list[str]
TileTurns = Mapping[Axis, int]
"""How many turns of each register axis a tile has, from where the axis stands on."""


@dataclass(frozen=True)
class ChunkTurns:
    """The turns of a parallel loop that a call is given: ``low`` to ``high``, which is one of ``lengths`` further on.

    But for one that ends with the axis all calls have the first length.
    """

    low: str
    high: str
    lengths: Sequence[int]


def emit_nest(
    values: Values,
    levels: Sequence[Level],
    body: Callable[[TileTurns, Carried], Carried | None],
    start: Sequence[tuple[str, str]] = (),
    ends: ChunkTurns | None = None,
    hoisted: tuple[Sequence[Expression], Iterable[Axis]] = ((), ()),
    entered: Callable[[Axis], None] = lambda axis: None,
) -> Carried:
    """``body`` for every tile, with where its axes stand; pairs of a type and a value go from tile to tile, if any do.

    A parallel loop goes between ``ends``. Each strip that is ``entered`` is told. Before each loop that of the
    ``hoisted`` expressions is computed which depends neither on the axes that are left nor on those given with them,
    nor on those whose turns stand side by side.
    """
    inside = {level.axis: level for level in levels if not level.strips}
    roots, bound = hoisted
    apart = {*bound, *(level.axis for level in levels if level.kind is Kind.REGISTER)}
    tile: dict[Axis, int] = {}

    def nest(around: Sequence[Level], current: Carried) -> Carried:
        if not around:
            return body(tile, current) or current
        level, rest = around[0], around[1:]
        axis, inner = level.axis, inside.get(level.axis)
        if roots:
            values.hoist(roots, apart.union(other.axis for other in around))

        def strip(place: Place, length: int, current: Carried) -> Carried:
            if inner is not None and inner.kind is Kind.VECTOR:
                here = values.lane_group(LaneGroup.over(axis, length, inner.lanes), place)
            else:
                here = values.standing({axis: place})
                if inner is not None:
                    tile[axis] = length
            with here:
                entered(axis)
                return nest(rest, current)

        kinds = [kind for kind, _ in start]
        if level.kind is Kind.PARALLEL and ends is not None and list(ends.lengths) != [axis.extent]:
            _between(values, level, ends, lambda place, length: strip(place, length, []))
            return []
        return _strips(values, level, strip, kinds, current)

    return nest([level for level in levels if level.strips], [value for _, value in start])


def _strips(
    values: Values,
    level: Level,
    body: Callable[[Place, int, Carried], Carried],
    kinds: Sequence[str],
    current: Carried,
) -> Carried:
    """``body`` for each strip; several of one length are a loop, unless they are unrolled.

    Of an axis whose size is known when the program runs those are run that are whole.
    """
    f, size, done, most = values.f, values.sizes.get(level.axis), "0", 0
    for length, count in level.strips:
        first, start, most = most, done, most + length * count
        done = str(most) if size is None else _whole(f, start, f.smaller(size, most), length)[0]
        if size is None and (count == 1 or level.kind is Kind.UNROLLED):
            for turn in range(first, most, length):
                current = body(Place(None, turn), length, current)
        else:
            with f.loop(start, done, length, list(zip(kinds, current)), counted=size is None) as loop:
                loop.carry(*body(Place(loop.index, loop=loop), length, loop.values))
            current = loop.results
    return current


def _whole(f: Function, start: str, stop: str, length: int) -> tuple[str, str]:
    """Where the last whole strip ends between two places, and how much is left behind it."""
    if length == 1:
        return stop, "0"
    left = f.value(f"urem i64 {f.value(f'sub i64 {stop}, {start}')}, {length}")
    return f.value(f"sub i64 {stop}, {left}"), left


def _between(values: Values, level: Level, ends: ChunkTurns, body: Callable[[Place, int], object]) -> None:
    """``body`` for the strips of a parallel loop, full ones and then what is left: how much it can be is known."""
    f, (size, _), axis = values.f, level.strips[0], level.axis
    if len(ends.lengths) == 1 and ends.lengths[0] <= size:
        body(Place(ends.low), ends.lengths[0])
        return
    rests = sorted({length % size for length in ends.lengths} - {0})
    stop, left = ends.high, ""
    if rests:
        stop, left = _whole(f, ends.low, ends.high, size)
    if any(length >= size for length in ends.lengths):
        counted = all(length >= size for length in ends.lengths)
        with f.loop(ends.low, stop, size, counted=counted) as loop:
            body(Place(loop.index, loop=loop), size)
    last = ends.lengths[0] % size == 0  # only what ends with the axis has a rest
    for rest in rests:
        with f.when(f.value(f"icmp eq i64 {left}, {rest}")):
            body(Place(None, axis.extent - rest) if last else Place(stop), rest)


def sums_of_products(
    values: Values, levels: Sequence[Level], tile: TileTurns, left: Expression, right: Expression
) -> Carried:
    """The sum over some loops at each place of a tile, a vector."""
    start = [(vector_of(scalar_type(left.dtype), values.lanes), "zeroinitializer")] * math.prod(tile.values())
    return emit_nest(values, levels, lambda _, sums: add_products(values, tile, left, right, sums), start)


def add_products(
    values: Values, tile: TileTurns, left: Expression, right: Expression, sums: Sequence[str]
) -> Carried:
    """``sums`` of vectors of the group, with a product added at each place of a tile.

    What is the same for several places is read once.
    """
    lanes, vectors = Lanes(values.f, scalar_type(left.dtype), values.lanes), values.current_group.vectors
    rights = list(_at_each_place(values, tile, right))  # each vector, before elements are spread for it
    lefts = rights if left is right else _at_each_place(values, tile, left)
    return [
        lanes.fma(a, b, total)
        for k, pairs in enumerate(map(zip, lefts, rights))
        for (a, b), total in zip(pairs, sums[k * vectors :])
    ]


def each_place(values: Values, tile: TileTurns) -> Iterator[int]:
    """Stand at each place of a tile, the last of its axes moving fastest; gives their numbers."""
    for number, places in enumerate(_places(values, tile)):
        with values.standing(places):
            yield number


def _at_each_place(values: Values, tile: TileTurns, expression: Expression) -> Iterator[list[str]]:
    """The vectors of an expression at each place of a tile."""
    known: dict[tuple[Place, ...], list[str]] = {}
    for places in _places(values, tile):
        own = {axis: place for axis, place in places.items() if axis in expression.axes}
        where = tuple(own.values())
        if where not in known:
            with values.standing(own):
                known[where] = values.vectors(expression)
        yield known[where]


def _places(values: Values, tile: TileTurns) -> Iterator[dict[Axis, Place]]:
    """Where the axes of a tile stand at each of its places."""
    base = {axis: values.places[axis] for axis in tile}
    for turns in itertools.product(*map(range, tile.values())):
        yield {axis: Place(at.value, at.constant + turn) for (axis, at), turn in zip(base.items(), turns)}
