"""Small arrays in registers: what one thread does to a few numbers, turn after turn.

    while flag[0]:                                     x = x[0]
        region   next[0] = x[0] - rate * g(x[0])   →   while …: x = x - rate * g(x)
        region   x[0] = next[0]                        x[0] = x

A region that calls a kernel finds its arguments in memory and leaves its results there, which takes longer than to
compute a few numbers. So kernels of few operations are written out where they are run, element by element, and arrays
that no other kernel of the step touches are values of the function that is written: what changes in a loop is carried
from turn to turn, what changes in a branch is chosen behind it, and memory is read before all and written after all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from pullback.compiler.codegen import access
from pullback.compiler.codegen.types import literal, read_element, scalar_type, write_element
from pullback.compiler.codegen.values import Values
from pullback.compiler.llvm.function import Function
from pullback.compiler.lowering.items import Choice, Counter, HostCall, Loop, View, While, every_step
from pullback.compiler.regions.steps import Job, Step, buffers_of, every_job, every_region
from pullback.compiler.schedules.cost import MOST_HELD, MOST_UNROLLED_FUNCTIONS
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
    operands_of,
    rebuilt,
    turns_of,
    walk,
)
from pullback.loops.chains import CHAINED, chained
from pullback.loops.fixed import settled
from pullback.loops.kernel import once

__all__ = ["Element", "Registers", "bases_of", "held_bases", "is_small", "is_written_out"]

Element = tuple[Buffer, int]
"""A place in a buffer that lies in memory by itself."""


@once
def is_small(kernel: Kernel) -> bool:
    """Whether the kernel is few operations on elements at known places."""
    computed = [*(load.dynamic for load in kernel.loads()), *(store.dynamic for store in kernel.stores)]
    if kernel.has_checks or any(computed):
        return False
    if any(reduce.kind not in CHAINED or not turns_of(reduce.over) for reduce in kernel.reductions):
        return False
    turns = [turns_of((*kernel.axes, *store.inner)) for store in kernel.stores]
    operations = sum(n * _operations(store.value) for n, store in zip(turns, kernel.stores))
    return operations <= MOST_UNROLLED_FUNCTIONS


def _operations(value: Expression) -> int:
    """How many operations an element takes, each as often as the sums that it is in have terms."""
    found, often = 1, {value: 1}
    for part in reversed(list(walk(value))):
        turns = often[part] * (turns_of(part.over) if isinstance(part, Reduce) else 1)
        for operand in part.operands:
            often[operand] = max(often.get(operand, 0), turns)
        found += turns if isinstance(part, Apply | Reduce) else 0
    return found


def bases_of(step: Step, bound: Mapping[Buffer, View]) -> set[Buffer]:
    """The buffers whose memory a step touches, also to know what is run."""
    return {view.base for view, _ in _touched([step], bound)}


def _touched(steps: Iterable[Step], bound: Mapping[Buffer, View]) -> Iterator[tuple[View, bool]]:
    """Every place that is touched, and whether by what keeps it in a register."""
    for step, around in every_step(steps):
        for held in around:
            if isinstance(held, Choice | While):
                yield held.index if isinstance(held, Choice) else held.flag, True
        if isinstance(step, HostCall):
            yield from ((view, False) for view in (*step.inputs, *step.outputs))
            continue
        # Chunks of a group are turns of a loop, around all of its jobs.
        jobs = [(job, group.chunks == 1) for group in step.groups for job in group.jobs]
        for job, whole in jobs:
            for buffer in buffers_of(job.kernel):
                view = bound.get(buffer, View(buffer))
                yield view, whole and is_small(job.kernel) and buffer.dtype == view.base.dtype


def held_bases(steps: Sequence[Step], bound: Mapping[Buffer, View], elsewhere: Set[Buffer]) -> Set[Buffer]:
    """The buffers whose elements are in registers while ``steps`` run, but for those that lie ``elsewhere``.

    They are in the order in which they are touched. They are small, and touched at known places by small kernels only;
    of the two slots of a loop's carry it is known which one a turn enters with.
    """
    counters = {step.counter for _, around in every_step(steps) for step in around if isinstance(step, Loop)}
    groups = (group for region, _ in every_region(steps) for group in region.groups)
    counters |= {group.turns for group in groups if group.turns is not None}
    found, others = dict[Buffer, None](), dict.fromkeys(elsewhere)
    for view, small in _touched(steps, bound):
        slots = [counter for counter, _, period in view.moves if period == 2 and counter in counters]
        fixed = len(slots) == len(view.moves) <= 1
        (found if small and fixed and view.base.size <= MOST_HELD else others)[view.base] = None
    return dict.fromkeys(base for base in found if base not in others).keys()


def is_written_out(job: Job, held: Set[Buffer], bound: Mapping[Buffer, View]) -> bool:
    """Whether the job's kernel is written where it is run, since some of what it touches is in registers."""
    return is_small(job.kernel) and any(bound.get(b, View(b)).base in held for b in buffers_of(job.kernel))


@dataclass(eq=False)
class Registers:
    """The elements of ``bases`` while a step is written that one thread runs from end to end.

    ``place`` gives the address of an element of a view.
    """

    f: Function
    target: Processor
    bases: Set[Buffer]
    bound: Mapping[Buffer, View]
    place: Callable[[View, int], str]
    values: dict[Element, str] = field(default_factory=dict)
    truths: dict[str, str] = field(default_factory=dict)
    """What whole numbers are made of that are a truth value, by their names."""

    def __post_init__(self) -> None:
        for base in self.bases:
            for k in range(base.size):
                self.values[base, k] = read_element(self.f, self.place(View(base), k), base.dtype)

    def value(self, view: View) -> str | None:
        """The only element of a view, if it is in a register."""
        return self.values.get((view.base, view.start))

    def truth(self, view: View) -> str | None:
        """The truth value that the only element of a view is, as 0 or 1."""
        return self.truths.get(self.value(view) or "")

    def write_back(self, bases: Set[Buffer]) -> None:
        """Store what is in registers of some buffers."""
        for (base, k), value in self.values.items():
            if base in bases:
                write_element(self.f, self.place(View(base), k), value, base.dtype)

    def view(self, buffer: Buffer) -> View:
        return self.bound.get(buffer, View(buffer))

    # ------------------------------------------------------------------ loops and choices

    def changed(self, steps: Iterable[Step]) -> list[Element]:
        """What some steps may change, by writing it or from turn to turn."""
        written = {self.view(buffer).base for job in every_job(steps) for buffer in job.kernel.writes()}
        return [element for element in self.values if element[0] in written]

    def carried(self, elements: Sequence[Element]) -> list[tuple[str, str]]:
        """Types and values of some elements."""
        return [(scalar_type(element[0].dtype), self.values[element]) for element in elements]

    def take(self, elements: Sequence[Element], values: Sequence[str]) -> None:
        """Some elements have other values from here on."""
        self.values.update(zip(elements, values))

    def turned(self, counter: Counter, steps: Iterable[Step]) -> None:
        """What enters the next turn of a loop is what left this one: two slots change their parts."""
        views = {view for view, _ in _touched(steps, self.bound) if view.base in self.bases}
        moving = {view.base for view in views if any(each is counter for each, _, _ in view.moves)}
        for base in moving:
            half = base.size // 2
            for k in range(half):
                first, second = self.values[base, k], self.values[base, k + half]
                self.take([(base, k), (base, k + half)], [second, first])

    # ------------------------------------------------------------------ kernels

    def run(self, job: Job, pointers: Mapping[Buffer, str]) -> None:
        """The kernel of a job, written out; ``pointers`` are of what lies in memory."""
        kernel = job.kernel
        values = Values(self.f, pointers, 1, self.target, {}, _none, _none, self._load)
        written, read = (
            {self.view(b).base for b in buffers} for buffers in (kernel.writes(), kernel.reads())
        )
        apart = not written.isdisjoint(read)
        for place in _turns(kernel.axes):
            for inner, stores in kernel.by_inner:
                for turn in _turns(inner):
                    with values.scope() if apart else nullcontext():
                        self._stores(values, stores, place | turn)

    def _stores(self, values: Values, stores: Sequence[Store], place: Mapping[Axis, Affine]) -> None:
        """All values first, then all stores."""
        made = [self._written_out(store, place) for store in stores]
        results = [values.emit_in_order(store.value) for store in made]
        for store, result in zip(made, results):
            view = self.view(store.buffer)
            if view.base in self.bases:
                self.values[view.base, view.start + store.offset.constant] = result
                for operand in operands_of(store.value, "cast"):
                    if operand.dtype.kind == "b":
                        self.truths[result] = values.emit(operand)[0]
            else:
                access.emit_store(values, store)

    @staticmethod
    def _written_out(store: Store, place: Mapping[Axis, Affine]) -> Store:
        """The store of one turn: no axis is left."""
        offset = store.offset.replace(place)
        store = replace(store, inner=()).rewritten(place, {})
        value = store.value
        if store.accumulate and store.accumulate != "set":
            value = Apply(store.accumulate, (Load(store.buffer, offset), value), value.dtype)
        value = rebuilt(value, lambda part: chained(part) if isinstance(part, Reduce) else part, {})
        return Store(store.buffer, offset, rebuilt(value, settled, {}))

    def _load(self, values: Values, load: Load) -> list[str]:
        view = self.view(load.buffer)
        if view.base not in self.bases:
            return access.emit_load(values, load)
        value, zero = self.values.get((view.base, view.start + load.offset.constant)), literal(load.dtype, 0)
        if value is None:  # the guard does not hold there
            return [zero]
        if load.guard is None:
            return [value]
        guard, kind = values.emit(load.guard)[0], scalar_type(load.dtype)
        return [self.f.value(f"select i1 {guard}, {kind} {value}, {kind} {zero}")]


def _turns(axes: Sequence[Axis]) -> Iterator[dict[Axis, Affine]]:
    """Where axes stand, the last moving fastest."""
    for turn in itertools.product(*(range(axis.extent) for axis in axes)):
        yield {axis: Affine() + k for axis, k in zip(axes, turn)}


def _none(values: Values, expression: Expression) -> list[str]:
    raise AssertionError(f"{expression!r} is not written out")
