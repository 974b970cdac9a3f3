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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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

_KEEP_ZERO = frozenset({"abs", "cast", "multiply", "relu", "where"})
"""Functions that give zero of zeros, without a sign, and false of what is."""

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
    def of(
        cls, limit: Limit, sizes: Sequence[Buffer], arguments: Sequence[Buffer], results: Sequence[Buffer]
    ) -> Promise:
        """What callers of a program for any size promise."""
        zeros = frozenset(_fact("zero", arguments[k], axis) for k, axis in limit.zeros)
        cut = frozenset(_fact("unseen", results[k], axis) for k, axis in limit.cut)
        return cls(End(sizes[limit.size], limit.capacity), zeros, cut)


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
    for promise in promises:
        facts, end = _Facts(steps, promise, results, bound), promise.end
        regions = [step for step, _ in every_step(steps) if isinstance(step, Region)]
        groups = [g for region in regions for g in region.groups if g.end is None and g.chunks > 1]
        jobs = [job for region in regions for job in region.jobs]
        summed = {job: sums for job in jobs if not job.ended and (sums := facts.of_sums(job)) is not None}
        facts.settle(fact for _, found in summed.values() for fact in found)
        for job, (axes, zeros) in summed.items():
            if facts.hold(zeros):
                job.ended = end
                facts.ended |= axes
        wanted = {group: facts.of_rows(group) for group in groups}
        facts.settle(fact for found in wanted.values() for fact in found or ())
        for group, found in wanted.items():
            if found is not None and facts.hold(found):
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
        self.ended = set[Axis]()
        """Axes whose turns end, of the kernels that have them."""
        self.refuted = set[_Fact]()
        self.reasons: dict[_Fact, list[set[_Fact]]] = {}
        self.parts: dict[tuple[Store, _Row], dict[Expression | None, set[_Fact] | None]] = {}

    def settle(self, wanted: Iterable[_Fact]) -> None:
        """Refute what does not hold of the ``wanted`` facts, and of those that they follow from."""
        reasons = self.reasons
        left = list(wanted)
        while left:
            fact = left.pop()
            if fact not in reasons:
                reasons[fact] = [set()] if fact in self.promise.zeros else list(self._reasons(*fact))
                left += (each for found in reasons[fact] for each in found)
        while new := {f for f, found in reasons.items() if not any(map(self.hold, found))} - self.refuted:
            self.refuted |= new

    def hold(self, facts: Iterable[_Fact]) -> bool:
        return self.refuted.isdisjoint(facts)

    def read_as_zero(self, group: Group) -> tuple[Buffer, ...]:
        """What a group writes of which somebody reads rows beyond the size, and relies on their being zero.

        Whole numbers may be places, which are looked up in rows of the last chunk that nobody sees.
        """
        bases = {b: self._view(b).base for job in group.jobs for b in job.kernel.writes()}
        left: list[_Fact] = [fact for fact in self.reasons if fact[0] == "unseen" and self.hold({fact})]
        left, done = [fact for fact in left if fact[1] in bases.values()], set[_Fact]()
        zeros = {base for base in bases.values() if base.dtype.kind in "iu"}
        while left:
            fact = left.pop()
            if fact not in done:
                done.add(fact)
                if fact[0] == "zero":
                    zeros.add(fact[1])
                # that it is unseen by itself comes last
                left += next((found for found in reversed(self.reasons[fact]) if self.hold(found)), ())
        return tuple(buffer for buffer, base in bases.items() if base in zeros)

    # -- What is asked

    def of_rows(self, group: Group) -> set[_Fact] | None:
        """What must hold for a group to end; None where its rows are no rows of these arrays."""
        found = set[_Fact]()
        for job in group.jobs:
            kernel = job.given
            if job.rows != group.rows or job.alone:
                return None
            if isinstance(job.schedule, ScatterSchedule):
                (store,) = kernel.stores
                pitch = store.buffer.size // self.capacity
                if job.rows != self.capacity or not self._is_before(store, pitch):
                    return None
                found.add(("unseen", self._view(store.buffer).base, pitch))
                continue
            turns, left = divmod(kernel.axes[0].extent, self.capacity)
            for store in kernel.stores:
                fact = None if left else self._written(store, (kernel.axes[0], turns))
                if fact is None or not keeps_to_rows(job, store.buffer):
                    return None
                found.add(fact)
        return found

    def of_sums(self, job: Job) -> tuple[set[Axis], set[_Fact]] | None:
        """What must hold for all sums of a product to end, or the updates of a scatter, and the axes along which.

        None where they are not over rows.
        """
        if isinstance(job.schedule, ScatterSchedule):
            return self._of_updates(job.kernel, job.schedule)
        if not isinstance(job.schedule, ContractionSchedule):
            return None
        found = set[_Fact]()
        for pair in job.schedule.contraction.pairs:
            if isinstance(job.schedule, PackedContraction) and pair.depth[-1].extent != self.capacity:
                return None
            for load in (pair.left, pair.right):
                pitch = load.offset.coefficient(pair.depth[-1])
                if self._row(load, pitch) != (pair.depth[-1], 1):
                    return None
                found.add(("zero", self._view(load.buffer).base, pitch))
        return {pair.depth[-1] for pair in job.schedule.contraction.pairs}, found

    def _of_updates(self, kernel: Kernel, schedule: ScatterSchedule) -> tuple[set[Axis], set[_Fact]] | None:
        if schedule.selector is None or len(schedule.positions) != 1:
            return None
        (store,), (axis,) = kernel.stores, schedule.positions
        found = self._zeros(store, (axis, 1))[store.value] if axis.extent == self.capacity else None
        return None if found is None else ({axis}, found)

    # -- What follows from what

    def _reasons(self, kind: str, base: Buffer, pitch: int) -> Iterator[set[_Fact]]:
        """Sets of facts of which each is enough for one to hold."""
        if base in self.foreign:
            return
        if kind == "unseen":
            yield {("zero", base, pitch)}
            seen = base in self.results and (kind, base, pitch) not in self.promise.cut
            found = None if seen else self._unseen(base, pitch)
        else:
            found = self._zero(base, pitch)
        if found is not None:
            yield found

    def _zero(self, base: Buffer, pitch: int) -> set[_Fact] | None:
        found = set[_Fact]()
        for store in self.stores.get(base, ()):
            if store.accumulate and self._is_before(store, pitch):
                continue
            row = None if store.accumulate else self._row(store, pitch)
            reasons = None if row is None else self._zeros(store, row)[store.value]
            if reasons is None:
                return None
            found |= reasons
        return found if base in self.stores else None

    def _unseen(self, base: Buffer, pitch: int) -> set[_Fact] | None:
        found = set[_Fact]()
        for kernel, load in self.loads.get(base, ()):
            if self._is_before(load, pitch):
                continue
            row = self._row(load, pitch)
            if row is None:
                return None
            if row[0] in self.ended:
                continue
            for store in kernel.stores:
                loads, facts = self._seen(store, row)
                found |= facts
                if load in loads:
                    fact = self._written(store, row) if row[0] in kernel.axes else None
                    if fact is None:
                        return None
                    found.add(fact)
        return found

    def _written(self, store: Store, row: _Row) -> _Fact | None:
        """What must hold for a store to be done without its rows from the size on, if those are turns of an axis."""
        pitch = store.offset.coefficient(row[0]) * row[1]
        if self._row(store, pitch) != row:
            return None
        return "unseen", self._view(store.buffer).base, pitch

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
            and isinstance(place, Position)
            and place.index == Affine.of(row[0])
            and isinstance(limit, Load)
            and limit.is_plain
            and self._view(limit.buffer).after(limit.offset.constant) == View(self.size)
        )

    def _zeros(self, store: Store, row: _Row) -> dict[Expression | None, set[_Fact] | None]:
        """Of each part of a store what must hold for it to be zero, or false, from the size on; None if it is not."""
        if (store, row) in self.parts:
            return self.parts[store, row]
        found = self.parts[store, row] = dict[Expression | None, set[_Fact] | None]()
        for part in walk(*store.roots()):
            zeros = [found[each] for each in part.operands]
            made: set[_Fact] | None = None
            if isinstance(part, Literal):
                made = None if part.value.tobytes().strip(b"\0") else set()
            elif isinstance(part, Load):
                pitch = part.offset.coefficient(row[0]) * row[1]
                made = None if part.guard is None else zeros[-1]
                if made is None and self._row(part, pitch) == row:
                    made = {("zero", self._view(part.buffer).base, pitch)}
            elif self._is_mask(part, row):
                made = set()
            elif isinstance(part, Apply) and part.function == "logical_and":
                made = next((each for each in zeros if each is not None), None)
            elif isinstance(part, Reduce) and part.kind == "add" and row[0] not in part.over:
                made = zeros[0]
            elif isinstance(part, Apply) and part.function in _KEEP_ZERO:
                if part.function == "where":
                    zeros = zeros[::2] if zeros[0] is not None else zeros[1:]
                if None not in zeros:
                    made = set().union(*(each or () for each in zeros))
            found[part] = made
        return found

    def _seen(self, store: Store, row: _Row) -> tuple[set[Load], set[_Fact]]:
        """The reads that a store depends on from the size on, if some facts about masks hold."""
        loads, facts, zeros = set[Load](), set[_Fact](), self._zeros(store, row)
        done, stack = set[Expression](), list(store.roots())
        while stack:
            part = stack.pop()
            if part in done:
                continue
            done.add(part)
            shown = list(part.operands)
            mask = part.guard if isinstance(part, Load) else next(iter(operands_of(part, "where")), None)
            masked = None if mask is None else zeros[mask]
            if masked is not None:
                facts |= masked
                if operands_of(part, "where"):
                    stack += _sums_of_their_own(shown.pop(1), row[0])
            elif isinstance(part, Load):
                loads.add(part)
            stack += shown
        return loads, facts


def _sums_of_their_own(masked: Expression, axis: Axis) -> Iterator[Expression]:
    """What goes over all rows inside of what is masked in one: another turn of the same axis, and not masked."""
    return (part for part in walk(masked) if isinstance(part, Reduce) and axis in part.over)
