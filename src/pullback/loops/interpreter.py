"""Loop programs, run in NumPy: what a kernel means, whatever code is made of it.

A kernel is a number of *turns*, one for each place of its axes, that do not need each other: it means the same in
whatever order they run. Within a turn

- stores run by the number of their ``inner`` axes, fewest first: a row's own values, then the loops along the row;
- of stores with the same inner axes all values are computed before any of them is stored;
- an expression is computed in the outermost loop that knows all axes it depends on, so what a loop inside does not
  change is read before that loop;
- a later store reads what an earlier one of the same turn has written. What another turn writes no turn may read:
  that is a ``LoopError``, where results take over the memory of arguments, too.

A kernel with a store that accumulates is the exception: its turns go in row-major order, and each reads what those
before it have left.

A reduction takes its axes in row-major order, from the neutral element on, one element after another in its own
dtype. It closes over its axes by itself: a loop around it, or another reduction in it, may be over the same one. In
sums and products an order of additions is stated so that rounding is, too; compiled code has another one, the same
wherever the value is computed.

A load under a guard that is false reads nothing and is zero. A checked index that is out of range is reported and 0.

Here all turns are computed at once, or those of each tile of a schedule, in its order: the value of an expression is an
array over the axes it depends on.

>>> from pullback.loops import Affine, Apply, Axis, Load, Reduce, Store
>>> i, k, float64 = Axis("i", 2), Axis("k", 3), np.dtype(np.float64)
>>> x, total = Buffer("x", float64, (2, 3)), Buffer("total", float64, (2,))
>>> value = Reduce("add", (k,), Load(x, Affine.of(i) * 3 + Affine.of(k)))
>>> memory = Memory({x: np.arange(6.0), total: np.zeros(2)})
>>> run_kernel(Kernel((i,), (Store(total, Affine.of(i), value),)), memory)
>>> memory.arrays[total].tolist()
[3.0, 12.0]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.errors import IndexRangeError, LoopError
from pullback.loops.expression import Apply, Buffer, Expression, Literal, Load, Position, Reduce, walk
from pullback.loops.functions import FUNCTIONS, converted
from pullback.loops.index import Affine, Axis, turns_of
from pullback.loops.kernel import Kernel, Store
from pullback.loops.multiply_add import fused_product, multiply_add

__all__ = ["Memory", "Rows", "run_kernel", "run_tiles"]

Array = np.ndarray[Any, Any]

MOST_ELEMENTS = 1 << 20
"""Kernels whose largest array would have more are run some turns at a time."""


@dataclass
class Memory:
    """The memory of buffers, each a flat array; two buffers may have the same.

    ``starts`` tells of buffers of which only a part is there how many elements are missing before it. Indices that
    were out of range are collected in ``failures``.
    """

    arrays: dict[Buffer, Array]
    starts: Mapping[Buffer, int] = field(default_factory=dict)
    failures: list[IndexRangeError] = field(default_factory=list)
    on_write: Callable[[Buffer, Array], None] | None = None
    """Called with the numbers of the elements that are about to be written."""

    def place(self, buffer: Buffer, index: Array, what: str) -> tuple[Array, Array]:
        """The memory of ``buffer``, and where in it the elements ``index`` are."""
        if buffer not in self.arrays:
            raise LoopError(f"{buffer!r} {what} but has no memory")
        array = self.arrays[buffer]
        index = index - self.starts.get(buffer, 0)
        if index.size:
            low, high = int(index.min()), int(index.max())
            if low < 0 or high >= array.size:
                raise LoopError(
                    f"{buffer!r} {what} from {low} to {high}, outside the {array.size} elements there"
                )
        return array, index


@dataclass(frozen=True)
class Rows:
    """The share of a scatter's updates whose ``selector`` has a value in ``range(low, high)``."""

    selector: Expression
    low: int
    high: int


def run_kernel(
    kernel: Kernel,
    memory: Memory,
    places: Mapping[Axis, range] | None = None,
    rows: Rows | None = None,
    tiles: Sequence[Mapping[Axis, range]] = (),
) -> None:
    """Run ``kernel``; of the axes in ``places`` only these turns, of its updates only those of ``rows``.

    ``tiles`` are these turns in the order that a schedule gives them.
    """
    turns = {axis: (places or {}).get(axis, range(axis.extent)) for axis in kernel.axes}
    read = dict.fromkeys(load.buffer for load in kernel.loads())
    overwritten = [pair for pair in itertools.product(kernel.writes(), read) if _share(memory, *pair)]
    accumulates = any(store.accumulate for store in kernel.stores)
    blocks: Iterable[Mapping[Axis, range]] = tiles or [turns]
    with np.errstate(all="ignore"):
        if not overwritten:
            blocks = (part for block in blocks for part in _blocks(block, _largest(kernel, block)))
        elif not accumulates:
            _Turns(kernel, memory, turns).check_order(overwritten)
        elif not tiles:
            blocks = _turn_by_turn(turns)
        run_tiles(kernel, memory, blocks, rows)


def run_tiles(
    kernel: Kernel, memory: Memory, tiles: Iterable[Mapping[Axis, range]], rows: Rows | None = None
) -> None:
    """Run some turns of ``kernel`` after others, those of a tile at once, whether or not the kernel allows it.

    All turns of a tile read before any of them stores; they store in row-major order of the axes as the tile has them.
    """
    with np.errstate(all="ignore"):
        for tile in tiles:
            _Turns(kernel, memory, tile).run(rows)


def _share(memory: Memory, written: Buffer, read: Buffer) -> bool:
    """Whether two buffers are in the same memory; there they must be the same elements."""
    first, second = memory.arrays.get(written), memory.arrays.get(read)
    if first is None or second is None or not np.may_share_memory(first, second):
        return False
    if (first.ctypes.data, first.dtype, first.size) != (second.ctypes.data, second.dtype, second.size):
        raise LoopError(f"{written!r} is written into a part of the memory of {read!r}, which is read")
    return True


def _reads(store: Store) -> Iterator[tuple[Load, int, frozenset[Axis]]]:
    """Every load of a store, the number of ``inner`` loops around its evaluation, and the axes reduced over there."""
    seen = set()
    stack: list[tuple[Expression, int | None, frozenset[Axis]]] = [
        (e, None, frozenset()) for e in store.roots()
    ]
    while stack:
        expression, depth, bound = part = stack.pop()
        if part in seen:
            continue
        seen.add(part)
        own = max((k + 1 for k, axis in enumerate(store.inner) if axis in expression.axes), default=0)
        if isinstance(expression, Load):
            yield expression, own if depth is None else depth, bound
        elif isinstance(expression, Reduce):
            depth, bound = own if depth is None else depth, bound.union(expression.over)
        stack.extend((operand, depth, bound) for operand in expression.operands)


def _largest(kernel: Kernel, turns: Mapping[Axis, range]) -> int:
    """Elements of the largest array that evaluating the kernel at once would make."""
    domains = [expression.axes for expression in kernel.expressions()]
    domains += [frozenset([*kernel.axes, *store.inner]) for store in kernel.stores]
    return max(math.prod(len(turns.get(a, range(a.extent))) for a in axes) for axes in domains)


def _blocks(turns: Mapping[Axis, range], largest: int, depth: int = 0) -> Iterator[Mapping[Axis, range]]:
    """The turns in parts, in order, so that none of the arrays has many more than ``MOST_ELEMENTS``."""
    if depth == len(turns) or largest <= MOST_ELEMENTS:
        yield turns
        return
    axis, whole = list(turns.items())[depth]
    step = max(1, len(whole) * MOST_ELEMENTS // largest)
    for start in range(0, len(whole), step):
        part = whole[start : start + step]
        yield from _blocks({**turns, axis: part}, largest * len(part) // len(whole), depth + 1)


def _turn_by_turn(turns: Mapping[Axis, range]) -> Iterator[dict[Axis, range]]:
    """Every turn by itself, in row-major order."""
    for places in itertools.product(*turns.values()):
        yield {axis: range(place, place + 1) for axis, place in zip(turns, places)}


@dataclass(frozen=True)
class _Value:
    """The values of an expression over ``axes``, which are in the order of their serial numbers."""

    array: Array
    axes: tuple[Axis, ...]

    def over(self, axes: Sequence[Axis]) -> Array:
        """The array with a dimension for each of ``axes``, of one element where the value does not depend on it."""
        if self.axes == axes:
            return self.array
        ordered = [axis for axis in axes if axis in self.axes]
        array: Array = self.array.transpose([self.axes.index(axis) for axis in ordered])
        return array[tuple(slice(None) if axis in self.axes else None for axis in axes)]


def _in_order(axes: Iterator[Axis] | Sequence[Axis]) -> tuple[Axis, ...]:
    return tuple(sorted(set(axes), key=lambda axis: axis.serial))


def _accumulate(name: str, array: Array, index: Array, value: Array) -> None:
    """Take the updates of each element one after another, those of different elements at once."""
    if name == "set":
        array[index] = value
        return
    by_place = np.argsort(index, kind="stable")
    _, first, inverse = np.unique(index[by_place], return_index=True, return_inverse=True)
    rank = np.arange(len(index)) - first[inverse]
    for turn in range(int(rank.max(initial=-1)) + 1):
        chosen = by_place[rank == turn]
        places = index[chosen]
        array[places] = FUNCTIONS[name](array[places], value[chosen])


class _Turns:
    """Some turns of a kernel: the values of its expressions there."""

    def __init__(self, kernel: Kernel, memory: Memory, turns: Mapping[Axis, range]) -> None:
        self.kernel, self.memory, self.turns = kernel, memory, turns
        self.values: dict[Expression, _Value] = {}

    def run(self, rows: Rows | None) -> None:
        for _, stores in self.kernel.by_inner:
            for store in stores:
                for root in store.roots():
                    self.value(root)
            for store in stores:
                self.store(store, rows)

    def check_order(self, overwritten: Sequence[tuple[Buffer, Buffer]]) -> None:
        """Raise ``LoopError`` if a turn reads what another one writes, of pairs of a written and a read buffer."""
        pairs = set(overwritten)
        places = dict.fromkeys((store.inner, store.buffer) for store in self.kernel.stores)
        reads = dict.fromkeys((s.inner, *read) for s in self.kernel.stores for read in _reads(s))
        writers: dict[tuple[Any, ...], tuple[Array, Array]] = {}
        for (own, load, depth, bound), (inner, buffer) in itertools.product(reads, places):
            if (buffer, load.buffer) not in pairs:
                continue
            loops = (*self.kernel.axes, *(inner[:depth] if inner == own else ()))
            key = inner, buffer, loops
            if key not in writers:
                writers[key] = self.writers(inner, buffer, loops)
            if not bound.isdisjoint(loops) or self.meets_another_turn(writers[key], load, loops):
                raise LoopError(
                    f"{load!r} is read by a turn, and {buffer!r}, in the same memory, written by another"
                )

    def writers(
        self, inner: tuple[Axis, ...], buffer: Buffer, loops: tuple[Axis, ...]
    ) -> tuple[Array, Array]:
        """Of each element the first and last turn of ``loops`` that stores inside ``inner`` write it in; -1 if none."""
        size, turns = self.memory.arrays[buffer].size, math.prod(self.length(axis) for axis in loops)
        first, last = np.full(size, turns), np.full(size, -1)
        for store in self.kernel.stores:
            if store.inner == inner and store.buffer is buffer:
                index = self.spread(self.index(store.offset, store.dynamic), (*self.kernel.axes, *inner))
                _, index = self.memory.place(buffer, index.ravel(), "is written")
                turn = np.arange(index.size) // max(1, index.size // max(1, turns))
                np.minimum.at(first, index, turn)
                np.maximum.at(last, index, turn)
        return first, last

    def meets_another_turn(self, writers: tuple[Array, Array], load: Load, loops: tuple[Axis, ...]) -> bool:
        """Whether in a turn of ``loops`` an element is read that is written in another one."""
        first, last = writers
        self.value(load)
        read = self.index(load.offset, load.dynamic)
        guard = _Value(np.array(True), ()) if load.guard is None else self.values[load.guard]
        domain = (*loops, *_in_order([axis for axis in (*read.axes, *guard.axes) if axis not in loops]))
        there = self.spread(guard, domain)
        turns = max(1, math.prod(self.length(axis) for axis in loops))
        reader = np.arange(there.size).reshape(there.shape)[there] // max(1, there.size // turns)
        _, places = self.memory.place(load.buffer, self.spread(read, domain)[there], "is read")
        written = last[places] >= 0
        return bool((written & ((first[places] != reader) | (last[places] != reader))).any())

    def spread(self, value: _Value, axes: tuple[Axis, ...]) -> Array:
        """The values for every turn of ``axes``."""
        return np.broadcast_to(value.over(axes), tuple(self.length(axis) for axis in axes))

    def length(self, axis: Axis) -> int:
        return len(self.turns[axis]) if axis in self.turns else axis.extent

    def store(self, store: Store, rows: Rows | None) -> None:
        axes = (*self.turns, *store.inner)
        index = self.spread(self.index(store.offset, store.dynamic), axes).ravel()
        value = self.spread(self.value(store.value), axes).ravel()
        if rows is not None:
            selected = self.spread(self.value(rows.selector), axes).ravel()
            mine = (rows.low <= selected) & (selected < rows.high)
            index, value = index[mine], value[mine]
        array, index = self.memory.place(store.buffer, index, "is written")
        if self.memory.on_write is not None:
            self.memory.on_write(store.buffer, index)
        if store.accumulate:
            _accumulate(store.accumulate, array, index, value)
            return
        written = np.zeros(array.size, bool)
        written[index] = True
        if not store.dynamic and np.count_nonzero(written) < index.size:
            raise LoopError(f"an element of {store.buffer!r} is stored by several turns")
        array[index] = value

    def index(self, offset: Affine, dynamic: Sequence[tuple[Expression, int]]) -> _Value:
        """An index in elements."""
        parts = [(self.value(index), stride) for index, stride in dynamic]
        axes = _in_order([*offset.axes, *(axis for part, _ in parts for axis in part.axes)])
        total = np.full((1,) * len(axes), offset.constant, np.int64)
        for axis, step in offset.terms:
            turns = self.turns.get(axis, range(axis.extent))
            places = np.arange(turns.start, turns.stop, dtype=np.int64) * step
            total = total + _Value(places, (axis,)).over(axes)
        for part, stride in parts:
            total = total + part.over(axes) * stride
        return _Value(total, axes)

    def value(self, root: Expression) -> _Value:
        """The value of ``root``, and of all under it, computed once."""
        if root not in self.values:
            for expression in walk(root):
                if expression not in self.values:
                    self.values[expression] = self.computed(expression)
        return self.values[root]

    def computed(self, expression: Expression) -> _Value:
        """The value of an expression whose operands have theirs."""
        if isinstance(expression, Literal):
            return _Value(np.asarray(expression.value, expression.dtype), ())
        if isinstance(expression, Position):
            return self.index(expression.index, ())
        if isinstance(expression, Load):
            return self.load(expression)
        if isinstance(expression, Reduce):
            return self.reduced(expression)
        if not isinstance(expression, Apply):
            raise LoopError(f"{expression!r} has no value by itself")
        operands = [self.values[operand] for operand in expression.operands]
        axes = _in_order([axis for operand in operands for axis in operand.axes])
        arrays = [operand.over(axes) for operand in operands]
        if expression.function == "check_index":
            return _Value(self.checked(expression, arrays[0]), axes)
        if expression.function == "bounded":
            return _Value(arrays[0], axes)
        if expression.function == "bitcast":
            return _Value(
                np.ascontiguousarray(arrays[0]).view(expression.dtype).reshape(arrays[0].shape), axes
            )
        if expression.function == "cast":
            return _Value(converted(arrays[0], expression.dtype), axes)
        place = fused_product(expression)
        if place is not None:
            factors = [self.values[factor].over(axes) for factor in expression.operands[place].operands]
            return _Value(multiply_add(expression.function, place, factors, arrays[1 - place]), axes)
        made = FUNCTIONS[expression.function](*arrays)
        return _Value(np.asarray(made).astype(expression.dtype, copy=False), axes)

    def load(self, load: Load) -> _Value:
        index = self.index(load.offset, load.dynamic)
        if load.guard is None:
            array, places = self.memory.place(load.buffer, index.array, "is read")
            return _Value(array[places], index.axes)
        guard = self.values[load.guard]
        axes = _in_order([*index.axes, *guard.axes])
        there, wanted = np.broadcast_arrays(guard.over(axes), index.over(axes))
        found = np.zeros(there.shape, load.dtype)
        array, places = self.memory.place(load.buffer, wanted[there], "is read")
        found[there] = array[places]
        return _Value(found, axes)

    def reduced(self, reduce: Reduce) -> _Value:
        body = self.values[reduce.body]
        if any(axis in self.turns for axis in reduce.over):
            raise LoopError(f"{reduce!r} is inside loops over the same axes")
        kept = tuple(axis for axis in body.axes if axis not in reduce.over)
        count = turns_of(reduce.over)
        shape = (*(axis.extent for axis in reduce.over), *(self.length(axis) for axis in kept))
        array = np.broadcast_to(body.over((*reduce.over, *kept)), shape)
        array = array.reshape(count, *shape[len(reduce.over) :])
        return _Value(_REDUCTIONS[reduce.kind](array).astype(reduce.dtype, copy=False), kept)

    def checked(self, check: Apply, index: Array) -> Array:
        attributes = dict(check.attributes)
        extent = attributes["extent"]
        low = -extent if attributes["wrap"] else 0
        outside = (index < low) | (index >= extent)
        if outside.any():
            value = int(index[outside].flat[0])
            error = IndexRangeError(f"{attributes['what']}: {value} is outside {low} to {extent - 1}")
            error.value = value
            self.memory.failures.append(error)
        return np.where(outside, 0, np.where(index < 0, index + extent, index))


def _one_by_one(combine: np.ufunc, neutral: int) -> Any:
    """A reduction of the first dimension whose result may depend on the order: from the first element to the last."""

    def reduced(array: Array) -> Array:
        total = np.full(array.shape[1:], neutral, array.dtype)  # a sum of negative zeros is zero
        for row in array:
            combine(total, row, out=total)
        return total

    return reduced


_add_up = _one_by_one(np.add, 0)

LONGEST_SUM = 256
"""Terms that are added one after another: longer sums are made of parts, as lanes of vectors make them."""


def _sum(array: Array) -> Array:
    """The sum over the first dimension, of long ones in parts: else the last terms would be lost in the rounding."""
    parts, left = divmod(len(array), LONGEST_SUM)
    if not parts:
        return np.asarray(_add_up(array))
    whole = array[: len(array) - left].reshape(parts, LONGEST_SUM, *array.shape[1:])
    total = _sum(_add_up(whole.swapaxes(0, 1)))
    return np.asarray(total + _add_up(array[len(array) - left :])) if left else total


def _extreme(combine: np.ufunc, stronger: float) -> Any:
    """A maximum or minimum of the first dimension; of zeros the ``stronger`` one wins."""

    def reduced(array: Array) -> Array:
        found = np.asarray(combine.reduce(array, axis=0))
        if array.dtype.kind != "f":
            return found
        wins = ((array == 0) & (np.signbit(array) == np.signbit(stronger))).any(axis=0)
        return np.where((found == 0) & wins, array.dtype.type(stronger), found)

    return reduced


_REDUCTIONS = {
    "add": _sum,
    "multiply": _one_by_one(np.multiply, 1),
    "maximum": _extreme(np.maximum, 0.0),
    "minimum": _extreme(np.minimum, -0.0),
    "argmax": lambda array: np.asarray(np.argmax(array, axis=0)),
    "argmin": lambda array: np.asarray(np.argmin(array, axis=0)),
}
