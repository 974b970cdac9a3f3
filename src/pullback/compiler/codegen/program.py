"""From a schedule to a module: a function for each kind of kernel, and one for each region that calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from pullback.compiler.codegen.access import emit_load
from pullback.compiler.codegen.checks import emit_check, index_load
from pullback.compiler.codegen.kernels import emit_kernel
from pullback.compiler.codegen.reductions import emit_reduction
from pullback.compiler.codegen.registers import Registers, bases_of, held_bases, is_written_out
from pullback.compiler.codegen.routines import emit_routine
from pullback.compiler.codegen.values import Values
from pullback.compiler.llvm.function import Function, Module
from pullback.compiler.llvm.subnormals import unflushed
from pullback.compiler.lowering.items import Choice, Counter, HostCall, Loop, View, While, every_step
from pullback.compiler.regions.ahead import asked_ahead
from pullback.compiler.regions.planned import Planned
from pullback.compiler.regions.steps import Group, Job, Region, Step, buffers_of, every_job, every_region
from pullback.compiler.runtime.layout import (
    ARENA,
    emit_ask,
    emit_host_call,
    emit_is_well,
    emit_pointer,
    region_function,
)
from pullback.compiler.runtime.specs import Check, RegionSpec, RepeatSpec, Scheduled
from pullback.compiler.schedules.cost import CYCLES_BETWEEN_SIGNALS, PART_CHARACTERS
from pullback.compiler.schedules.lanes import lanes_of
from pullback.graph import results
from pullback.loops import Apply, Buffer, Kernel

__all__ = ["Emitted", "emit_program"]


@dataclass(frozen=True)
class Emitted:
    """LLVM IR and what the runtime must know to run it."""

    module: Module
    regions: tuple[Scheduled, ...]
    checks: tuple[Check, ...]
    """What each failure code (from 1) means."""
    scratch_bytes: int
    """Private memory that a chunk needs."""
    calls: tuple[HostCall, ...]
    """The calls out of the program, by the numbers that the code has for them."""

    @property
    def text(self) -> str:
        return self.module.text()


Guards = tuple[tuple[Choice[Step], int], ...]
"""Branches around a region, the outermost first."""


class _Emitter:
    def __init__(
        self,
        planned: Planned,
        overwriting: Set[Buffer],
        ready: Callable[[str], None] | None,
    ) -> None:
        self.module = Module()
        self.ready, self.characters = ready, 0
        self.addressed, self.bound = planned.addressed, planned.bound
        self.offsets = {p.buffer: p.offset for p in planned.memory.placed}
        self.kept = planned.memory.kept
        taken = {planned.addressed[buffer] for buffer in overwriting}
        self.overwriting = {buffer for buffer, slot in planned.addressed.items() if slot in taken}
        self.overwriting |= {buffer for buffer, view in self.bound.items() if view.base in self.overwriting}
        self.target = planned.target
        self.kernels: dict[str, str] = {}
        self.alike: dict[tuple[Any, ...], str] = {}
        self.checks: dict[Check, int] = {}
        """Those that may fail, with their failure codes."""
        self.calls: list[HostCall] = []
        self.regions = 0
        self.functions: dict[Job, str] = {}
        """Those that are called for jobs; a kernel without one is written out."""
        self.ahead: dict[Job, Mapping[Buffer, int]] = {}
        """Of products the arrays whose rows behind their own they ask for, and how many bytes a row has."""
        self.last_use: dict[Buffer, int] = {}
        """The last region function that touches a buffer's memory, by its number."""
        for number, (leaf, asked) in enumerate(_leaves(planned.steps)):
            self.last_use.update(dict.fromkeys((*bases_of(leaf, self.bound), *asked), number))

    def check(self, loops: Sequence[Counter], values: Values, expression: Apply) -> list[str]:
        """Emit an index check, of a kernel inside ``loops``, under its failure code; equal checks share one."""
        code = self.checks.setdefault(_described(expression, loops), len(self.checks) + 1)
        return emit_check(values, expression, code, values.f["turn"] if loops else None)

    def kernel(
        self, job: Job, grains: Sequence[int], loops: tuple[Counter, ...] = (), ahead: Sequence[int] = ()
    ) -> str:
        """The function of a job's kernel; kernels that differ only in their buffers, and alike in schedule, share one.

        It is given pieces of memory of so many bytes to ask for ``ahead``.
        """
        kernel, buffers = job.kernel, buffers_of(job.kernel)
        schedule, ended = str(job.schedule), job.ended and job.ended.capacity
        likeness = *kernel.likeness, schedule, tuple(grains), tuple(ahead), ended
        if not kernel.has_checks and likeness in self.alike:
            return self.alike[likeness]
        name = f"kernel{len(self.kernels)}"
        pointers = [("ptr", f"p{k}") for k in range(len(buffers))]
        parameters = [("ptr", "context"), *pointers, ("i64", "low"), ("i64", "high"), ("ptr", "scratch")]
        parameters += [("ptr", f"ahead{k}") for k in range(len(ahead))]
        told = loops if kernel.has_checks else ()
        if told:
            parameters.append(("i64", "turn"))
        if job.ended is not None:
            parameters.append(("i64", "size"))
        f = self.module.function(name, parameters, attributes="nounwind noinline")
        places = {buffer: f[f"p{k}"] for k, buffer in enumerate(buffers)}
        lanes, check, shifts = lanes_of(kernel, self.target), partial(self.check, told), _shifts(kernel)
        pieces = [(f[f"ahead{k}"], size) for k, size in enumerate(ahead)]
        end = None if job.ended is None else (f["size"], job.ended.capacity)
        writers = emit_reduction, check, emit_load
        values = Values(f, places, lanes, self.target, shifts, *writers, pieces, end)
        emit_kernel(values, job, grains)
        text = f.text().replace(f"@{name}(", "@(", 1)
        if text in self.kernels:
            del self.module.functions[name]
            self.alike[likeness] = self.kernels[text]
            return self.kernels[text]
        self.kernels[text] = self.alike[likeness] = name
        self.characters += len(text)
        if self.characters >= PART_CHARACTERS:
            self.hand_over()
        return name

    def hand_over(self) -> None:
        """Give what was written since the last time to who compiles it."""
        if self.ready is not None:
            self.ready(self.module.part())
        self.characters = 0

    def step(self, step: Step, around: tuple[Counter, ...] = (), guards: Guards = ()) -> Scheduled:
        """The functions of a region, or of all regions of a loop; ``guards`` are the branches that it belongs to."""
        if isinstance(step, Loop):
            inner = [self.step(each, (*around, step.counter), guards) for each in step.steps]
            return RepeatSpec(step.counter.trips, inner)
        if isinstance(step, Choice):
            found = [
                self.step(each, around, (*guards, (step, number)))
                for number, branch in enumerate(step.branches)
                for each in branch
            ]
            return RepeatSpec(1, found)
        name = f"region{self.regions}"
        self.regions += 1
        serial = _in_turns(step)
        # What a loop around keeps for its next turn may be what nobody else reads.
        held = held_bases([step], self.bound, self.kept.keys()) if serial and not around else set[Buffer]()
        for region, inside in every_region([step]):
            counted = (*around, *(each.counter for each in inside if isinstance(each, Loop)))
            for group in region.groups:
                loops = counted if group.turns is None else (*counted, group.turns)
                self.ahead.update(asked_ahead(group, self.kept, self.target))
                for job in group.jobs:
                    if not is_written_out(job, held, self.bound):
                        sizes = [row * group.grain for row in self.ahead.get(job, {}).values()]
                        self.functions[job] = self.kernel(job, _grains(group, job), loops, sizes)
        _Writer(self, name, held, around).write(step, serial, guards)
        chunks = sum(group.chunks for group in step.groups) if isinstance(step, Region) else 1
        written = {buffer for job in every_job([step]) for buffer in job.kernel.writes()}
        writes = not self.overwriting.isdisjoint(written)
        callers = any(isinstance(each, HostCall) for each, _ in every_step([step]))
        return RegionSpec(name, chunks, writes, callers)


class _Writer:
    """The function of a region being written: what is in registers, the turns of loops."""

    def __init__(self, program: _Emitter, name: str, held: Set[Buffer], around: Sequence[Counter]) -> None:
        self.program, self.name = program, name
        self.f = region_function(program.module, name)
        self.turns = _turns(self.f, around)
        """The turn of each loop around what is being written, of the outermost first."""
        self.registers = Registers(self.f, program.target, held, program.bound, self._element)
        """What is in registers where a step is written that one thread runs from end to end."""

    def write(self, step: Step, serial: bool, guards: Guards) -> None:
        """A step as one thread runs it from end to end if it is ``serial``, else the chunk that is asked for."""
        with ExitStack() as guarded:
            for choice, number in guards:
                guarded.enter_context(self.f.when(self._is_chosen(choice, number)))
            if isinstance(step, Region) and not serial:
                self._region(step)
            else:
                self._serial([step])
                self.registers.write_back(self._needed_later(step))

    def _is_chosen(self, choice: Choice[Step], number: int) -> str:
        """Whether the branch of this number is run."""
        index = self._number(choice.index)
        if number == 0:
            return self.f.value(f"icmp sle i64 {index}, 0") if len(choice.branches) > 1 else "true"
        relation = "sge" if number == len(choice.branches) - 1 else "eq"
        return self.f.value(f"icmp {relation} i64 {index}, {number}")

    def _host_call(self, call: HostCall) -> None:
        """A call of a function out of the program; nothing happens once an error is known."""
        inputs, outputs = (
            [(self._place(view, x.dtype.itemsize), x.type) for view, x in zip(views, nodes)]
            for views, nodes in ((call.inputs, call.node.inputs), (call.outputs, results(call.node)))
        )
        routine = call.node.attributes["function"].routine
        target, calls = self.program.target, self.program.calls
        with unflushed(self.f, target):
            if routine is None:
                emit_host_call(self.f, len(calls), [address for address, _ in (*inputs, *outputs)])
            else:
                emit_routine(self.f, target, len(calls), routine, inputs, outputs)
        calls.append(call)

    def _needed_later(self, step: Step) -> set[Buffer]:
        """What a step has in registers and others find in memory: the results, and what other regions use."""
        program, written = self.program, {base for base, _ in self.registers.changed([step])}
        return {b for b in written if b in program.addressed or program.last_use[b] >= program.regions}

    def _number(self, view: View) -> str:
        """A whole number that decides what is run, or how much of it."""
        return self.registers.value(view) or self.f.value(f"load i64, ptr {self._place(view, 8)}, align 8")

    def _element(self, view: View, k: int) -> str:
        return self._place(view.after(k), view.base.dtype.itemsize)

    def _serial(self, steps: Sequence[Step]) -> None:
        """Steps one after another, chunk by chunk."""
        for step in steps:
            if isinstance(step, Region):
                for group in step.groups:
                    if group.chunks == 1:
                        self._rows(group, "0")
                    else:
                        with self.f.loop("0", str(group.chunks)) as chunk:
                            self._rows(group, chunk.index)
            elif isinstance(step, HostCall):
                self._host_call(step)
            elif isinstance(step, Choice):
                self._choice(step)
            elif isinstance(step, Loop):
                with self._counted(step.counter, step.steps):
                    self._serial(step.steps)
            elif isinstance(step, While):
                self._while(step)
            else:
                self._serial(step.steps)

    def _choice(self, step: Choice[Step]) -> None:
        """The branch that is chosen; what it changes is chosen behind it."""
        f = self.f
        changed = self.registers.changed(step.steps)
        before = self.registers.carried(changed)
        index, after = self._number(step.index), f.fresh("after")
        ends: list[tuple[str, list[tuple[str, str]]]] = []
        for number, branch in enumerate(step.branches):
            following = f.fresh("else")
            if number < len(step.branches) - 1:
                here, truth = f.fresh("branch"), self.registers.truth(step.index)
                if truth is None or number:
                    chosen = f.value(f"icmp {'eq' if number else 'sle'} i64 {index}, {number}")
                    f.do(f"br i1 {chosen}, label %{here}, label %{following}")
                else:
                    f.do(f"br i1 {truth}, label %{following}, label %{here}")
                f.label(here)
            self.registers.take(changed, [value for _, value in before])
            self._serial(branch)
            ends.append((f.block, self.registers.carried(changed)))
            f.branch(after)
            if number < len(step.branches) - 1:
                f.label(following)
        f.label(after)
        for k, element in enumerate(changed):
            kind = before[k][0]
            pairs = ", ".join(f"[{values[k][1]}, %{block}]" for block, values in ends)
            self.registers.take([element], [f.value(f"phi {kind} {pairs}")])

    @contextmanager
    def _counted(self, counter: Counter, steps: Sequence[Step]) -> Iterator[None]:
        """The turns of a loop whose number is known."""
        changed = self.registers.changed(steps)
        with self.f.loop("0", str(counter.trips), carried=self.registers.carried(changed)) as loop:
            self.turns[counter] = loop.index
            self.registers.take(changed, loop.values)
            yield
            self.registers.turned(counter, steps)
            loop.carry(*(value for _, value in self.registers.carried(changed)))
        del self.turns[counter]
        self.registers.take(changed, loop.results)
        if counter.trips % 2:
            self.registers.turned(counter, steps)

    def _while(self, step: While[Step]) -> None:
        """Turns that go on while the condition holds and all is well, which the body or a signal may change."""
        f = self.f
        changed = self.registers.changed(step.steps)
        jobs = list(every_job(step.steps))
        turns = max(1, int(CYCLES_BETWEEN_SIGNALS / max(sum(job.cycles for job in jobs), 1.0)))
        calls = any(isinstance(inner, HostCall) for inner, _ in every_step(step.steps))
        may_fail = calls or any(job.kernel.has_checks for job in jobs)
        with f.turns([("i64", "0"), *self.registers.carried(changed)]) as loop:
            self.registers.take(changed, loop.values[1:])
            self._serial(step.condition)
            count = f.value(f"add i64 {loop.values[0]}, 1")
            asks = f.value(f"icmp uge i64 {count}, {turns}")
            with f.when(asks):
                emit_ask(f)
                f.leave_unless(loop, emit_is_well(f))
            count = f.value(f"select i1 {asks}, i64 0, i64 {count}")
            truth, number = self.registers.truth(step.flag), self._number(step.flag)
            goes_on = truth or f.value(f"icmp ne i64 {number}, 0")
            f.leave_unless(loop, f.value(f"and i1 {goes_on}, {emit_is_well(f)}") if may_fail else goes_on)
            left = self.registers.carried(changed)
            self._serial(step.body)
            loop.carry(count, *(value for _, value in self.registers.carried(changed)))
        self.registers.take(changed, [value for _, value in left])

    def _region(self, region: Region) -> None:
        """Which chunk is which rows of which group."""
        f = self.f
        order = region.order()
        number = f["chunk"] if order == sorted(order) else self._dealt(order)
        first = 0
        for group in region.groups:
            relative = f.value(f"sub i64 {number}, {first}") if first else number
            with f.when(f.value(f"icmp ult i64 {relative}, {group.chunks}")):
                self._rows(group, relative)
            first += group.chunks

    def _rows(self, group: Group, chunk: str) -> None:
        """A chunk of a group, in all turns of its loop if it has one."""
        f = self.f
        low = f.value(f"mul i64 {chunk}, {group.grain}")
        end = f.value(f"add i64 {low}, {group.grain}")
        high = f.smaller(end, group.rows)
        rows = (low, high) if group.rows > 1 else None
        with nullcontext() if group.turns is None else self._counted(group.turns, [Region([group])]):
            if group.end is None:
                self._jobs(group, rows)
                return
            first = f.value(f"mul i64 {low}, {group.end.capacity}")
            count = f.value(f"mul i64 {self._number(View(group.end.size))}, {group.rows}")
            beyond = f.value(f"icmp sge i64 {first}, {count}")
            with f.when(f.value(f"xor i1 {beyond}, true")):
                self._jobs(group, rows)
            with f.when(beyond):
                self._clear(group, low, high)

    def _clear(self, group: Group, low: str, high: str) -> None:
        """Zeros in some rows of all that others may read."""
        f = self.f
        for buffer in group.cleared:
            if buffer not in self.program.kept:
                pitch = buffer.nbytes // group.rows
                start = f.value(f"mul i64 {low}, {pitch}")
                place = f.ahead(self._pointer(buffer), "i8", start)
                length = f.value(f"mul i64 {f.value(f'sub i64 {high}, {low}')}, {pitch}")
                given = ("ptr", place), ("i8", "0"), ("i64", length), ("i1", "false")
                f.call("void", "llvm.memset.p0.i64", *given)

    def _jobs(self, group: Group, rows: tuple[str, str] | None) -> None:
        """Calls for some rows of a group."""
        for job in group.jobs:
            if job in self.program.functions:
                self._call(job, rows if job.rows == group.rows else None)
            else:
                self._written_out(job)

    def _dealt(self, order: Sequence[int]) -> str:
        """The number of a chunk among those of the groups."""
        f = self.f
        kind, numbers = f"[{len(order)} x i64]", ", ".join(f"i64 {k}" for k in order)
        table = self.program.module.define_global(
            f"{self.name}_order", f"private constant {kind} [{numbers}]"
        )
        place = f.ahead(table, "i64", f["chunk"])
        return f.value(f"load i64, ptr {place}, align 8")

    def _written_out(self, job: Job) -> None:
        registers = self.registers
        lying = [b for b in buffers_of(job.kernel) if registers.view(b).base not in registers.bases]
        registers.run(job, {buffer: self._pointer(buffer) for buffer in lying})

    def _turn(self) -> str:
        """The turns of all loops around as one number, by which those of earlier turns come first."""
        number = "0"
        for counter, turn in self.turns.items():
            number = self.f.value(f"mul i64 {number}, {counter.trips}")
            number = self.f.value(f"add i64 {number}, {turn}")
        return number

    def _call(self, job: Job, rows: tuple[str, str] | None) -> None:
        f = self.f
        told = [("i64", self._turn())] if job.kernel.has_checks and self.turns else []
        low, high = rows or ("0", str(job.parts))
        if rows and job.pitch > 1:
            low, high = (f.value(f"mul i64 {row}, {job.pitch}") for row in rows)
        shifts = _shifts(job.kernel)
        pointers = [("ptr", self._pointer(buffer, shifts[buffer], rows)) for buffer in buffers_of(job.kernel)]
        given = [("ptr", f["context"]), *pointers, ("i64", low), ("i64", high), ("ptr", f["scratch"])]
        given += [("ptr", self._behind(b, row, rows)) for b, row in self.program.ahead.get(job, {}).items()]
        given += told
        if job.ended is not None:
            given.append(("i64", self._number(View(job.ended.size))))
        f.call("void", self.program.functions[job], *given)

    def _behind(self, buffer: Buffer, row: int, rows: tuple[str, str] | None) -> str:
        """Where the rows of a buffer, of so many bytes each, go on behind those of a chunk; there may be none."""
        assert rows is not None
        return self.f.ahead(self._pointer(buffer), "i8", self.f.value(f"mul i64 {rows[1]}, {row}"))

    def _pointer(self, buffer: Buffer, shift: int = 0, rows: tuple[str, str] | None = None) -> str:
        """The address of the buffer's element ``shift``; of a buffer in scratch memory only ``rows`` are there."""
        f = self.f
        ahead = shift * buffer.dtype.itemsize
        if buffer in self.program.kept and rows is not None:
            kept = self.program.kept[buffer]
            missing = f.value(f"mul i64 {rows[0]}, {-kept.row_bytes}")
            base = f.ahead(f["scratch"], "i8", missing)
            return f.ahead(base, "i8", ahead + kept.offset)
        return self._place(self.registers.view(buffer), buffer.dtype.itemsize, ahead)

    def _place(self, view: View, itemsize: int, ahead: int = 0) -> str:
        """The address ``ahead`` of the first element of a view."""
        f = self.f
        if view.base in self.program.addressed:
            base = emit_pointer(f, self.program.addressed[view.base], f["step"])
        else:
            base = emit_pointer(f, ARENA)
            ahead += self.program.offsets[view.base]
        ahead += view.start * itemsize
        for counter, stride, period in view.moves:
            turn = self.turns[counter]
            if period:
                turn = f.value(f"urem i64 {turn}, {period}")
            distance = f.value(f"mul i64 {turn}, {stride * itemsize}")
            base = f.ahead(base, "i8", distance)
        return f.ahead(base, "i8", ahead)


def _in_turns(step: Step) -> bool:
    """Whether one thread runs a step from end to end, and more than once what is in it."""
    if isinstance(step, Region):
        return len(step.groups) == 1 and step.groups[0].chunks == 1 and step.groups[0].turns is not None
    return not isinstance(step, HostCall)


def _leaves(
    steps: Iterable[Step], asked: tuple[Buffer, ...] = ()
) -> Iterator[tuple[Step, tuple[Buffer, ...]]]:
    """What region functions are written of, in their order, and what tells whether each is run."""
    for step in steps:
        if isinstance(step, Choice):
            yield from _leaves(step.steps, (*asked, step.index.base))
        elif isinstance(step, Loop):
            yield from _leaves(step.steps, asked)
        else:
            yield step, asked


def _shifts(kernel: Kernel) -> dict[Buffer, int]:
    """How far into each buffer its pointer may be moved, so that kernels on other parts of it are the same code."""
    constants: dict[Buffer, list[int]] = {}
    for load in kernel.loads():
        constants.setdefault(load.buffer, []).append(load.offset.constant)
    for store in kernel.stores:
        constants.setdefault(store.buffer, []).append(store.offset.constant)
    return {buffer: max(0, min(found)) for buffer, found in constants.items()}


def _grains(group: Group, job: Job) -> list[int]:
    """How many turns of its first axis, or parts, a call of the job's kernel may be given."""
    if job.rows == group.rows > 1:
        return [rows * job.pitch for rows in group.grains()]
    return [job.kernel.axes[0].extent] if job.kernel.axes else [1]


def _turns(f: Function, around: Sequence[Counter]) -> dict[Counter, str]:
    """The turns of the loops around a region, which the runtime counts as one number."""
    turns: dict[Counter, str] = {}
    rest = f["iteration"]
    for counter in reversed(around):
        turns = {counter: f.value(f"urem i64 {rest}, {counter.trips}"), **turns}
        rest = f.value(f"udiv i64 {rest}, {counter.trips}")
    return turns


def emit_program(
    planned: Planned,
    overwriting: Set[Buffer],
    ready: Callable[[str], None] | None = None,
) -> Emitted:
    """The module of a program; results that are ``overwriting`` lie in the memory of an argument.

    ``ready`` is called with each part of the module as soon as it is written.
    """
    emitter = _Emitter(planned, overwriting, ready)
    runtime = tuple(emitter.step(step) for step in planned.steps)
    emitter.hand_over()
    return Emitted(
        emitter.module, runtime, tuple(emitter.checks), planned.scratch_bytes, tuple(emitter.calls)
    )


def _described(expression: Apply, loops: Sequence[Counter]) -> Check:
    """What an index check says when it fails, but for the value and its position."""
    attributes = dict(expression.attributes)
    low = -attributes["extent"] if attributes["wrap"] else 0
    load = index_load(expression)
    shape = () if load is None else load.buffer.shape
    around = tuple((counter.trips, counter.reverse) for counter in loops)
    return Check(attributes["what"], low, attributes["extent"], attributes.get("source"), shape, around)
