"""A compiled program: machine code, its schedule, its memory, and the ways to call it.

>>> from pullback.compiler.llvm.function import Module
>>> from pullback.compiler.runtime.engine import load
>>> from pullback.compiler.runtime.layout import emit_pointer, region_function
>>> from pullback.compiler.target import Processor
>>> module = Module()
>>> f = region_function(module, "double_one")
>>> x, y = (emit_pointer(f, slot, f["step"]) for slot in (1, 2))
>>> value = f.value(f"load double, ptr {x}, align 8")
>>> f.do(f"store double {f.value(f'fadd double {value}, {value}')}, ptr {y}, align 8")
>>> program = Program(
...     load(module.text(), Processor.host()),
...     arguments=[Type(np.dtype("float64"), ())],
...     results=[Type(np.dtype("float64"), ())],
...     regions=[RegionSpec("double_one")],
... )
>>> program(np.array(21.0))
(array(42.),)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.compiler.runtime import layout
from pullback.compiler.runtime.arguments import conform
from pullback.compiler.runtime.engine import Loaded
from pullback.compiler.runtime.entry import make_function
from pullback.compiler.runtime.machine import machine
from pullback.compiler.runtime.memory import MappedMemory
from pullback.compiler.runtime.signature import Signature, Trees, flat
from pullback.compiler.runtime.specs import Failure, RegionSpec, RepeatSpec, Scheduled
from pullback.compiler.runtime.threads import get_num_threads
from pullback.compiler.target import APART_BYTES, LINE_BYTES, Processor
from pullback.compiler.target.runs import LONGEST_TRIED, RELEASED_RUN, SHARED_RUN
from pullback.errors import IndexRangeError
from pullback.graph import Type

__all__ = ["Failure", "Program", "RegionSpec", "RepeatSpec", "working_bytes", "working_threads"]

_HUGE_PAGE = 2 << 20

EVER = 1 << 62
"""More steps than there are."""


def _explain(failure: Failure) -> Exception:
    return IndexRangeError(
        f"compiled program: failure {failure.code} at position {failure.position}, value {failure.value}"
    )


@dataclass(eq=False, repr=False)
class Program:
    """Loaded machine code that is called with NumPy arrays.

    ``donated`` has the argument that each result takes over the memory of, by number; all other results are new.
    ``regions`` is the schedule (see the package's description of region functions); ``arena_bytes``
    and ``scratch_bytes`` the memory that region functions use; ``constants`` arrays that they read;
    ``cost`` the estimated nanoseconds of one step on one thread, ``saving`` those that a second
    thread saves of each; ``watch_result`` the index of a
    float32 or float64 result that ends a run of several steps as soon as it is not finite;
    ``explain`` makes the exception for a failure that the code recorded; ``calls`` are what the code calls by
    their numbers: Python functions of the address of a table of addresses, or the addresses of routines; ``names`` are
    what errors call arguments; those beyond them are called by their numbers.

    Two threads may call one program at once: each then works in memory of its own.
    """

    code: Loaded
    _: KW_ONLY
    arguments: Sequence[Type]
    results: Sequence[Type]
    donated: Mapping[int, int] = field(default_factory=dict)
    regions: Sequence[Scheduled]
    arena_bytes: int = 0
    scratch_bytes: int = 0
    constants: Sequence[NDArray[Any]] = ()
    cost: float = math.inf
    saving: float = math.inf
    watch_result: int | None = None
    explain: Callable[[Failure], Exception] = _explain
    calls: Sequence[Callable[[int], None] | int] = ()
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.constants = tuple(np.ascontiguousarray(constant) for constant in self.constants)
        unnamed = range(len(self.names), len(self.arguments))
        self.names = (*self.names, *[f"argument {k}" for k in unnamed])
        self.overwritten = frozenset(self.donated.values())
        #: How many slots there are: of the arena, arguments, results and constants.
        self.slots = 1 + len(self.arguments) + len(self.results) + len(self.constants)
        self.steps_done = 0
        #: From how many steps on a run is shared with other threads.
        self.share_from = steps_from(SHARED_RUN, self.cost) if self.saving > 0 else EVER
        self._check()
        self._instances = [_Instance(self)]
        #: The compiled function: a tuple of arrays, or ``NotImplemented`` where ``program(...)`` has to help.
        self.entry: Callable[..., Any] = self._instances[0].function

    def _check(self) -> None:
        for target, index in self.donated.items():
            argument, result = self.arguments[index], self.results[target]
            if (argument.dtype, argument.shape) != (result.dtype, result.shape):
                raise ValueError(f"argument {index} {argument} cannot become result {target} {result}")
        watched = None if self.watch_result is None else self.results[self.watch_result].dtype.str[1:]
        if watched not in (None, "f4", "f8"):
            raise ValueError(f"watched result {self.watch_result} is not float32 or float64")

    def __call__(self, *arrays: Any) -> tuple[NDArray[Any], ...]:
        """Run one step and return its results; donated arguments come back as the results that they became.

        Takes what has the right dtype and shape, copying where memory order, byte order or class
        are not NumPy's own; a donated argument is taken as it is. Raises ``ShapeError``,
        ``DTypeError`` or ``DonationError`` for what does not fit, and what ``explain`` makes of a
        failure inside.
        """
        outcome = self.entry(*arrays)
        return outcome if outcome is not NotImplemented else self._call_helped(arrays)

    def with_copies(self, arrays: Sequence[Any]) -> list[Any]:
        """The arguments of a call, with copies of those that it overwrites."""
        return [np.array(array) if k in self.overwritten else array for k, array in enumerate(arrays)]

    def _call_helped(self, arrays: Sequence[Any]) -> tuple[NDArray[Any], ...]:
        prepared = conform(self.arguments, self.overwritten, arrays, self.names)
        machine().pool.start()
        for instance in tuple(self._instances):
            outcome = instance.function(*prepared)
            if outcome is not NotImplemented:
                return outcome  # type: ignore[no-any-return]
        results, _ = self.run(prepared)
        return tuple(results)

    def run(
        self, arrays: Sequence[Any], steps: int = 1, sliced: Collection[int] | None = None
    ) -> tuple[list[NDArray[Any]], int]:
        """The results of many steps, or of one, and how many were done.

        Arguments with the numbers ``sliced`` have a first axis of steps, and then all results have one that are not
        carried. Takes and refuses what a call does.
        """
        count = len(self.arguments)
        cut = [k in (sliced or ()) for k in range(count)]
        cut += [sliced is not None and k not in self.donated for k in range(len(self.results))]
        types = [*self.arguments, *self.results]
        strides = [type.nbytes if is_cut else 0 for type, is_cut in zip(types, cut)]
        types = [
            type.with_shape((steps, *type.shape)) if is_cut else type for type, is_cut in zip(types, cut)
        ]
        given = conform(types[:count], self.overwritten, arrays, self.names)
        made = [
            given[self.donated[k]] if k in self.donated else np.empty(type.shape, type.dtype)
            for k, type in enumerate(types[count:])
        ]
        return made, self.run_steps([*given, *made], steps, strides)

    def run_steps(self, arrays: Sequence[NDArray[Any]], steps: int, strides: Sequence[int]) -> int:
        """Run many steps in one call, on arguments and in results as they are, and return how many were done.

        In step ``s`` an argument or a result is what lies ``s`` strides, of so many bytes, after the start of its
        array; a stride of 0 gives every step the same memory. Donated arguments carry their values from step to step
        and have the stride 0; their results are the same arrays. Arrays are C-contiguous and hold all steps.

        A run ends early after a step whose watched result is not finite (that step counts as done),
        with an exception if the code recorded a failure or a signal handler raised, such as
        ``KeyboardInterrupt``: then between two steps, ``steps_done`` says after how many.
        """
        if steps < 0:
            raise ValueError(f"run_steps of {steps} steps")
        if steps >= self.share_from:
            machine().pool.start()
        instance = self._taken_instance()
        try:
            for slot, (array, stride) in enumerate(zip(arrays, strides), start=1):
                instance.point_slot(slot, array.ctypes.data, stride)
            if machine().run(instance.context, steps) == layout.STATUS_FAILED:
                instance.failed()
        finally:
            done = self.steps_done = instance.word("STEPS_DONE")  # another thread's call may change it
            machine().give(instance.context)
        return done

    def signature(self, trees: Trees, sliced: Collection[int] | None = None, **options: Any) -> Signature:
        """Another way to call the program, with trees of arguments: for ``make_function``."""
        return Signature(self._instances[0], trees, sliced=sliced, **options)

    def _taken_instance(self) -> _Instance:
        while True:
            for instance in tuple(self._instances):
                if machine().take(instance.context) == 0:
                    return instance
            self._instances.append(_Instance(self))  # no lock: a fork must not find one taken


def steps_from(nanoseconds: float, cost: float) -> int:
    """The least number of steps, each of ``cost``, that take so many nanoseconds.

    >>> steps_from(5_000, 300.0), steps_from(5_000, float("inf"))
    (17, 1)
    """
    return EVER if cost <= 0 else max(1, min(EVER, math.ceil(nanoseconds / cost)))


def working_threads(processor: Processor) -> int:
    """For how many threads a program has scratch memory."""
    return max(get_num_threads(), processor.cores)


def working_bytes(arena_bytes: int, scratch_bytes: int, processor: Processor) -> int:
    """The memory that a program takes for itself: its arena, and scratch memory for each thread."""
    return arena_bytes + working_threads(processor) * _scratch_stride(scratch_bytes)


def _scratch_stride(scratch_bytes: int) -> int:
    """Threads never share a pair of cache lines."""
    return (-(-scratch_bytes // APART_BYTES) + 1) * APART_BYTES


class _Instance:
    """One set of memory in which a program runs: context, schedule, arena, scratch."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.kept = machine().recycler.address
        alignment = _HUGE_PAGE if program.arena_bytes >= 2 * _HUGE_PAGE else LINE_BYTES
        width = working_threads(program.code.processor)
        scratch_stride = _scratch_stride(program.scratch_bytes)
        self._arena = MappedMemory(program.arena_bytes, alignment)
        self._scratch = MappedMemory(scratch_stride * width, APART_BYTES)
        context_bytes = layout.slot_offset(program.slots)
        self._memory = MappedMemory(context_bytes, APART_BYTES)
        self.context = self._memory.reserve(context_bytes, APART_BYTES)
        self._write_context(width, scratch_stride)
        # What a worker may still be looking at when this object goes, the machine code among it.
        owners = self._memory, self._arena, self._scratch, program.code, program.constants
        self._held = machine().hold(self.context, owners)
        #: What the compiled entry calls where a failure is recorded.
        self.failed = self._raise_failure
        plain = Signature(self, flat(len(program.arguments), len(program.results)))
        signatures = [plain] if machine().reads_arrays else []
        self.function = make_function(machine().code.address("pullback_entry"), signatures)

    def _write_context(self, width: int, scratch_stride: int) -> None:
        program, ranges = self.program, min(width, layout.MAX_RANGES)
        entries, trips = _flatten(program)
        table = self._memory.records(layout.ENTRY, entries)
        watched = program.watch_result
        values = {
            "TABLE": table.start,
            "ENTRIES": len(entries),
            "SCRATCH": self._scratch.address,
            "SCRATCH_STRIDE": scratch_stride,
            "WIDTH": width,
            "WORDS": self._memory.reserve(layout.RANGE.size * ranges * len(entries), APART_BYTES),
            "RANGES": ranges,
            "WATCH_KIND": 0 if watched is None else program.results[watched].dtype.itemsize // 4,
            "WATCH_SLOT": 0 if watched is None else layout.slot_offset(1 + len(program.arguments) + watched),
            "EPOCH_LIMIT": layout.MAX_VISITS // trips - 1,
            "EPOCH": 1,
            "STEP_NANOSECONDS": math.ceil(program.cost) if program.cost < LONGEST_TRIED else 0,
            "FLUSHES": int(program.code.processor.flush_subnormals),
            "POOL": machine().pool.address,
            "SHARE_FROM": program.share_from,
            "RELEASE_FROM": steps_from(RELEASED_RUN, program.cost),
            "CALLS": self._memory.put(
                [call if isinstance(call, int) else id(call) for call in program.calls]
            ),
        }
        self._memory.write(self.context, layout.CONTEXT, values)
        self.point_slot(layout.ARENA, self._arena.address, 0)
        for slot, constant in enumerate(program.constants, program.slots - len(program.constants)):
            self.point_slot(slot, constant.ctypes.data, 0)

    def point_slot(self, slot: int, address: int, stride: int) -> None:
        at = self.context + layout.slot_offset(slot)
        self._memory.set_word(at, address)
        self._memory.set_word(at + 8, stride)

    def word(self, name: str) -> int:
        """A field of the context."""
        return self._memory.word(self.context + layout.CONTEXT[name])

    def _raise_failure(self) -> None:
        words = map(self.word, ("FAILURE_CODE", "FAILURE_POSITION", "FAILURE_VALUE", "STEPS_DONE"))
        raise self.program.explain(Failure(*words))


def _flatten(program: Program) -> tuple[list[dict[str, int]], int]:
    """The schedule's entries, and the most visits that one has in one step."""
    entries: list[dict[str, int]] = []
    visits, open = 1, True

    def add(items: Sequence[Scheduled], trips: int) -> None:
        nonlocal visits, open
        visits = max(visits, trips)
        for item in items:
            open = open and not (program.donated and _writes(item))
            if isinstance(item, RegionSpec):
                entries.append(
                    {
                        "KIND": layout.REGION,
                        "FUNCTION": program.code.address(item.function),
                        "COUNT": item.chunks,
                        "OPEN": int(open),
                        "CALLERS": int(item.callers),
                    }
                )
            elif item.trips > 0 and item.regions:
                entries.append({"KIND": layout.REPEAT_BEGIN, "COUNT": item.trips})
                start = len(entries)
                add(item.regions, trips * item.trips)
                entries.append({"KIND": layout.REPEAT_END, "COUNT": item.trips, "TARGET": start})

    add(program.regions, 1)
    if visits * 4 > layout.MAX_VISITS:
        raise ValueError(
            f"a region is repeated {visits} times in one step, at most {layout.MAX_VISITS // 4} can be"
        )
    return entries, visits


def _writes(item: Scheduled) -> bool:
    """Whether anything of it writes in place."""
    return item.writes if isinstance(item, RegionSpec) else any(map(_writes, item.regions))
