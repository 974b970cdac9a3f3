"""Operands that are read across memory are copied into an order in which they lie as they are read.

A product reads whole vectors of its right operand. Where a gradient needs ``wᵀ``, a small kernel writes the transposed
copy once, for all products that read it; large ones pack panels by themselves, as they go. In a loop a wide one is
copied once for all turns, and each turn's product does some columns after the others, and finds in the copy all that it
reads for them side by side:

    for i<100, j<1014: y[i, j] = add[k<84](x[i, k] * w[j, k])
    →
    for p<12, k<84, j<80:    panels[p, k, j] = w[80*p + j, k]
    for i<100, p<12, j<80:   y[i, 80*p + j] = add[k<84](x[i, k] * panels[p, k, j])
    …                        and the same for the 54 columns that are left

A left operand is read element by element. One whose elements lie apart, such as the middles of all windows of a
convolution with a stride of two, takes a line of the cache for each; it is copied too, where the nearest cache does not
hold these lines for all that read them.

A map whose lanes lie across an operand would gather it lane by lane. Blocks of it transposed in registers cost a third
of that, and a copy whose rows are those of the map is made a few rows at a time, in the cache:

    for i<1000, j<1000: y[i, j] = x[1000*j + i] + 1
    →
    for i<1000, j<1000: packed[i, j] = x[1000*j + i]
    for i<1000, j<1000: y[i, j] = packed[i, j] + 1

What is small and read again and again is copied in any order, before anything is written out: the windows of a
depthwise convolution whose channels lie last.

    for i<8, j<30, k<96: y[i, j, k] = add[r<3](x[i, j + r, k] * w[3*k + r])
    →
    for r<3, k<96:       reread[r, k] = w[3*k + r]
    for i<8, j<30, k<96: y[i, j, k] = add[r<3](x[i, j + r, k] * reread[r, k])
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from pullback.compiler.kernels.canonicalise import coalesced_axes
from pullback.compiler.kernels.strips import in_column_strips, shares_columns
from pullback.compiler.schedules.choose import Schedules
from pullback.compiler.schedules.contraction import Contraction, Pair
from pullback.compiler.schedules.contraction_schedules import (
    ContractionSchedule,
    PackedContraction,
    TiledContraction,
)
from pullback.compiler.schedules.cost import (
    COPY_CYCLES,
    FEWEST_PANELS,
    LEAST_COPIED,
    MOST_PANELS_ACROSS,
    PADDED_LINES,
)
from pullback.compiler.schedules.map import MapSchedule
from pullback.compiler.schedules.reduction import is_transposed
from pullback.compiler.schedules.schedule import Schedule
from pullback.compiler.schedules.tiles import choose_tile
from pullback.compiler.target import Processor
from pullback.loops import (
    Affine,
    Axis,
    Buffer,
    Expression,
    Kernel,
    Load,
    load_at,
    row_major,
    staged,
    turns_of,
    walk,
)

__all__ = ["pack", "pack_reread"]

_Wanted = list[tuple[Kernel, dict[Load, list[Axis]]]]
"""For each kernel what it reads from copies, with the order of their axes."""


def pack(kernels: Iterable[Kernel], schedules: Schedules, fixed: Collection[Buffer]) -> list[Kernel]:
    """The kernels with transposed copies of operands put before their first users.

    In the body of a loop a right operand that is one of those ``fixed``, the same in every turn, is copied once for all
    turns; so panels of it pay in either order, and however large it is.
    Large products pack their right operands by themselves, in whichever of two orders they lie; there it is the left
    operand that must lie along the summed axis, or along the rows if few panels read it.
    """
    wanted: _Wanted = []
    for whole in kernels:
        stays = _stays(schedules.of(whole), fixed)
        for kernel in _by_panels(whole, schedules) if stays else [whole]:
            panels = len(kernel.axes) > len(whole.axes)
            wanted.append((kernel, dict(_to_copy(kernel, schedules, panels, stays))))
    return _with_copies(wanted, "packed", schedules)


def pack_reread(kernels: Iterable[Kernel], schedules: Schedules) -> list[Kernel]:
    """The kernels with copies of what the lanes of a map would gather more often than there are elements of it."""
    return _with_copies(
        [(kernel, dict(_reread(kernel, schedules))) for kernel in kernels], "reread", schedules
    )


def _with_copies(wanted: _Wanted, name: str, schedules: Schedules) -> list[Kernel]:
    """The kernels with copies of what is ``wanted`` for them put before the first that reads each."""
    reads = [read for _, loads in wanted for read in loads.items()]
    copies = _Copies(name, reads, schedules.target.line_bytes)
    program: list[Kernel] = []
    for kernel, loads in wanted:
        replaced: dict[Load, Expression] = {}
        for load, axes in loads.items():
            made, replaced[load] = copies.read(load, axes)
            program += made
        program.append(kernel.with_replaced(replaced))
    return program


def _by_panels(kernel: Kernel, schedules: Schedules) -> list[Kernel]:
    """A product with a wide operand that is copied once as two: of whole panels, and of the columns that are left."""
    schedule, lanes, target = schedules.of(kernel), schedules.lanes(kernel), schedules.target
    assert isinstance(schedule, ContractionSchedule)
    product = schedule.contraction
    if not any(pair.right.buffer.nbytes > target.tile_bytes for pair in product.pairs):
        return [kernel]
    width = choose_tile(product, lanes, target).columns[0] * lanes
    if product.columns.extent < FEWEST_PANELS * width:
        return [kernel]
    return in_column_strips(kernel, width, outermost=shares_columns(product, lanes, target))


def _stays(schedule: Schedule, fixed: Collection[Buffer]) -> bool:
    """Whether the right operands of a product are the same in every turn of the loop around."""
    return isinstance(schedule, ContractionSchedule) and all(
        pair.right.buffer in fixed for pair in schedule.contraction.pairs
    )


def _to_copy(
    kernel: Kernel, schedules: Schedules, panels: bool, stays: bool
) -> Iterator[tuple[Load, list[Axis]]]:
    """The operands of a kernel to copy, each with its axes in the order in which they should lie."""
    schedule = schedules.of(kernel)
    if isinstance(schedule, ContractionSchedule):
        product = schedule.contraction
        for pair in product.pairs:
            if _right_is_copied(product, pair, schedule, panels, stays):
                outer = (*product.rows, *pair.depth)
                yield pair.right, [*(a for a in outer if a in pair.right.axes), product.columns]
            if _left_is_copied(pair.left, schedule, schedules.target):
                yield pair.left, [a for a in (*product.rows, *pair.depth) if a in pair.left.axes]
    elif isinstance(schedule, MapSchedule) and schedule.nest.vector is not None:
        yield from _of_map(kernel, schedule.nest.vector, schedules)


def _of_map(kernel: Kernel, lane: Axis, schedules: Schedules) -> Iterator[tuple[Load, list[Axis]]]:
    """What lies along another axis than the lanes, if there is enough of it for blocks of whole vectors."""
    lanes = schedules.lanes(kernel)
    for load in _gathered(kernel, lane, schedules):
        axes = load.offset.axes
        slow = next((a for a in axes if load.offset.coefficient(a) == 1 and a.extent >= lanes), None)
        if slow is not None and LEAST_COPIED <= turns_of(axes) <= load.buffer.size:
            yield load, _in_order(kernel, load, (slow, lane))


def _reread(kernel: Kernel, schedules: Schedules) -> Iterator[tuple[Load, list[Axis]]]:
    """What a map's lanes gather so often that a copy in their order, and waiting for it, takes less."""
    schedule = schedules.of(kernel)
    lane = schedule.nest.vector if isinstance(schedule, MapSchedule) else None
    if lane is None:
        return
    for load in _gathered(kernel, lane, schedules):
        gathered = turns_of({*kernel.axes, *load.axes})
        if gathered - turns_of(load.axes) > schedules.target.exchange_cycles:
            yield load, _in_order(kernel, load, (lane,))


def _gathered(kernel: Kernel, lane: Axis, schedules: Schedules) -> Iterator[Load]:
    """What lies across the lanes, but for rows that are summed: these are read as they lie, and their sums turned."""
    target = schedules.target
    if lane.extent < schedules.lanes(kernel):
        return
    sums = [e for e in kernel.reductions if is_transposed(e, lane, target)]
    rows = {e for e in walk(*sums) if isinstance(e, Load)}
    for load in kernel.loads():
        is_far = load.offset.coefficient(lane) > target.gather_vectors
        if is_far and load not in rows and load.is_plain and load.dtype.kind == "f":
            yield load


def _in_order(kernel: Kernel, load: Load, last: tuple[Axis, ...]) -> list[Axis]:
    """The axes of a read, those of the kernel before those of its sums, and then the ``last``."""
    axes = load.offset.axes
    outer = [a for a in kernel.axes if a in axes] + [a for a in axes if a not in kernel.axes]
    return [*(a for a in outer if a not in last), *last]


def _right_is_copied(
    product: Contraction, pair: Pair, schedule: ContractionSchedule, panels: bool, stays: bool
) -> bool:
    """Whether it is read in panels, or lies across the vectors and the product does not pack it by itself."""
    along = pair.right.offset.coefficient
    by_itself = isinstance(schedule, PackedContraction) and not stays and along(pair.depth[-1]) == 1
    return panels or (along(product.columns) != 1 and not by_itself)


def _left_is_copied(left: Load, schedule: ContractionSchedule, target: Processor) -> bool:
    """Whether it is read often enough from where it lies badly.

    Tiles over panels want it along the sum, or along the rows if few panels read it; other tiles without gaps that
    push its lines out of the nearest cache.
    """
    product = schedule.contraction
    if isinstance(schedule, PackedContraction):
        along = {axis for axis in left.axes if left.offset.coefficient(axis) == 1}
        few = product.columns.extent <= MOST_PANELS_ACROSS * schedule.packing.width
        return not (along - set(product.rows) or (few and along))
    assert isinstance(schedule, TiledContraction)
    size, line, tile = left.dtype.itemsize, target.line_bytes, schedule.tile
    step = min((abs(left.offset.coefficient(axis)) for axis in left.axes), default=1)
    elements, pitch = turns_of(left.axes.difference(product.rows[:1])), min(step * size, line)
    times = turns_of({*product.rows}.difference(left.axes)) * len(tile.columns) / tile.bands
    saved = (times - 1) * elements * (pitch - size) / line * target.near_line_cycles
    return elements * pitch > target.tile_bytes and saved > elements * COPY_CYCLES + target.exchange_cycles


class _Copies:
    """The copies of operands, each made on first use.

    Of an array that several of the ``reads`` to copy go through in steps, such as the four parts of an image that a
    transposed convolution with a stride of two has made, all is copied once, if that is no more than they read.
    """

    def __init__(self, name: str, reads: Sequence[tuple[Load, list[Axis]]], line_bytes: int) -> None:
        self.name, self.line_bytes = name, line_bytes
        self.buffers: dict[tuple[object, ...], Buffer] = {}
        parts: dict[tuple[Buffer, tuple[int, ...]], dict[tuple[int, ...], int]] = {}
        for load, axes in reads:
            dimensions, places = _places_of(load, axes)
            if any(step > 1 for place in places for _, step in place.terms):
                elements = parts.setdefault((load.buffer, dimensions), {})
                starts = tuple(place.constant for place in places)
                elements[starts] = max(turns_of(axes), elements.get(starts, 0))
        self.wholes = {key for key, elements in parts.items() if sum(elements.values()) >= key[0].size}

    def read(self, load: Load, axes: Sequence[Axis]) -> tuple[list[Kernel], Load]:
        """The kernel that makes a copy of ``load`` with ``axes`` in order, the first time, and the read of it."""
        dimensions, places = _places_of(load, axes)
        if (load.buffer, dimensions) not in self.wholes:
            terms = tuple((axis.extent, load.offset.coefficient(axis)) for axis in axes)
            return self._copy((load.buffer, load.offset.constant, terms), load, axes, [*map(Affine.of, axes)])
        shape = load.buffer.shape
        every = [Axis(axis.name, shape[d]) for axis, d in zip(axes, dimensions)]
        steps = row_major(shape)
        index = Affine.total(Affine.of(axis) * steps[d] for axis, d in zip(every, dimensions))
        return self._copy((load.buffer, dimensions), Load(load.buffer, index), every, places)

    def _copy(
        self, key: tuple[object, ...], load: Load, axes: Sequence[Axis], index: Sequence[Affine]
    ) -> tuple[list[Kernel], Load]:
        made: list[Kernel] = []
        if key not in self.buffers:
            own = [Axis(axis.name, axis.extent) for axis in axes]
            source = load.offset.replace({old: Affine.of(new) for old, new in zip(axes, own)})
            pitch = _pitch(axes[-1].extent, load.dtype.itemsize, self.line_bytes)
            name = f"{self.name}{len(self.buffers)}"
            copy, read = staged(name, Load(load.buffer, source), own, pitch)
            self.buffers[key] = read.buffer
            made.append(coalesced_axes(copy))
        return made, load_at(self.buffers[key], index)


def _places_of(load: Load, axes: Sequence[Axis]) -> tuple[tuple[int, ...], list[Affine]]:
    """The dimension of its array in which each of ``axes`` stays in a read, and the index there; else none.

    Every dimension must have one. Along the last one it must go without a step, as copies are read in vectors.

    >>> import numpy as np
    >>> x = Buffer("x", np.dtype(np.float32), (3, 4, 6))
    >>> i, j, k = Axis("i", 3), Axis("j", 2), Axis("k", 3)
    >>> read = Load(x, Affine.of(i) * 24 + Affine.of(j) * 12 + Affine.of(k) * 2 + 7)
    >>> dimensions, places = _places_of(read, (j, k, i))
    >>> print(dimensions, *places, sep=", ")
    (1, 2, 0), 2*j + 1, 2*k + 1, i
    """
    rest, along = load.offset, dict[tuple[Axis, ...], tuple[int, Affine]]()
    for dimension, stride in enumerate(row_major(load.buffer.shape)):
        split = rest.divide(stride)
        if split is None:
            break
        place, rest = split
        along[place.axes] = dimension, place
    wanted = [(axis,) for axis in axes]
    if not load.is_plain or {*along} != {*wanted} or along[wanted[-1]][1].coefficient(axes[-1]) != 1:
        return (), []
    return tuple(along[axis][0] for axis in wanted), [along[axis][1] for axis in wanted]


def _pitch(row: int, itemsize: int, line: int) -> int:
    """Elements from one row of a copy to the next: whole lines, an odd number of them if they are many.

    Vectors that lie across two lines are read twice, and rows a power of two apart would share few places of the cache.
    """
    lines = -(-row * itemsize // line)
    if lines < PADDED_LINES:
        return row
    return (lines | 1) * line // itemsize
