"""Matrix products: register tiles over rows and columns, pairs of operands one after another, the epilogue at the end.

A tile is ``rows × bands × vectors`` accumulators (``tiles.py`` chooses it). For each step of the summed axis it reads
the vectors of the right operand once and multiplies them with one element of the left operand for each row. Strides are
constants, so the elements of all rows are addressed from one register; nothing is packed as long as the right operand
stays in the nearer caches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from pullback.compiler.codegen.blocks import load_lanes
from pullback.compiler.codegen.maps import write_stores
from pullback.compiler.codegen.nest import ChunkTurns, TileTurns, each_place, emit_nest
from pullback.compiler.codegen.prefetch import Cursors, Wanted, wanted_by
from pullback.compiler.codegen.types import memory_type, scalar_type, vector_of
from pullback.compiler.codegen.values import Place, Values
from pullback.compiler.codegen.vectormath import ACCURACY, Lanes
from pullback.compiler.schedules.contraction import Contraction, Pair
from pullback.compiler.schedules.contraction_schedules import TiledContraction
from pullback.compiler.schedules.cost import EPILOGUE_IN_REGISTERS, LOOP_BODY, UNROLLED
from pullback.loops import Affine, Apply, Axis, Kernel, walk
from pullback.loops.nest import levels_over

__all__ = ["emit_contraction", "multiply_panel", "run_epilogue"]


def emit_contraction(values: Values, kernel: Kernel, schedule: TiledContraction, ends: ChunkTurns) -> None:
    """Run a contraction between ``ends`` of its first row axis."""
    product = schedule.contraction
    loops = [level for level in schedule.nest.levels if level.strips]
    tiles = math.prod(sum(count for _, count in level.strips) for level in loops)
    rows = product.rows[0].extent if product.rows else 1
    own = max(1, tiles * max(ends.lengths) // rows)
    cursors = Cursors(values.f, values.pieces, own, values.target.line_bytes)
    first = product.pairs[0].depth
    # A sum of a single axis must not end with the turns that ask.
    turns = first[0].extent if len(first) > 1 else max(1, first[0].extent - 1)

    def sums(tile: TileTurns, _: list[str]) -> None:
        """One register tile: zero, accumulate every pair, hand the sums to the epilogue."""
        ahead = cursors.share(turns)
        found = ["zeroinitializer"] * (math.prod(tile.values()) * values.current_group.vectors)
        wanted = _wanted(values, product, tile)
        for pair in product.pairs:
            found = accumulate(values, pair, tile, found, wanted, ahead)
            wanted, ahead = [], []
        run_epilogue(values, product, tile, found)

    emit_nest(values, schedule.nest.levels, sums, ends=ends)


def _wanted(values: Values, product: Contraction, tile: TileTurns) -> list[Wanted]:
    """What a tile whose rows lie along one axis asks for while it multiplies: what its epilogue reads."""
    long = [(axis, count) for axis, count in tile.items() if count > 1]
    if len(long) != 1 or len(product.pairs[0].depth) > 1:
        return []
    return wanted_by(values, product.stores, long[0], product.columns)


def accumulate(
    values: Values,
    pair: Pair,
    tile: TileTurns,
    sums: list[str],
    wanted: Sequence[Wanted] = (),
    ahead: Sequence[Wanted] = (),
) -> list[str]:
    """``sums[band, row, v] += sum over depth of left[row] * right[band, v]`` at the places where the axes stand.

    The first steps ask for what is ``wanted`` after the last, a row each; the turns of the outermost summed axis for
    what others read ``ahead``.
    """
    *outer, deepest = pair.depth
    kind = vector_of(scalar_type(pair.right.dtype), values.lanes)
    bands = {axis: turns for axis, turns in tile.items() if axis in pair.right.axes}
    rows = {axis: turns for axis, turns in tile.items() if axis not in bands}
    steps = pair.left.offset.coefficient(deepest), pair.right.offset.coefficient(deepest)
    strip = _Strip(values, pair, steps, _ahead(pair.left.offset, rows), _ahead(pair.right.offset, bands))

    def innermost(_: TileTurns, sums: list[str]) -> list[str]:
        read = (pair.left, pair.right)
        pointers = [values.at(load.buffer, load.offset.without([deepest])) for load in read]
        if values.end is None:
            return strip.run(deepest.extent, pointers, sums, wanted)
        size, rows = values.end
        if deepest.extent == rows:
            return strip.run(size, pointers, sums, wanted)
        carried = strip.carried([*pointers, *sums])
        with values.f.loop("0", str(deepest.extent // rows), carried=carried) as loop:
            at, current = loop.values[:2], loop.values[2:]
            loop.carry(*strip.moved(at, rows), *strip.run(size, at, current))
        return loop.results[2:]

    def entered(axis: Axis, _: TileTurns) -> None:
        if axis is outer[0]:
            for rows in ahead:
                rows.ask(values.f, values.offset(Affine.of(axis)))

    wanted = wanted if outer else [*wanted, *ahead]
    levels = levels_over(outer, UNROLLED // (len(sums) * deepest.extent))
    return emit_nest(values, levels, innermost, [(kind, value) for value in sums], entered=entered)


def _ahead(offset: Affine, tile: TileTurns) -> tuple[int, ...]:
    """How many elements further on an operand is read at each place of a tile."""
    steps = [offset.coefficient(axis) for axis in tile]
    places = itertools.product(*map(range, tile.values()))
    return tuple(sum(step * turn for step, turn in zip(steps, place)) for place in places)


def multiply_panel(
    values: Values,
    pair: Pair,
    tile: TileTurns,
    panel: str,
    width: int,
    extent: tuple[Place, int | str],
    sums: list[str],
    wanted: Sequence[Wanted] = (),
) -> list[str]:
    """``accumulate`` over steps of the depth from a place on, with the right operand in a packed ``panel``.

    The first steps ask for what is ``wanted`` after the last, a row each.
    """
    (depth,), (start, steps) = pair.depth, extent
    with values.standing({depth: start}):
        left = values.at(pair.left.buffer, pair.left.offset)
    apart = pair.left.offset.coefficient(depth), width
    strip = _Strip(values, pair, apart, _ahead(pair.left.offset, tile), packed=True)
    return strip.run(steps, [left, panel], sums, wanted)


@dataclass(frozen=True)
class _Strip:
    """The innermost loop over a pair: pointers that move along the summed axis, and a tile's sums.

    The operands' elements lie ``steps`` apart, the ``rows`` of the left one and the ``bands`` of the right one so far
    behind the first. What a turn has are the two pointers, then the sums.
    """

    values: Values
    pair: Pair
    steps: tuple[int, int]
    rows: tuple[int, ...]
    bands: tuple[int, ...] = (0,)
    packed: bool = False

    @property
    def element(self) -> str:
        return memory_type(self.pair.right.dtype)

    def run(
        self, depth: int | str, pointers: Sequence[str], sums: Sequence[str], wanted: Sequence[Wanted] = ()
    ) -> list[str]:
        """The sums after ``depth`` steps, some a turn; where the number is known when the program runs, a register."""
        current = [*pointers, *sums]
        asking = max((rows.rows for rows in wanted), default=0)
        unroll = max(1, LOOP_BODY // len(sums))
        if isinstance(depth, str):
            return self._until(depth, unroll, current, asking, wanted)[2:]
        if 0 < asking < depth:
            current = self._repeat(asking, 1, current, wanted)
            depth -= asking
        turns, rest = divmod(depth, unroll)
        if turns > 1 and depth * len(sums) > UNROLLED:
            current = self._repeat(turns, unroll, current)
        else:
            rest = depth
        for ahead in range(rest):
            current = self._step(current, ahead)
        return current[2:]

    def _until(
        self, depth: str, unroll: int, current: list[str], asking: int, wanted: Sequence[Wanted]
    ) -> list[str]:
        f = self.values.f
        if wanted:
            first = f.smaller(depth, asking)
            current = self._repeat(first, 1, current, wanted)
            depth = f.value(f"sub i64 {depth}, {first}")
        shift = unroll.bit_length() - 1
        current = self._repeat(f.value(f"lshr i64 {depth}, {shift}"), 1 << shift, current)
        return self._repeat(f.value(f"and i64 {depth}, {(1 << shift) - 1}"), 1, current) if shift else current

    def _repeat(
        self, turns: int | str, unroll: int, current: list[str], wanted: Sequence[Wanted] = ()
    ) -> list[str]:
        """A loop of turns of some steps each, in which a row of what is ``wanted`` is asked for."""
        f, counted = self.values.f, isinstance(turns, int)
        with f.loop("0", str(turns), carried=self.carried(current), counted=counted) as loop:
            for rows in wanted:
                rows.ask(f, loop.index)
            new = loop.values
            for ahead in range(unroll):
                new = self._step(new, ahead)
            loop.carry(*self.moved(new[:2], unroll), *new[2:])
        return loop.results

    def _step(self, current: list[str], ahead: int) -> list[str]:
        """The products of one step, so many ``ahead`` of the pointers."""
        f, group, (left, right, *sums) = self.values.f, self.values.current_group, current
        lanes = Lanes(f, self.element, group.lanes)
        across = []
        for band, v in itertools.product(self.bands, range(group.vectors)):
            address = f.ahead(right, self.element, ahead * self.steps[1] + band + v * group.lanes)
            # Lanes beyond the operand's end are not read, in a panel they are zeros.
            count = group.lanes if self.packed else group.present(v)
            across.append(load_lanes(f, address, self.element, group.lanes, count))
        for r, row in enumerate(self.rows):
            address = f.ahead(left, self.element, ahead * self.steps[0] + row)
            x = f.value(f"load {self.element}, ptr {address}, align {self.pair.left.dtype.itemsize}")
            spread = self.values.splat(x, self.pair.left.dtype)
            for k, vector in enumerate(across):
                band, v = divmod(k, group.vectors)
                place = (band * len(self.rows) + r) * group.vectors + v
                sums[place] = lanes.fma(spread, vector, sums[place])
        return [left, right, *sums]

    def moved(self, pointers: Sequence[str], turns: int) -> list[str]:
        """The pointers so many steps further on."""
        return [self.values.f.ahead(p, self.element, turns * step) for p, step in zip(pointers, self.steps)]

    def carried(self, current: Sequence[str]) -> list[tuple[str, str]]:
        """What goes from turn to turn, with its types."""
        kind = vector_of(self.element, self.values.current_group.lanes)
        return list(zip(["ptr", "ptr", *[kind] * (len(current) - 2)], current))


def run_epilogue(values: Values, product: Contraction, tile: TileTurns, sums: Sequence[str]) -> None:
    """Evaluate the stores for each row of the tile, with the accumulator's value in its placeholder."""
    group = values.current_group
    roots = [store.value for store in product.stores]
    if tile:
        # A tile of one place has no loop to stay out of, and what is the same for it may hold the accumulator.
        values.hoist(roots, tile)
    # Those of many operations hold as many registers as two others.
    functions = sum(1 + (e.function in ACCURACY) for e in walk(*roots) if isinstance(e, Apply))
    # What is stored lane by lane is much text for each row, and little of it reads the registers.
    lane_by_lane = any(abs(store.offset.coefficient(group.axis)) > 1 for store in product.stores)
    if (functions > EPILOGUE_IN_REGISTERS or lane_by_lane) and math.prod(tile.values()) > 1:
        _looped_epilogue(values, product, tile, sums)
        return
    for number in each_place(values, tile):
        values.bind(product.accumulator, list(sums[number * group.vectors :][: group.vectors]))
        write_stores(values, product.stores)


def _looped_epilogue(values: Values, product: Contraction, tile: TileTurns, sums: Sequence[str]) -> None:
    """The epilogue in a loop along each axis of the tile."""
    f, group = values.f, values.current_group
    kind = vector_of(scalar_type(product.accumulator.dtype), group.lanes)
    copy = f.reserve(f"[{len(sums)} x {kind}]")
    for position, value in enumerate(sums):
        f.do(f"store {kind} {value}, ptr {f.ahead(copy, kind, str(position))}")

    def nest(axes: Sequence[tuple[Axis, int]], number: str) -> None:
        if not axes:
            start = f.value(f"mul i64 {number}, {group.vectors}")
            current = []
            for v in range(group.vectors):
                place = f.value(f"add i64 {start}, {v}")
                address = f.ahead(copy, kind, place)
                current.append(f.value(f"load {kind}, ptr {address}"))
            values.bind(product.accumulator, current)
            write_stores(values, product.stores)
            return
        axis, count = axes[0]
        base = values.places[axis]
        with f.loop("0", str(count)) as loop:
            value = loop.index if base.value is None else f.value(f"add i64 {loop.index}, {base.value}")
            before = f.value(f"mul i64 {number}, {count}")
            with values.standing({axis: Place(value, base.constant)}):
                nest(axes[1:], f.value(f"add i64 {before}, {loop.index}"))

    nest([(axis, count) for axis, count in tile.items() if count > 1], "0")
