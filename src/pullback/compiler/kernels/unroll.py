"""Short axes at the end of an array, such as coordinates or colours, are written out, so that lanes lie along rows.

    for j<240:                                       for j<240:
        s = sum[k<3](x[3*j + k] ** 2)          →         s = x[3*j]**2 + x[3*j + 1]**2 + x[3*j + 2]**2
        for k<3:                                         y[3*j] = x[3*j] / s
            y[3*j + k] = x[3*j + k] / s                  y[3*j + 1] = x[3*j + 1] / s
                                                         y[3*j + 2] = x[3*j + 2] / s

Lanes along an axis of three leave most of a vector idle, what belongs to a whole row is computed one row at a time, and
sums go across lanes. Vectors along the rows are taken out of what lies in memory, and mixed again where they are
stored. Kernels that are written out and hand rows on to each other become one: its values stay in registers.

It is done where the cost model finds fewer cycles so, for all kernels together that hand rows on.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.compiler.kernels.canonicalise import coalesced_rows
from pullback.compiler.kernels.order import Users
from pullback.compiler.schedules.choose import Schedules
from pullback.compiler.schedules.columns import in_blocks
from pullback.compiler.schedules.contraction_schedules import TiledContraction
from pullback.compiler.schedules.cost import (
    DEEPEST_VALUE,
    FEWEST_UNROLLED_VECTORS,
    MOST_JOINED_FUNCTIONS,
    MOST_UNROLLED_FUNCTIONS,
    REDUCED_VECTOR,
    ROW_OVERHEAD,
    WAITING,
    WORTH_UNROLLING,
    cycles_of_epilogue,
    vector_cycles,
)
from pullback.compiler.schedules.lanes import filled
from pullback.compiler.schedules.map import MapSchedule
from pullback.compiler.schedules.tiles import cycles_of_tiles
from pullback.compiler.target import Processor
from pullback.loops import (
    Affine,
    Apply,
    Axis,
    Buffer,
    Expression,
    Kernel,
    Load,
    Reduce,
    Store,
    matched,
    operands_of,
    turns_of,
)
from pullback.loops.chains import CHAINED, chained
from pullback.loops.fixed import settled

__all__ = ["unroll_short_axes"]


@dataclass(frozen=True, eq=False)
class _Written:
    """A kernel whose short axes are written out, made of one or several kernels."""

    kernel: Kernel
    parts: tuple[Kernel, ...]
    now: float
    """Cycles that the parts take for a vector of rows as they are."""

    def pays(self, schedules: Schedules) -> bool:
        """Whether it takes less."""
        row, lanes = self.kernel.axes[-1], schedules.lanes(self.kernel)
        along = _cycles_along_rows(self.kernel, row, lanes, schedules.target) / filled(row.extent, lanes)
        return along < WORTH_UNROLLING * self.now


def unroll_short_axes(
    kernels: Sequence[Kernel], outputs: Collection[Buffer], schedules: Schedules
) -> list[Kernel]:
    """The kernels with short axes written out where that pays; those that hand rows on to each other are joined."""
    written = {kernel: found for kernel in kernels if (found := _written_out(kernel, schedules))}
    if not written:
        return list(kernels)
    groups = _joined(kernels, written, outputs)
    while True:
        made = {kernel: kernel for kernel in kernels}
        for group in groups:
            for each in [group] if group.pays(schedules) else [written[part] for part in group.parts]:
                if each.pays(schedules):
                    made.update((part, each.kernel) for part in each.parts)
        ordered, waiting = Users(dict.fromkeys(made.values())).sorted({})
        if not waiting:
            return ordered
        # Groups that wait for each other: the last of them is taken apart.
        circle = set(waiting)
        last = max(k for k, group in enumerate(groups) if len(group.parts) > 1 and group.kernel in circle)
        groups[last : last + 1] = [written[part] for part in groups[last].parts]


# ---------------------------------------------------------------------- one kernel


def _written_out(kernel: Kernel, schedules: Schedules) -> _Written | None:
    """The kernel with all but its rows written out, where that is a short turn and rows are many."""
    if not kernel.stores or not all(store.is_plain for store in kernel.stores) or turns_of(kernel.axes) == 0:
        return None
    inner = {axis for store in kernel.stores for axis in store.inner}
    found = [
        _along(kernel, row, inner.union(kernel.axes[k + 1 :]), schedules) for k, row in enumerate(kernel.axes)
    ]
    return max(filter(None, found), key=lambda written: written.kernel.axes[-1].extent, default=None)


def _along(kernel: Kernel, row: Axis, short: set[Axis], schedules: Schedules) -> _Written | None:
    """The kernel with the axes behind ``row`` written out."""
    target, lanes = schedules.target, schedules.lanes(kernel)
    every = short.union(axis for e in kernel.reductions for axis in e.over)
    longest = max((axis.extent for axis in every), default=1)
    if longest == 1 or turns_of(every) == 0 or any(e.kind not in CHAINED for e in kernel.reductions):
        return None
    if longest > target.gather_vectors and row.extent < FEWEST_UNROLLED_VECTORS * lanes:
        return None
    rows = kernel.axes[: kernel.axes.index(row) + 1]
    if not _stores_whole_rows(kernel, row, short):
        return None
    functions = _functions(kernel, rows)
    most = MOST_UNROLLED_FUNCTIONS * (turns_of(short) if _has_cases(kernel, short) else 1)
    if functions > most or _stores(kernel, rows) > MOST_UNROLLED_FUNCTIONS:
        return None
    schedule = schedules.of(kernel)
    if isinstance(schedule, TiledContraction):
        product = schedule.contraction
        now = cycles_of_tiles(product, schedule.tile, target) + cycles_of_epilogue(product, lanes, target)
        now *= lanes / turns_of(rows)
    elif not isinstance(schedule, MapSchedule) or _sums_far_rows(kernel, row, schedule, target):
        return None
    elif not kernel.reductions and coalesced_rows(kernel).axes[-1] is not kernel.axes[-1]:
        # All axes may be one: then lanes lie along all of it.
        now = _cycles_along_rows(kernel, kernel.axes[-1], 1, target) * turns_of(short)
    else:
        now = _cycles_of_rows(kernel, row, lanes, target)
    stores = kernel.with_reductions(chained).stores
    parts = [
        part
        for store in stores
        for part in _parts_of(store, [a for a in (*kernel.axes, *store.inner) if a in short])
    ]
    made = Kernel(rows, _in_order(parts)).with_parts(settled)
    if min(functions, made.functions) > MOST_UNROLLED_FUNCTIONS or _depth(made) > DEEPEST_VALUE:
        return None
    return _Written(made, (kernel,), now)


def _sums_far_rows(kernel: Kernel, row: Axis, schedule: MapSchedule, target: Processor) -> bool:
    """Whether the kernel sums whole rows of an array that the second-level cache does not hold, along its lanes.

    It waits for memory, of which longer pieces are read at once if it is a sum.
    """
    over = [axis for e in kernel.reductions for axis in e.over]
    return (
        bool(over)
        and schedule.nest.vector is row
        and any(
            load.buffer.nbytes > target.l2_bytes
            and load.offset.coefficient(row) == 1
            and all(load.offset.coefficient(axis) >= row.extent for axis in over)
            for load in kernel.loads()
        )
    )


def _functions(kernel: Kernel, rows: Sequence[Axis]) -> int:
    """How many functions one row evaluates."""
    return sum(turns_of(e.axes.difference(rows)) for e in kernel.expressions() if isinstance(e, Apply))


def _has_cases(kernel: Kernel, short: set[Axis]) -> bool:
    """Whether places in a row tell what is computed there, as where parts lie: an element is less than all of them."""
    choices = (e for e in kernel.expressions() if isinstance(e, Apply) and e.function == "where")
    return any(e.operands[0].axes and e.operands[0].axes <= short for e in choices)


def _stores(kernel: Kernel, rows: Sequence[Axis]) -> int:
    """How many elements one row stores."""
    return sum(turns_of({*kernel.axes, *store.inner}.difference(rows)) for store in kernel.stores)


def _parts_of(store: Store, short: Sequence[Axis]) -> Iterator[Store]:
    """A store for each turn of the short axes that it goes through."""
    for turns in itertools.product(*(range(axis.extent) for axis in short)):
        place = {axis: Affine() + turn for axis, turn in zip(short, turns)}
        yield replace(store.rewritten(place), inner=())


def _stores_whole_rows(kernel: Kernel, row: Axis, short: set[Axis]) -> bool:
    """Whether what is stored while the ``short`` axes turn is all of each row."""
    spans: defaultdict[tuple[Buffer, Affine], list[tuple[int, int]]] = defaultdict(list)
    columns: Counter[tuple[Buffer, Affine]] = Counter()
    for store in kernel.stores:
        start = store.offset.without(short) + -store.offset.constant
        within = store.offset.without(start.axes)
        spans[store.buffer, start].append(within.bounds())
        columns[store.buffer, start] += turns_of(within.axes)
    return all(
        max(last for _, last in found) - min(first for first, _ in found) + 1 == columns[rows]
        and columns[rows] == rows[1].coefficient(row)
        for rows, found in spans.items()
    )


def _in_order(stores: Sequence[Store]) -> tuple[Store, ...]:
    """What is stored in the order of memory, but for that of buffers."""
    first = {store.buffer: k for k, store in reversed([*enumerate(stores)])}
    return tuple(sorted(stores, key=lambda store: (first[store.buffer], store.offset.constant)))


def _depth(kernel: Kernel) -> int:
    """How many operations are computed inside each other."""
    depth: dict[Expression, int] = {}
    for e in kernel.expressions():
        depth[e] = 1 + max((depth[operand] for operand in e.operands), default=0)
    return max(depth.values())


# ---------------------------------------------------------------------- cycles


def _cycles_along_rows(kernel: Kernel, row: Axis, lanes: int, target: Processor) -> float:
    """Cycles of a vector of rows of a kernel that is written out, each function one for all of them.

    What lies in rows takes as many shuffles for each vector as its step has bits.
    """
    users = Counter(operand for e in kernel.expressions() for operand in e.operands)
    adds = {
        operand
        for e in kernel.expressions()
        for operand in (*operands_of(e, "add"), *operands_of(e, "subtract"))
    }
    cycles = 0.0
    for e in kernel.expressions():
        if row not in e.axes:
            continue
        if isinstance(e, Load):
            cycles += lanes if e.dynamic else _column_cycles(abs(e.offset.coefficient(row)), lanes)
        elif not (e in adds and users[e] == 1 and operands_of(e, "multiply")):
            cycles += vector_cycles(e, target)
    cycles += sum(_column_cycles(store.offset.coefficient(row), lanes) + 0.5 for store in kernel.stores)
    return WAITING * cycles


def _cycles_of_rows(kernel: Kernel, row: Axis, lanes: int, target: Processor) -> float:
    """Cycles of as many rows, one after another, of a map as it is: vectors inside each row, which may not be full."""
    inside = kernel.axes[kernel.axes.index(row) + 1 :]
    cycles = float(ROW_OVERHEAD)
    for store in kernel.stores:
        axes = (*inside, *store.inner)
        lane = axes[-1] if axes else None
        cycles += 2.0 * _vectors(axes, lane, lanes)
        seen: set[int] = set()
        stack = [(root, axes, lane) for root in store.roots()]
        while stack:
            e, around, lane = stack.pop()
            if id(e) in seen or not e.axes:
                continue
            seen.add(id(e))
            turns = _vectors([axis for axis in around if axis in e.axes], lane, lanes)
            cycles += turns * (0.5 if isinstance(e, Load) else vector_cycles(e, target))
            if isinstance(e, Reduce):
                if lane not in e.axes:  # lanes lie along the sum
                    cycles += REDUCED_VECTOR * turns
                    lane = e.over[-1]
                around = (*around, *e.over)
            stack.extend((operand, around, lane) for operand in e.operands)
    return lanes * cycles


def _vectors(axes: Collection[Axis], lane: Axis | None, lanes: int) -> int:
    """Turns of loops over ``axes`` with vectors along ``lane``."""
    return math.prod([-(-axis.extent // lanes) if axis is lane else axis.extent for axis in axes])


def _column_cycles(step: int, lanes: int) -> float:
    """Cycles to read or to write a vector of elements that lie ``step`` apart, with others between them."""
    width = lanes if in_blocks(step, lanes) else step
    return max(0, width - 1).bit_length() + (1.5 if step > lanes else 0.5)


# ---------------------------------------------------------------------- several kernels


def _joined(
    kernels: Sequence[Kernel], written: Mapping[Kernel, _Written], outputs: Collection[Buffer]
) -> list[_Written]:
    """What is written out, joined where one goes on with the rows of another and nothing has to come between."""
    users, order = Users(kernels), {kernel: k for k, kernel in enumerate(kernels)}
    found: dict[Kernel, _Written] = {}
    for kernel in kernels:
        if kernel not in written:
            continue
        current = found[kernel] = written[kernel]
        for other in users.before(kernel):
            if other not in found or found[other] is current:
                continue
            both = _merged(found[other], current)
            if both is not None and not users.something_between(both.parts, order):
                current = both
                found.update(dict.fromkeys(both.parts, both))
    return [_without_unread(each, users, outputs) for each in dict.fromkeys(found.values())]


def _merged(first: _Written, second: _Written) -> _Written | None:
    """Both as one, in which the second takes over the values that the first stores."""
    one, two = first.kernel, second.kernel
    axes = matched(two.axes, one.axes)
    if axes is None:
        return None
    two = two.over(one.axes, axes)
    made, stored = one.writes(), {Load(store.buffer, store.offset): store.value for store in one.stores}
    if any(load.buffer in made and load not in stored for load in two.loads()):
        return None
    merged = one.with_stores((*one.stores, *two.with_replaced(stored).stores))
    if merged.functions > MOST_JOINED_FUNCTIONS or _depth(merged) > DEEPEST_VALUE:
        return None
    return _Written(merged, (*first.parts, *second.parts), first.now + second.now)


def _without_unread(written: _Written, users: Users, outputs: Collection[Buffer]) -> _Written:
    """The same without what only its own parts would have read."""
    parts = set(written.parts)
    own = {buffer for part in parts for buffer in part.reads() if users.readers[buffer].keys() <= parts}
    passing = own.difference(outputs)
    stores = [store for store in written.kernel.stores if store.buffer not in passing]
    return replace(written, kernel=written.kernel.with_stores(stores))
