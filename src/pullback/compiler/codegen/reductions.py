"""Reductions: loops that carry accumulators, and the sum across the lanes of a vector.

Four ways, chosen by where the lanes are. A reduction that differs between lanes keeps one accumulator a lane; if its
rows lie along memory, each of these lanes is a row whose own vector of partial results is kept, and a square block of
them is turned and reduced to one vector at the end. One over the lane axis itself, when the group spans it, adds across
lanes at once. Any other takes its own last axis for lanes if memory lies that way, with several accumulators to hide
the latency, and adds them up in a fixed order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.compiler.codegen.blocks import fenced
from pullback.compiler.codegen.integers import integer_function
from pullback.compiler.codegen.nest import Tile, each_place, emit_nest
from pullback.compiler.codegen.pairwise import pairwise
from pullback.compiler.codegen.types import convert, literal, scalar_type, vector_of
from pullback.compiler.codegen.values import Place, Values
from pullback.compiler.codegen.vectormath import ELEMENTWISE, Lanes
from pullback.compiler.codegen.vectormath.extrema import Extremum
from pullback.compiler.schedules.cost import FEWEST_LANES, WRITTEN_OUT
from pullback.compiler.schedules.reduction import is_transposed, runs_along
from pullback.loops import Affine, Apply, Axis, Load, Reduce, turns_of
from pullback.loops.nest import Kind, Level, level_of, levels_over

__all__ = ["SumsOfLoop", "across_rows", "better", "emit_reduction", "horizontal", "neutral"]


def neutral(kind: str, dtype: np.dtype) -> float | int:
    """The value that changes nothing."""
    if kind in ("add", "multiply"):
        return 0 if kind == "add" else 1
    lowest = kind in ("maximum", "argmax")
    if dtype.kind == "f":
        return float("-inf") if lowest else float("inf")
    if dtype.kind == "b":
        return 0 if lowest else 1
    information = np.iinfo(dtype)
    return int(information.min if lowest else information.max)


def combine(values: Values, kind: str, x: str, y: str, dtype: np.dtype, count: int) -> str:
    """``x`` and ``y`` reduced to one."""
    if dtype.kind == "f":
        return ELEMENTWISE[kind](Lanes(values.f, scalar_type(dtype), count), x, y)
    return integer_function(values.f, kind, (x, y), dtype, count)


def horizontal(values: Values, kind: str, vectors: Sequence[str], dtype: np.dtype, lanes: int) -> str:
    """One scalar from the lanes of several vectors: vectors in pairs, then halves of the last one."""
    value = pairwise(vectors, lambda a, b: combine(values, kind, a, b, dtype, lanes))
    scalar = scalar_type(dtype)
    while lanes > 1:
        half = lanes // 2
        kind_text = vector_of(scalar, lanes)
        parts = [
            values.f.shuffled(kind_text, value, "poison", range(start, start + half)) for start in (0, half)
        ]
        if half == 1:
            parts = [values.f.value(f"extractelement {kind_text} {value}, i32 {lane}") for lane in (0, 1)]
        value = combine(values, kind, parts[0], parts[1], dtype, half)
        lanes = half
    return value


def emit_reduction(values: Values, reduce: Reduce) -> list[str]:
    """The value of a reduction: one scalar, or one vector for each vector of the group."""
    group = values.group
    across = group is not None and group.whole and reduce.over == (group.axis,)
    extreme_position = reduce.kind in ("argmax", "argmin")
    # Here and not inside, where it would be forgotten: what several reductions need is evaluated once.
    values.hoist([reduce.body], reduce.over)
    if any(axis in values.places for axis in reduce.over) and (extreme_position or not across):
        with values.shadowing(reduce.over):
            return emit_reduction(values, reduce)
    if extreme_position:
        if not values.is_vector(reduce) and runs_along(reduce) and reduce.over[-1].extent >= values.lanes:
            return [_extreme_position_along_lanes(values, reduce)]
        return _extreme_positions(values, reduce)
    if values.is_vector(reduce):
        assert group is not None
        if is_transposed(reduce, group.axis, values.target):
            return [_transposed(values, reduce, vector) for vector in range(group.vectors)]
        return _accumulate(values, reduce, group.vectors, group.lanes)
    if across:
        assert group is not None
        vectors = _masked(values, reduce, values.vectors(reduce.body))
        result = horizontal(values, reduce.kind, vectors, reduce.dtype, group.lanes)
        if reduce.adds_floats and not group.tail:
            # No lane holds the +0 that a sum begins with.
            result = combine(values, "add", result, literal(reduce.dtype, 0), reduce.dtype, 1)
        return [result]
    if runs_along(reduce) and reduce.over[-1].extent >= FEWEST_LANES:
        return _along_lanes(values, reduce)
    return _accumulate(values, reduce, 1, 1)


def _transposed(values: Values, reduce: Reduce, vector: int) -> str:
    """The vector of results of some rows, one a lane: a vector of partial results for each row, then all turned.

    A few rows are read side by side, then the next: their lines may all have the same place in the nearest cache.
    """
    assert values.group is not None
    group, here = values.group, values.places[values.group.axis]
    *outer, along = reduce.over
    lanes = group.lanes
    rows = lanes if values.mask(vector) is None else group.tail
    places = [Place(here.value, here.constant + vector * lanes + row) for row in range(rows)]
    accumulators = _accumulators(values, reduce, lanes)
    start = accumulators.start(1)
    # Where a row takes several registers fewer rows are side by side, each with more of its vectors.
    chains, ways = values.target.accumulators, values.target.ways
    strip, most = (1, ways) if len(start) == 1 else (chains, ways // 2)

    def turn(tile: Tile, carried: list[str]) -> list[str]:
        new = list[str]()
        values.hoist([reduce.body], [group.axis])
        for row, state in enumerate(_parts(carried, len(carried) // len(start)), first):
            values.places[group.axis] = places[row]
            with values.scope():
                new += accumulators.taken(state, _terms(values, reduce))
            del values.places[group.axis]
        return new

    with values.shadowing([group.axis]), values.scope():
        levels = [
            *levels_over(outer),
            _lane_level(along, strip, lanes),
            Level(along, Kind.VECTOR, lanes=lanes),
        ]
        made = list[str]()
        for first in range(0, rows, most):
            count = min(most, rows - first)
            made += map(accumulators.found, _parts(emit_nest(values, levels, turn, start * count), count))
    return across_rows(
        values, reduce.kind, [*made, *["zeroinitializer"] * (lanes - rows)], reduce.dtype, lanes
    )


def across_rows(values: Values, kind: str, rows: Sequence[str], dtype: np.dtype, lanes: int) -> str:
    """The vector whose lane ``k`` is row ``k`` reduced; rows are a power of two, no more than ``lanes``.

    Neighbours in pairs, the halves of each beside each other, until one vector is left: with four lanes

        a = [a0 a1 a2 a3]          [a0+a1 a2+a3 b0+b1 b2+b3]
        b = [b0 b1 b2 b3]    →     [c0+c1 …                ]    →    [a b c d]

    Fewer rows than lanes leave several lanes to each, which are reduced in the same way.
    """
    scalar, current = scalar_type(dtype), list(rows)

    def halves(a: str, b: str, lanes: int, kept: int) -> str:
        vector = vector_of(scalar, lanes)
        parts = [values.f.shuffled(vector, a, b, range(first, 2 * kept, 2)) for first in (0, 1)]
        return combine(values, kind, parts[0], parts[1], dtype, kept)

    while len(current) > 1:
        current = [halves(a, b, lanes, lanes) for a, b in zip(current[::2], current[1::2])]
    while lanes > len(rows):
        current = [halves(current[0], "poison", lanes, lanes // 2)]
        lanes //= 2
    return current[0]


class _Accumulators:
    """What a loop carries of a reduction: vectors to each of which every so manieth value is added."""

    def __init__(self, values: Values, reduce: Reduce, lanes: int) -> None:
        self.values, self.kind, self.dtype, self.lanes = values, reduce.kind, reduce.dtype, lanes

    def start(self, side: int) -> list[tuple[str, str]]:
        """The types and first values of what a loop carries that has ``side`` accumulators."""
        empty = literal(self.dtype, neutral(self.kind, self.dtype), self.lanes)
        return [(vector_of(scalar_type(self.dtype), self.lanes), empty)] * side

    def taken(self, carried: Sequence[str], terms: Sequence[str | tuple[str, str]]) -> list[str]:
        """What is carried, with ``terms`` taken in, no more than there are accumulators; products are not rounded."""
        new = [self._added(total, term) for total, term in zip(carried, terms)]
        return [*new, *carried[len(new) :]]

    def found(self, carried: Sequence[str]) -> str:
        """All accumulators in one."""
        return pairwise(carried, self._added)

    def _added(self, total: str, term: str | tuple[str, str]) -> str:
        if isinstance(term, tuple):
            return Lanes(self.values.f, scalar_type(self.dtype), self.lanes).fma(*term, total)
        return combine(self.values, self.kind, total, term, self.dtype, self.lanes)


def _accumulators(values: Values, reduce: Reduce, lanes: int) -> _Accumulators | Extremum:
    if reduce.kind in ("maximum", "minimum") and reduce.dtype.kind == "f":
        return Extremum(Lanes(values.f, scalar_type(reduce.dtype), lanes), reduce.kind)
    return _Accumulators(values, reduce, lanes)


def _terms(values: Values, reduce: Reduce) -> list[Any]:
    """What accumulators take in of the body: vectors, or the two factors where a sum takes in a product."""
    assert values.group is not None
    group, body = values.group, reduce.body
    along = group.axis in reduce.over
    if (
        reduce.kind == "add"
        and isinstance(body, Apply)
        and body.function == "multiply"
        and body.dtype.kind == "f"
        # Lanes that do not exist are read as zeros.
        and (not along or all(isinstance(e, Load) and group.axis in e.axes for e in body.operands))
    ):
        left, right = (values.vectors(operand) for operand in body.operands)
        return list(zip(left, right))
    vectors = values.vectors(body)
    return _masked(values, reduce, vectors) if along else vectors


def _accumulate(values: Values, reduce: Reduce, count: int, lanes: int) -> list[str]:
    """Loops over the reduced axes around ``accumulator = combine(accumulator, body)``, for ``count`` vectors.

    Turns of a long last axis go to several sets of accumulators in turn: no addition waits for the one before it.
    """
    *outer, last = reduce.over
    side, short = values.target.accumulators // count, _written_out(values, reduce)
    if short or values.rare or side < 2 or last.extent < 2 * side:
        side, levels = 1, levels_over(reduce.over, short)
    else:
        levels = [*levels_over(outer), level_of(last, size=side), Level(last, Kind.REGISTER)]
    accumulators = _accumulators(values, reduce, lanes)

    def turns(tile: Tile, carried: list[str]) -> list[str]:
        terms = [
            _terms(values, reduce) if lanes > 1 else values.emit(reduce.body)
            for _ in each_place(values, tile)
        ]
        states = zip(_parts(carried, count), zip(*terms))
        return [value for state, own in states for value in accumulators.taken(state, own)]

    start = accumulators.start(side) * count
    found = emit_nest(values, levels, turns, start, hoisted=([reduce.body], []))
    return [accumulators.found(state) for state in _parts(found, count)]


def _parts(row: Sequence[str], count: int) -> list[Sequence[str]]:
    """``count`` parts of the same length."""
    size = len(row) // count
    return [row[start : start + size] for start in range(0, len(row), size)]


def _written_out(values: Values, reduce: Reduce) -> int:
    """How many turns are unrolled: all of them where they are few."""
    if values.rare:
        return 0
    return turns_of(reduce.over) if turns_of(reduce.over) <= WRITTEN_OUT else 0


def _masked(values: Values, reduce: Reduce, vectors: list[str]) -> list[str]:
    """Neutral values in lanes that do not exist."""
    assert values.group is not None
    dtype = reduce.body.dtype
    lanes, last = values.group.lanes, len(vectors) - 1
    mask = values.mask(last)
    if mask is None:
        return vectors
    kind = vector_of(scalar_type(dtype), lanes)
    empty = literal(dtype, neutral(reduce.kind, dtype), lanes)
    # LLVM takes 0 / 0 in lanes that were not read for 0, and would leave the selection out.
    value = fenced(values.f, scalar_type(dtype), lanes, vectors[last])
    kept = values.f.value(f"select {vector_of('i1', lanes)} {mask}, {kind} {value}, {kind} {empty}")
    return [*vectors[:last], kept]


def _along_lanes(values: Values, reduce: Reduce) -> list[str]:
    """Lanes along the last reduced axis; other reductions that are made in the same loop are known then, too."""
    together = values.together.get(reduce, (reduce,))
    axis = reduce.over[-1]
    lanes = values.lanes
    while lanes > axis.extent:
        lanes //= 2
    side = min(values.target.accumulators, max(axis.extent // lanes, 1))
    levels = [*levels_over(reduce.over[:-1]), _lane_level(axis, side, lanes)]
    levels.append(Level(axis, Kind.VECTOR, lanes=lanes))
    bodies = [each.body for each in together]
    values.hoist(bodies, reduce.over)
    sums = SumsOfLoop(values, together, lanes, side)
    with values.scope():
        found = emit_nest(
            values, levels, lambda tile, carried: sums.taken(carried), sums.start, hoisted=(bodies, [])
        )
    sums.bind(found)
    return values.emit(reduce)


class SumsOfLoop:
    """Reductions that one loop makes, each in ``side`` vectors of partial results."""

    def __init__(self, values: Values, reductions: Sequence[Reduce], lanes: int, side: int) -> None:
        self.values, self.reductions, self.lanes = values, reductions, lanes
        self.accumulators = [_accumulators(values, each, lanes) for each in reductions]
        starts = [each.start(side) for each in self.accumulators]
        self.lengths = [len(start) for start in starts]
        self.start = [carried for start in starts for carried in start]
        """The types and first values of what the loop carries."""

    def _own(self, carried: Sequence[str]) -> list[Sequence[str]]:
        ends = [*itertools.accumulate(self.lengths)]
        return [carried[end - length : end] for end, length in zip(ends, self.lengths)]

    def taken(self, carried: Sequence[str]) -> list[str]:
        """What is carried, with the vectors of the current group taken in."""
        new = list[str]()
        for reduce, own, state in zip(self.reductions, self.accumulators, self._own(carried)):
            new += own.taken(state, _masked(self.values, reduce, self.values.vectors(reduce.body)))
        return new

    def bind(self, carried: Sequence[str]) -> None:
        """Give the reductions their values in the current scope."""
        for reduce, own, state in zip(self.reductions, self.accumulators, self._own(carried)):
            total = horizontal(self.values, reduce.kind, [own.found(state)], reduce.dtype, self.lanes)
            self.values.bind(reduce, [total])


def _lane_level(axis: Axis, side: int, lanes: int) -> Level:
    """A loop over ``side`` vectors along an axis, then over those that are left, and lanes of a last one."""
    full, tail = divmod(axis.extent, lanes)
    blocks, left = divmod(full, side)
    strips = ((side * lanes, blocks), (left * lanes, 1), (tail, 1))
    return Level(axis, Kind.SERIAL, tuple((n, count) for n, count in strips if n and count))


def _extreme_positions(values: Values, reduce: Reduce) -> list[str]:
    """Where the extreme is: loops that carry the best value and its position; the first winner stays, NaN wins."""
    vector = values.is_vector(reduce)
    group = values.group
    lanes = group.lanes if vector and group is not None else 1
    count = group.vectors if vector and group is not None else 1
    search = _Search(values, reduce, lanes)

    def element(tile: Tile, carried: list[str]) -> list[str]:
        body = values.vectors(search.body) if vector else values.emit(search.body)
        at = [search.position()] * count
        return search.taken(body, at, carried)

    levels = levels_over(reduce.over, _written_out(values, reduce))
    found = emit_nest(values, levels, element, search.start(count), hoisted=([reduce.body], []))
    if search.is_rectified or search.dtype.kind != "f":  # of two zeros the first wins, and +0 is the largest
        extreme = "maximum" if reduce.kind == "argmax" else "minimum"
        values.bind(Reduce(extreme, reduce.over, reduce.body), found[:count])
    return [convert(values.f, place, search.index_dtype, reduce.dtype, lanes) for place in found[count:]]


def _extreme_position_along_lanes(values: Values, reduce: Reduce) -> str:
    """The same where memory lies along the last reduced axis: each lane has a winner, and at last they meet."""
    lanes, last = values.lanes, reduce.over[-1]
    search = _Search(values, reduce, lanes)
    side = min(values.target.accumulators, last.extent // lanes)
    levels = [*levels_over(reduce.over[:-1]), _lane_level(last, side, lanes)]
    levels.append(Level(last, Kind.VECTOR, lanes=lanes))

    def group(tile: Tile, carried: list[str]) -> list[str]:
        assert values.group is not None
        body, first = _masked(values, reduce, values.vectors(search.body)), search.position()
        kind, scalar, count = search.types(lanes)[1], scalar_type(search.index_dtype), values.group.vectors
        at = []
        for vector in range(count):
            ahead = ", ".join(f"{scalar} {vector * lanes + lane}" for lane in range(lanes))
            at.append(values.f.value(f"add {kind} {first}, <{ahead}>"))
        best, places = carried[:side], carried[side:]
        new = search.taken(body, at, [*best[:count], *places[:count]])
        return [*new[:count], *best[count:], *new[count:], *places[count:]]

    with values.scope():
        found = emit_nest(values, levels, group, search.start(side), hoisted=([reduce.body], []))
    winner = pairwise(list(zip(found[:side], found[side:])), lambda a, b: search.first(a, b, lanes))
    while lanes > 1:
        lanes //= 2
        low, high = (search.half(winner, start, lanes) for start in (0, lanes))
        winner = search.first(low, high, lanes)
    return convert(values.f, winner[1], search.index_dtype, reduce.dtype, 1)


class _Search:
    """What the search for an extreme carries: of each lane the best value so far, and where it is."""

    def __init__(self, values: Values, reduce: Reduce, lanes: int) -> None:
        self.values, self.kind, self.dtype, self.lanes = values, reduce.kind, reduce.body.dtype, lanes
        self.body, self.least = reduce.body, neutral(reduce.kind, self.dtype)
        self.is_rectified = (
            self.kind == "argmax" and isinstance(self.body, Apply) and self.body.function == "relu"
        )
        if (
            self.is_rectified
        ):  # nothing that is not positive is larger than the 0 that the first place has at least
            (self.body,), self.least = self.body.operands, 0
        # Positions are as wide as the values, so that a comparison's mask selects both without being converted.
        wide = self.dtype.itemsize == 8 or turns_of(reduce.over) >= 2**31
        self.index_dtype = np.dtype(np.int64 if wide else np.int32)
        self.turn, step = Affine(), 1
        for axis in reversed(reduce.over):
            self.turn, step = self.turn + Affine.of(axis) * step, step * axis.extent

    def types(self, lanes: int) -> tuple[str, str]:
        """Of values and positions."""
        return vector_of(scalar_type(self.dtype), lanes), vector_of(scalar_type(self.index_dtype), lanes)

    def start(self, count: int) -> list[tuple[str, str]]:
        """``count`` vectors of values that everything beats, and their positions."""
        kind, position_kind = self.types(self.lanes)
        best = (kind, literal(self.dtype, self.least, self.lanes))
        return [best] * count + [(position_kind, literal(self.index_dtype, 0, self.lanes))] * count

    def position(self) -> str:
        """The number of the current turn, in every lane."""
        scalar = self.values.offset(self.turn)
        if not scalar.startswith("%"):
            return literal(self.index_dtype, int(scalar), self.lanes)
        narrow = convert(self.values.f, scalar, np.dtype(np.int64), self.index_dtype, 1)
        return self.values.splat(narrow, self.index_dtype) if self.lanes > 1 else narrow

    def better(self, new: str, best: str, lanes: int) -> str:
        return better(self.values, self.kind, new, best, self.dtype, lanes)

    def chosen(self, mask: str, new: Sequence[str], old: Sequence[str], lanes: int) -> list[str]:
        """Value and position of the new one where ``mask``, else of the old one."""
        bits = vector_of("i1", lanes)
        return [
            self.values.f.value(f"select {bits} {mask}, {kind} {a}, {kind} {b}")
            for kind, a, b in zip(self.types(lanes), new, old)
        ]

    def taken(self, body: Sequence[str], at: Sequence[str], carried: Sequence[str]) -> list[str]:
        """The carried vectors with those of the body in their places where they are better."""
        count = len(body)
        pairs = [
            self.chosen(self.better(b, best, self.lanes), (b, p), (best, place), self.lanes)
            for b, p, best, place in zip(body, at, carried[:count], carried[count:])
        ]
        return [best for best, _ in pairs] + [place for _, place in pairs]

    def first(self, a: Sequence[str], b: Sequence[str], lanes: int) -> tuple[str, str]:
        """The better of two in each lane; of equal ones, and of two that are NaN, the one that comes first."""
        f, bits, kind = self.values.f, vector_of("i1", lanes), self.types(lanes)[1]
        wins, loses = self.better(b[0], a[0], lanes), self.better(a[0], b[0], lanes)
        sooner = f.value(f"icmp slt {kind} {b[1]}, {a[1]}")
        # Neither is better: then the place decides.
        open_ = f.value(f"icmp ult {bits} {loses}, {sooner}")
        value, place = self.chosen(f.value(f"or {bits} {wins}, {open_}"), b, a, lanes)
        return value, place

    def half(self, pair: Sequence[str], start: int, lanes: int) -> tuple[str, str]:
        """Lanes from ``start`` on of twice as many."""
        f, found = self.values.f, []
        for kind, value in zip(self.types(2 * lanes), pair):
            if lanes > 1:
                found.append(f.shuffled(kind, value, "poison", range(start, start + lanes)))
            else:
                found.append(f.value(f"extractelement {kind} {value}, i32 {start}"))
        return found[0], found[1]


def better(values: Values, kind: str, new: str, best: str, dtype: np.dtype, lanes: int) -> str:
    """Whether ``new`` takes the place of ``best``."""
    f, type_, mask = values.f, vector_of(scalar_type(dtype), lanes), vector_of("i1", lanes)
    if dtype.kind != "f":
        greater, less = ("sgt", "slt") if dtype.kind == "i" else ("ugt", "ult")
        return f.value(f"icmp {greater if kind == 'argmax' else less} {type_} {new}, {best}")
    # An unordered comparison is true for a NaN on either side; a NaN that is already the best stays.
    beats = f.value(f"fcmp {'ugt' if kind == 'argmax' else 'ult'} {type_} {new}, {best}")
    known = f.value(f"fcmp ord {type_} {best}, {best}")
    return f.value(f"and {mask} {beats}, {known}")
