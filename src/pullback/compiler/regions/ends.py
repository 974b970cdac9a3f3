"""Where work ends: rows from a size on, of which nothing is left in any result, are not computed.

A program for any size has arrays of a capacity; what its sums read of the rows beyond is zero (``legalise/padded.py``).
So has one that works on the different rows of a table that it reads, which it counts (``passes/distinct_rows.py``). Of
each array two things may be known: its rows from the size on are *zero*, as each store of it is masked there, or they
are *unseen*, as whoever reads them is masked or makes rows that are unseen or zero in turn. Chunks of a row group that
writes no other rows are not run where they begin beyond the size; they write zeros where somebody reads them. And a
product that is summed over rows which are zero in both operands ends at the size, as does a scatter of updates that are
zero: neither reads any.

    h[b, j] = where(b < size, relu(sum(x[b, k] * w[k, j])), 0)     8 chunks of 12 rows, of which 6 are run for 65
    dw[k, j] = sum[b<96](x[b, k] * h[b, j])                        65 steps
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pullback.compiler.lowering.items import Choice, HostCall, View, While, every_step
from pullback.compiler.passes.repeated_rows import different_rows
from pullback.compiler.regions.steps import End, Group, Job, Region, Step, keeps_to_rows
from pullback.compiler.schedules.contraction_schedules import ContractionSchedule, PackedContraction
from pullback.compiler.schedules.scatter import ScatterSchedule
from pullback.control.host import Reference
from pullback.graph import Limit
from pullback.loops import (
    Affine,
    Apply,
    Axis,
    Buffer,
    Expression,
    Kernel,
    Literal,
    Load,
    Position,
    Reduce,
    Store,
    operands_of,
    walk,
)
from pullback.loops.arithmetic import reach
from pullback.operators.distinct import distinct

__all__ = ["Promise", "counted_rows", "end_rows"]

_KEEP_ZERO = frozenset({"abs", "cast", "multiply", "relu"})
"""Functions that give zero of zeros, without a sign, and false of what is."""

_T = TypeVar("_T")
_Row = tuple[Axis, int]
"""The axis whose turns are rows, and how many turns a row has."""
_Fact = tuple[str, Buffer, int]
"""``"zero"`` or ``"unseen"``, the array, and how many elements apart its rows lie."""


@dataclass(frozen=True)
class Promise:
    """Where rows end, and what is known before anybody looks at the program."""

    end: End
    zeros: frozenset[_Fact] = frozenset()
    """Arguments that are zero from the size on, as callers see to."""
    cut: frozenset[_Fact] = frozenset()
    """Results of which nobody looks at what stands there."""
    numbers: int | None = None
    """From which element on the array that begins with the size has numbers of rows before it."""
    share: float = 1.0
    """What part of the capacity the size is expected to be."""

    @classmethod
    def of(cls, limit: Limit, arguments: Sequence[Buffer], results: Sequence[Buffer]) -> Promise:
        """What callers of a program for any size promise."""
        zeros = frozenset(_fact("zero", arguments[k], axis) for k, axis in limit.zeros)
        cut = frozenset(_fact("unseen", results[k], axis) for k, axis in limit.cut)
        return cls(End(arguments[limit.size], limit.capacity), zeros, cut)


def counted_rows(items: Iterable[object]) -> Iterator[Promise]:
    """What counts of different rows promise, those that stand outside of loops."""
    for item in items:
        if not isinstance(item, HostCall) or not isinstance(
            function := item.node.attributes["function"], Reference
        ):
            continue
        (places, *_), view = item.node.inputs, item.outputs[0]
        if function.operator is distinct and places.ndim == 1 and not view.start:
            numbers = view.base.size - places.size
            rows = different_rows(places.size, dict(function.attributes)["extent"])
            yield Promise(End(view.base, numbers - 1), numbers=numbers, share=rows / max(1, numbers - 1))


def end_rows(
    steps: Sequence[Step],
    promises: Iterable[Promise],
    results: Sequence[Buffer],
    bound: Mapping[Buffer, View],
) -> None:
    """Tell row groups, and products and scatters of rows, where they may end."""
    regions = [step for step, _ in every_step(steps) if isinstance(step, Region)]
    for promise in promises:
        facts, end = _Facts(steps, promise, results, bound), promise.end
        jobs = [job for region in regions for job in region.jobs if job.ended is None]
        for job in facts.settled(jobs, facts.sums_end):
            job.ended = end
            facts.ended.update((axis, 1) for axis in facts.sums_end(job))
        groups = [g for region in regions for g in region.groups if g.end is None and g.chunks > 1]
        for group in facts.settled(groups, facts.rows_end):
            group.end, group.cleared = end, facts.read_as_zero(group)


def _fact(kind: str, buffer: Buffer, axis: int) -> _Fact:
    return kind, buffer, math.prod(buffer.shape[axis + 1 :])


class _Facts:
    """What is known of arrays from the size on: all that nothing speaks against."""

    def __init__(
        self,
        steps: Sequence[Step],
        promise: Promise,
        results: Sequence[Buffer],
        bound: Mapping[Buffer, View],
    ) -> None:
        self.bound, self.promise, self.results = bound, promise, set(results)
        self.capacity, self.size = promise.end.capacity, self._view(promise.end.size).base
        self.foreign = set[Buffer]()
        """What calls and choices read and write."""
        self.loads: dict[Buffer, list[tuple[Kernel, Load]]] = {}
        self.stores: dict[Buffer, list[Store]] = {}
        for step, around in every_step(steps):
            self.foreign |= {each.index.base for each in around if isinstance(each, Choice)}
            self.foreign |= {each.flag.base for each in around if isinstance(each, While)}
            if isinstance(step, HostCall):
                self.foreign |= {view.base for view in (*step.inputs, *step.outputs)}
                continue
            for job in step.jobs:
                for load in job.given.loads():
                    self.loads.setdefault(self._view(load.buffer).base, []).append((job.given, load))
                for store in job.given.stores:
                    self.stores.setdefault(self._view(store.buffer).base, []).append(store)
        self.ended = set[_Row]()
        """Rows that are not read from the size on, as turns of the kernels' axes."""
        self.asked: dict[_Fact, None] = {}
        self.refuted = set[_Fact]()
        self.zeros: dict[tuple[Store, _Row], set[Expression]] = {}

    def settled(self, candidates: Sequence[_T], may_end: Callable[[_T], object]) -> list[_T]:
        """Those that may end, once all is refuted that does not hold of what they ask."""
        while True:
            self.zeros.clear()
            found = [each for each in candidates if may_end(each)]
            known = len(self.asked), len(self.refuted)
            for fact in reversed([*self.asked]):
                if fact not in self.refuted and not self._follows(*fact):
                    self.refuted.add(fact)
            if known == (len(self.asked), len(self.refuted)):
                return found

    def hold(self, kind: str, buffer: Buffer, pitch: int) -> bool:
        """Whether nothing speaks against a fact so far."""
        fact = kind, self._view(buffer).base, pitch
        self.asked[fact] = None
        return fact not in self.refuted

    # -- What is asked

    def sums_end(self, job: Job) -> list[Axis]:
        """The axes along which all sums of a product may end, or the updates of a scatter: none if one may not."""
        schedule, axes, ends = job.schedule, list[Axis](), False
        if isinstance(schedule, ScatterSchedule) and schedule.selector is not None:
            axes, (store,) = [*schedule.positions], job.kernel.stores
            ends = [axis.extent for axis in axes] == [self.capacity] and self._is_zero(store, (axes[0], 1))
        elif isinstance(schedule, ContractionSchedule):
            pairs = schedule.contraction.pairs
            axes = [pair.depth[-1] for pair in pairs]
            whole = not isinstance(schedule, PackedContraction) or {a.extent for a in axes} == {self.capacity}
            loads = ((load, pair.depth[-1]) for pair in pairs for load in (pair.left, pair.right))
            ends = whole and all(self._reads_zeros(load, (axis, 1)) for load, axis in loads)
        return axes if ends else []

    def rows_end(self, group: Group) -> bool:
        """Whether a group may end: nobody sees the rows beyond of what it writes, or they are zero."""
        return all(
            pitch and (self.hold("unseen", buffer, pitch) or self.hold("zero", buffer, pitch))
            for buffer, pitch in self._written(group)
        )

    def read_as_zero(self, group: Group) -> tuple[Buffer, ...]:
        """What a group writes of which somebody sees rows beyond the size, and relies on their being zero.

        Whole numbers may be places, which are looked up in rows of the last chunk that nobody sees.
        """
        written = dict(self._written(group)).items()
        return tuple(b for b, pitch in written if b.dtype.kind in "iu" or not self.hold("unseen", b, pitch))

    def _written(self, group: Group) -> Iterator[tuple[Buffer, int]]:
        """What a group writes, and how far its rows are apart there: 0 where they are no rows of these arrays."""
        for job in group.jobs:
            kernel, scatter = job.given, isinstance(job.schedule, ScatterSchedule)
            for store in kernel.stores:
                pitch = 0
                if job.rows != group.rows or job.alone:
                    pass
                elif scatter and job.rows == self.capacity:
                    pitch = store.buffer.size // self.capacity
                    pitch *= self._is_before(store, pitch)
                elif (
                    not scatter
                    and kernel.axes[0].extent % self.capacity == 0
                    and keeps_to_rows(job, store.buffer)
                ):
                    pitch = self._pitch(store, (kernel.axes[0], kernel.axes[0].extent // self.capacity))
                yield store.buffer, pitch

    # -- What follows from what

    def _follows(self, kind: str, base: Buffer, pitch: int) -> bool:
        """Whether a fact follows from others that hold so far."""
        if (kind, base, pitch) in self.promise.zeros:
            return True
        if base in self.foreign:
            return False
        if kind == "zero":
            stores = self.stores.get(base, ())
            return bool(stores) and all(self._stays_zero(store, pitch) for store in stores)
        if base in self.results and (kind, base, pitch) not in self.promise.cut:
            return False
        return all(self._shows_nobody(kernel, load, pitch) for kernel, load in self.loads.get(base, ()))

    def _stays_zero(self, store: Store, pitch: int) -> bool:
        """Whether a store leaves zeros from the size on."""
        if store.accumulate:
            return self._is_before(store, pitch)
        row = self._row(store, pitch)
        return row is not None and self._is_zero(store, row)

    def _shows_nobody(self, kernel: Kernel, load: Load, pitch: int) -> bool:
        """Whether what a kernel reads from the size on is in nothing that anybody sees."""
        row = self._row(load, pitch)
        if self._is_before(load, pitch) or row in self.ended:
            return True
        if row is None:
            return False
        shown = [store for store in kernel.stores if load in self._seen(store, row)]
        return not shown or (
            row[0] in kernel.axes
            and all(
                (apart := self._pitch(store, row)) and self.hold("unseen", store.buffer, apart)
                for store in shown
            )
        )

    def _pitch(self, store: Store, row: _Row) -> int:
        """How far the rows that a store writes are apart, if those are turns of an axis, else 0."""
        pitch = store.offset.coefficient(row[0]) * row[1]
        return pitch if self._row(store, pitch) == row else 0

    # -- Expressions

    def _view(self, buffer: Buffer) -> View:
        return self.bound.get(buffer, View(buffer))

    def _row(self, place: Load | Store, pitch: int) -> _Row | None:
        """Of which axis the turns are the rows that places lie in, where rows are ``pitch`` elements apart."""
        view, offset, period = self._view(place.buffer), place.offset, self.capacity * pitch
        if place.dynamic or period <= 0:
            return None
        if view.start % period or any(stride % period for _, stride, _ in view.moves):
            return None
        terms = [(axis, step) for axis, step in offset.terms if step % period]
        rows = [
            (a, step) for a, step in terms if step > 0 and pitch % step == 0 and a.extent * step % period == 0
        ]
        if len(rows) != 1:
            return None
        ((axis, step),) = rows
        low, high = Affine(tuple(t for t in terms if t[0] is not axis), offset.constant % period).bounds()
        return (axis, pitch // step) if low >= 0 and high < step else None

    def _is_before(self, place: Load | Store, pitch: int) -> bool:
        """Whether a place is one in a row before the size, whose number is looked up."""
        if self.promise.numbers is None or len(place.dynamic) != 1:
            return False
        ((number, step),), (low, high) = place.dynamic, place.offset.bounds()
        while isinstance(number, Apply) and number.function in ("bounded", "cast"):
            (number,) = number.operands
        if not isinstance(number, Load) or number.guard is not None or step != pitch:
            return False
        view, computed = self._view(number.buffer), reach(number.dynamic)
        if view.base is not self.size or computed is None:
            return False
        first = view.start + number.offset.bounds()[0] + computed[0]
        return low >= 0 and high < pitch and first >= self.promise.numbers

    def _is_mask(self, condition: Expression, row: _Row) -> bool:
        """Whether a condition says that a row is one of those before the size."""
        place, limit = operands_of(condition, "less") or (None, None)
        return (
            row == (row[0], 1)
            and row[0].extent == self.capacity
            and place is Position(Affine.of(row[0]))
            and isinstance(limit, Load)
            and limit.is_plain
            and self._view(limit.buffer).after(limit.offset.constant) == View(self.size)
        )

    def _is_zero(self, store: Store, row: _Row) -> bool:
        """Whether what is stored is zero from the size on."""
        return store.value in self._zeros(store, row)

    def _reads_zeros(self, load: Load, row: _Row) -> bool:
        """Whether what is read lies in such rows, which are zero from the size on."""
        pitch = load.offset.coefficient(row[0]) * row[1]
        return self._row(load, pitch) == row and self.hold("zero", load.buffer, pitch)

    def _zeros(self, store: Store, row: _Row) -> set[Expression]:
        """The parts of a store that are zero, or false, from the size on."""
        if (store, row) in self.zeros:
            return self.zeros[store, row]
        found = self.zeros[store, row] = set[Expression]()
        for part in walk(*store.roots()):
            zero = [each in found for each in part.operands]
            if isinstance(part, Literal):
                made = not part.value.tobytes().strip(b"\0")
            elif isinstance(part, Load):
                made = (part.guard is not None and zero[-1]) or self._reads_zeros(part, row)
            elif isinstance(part, Reduce):
                made = part.kind == "add" and row[0] not in part.over and zero[0]
            elif operands_of(part, "where"):
                made = zero[2] and (zero[0] or zero[1])
            elif operands_of(part, "logical_and"):
                made = any(zero)
            else:
                made = isinstance(part, Apply) and part.function in _KEEP_ZERO and all(zero)
            if made or self._is_mask(part, row):
                found.add(part)
        return found

    def _seen(self, store: Store, row: _Row) -> set[Load]:
        """The reads that a store depends on from the size on."""
        zeros, done, stack = self._zeros(store, row), set[Expression](), list(store.roots())
        while stack:
            part = stack.pop()
            if part in done:
                continue
            choice, guard = operands_of(part, "where"), isinstance(part, Load) and part.guard
            masks = choice[:1] or operands_of(part, "logical_and") or ((guard,) if guard else ())
            mask = next((each for each in masks if each in zeros), None)
            if mask is None:
                shown, hidden = part.operands, tuple[Expression, ...]()
            elif choice:
                shown, hidden = choice[::2], choice[1:2]
            else:
                shown, hidden = (mask,), tuple(each for each in part.operands if each is not mask)
            if mask is None or not isinstance(part, Load):
                done.add(part)
            stack += shown
            stack += (own for each in hidden for own in _sums_of_their_own(each, row[0]))
        return {part for part in done if isinstance(part, Load)}


def _sums_of_their_own(masked: Expression, axis: Axis) -> Iterator[Expression]:
    """What goes over all rows inside of what is masked in one: another turn of the same axis, and not masked."""
    return (part for part in walk(masked) if isinstance(part, Reduce) and axis in part.over)
