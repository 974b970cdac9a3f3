"""Reductions: loops that carry accumulators, and the sum across the lanes of a vector.

Four ways, chosen by where the lanes are. A reduction that differs between lanes keeps one accumulator a lane; if its
rows lie along memory, each of these lanes is a row whose own vector of partial results is kept, and a square block of
them is turned and reduced to one vector at the end. One over the lane axis itself, when the group spans it, adds across
lanes at once. Any other takes its own last axis for lanes if memory lies that way, with several accumulators to hide
the latency, and adds them up in a fixed order.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from pullback.compiler.codegen.blocks import fenced
from pullback.compiler.codegen.nest import TileTurns, each_place, emit_nest
from pullback.compiler.codegen.pairwise import pairwise
from pullback.compiler.codegen.types import constants, convert, literal, scalar_type, vector_of
from pullback.compiler.codegen.values import Place, Values
from pullback.compiler.codegen.vectormath import Lanes
from pullback.compiler.codegen.vectormath.extrema import Extremum, FirstExtremum
from pullback.compiler.schedules.cost import FEWEST_LANES, WRITTEN_OUT
from pullback.compiler.schedules.reduction import is_transposed, runs_along
from pullback.loops import Affine, Axis, Load, Reduce, element, operands_of, turns_of
from pullback.loops.nest import Kind, Level, level_of, levels_over

__all__ = ["SumsOfLoop", "across_rows", "emit_reduction"]


def _neutral(kind: str, dtype: np.dtype) -> float | int:
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


def _halves(values: Values, vector: str, dtype: np.dtype, lanes: int) -> tuple[str, str]:
    """The first and the last ``lanes`` of a vector of twice as many."""
    f, kind = values.f, vector_of(scalar_type(dtype), 2 * lanes)
    if lanes == 1:
        low, high = (f.value(f"extractelement {kind} {vector}, i32 {lane}") for lane in (0, 1))
    else:
        low, high = (f.shuffled(kind, vector, "poison", range(k, k + lanes)) for k in (0, lanes))
    return low, high


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
    if values.is_vector(reduce):
        group = values.current_group
        if not extreme_position and is_transposed(reduce, group.axis, values.target):
            return [_transposed(values, reduce, vector) for vector in range(group.vectors)]
        return _accumulate(values, reduce, group.vectors, group.lanes)
    if across and not extreme_position:
        group = values.current_group
        accumulators = _Accumulators(values, reduce, group.lanes)
        result = accumulators.across(accumulators.vectors())
        if reduce.adds_floats and not group.tail:
            # No lane holds the +0 that a sum begins with.
            result = values.elementwise("add", (result, literal(reduce.dtype, 0)), reduce.dtype, 1)
        return [result]
    if runs_along(reduce) and reduce.over[-1].extent >= (values.lanes if extreme_position else FEWEST_LANES):
        return _along_lanes(values, reduce)
    return _accumulate(values, reduce, 1, 1)


def _transposed(values: Values, reduce: Reduce, vector: int) -> str:
    """The vector of results of some rows, one a lane: a vector of partial results for each row, then all turned.

    A few rows are read side by side, then the next: their lines may all have the same place in the nearest cache.
    """
    group, (*outer, along) = values.current_group, reduce.over
    here, lanes, rows = values.places[group.axis], group.lanes, group.present(vector)
    places = [Place(here.value, here.constant + vector * lanes + k) for k in range(rows)]
    accumulators = _accumulators(values, reduce, lanes)
    start = accumulators.start(1)
    # Where a row takes several registers fewer rows are side by side, each with more of its vectors.
    ways = values.target.ways
    strip, most = (1, ways) if len(start) == 1 else (values.target.accumulators, ways // 2)

    def turn(tile: TileTurns, carried: list[str]) -> list[str]:
        new = list[str]()
        values.hoist([reduce.body], [group.axis])
        for place, state in zip(places[first:], _parts(carried, len(carried) // len(start))):
            with values.standing({group.axis: place}):
                new += accumulators.taken(state, accumulators.terms())
        return new

    with values.shadowing([group.axis]), values.scope():
        levels = [*levels_over(outer), *_lane_levels(along, strip, lanes)]
        made = list[str]()
        for first in range(0, rows, most):
            count = min(most, rows - first)
            made += accumulators.found(_parts(emit_nest(values, levels, turn, start * count), count))
    made += ["zeroinitializer"] * (lanes - rows)
    return across_rows(values, reduce.kind, made, reduce.dtype, lanes)


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
        return values.elementwise(kind, parts, dtype, kept)

    while len(current) > 1:
        current = [halves(a, b, lanes, lanes) for a, b in zip(current[::2], current[1::2])]
    while lanes > len(rows):
        current = [halves(current[0], "poison", lanes, lanes // 2)]
        lanes //= 2
    return current[0]


class _Accumulators:
    """What a loop carries of a reduction: vectors to each of which every so manieth value is added."""

    def __init__(self, values: Values, reduce: Reduce, lanes: int) -> None:
        self.values, self.reduce, self.lanes = values, reduce, lanes
        self.kind, self.dtype, self.body = reduce.kind, reduce.dtype, reduce.body
        self.chains = values.target.accumulators
        """How many of them a loop has beside each other, so that none waits for the one before it."""

    def terms(self) -> list[Any]:
        """What they take in of the body: vectors, or the two factors where a sum takes in a product."""
        along, fuses = self._along(), self.reduce.adds_floats and self.lanes > 1
        factors = operands_of(self.body, "multiply") if fuses else ()
        # Lanes that do not exist are read as zeros.
        if factors and (along is None or all(isinstance(e, Load) and along in e.axes for e in factors)):
            return list(zip(*map(self.values.vectors, factors)))
        return self.vectors()

    def vectors(self) -> list[Any]:
        """Vectors of the body, with neutral values in lanes that do not exist; a scalar for a single lane."""
        if self.lanes == 1:
            return self.values.emit(self.body)
        vectors = self.values.vectors(self.body)
        return vectors if self._along() is None else _masked(self.values, self.reduce, vectors)

    def _along(self) -> Axis | None:
        """The reduced axis that the lanes lie along."""
        group = self.values.group
        return group.axis if group is not None and group.axis in self.reduce.over else None

    def start(self, side: int) -> list[tuple[str, str]]:
        """The types and first values of what a loop carries that has ``side`` accumulators."""
        empty = literal(self.dtype, _neutral(self.kind, self.dtype), self.lanes)
        return [(vector_of(scalar_type(self.dtype), self.lanes), empty)] * side

    def taken(self, carried: Sequence[str], terms: Sequence[Any]) -> list[str]:
        """What is carried, with ``terms`` taken in, no more than there are accumulators; products are not rounded."""
        new = [self._added(total, term) for total, term in zip(carried, terms)]
        return [*new, *carried[len(new) :]]

    def found(self, states: Iterable[Sequence[str]]) -> list[str]:
        """Of each state what its accumulators are in one."""
        return [pairwise(carried, self._added) for carried in states]

    def across(self, carried: Sequence[str]) -> str:
        """All lanes of all accumulators in one: vectors in pairs, then halves of the last one."""
        (value,), lanes = self.found([carried]), self.lanes
        while lanes > 1:
            lanes //= 2
            halves = _halves(self.values, value, self.dtype, lanes)
            value = self.values.elementwise(self.kind, halves, self.dtype, lanes)
        return value

    def _added(self, total: str, term: str | tuple[str, str]) -> str:
        if isinstance(term, tuple):
            return Lanes(self.values.f, scalar_type(self.dtype), self.lanes).fma(*term, total)
        return self.values.elementwise(self.kind, (total, term), self.dtype, self.lanes)


class _Extrema(_Accumulators):
    """The same for the largest or the smallest of floats."""

    def __init__(self, values: Values, reduce: Reduce, lanes: int) -> None:
        super().__init__(values, reduce, lanes)
        self.extremum = Extremum(Lanes(values.f, scalar_type(self.dtype), lanes), self.kind)

    def start(self, side: int) -> list[tuple[str, str]]:
        return self.extremum.start(side)

    def taken(self, carried: Sequence[str], terms: Sequence[str]) -> list[str]:
        return self.extremum.taken(carried, terms)

    def found(self, states: Iterable[Sequence[str]]) -> list[str]:
        return [self.extremum.found(carried) for carried in states]


class _Search(_Accumulators):
    """The same for the place of an extreme: of each lane the best value so far, and where it is."""

    def __init__(self, values: Values, reduce: Reduce, lanes: int) -> None:
        super().__init__(values, reduce, lanes)
        self.chains, self.dtype = 1, reduce.body.dtype
        self.least = _neutral(reduce.kind, self.dtype)
        rectified = operands_of(reduce.body, "relu") if self.kind == "argmax" else ()
        self.is_rectified = bool(rectified)
        if rectified:
            # Nothing that is not positive is larger than the 0 that the first place has at least.
            (self.body,), self.least = rectified, 0
        # Positions are as wide as the values, so that a comparison's mask selects both without being converted.
        wide = self.dtype.itemsize == 8 or turns_of(reduce.over) >= 2**31
        self.index_dtype = np.dtype(np.int64 if wide else np.int32)
        self.turn = element(map(Affine.of, reduce.over), [axis.extent for axis in reduce.over])

    def _first(self, lanes: int) -> FirstExtremum:
        return FirstExtremum(self.values.f, self.kind == "argmax", self.dtype, self.index_dtype, lanes)

    def vectors(self) -> list[tuple[str, str]]:
        """Vectors of the body, each with its places."""
        vectors, first = super().vectors(), self._place()
        if self._along() is None:
            return [(vector, first) for vector in vectors]
        kind, scalar = self._first(self.lanes).places.kind, scalar_type(self.index_dtype)
        terms = []
        for number, vector in enumerate(vectors):
            ahead = constants(scalar, range(number * self.lanes, (number + 1) * self.lanes))
            terms.append((vector, self.values.f.value(f"add {kind} {first}, {ahead}")))
        return terms

    def _place(self) -> str:
        """The number of the current turn, in every lane."""
        scalar = self.values.offset(self.turn)
        if not scalar.startswith("%"):
            return literal(self.index_dtype, int(scalar), self.lanes)
        narrow = convert(self.values.f, scalar, np.dtype(np.int64), self.index_dtype, 1)
        return self.values.splat(narrow, self.index_dtype) if self.lanes > 1 else narrow

    def start(self, side: int) -> list[tuple[str, str]]:
        first, lanes = ((self.dtype, self.least), (self.index_dtype, 0)), self.lanes
        return [(vector_of(scalar_type(d), lanes), literal(d, value, lanes)) for d, value in first] * side

    def taken(self, carried: Sequence[str], terms: Sequence[tuple[str, str]]) -> list[str]:
        first, best = self._first(self.lanes), list(zip(carried[::2], carried[1::2]))
        best[: len(terms)] = map(first.taken, best, terms)
        return [each for pair in best for each in pair]

    def found(self, states: Iterable[Sequence[str]]) -> list[str]:
        best, places = zip(*map(self._winner, states))
        if self.is_rectified or self.dtype.kind != "f":  # of two zeros the first wins, and +0 is the largest
            extreme = "maximum" if self.kind == "argmax" else "minimum"
            self.values.bind(Reduce(extreme, self.reduce.over, self.reduce.body), list(best))
        return [self._converted(place, self.lanes) for place in places]

    def across(self, carried: Sequence[str]) -> str:
        winner, lanes = self._winner(carried), self.lanes
        while lanes > 1:
            lanes //= 2
            values = _halves(self.values, winner[0], self.dtype, lanes)
            places = _halves(self.values, winner[1], self.index_dtype, lanes)
            winner = self._first(lanes).of_two(*zip(values, places))
        return self._converted(winner[1], 1)

    def _winner(self, carried: Sequence[str]) -> tuple[str, str]:
        """The best values of all accumulators and their places."""
        return pairwise(list(zip(carried[::2], carried[1::2])), self._first(self.lanes).of_two)

    def _converted(self, place: str, lanes: int) -> str:
        return convert(self.values.f, place, self.index_dtype, self.reduce.dtype, lanes)


def _accumulators(values: Values, reduce: Reduce, lanes: int) -> _Accumulators:
    if reduce.kind in ("argmax", "argmin"):
        return _Search(values, reduce, lanes)
    if reduce.kind in ("maximum", "minimum") and reduce.dtype.kind == "f":
        return _Extrema(values, reduce, lanes)
    return _Accumulators(values, reduce, lanes)


def _accumulate(values: Values, reduce: Reduce, count: int, lanes: int) -> list[str]:
    """Loops over the reduced axes around ``accumulator = combine(accumulator, body)``, for ``count`` vectors.

    Turns of the last axis go to several sets of accumulators in turn: no addition waits for the one before it.
    """
    *outer, last = reduce.over
    accumulators = _accumulators(values, reduce, lanes)
    side, turns = min(last.extent, accumulators.chains // count), turns_of(reduce.over)
    if turns <= WRITTEN_OUT or values.rare or side < 2:
        unrolled = 0 if turns > WRITTEN_OUT or values.rare else turns
        side, levels = 1, levels_over(reduce.over, unrolled)
    else:
        levels = [*levels_over(outer), level_of(last, size=side), Level(last, Kind.REGISTER)]

    def body(tile: TileTurns, carried: list[str]) -> list[str]:
        terms = [accumulators.terms() for _ in each_place(values, tile)]
        states = zip(_parts(carried, count), zip(*terms))
        return [value for state, own in states for value in accumulators.taken(state, own)]

    start = accumulators.start(side) * count
    found = emit_nest(values, levels, body, start, hoisted=([reduce.body], []))
    return accumulators.found(_parts(found, count))


def _parts(values: Sequence[str], count: int) -> list[Sequence[str]]:
    """``count`` parts of the same length."""
    size = len(values) // count
    return [values[start : start + size] for start in range(0, len(values), size)]


def _masked(values: Values, reduce: Reduce, vectors: list[str]) -> list[str]:
    """Neutral values in lanes that do not exist."""
    dtype, lanes, last = reduce.body.dtype, values.current_group.lanes, len(vectors) - 1
    mask = values.mask(last)
    if mask is None:
        return vectors
    kind = vector_of(scalar_type(dtype), lanes)
    empty = literal(dtype, _neutral(reduce.kind, dtype), lanes)
    # LLVM takes 0 / 0 in lanes that were not read for 0, and would leave the selection out.
    value = fenced(values.f, scalar_type(dtype), lanes, vectors[last])
    kept = values.f.value(f"select {vector_of('i1', lanes)} {mask}, {kind} {value}, {kind} {empty}")
    return [*vectors[:last], kept]


def _along_lanes(values: Values, reduce: Reduce) -> list[str]:
    """Lanes along the last reduced axis; other reductions that are made in the same loop are known then, too.

    Short rows are added side by side, so that no addition waits for the one before it.
    """
    together = values.together.get(reduce, (reduce,))
    *outer, axis = reduce.over
    lanes = values.lanes
    while lanes > axis.extent:
        lanes //= 2
    side = min(values.target.accumulators, max(axis.extent // lanes, 1))
    rows = values.target.accumulators // (side * len(together)) if outer and not values.rare else 1
    levels, inside = levels_over(outer), list[Level]()
    if rows > 1:
        levels[-1], inside = level_of(outer[-1], size=rows), [Level(outer[-1], Kind.REGISTER)]
    along, vector = _lane_levels(axis, side, lanes)
    levels += [along, *inside, vector]
    bodies = [each.body for each in together]
    values.hoist(bodies, reduce.over)
    sums = SumsOfLoop(values, together, lanes, side * max(rows, 1))
    with values.scope():
        found = emit_nest(values, levels, sums.taken, sums.start, hoisted=(bodies, []))
    sums.bind(found)
    return values.emit(reduce)


class SumsOfLoop:
    """Reductions that one loop makes, each in ``side`` vectors of partial results."""

    def __init__(self, values: Values, reductions: Sequence[Reduce], lanes: int, side: int) -> None:
        self.values = values
        self.accumulators = [_accumulators(values, each, lanes) for each in reductions]
        starts = [each.start(side) for each in self.accumulators]
        self.ends = [*itertools.accumulate(map(len, starts), initial=0)]
        self.start = [carried for start in starts for carried in start]
        """The types and first values of what the loop carries."""

    def _each(self, carried: Sequence[str]) -> Iterator[tuple[_Accumulators, Sequence[str]]]:
        states = [carried[low:high] for low, high in itertools.pairwise(self.ends)]
        return zip(self.accumulators, states)

    def taken(self, tile: TileTurns, carried: Sequence[str]) -> list[str]:
        """What is carried, with the vectors of the current group taken in, of each row of a tile."""
        rows = [[own.vectors() for own in self.accumulators] for _ in each_place(self.values, tile)]
        terms = [[*itertools.chain(*each)] for each in zip(*rows)]
        return [
            new for (own, state), each in zip(self._each(carried), terms) for new in own.taken(state, each)
        ]

    def bind(self, carried: Sequence[str]) -> None:
        """Give the reductions their values in the current scope."""
        for own, state in self._each(carried):
            self.values.bind(own.reduce, [own.across(state)])


def _lane_levels(axis: Axis, side: int, lanes: int) -> list[Level]:
    """A loop over ``side`` vectors along an axis, then over those that are left, and lanes of a last one."""
    full, tail = divmod(axis.extent, lanes)
    blocks, left = divmod(full, side)
    strips = ((side * lanes, blocks), (left * lanes, 1), (tail, 1))
    loop = Level(axis, Kind.SERIAL, tuple((n, count) for n, count in strips if n and count))
    return [loop, Level(axis, Kind.VECTOR, lanes=lanes)]
