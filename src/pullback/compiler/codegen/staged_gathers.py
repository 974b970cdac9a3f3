"""Rows that a product reads are gathered a tile at a time, and asked for a tile ahead.

    for i, j, k: rows[i, j, k] = table[k + 50*tokens[i, j]]
    for i, j, o: y[i, j, o] = add[k](rows[i, j, k] * w[k, o])
    →
    for i, for each tile of j:
        ask for the rows of the table that the next tile needs
        rows[i, tile, :] = …
        y[i, tile, :] = …

A kernel that only gathers waits for memory most of the time, and a product for nothing: what is asked for arrives while
the product computes, and it finds its rows in the nearest cache. The rows are stored as before, for others to read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pullback.compiler.codegen.contractions import by_columns
from pullback.compiler.codegen.maps import emit_map, lane_axis
from pullback.compiler.codegen.prefetch import FAR, forgiving, is_far, lines_of, run_of, touch
from pullback.compiler.codegen.values import Place, Values
from pullback.compiler.schedules.contraction import Contraction
from pullback.compiler.schedules.tiles import Block, Tile
from pullback.loops import Axis, Kernel, Load, walk

__all__ = ["StagedGather", "emit_staged_gather", "find_staged_gather"]


@dataclass(frozen=True, eq=False)
class StagedGather:
    """A kernel that gathers what a product reads: its first axes are the product's rows."""

    kernel: Kernel
    rows: tuple[Axis, ...]
    gathered: tuple[Load, ...]
    """Reads of whole rows of large arrays at computed places."""


def find_staged_gather(kernel: Kernel, product: Contraction, tile: Tile) -> StagedGather | None:
    """``kernel`` as the staged gather of ``product``, or ``None`` where tiles are not some of its turns each, once."""
    count = len(product.rows)
    rows, inside = kernel.axes[:count], Kernel(kernel.axes[count - 1 :], kernel.stores)
    if len(product.pairs) != 1 or tile.row_axis is None or tile.row_axis is not product.rows[-1]:
        return None
    if tile.band_axis is not None or tile.inner or by_columns(product):
        return None
    if [axis.extent for axis in rows] != [axis.extent for axis in product.rows]:
        return None
    if any(store.accumulate or store.dynamic for store in kernel.stores) or not inside.axes:
        return None
    if lane_axis(inside) is inside.axes[0] or not _of_its_rows(kernel, rows, product):
        return None
    gathered = tuple(load for load in kernel.loads() if is_far(load, rows[-1], kernel))
    return StagedGather(kernel, rows, gathered) if gathered else None


def _of_its_rows(kernel: Kernel, rows: tuple[Axis, ...], product: Contraction) -> bool:
    """Whether each row of the product reads only what the same row of the kernel writes."""
    (pair,) = product.pairs
    left, written = pair.left, kernel.writes()
    loads = {e for e in walk(*(s.value for s in product.stores)) if isinstance(e, Load)} | {left, pair.right}
    if any(load.buffer in written for load in loads - {left}):
        return False
    for store in kernel.stores:
        if store.buffer is not left.buffer:
            continue
        pitch = store.offset.coefficient(rows[-1])
        steps = [store.offset.coefficient(axis) for axis in rows]
        low, high = left.offset.without(product.rows).bounds()
        own_low, own_high = store.offset.without(rows).bounds()
        return (
            steps == [left.offset.coefficient(axis) for axis in product.rows]
            and min(low, own_low) >= 0
            and max(high, own_high) < pitch
        )
    return False


def emit_staged_gather(values: Values, staged: StagedGather, product: Contraction, block: Block) -> None:
    """Gather the rows of the tile at ``block``, and ask for as many that follow them."""
    f = values.f
    places = [values.places[axis] for axis in product.rows]
    with values.scope():
        *outer, first = [_value(values, place) for place in places]
        following = f.value(f"add i64 {first}, {block.rows}")
        with values.scope():
            _ask(values, staged, outer, following, block.rows)
        values.places.update(zip(staged.rows[:-1], places[:-1]))
        emit_map(values, Kernel(staged.kernel.axes[len(outer) :], staged.kernel.stores), first, following)
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
        for source in dict.fromkeys(e for load in loads for e in _sources(load, along)):
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
            touch(values, first, lines_of(load, run_of(load, staged.kernel)))
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


def _sources(load: Load, along: Axis) -> list[Load]:
    """Reads of large arrays that the places of ``load`` come from, element by element."""
    found = [e for index, _ in load.dynamic for e in walk(index) if isinstance(e, Load)]
    return [
        e for e in found if e.buffer.nbytes >= FAR and e.offset.coefficient(along) == 1 and e.guard is None
    ]
