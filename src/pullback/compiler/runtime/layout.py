"""Where things lie in a program's memory, and the instructions with which region functions find them.

Every structure that both Python and machine code touch is described once, as a record, most of them here.

>>> module = Module()
>>> f = region_function(module, "copy_one")
>>> x, y = (emit_pointer(f, slot, f["step"]) for slot in (1, 2))  # of one argument, and of the result
>>> f.do(f"store double {f.value(f'load double, ptr {x}, align 8')}, ptr {y}, align 8")
>>> print(module.text().splitlines()[0])
define void @copy_one(ptr %context, i64 %step, i64 %iteration, i64 %chunk, ptr %scratch) nounwind {
"""

from __future__ import annotations

from pullback.compiler.llvm.function import Function, Module
from pullback.compiler.llvm.language import Record
from pullback.compiler.target import APART_BYTES, LINE_BYTES

__all__ = [
    "ARENA",
    "MAX_CHUNKS",
    "TURN_SHIFT",
    "emit_ask",
    "emit_call_word",
    "emit_failure",
    "emit_host_call",
    "emit_is_well",
    "emit_pointer",
    "region_function",
]

# The claims of a range of a region's chunks: visit (44 bits) | taken from the back (10) | taken from the front (10).
# One word holds all, so one compare-and-swap claims chunks and the word only ever grows. What is done stands in a word
# of its own: visit | chunks done, or the following visit and 0 when all are. Others wait on that one, and each is
# alone on a pair of cache lines, so that an owner finds its claims in its own cache.
COUNT_BITS = 10
VISIT_SHIFT = 2 * COUNT_BITS
MAX_CHUNKS = (1 << COUNT_BITS) - 1
MAX_VISITS = 1 << (64 - VISIT_SHIFT)
MAX_RANGES = 16
RANGE = Record(2 * APART_BYTES, CLAIMS="i64", DONE=(APART_BYTES, "i64"))

CONTEXT = Record(
    BUSY="i32",  # a call is using this context
    TABLE="Entry",  # the schedule's entries
    ENTRIES="i64",  # how many
    SCRATCH="ptr",  # the first thread's scratch area
    SCRATCH_STRIDE="i64",  # bytes from one thread's area to the next
    WIDTH="i64",  # threads that have a scratch area
    WATCH_KIND="i64",  # 0 nothing, 1 float32, 2 float64
    WATCH_SLOT="i64",  # byte offset in the context of the slot of the watched result
    EPOCH_LIMIT="i64",  # visits would overflow at this epoch
    STEPS_DONE="i64",  # steps finished by the latest run
    CALLS="Pointers",  # for each call out of the program the Python object, or the address, that is called
    CALLER="Caller",  # what the caller needs to look for signals within the step, or null
    WORDS="Range",  # the words of the first entry
    RANGES="i64",  # words of each entry
    FLUSHES="i64",  # 1 if subnormal numbers are zeros to the program
    POOL="Pool",  # the control block of the workers that may be in this context
    EPOCH=(128, "i64"),  # steps ever begun side by side; alone on its cache line, threads wait on it
    FAILURE_LOCK=(192, "i32"),
    FAILURE_CODE="i64",  # 0 while all is well
    FAILURE_POSITION="i64",
    FAILURE_VALUE="i64",
    RAISED="i64",  # 1 once a function out of the program has raised an exception
    SHARE_FROM=(256, "i64"),  # runs of so many steps and more are shared with other threads
    RELEASE_FROM="i64",  # and so many give the interpreter lock away
    # Of trials of numbers of threads, which only the caller looks at:
    STEP_NANOSECONDS="i64",  # of a step on one thread, as estimated; 0 where nothing is tried
    MOST="i64",  # threads that a run might have when the latest trial began
    THREADS="i64",  # those that are the fastest so far
    NANOSECONDS="i64",  # the least time of a step with these
    TRIED="i64",  # threads that are tried beside them, 0 between two trials
    TRIED_NANOSECONDS="i64",
    ROWS="i64",  # rows of parts done, with either number in turns
    PARTS="i64",  # parts of this row, and their nanoseconds
    PASSED="i64",
    SPENT="i64",  # nanoseconds of this trial
    LEFT="i64",  # nanoseconds until the next one
    FACTOR="i64",  # what these are of those
    SETTLED="i64",  # threads that were the fastest in the trial before
)
# What the caller of a run has on its stack, to look for signals: when it last did, its thread state, whether a handler
# raised, whether the region that it is in may be left, and the mode in which its thread came.
CALLER = Record(MILLISECONDS="i64", THREAD_STATE="ptr", RAISED="i64", OPEN="i64", MODE="i64")
CALLER_BYTES = CALLER.size
SLOTS_OFFSET = 384
SLOT = Record(BASE="ptr", STRIDE="i64")  # an address, and bytes per step
ARENA = 0  # the number of the arena's slot; those of arguments, results and constants follow in this order

# An entry of the schedule, read only.
ENTRY = Record(
    LINE_BYTES,
    KIND="i64",  # REGION, REPEAT_BEGIN or REPEAT_END
    FUNCTION="ptr",
    COUNT="i64",  # chunks of a region, trips of a loop
    TARGET="i64",  # the first entry of the loop's body
    OPEN="i64",  # 1 if a step may be left there: nothing has been written in place yet
    CALLERS="i64",  # 1 if no thread but the caller may run it
)
REGION, REPEAT_BEGIN, REPEAT_END = 0, 1, 2

# The worker pool's control block.
POOL = Record(
    GENERATION="i64",  # odd while a run is open to workers
    STOP="i64",
    SLEEPERS=(64, "i32"),  # for each rank of workers those that sleep
    BUSY=(128, "i32"),  # a caller is using the pool
    STARTED=(192, "i64"),  # workers alive
    WANTED="i64",  # threads that a run should have, the caller included
    CONTEXT=(256, "Context"),  # the open run: with its first epoch, last epoch, threads
    FIRST="i64",
    LAST="i64",
    LIMIT="i64",
    START="i64",  # the number of the first step in its run
    IN_USE=(320, "i64"),  # of each worker a record
)
WORKER = Record(LINE_BYTES, CONTEXT="Context")  # the context that it is in
MAX_THREADS = 1024
POOL_BYTES = POOL["IN_USE"] + WORKER.size * MAX_THREADS

TURN_SHIFT = 32  # a failure's position has the turn of the loops around it above so many bits
INTERRUPTED = -1  # the failure code of a run that a signal handler ended
STATUS_DONE, STATUS_FAILED, STATUS_NOT_FINITE, STATUS_INTERRUPTED = 0, 1, 2, 3

_PARAMETERS = [
    ("ptr", "context"),
    ("i64", "step"),
    ("i64", "iteration"),
    ("i64", "chunk"),
    ("ptr", "scratch"),
]


def slot_offset(slot: int) -> int:
    """The byte offset of a slot in the context."""
    return SLOTS_OFFSET + SLOT.size * slot


def region_function(module: Module, name: str) -> Function:
    """Open the function of a region; its parameters are ``f["context"]``, ``f["step"]``, ``f["chunk"]``, …"""
    return module.function(name, _PARAMETERS)


def emit_pointer(function: Function, slot: int, step: str | None = None) -> str:
    """The address that a slot holds; with ``step`` (an i64 value), advanced by the slot's stride per step."""
    entry = function.ahead(function["context"], "i8", slot_offset(slot))
    base = function.value(f"load ptr, ptr {entry}, align 8")
    if step is None:
        return base
    stride = function.value(f"load i64, ptr {function.ahead(entry, 'i8', 8)}, align 8")
    return function.ahead(base, "i8", function.value(f"mul i64 {step}, {stride}"))


def emit_failure(function: Function, code: int, position: str, value: str) -> None:
    """Record that something is wrong with the values; the region is finished and the program then stops.

    ``code`` says what, from 1 on; ``position`` and ``value`` are i64 values. Among the failures of a region
    the lowest position (then the lowest code) is kept, whatever the order in which threads found
    them.
    """
    function.module.declare("void @pullback_failure(ptr, i64, i64, i64) cold")
    values = f"ptr {function['context']}, i64 {code}, i64 {position}, i64 {value}"
    function.do(f"call void @pullback_failure({values})")


def emit_host_call(function: Function, number: int, addresses: list[str]) -> None:
    """Call the Python object ``number`` of the program with the address of a table of ``addresses``.

    In a region that is the caller's only (``RegionSpec.callers``). If it raises, no later region starts, and the
    exception is the call's. Nothing is called once a failure is recorded.
    """
    table = function.reserve(f"[{max(1, len(addresses))} x ptr]")
    for k, address in enumerate(addresses):
        place = function.value(f"getelementptr ptr, ptr {table}, i64 {k}")
        function.do(f"store ptr {address}, ptr {place}, align 8")
    function.call("void", "pullback_call", ("ptr", function["context"]), ("i64", f"{number}"), ("ptr", table))


def emit_call_word(function: Function, number: int) -> str:
    """The word ``number`` of the program's calls: the address of a routine, or of a Python object."""
    at = function.ahead(function["context"], "i8", CONTEXT["CALLS"])
    calls = function.value(f"load ptr, ptr {at}, align 8")
    word = function.value(f"getelementptr ptr, ptr {calls}, i64 {number}")
    return function.value(f"load ptr, ptr {word}, align 8")


def emit_is_well(function: Function) -> str:
    """Whether nothing is wrong so far: what repeats itself by what it computes must not go on from wrong values."""
    at = function.ahead(function["context"], "i8", CONTEXT["FAILURE_CODE"])
    code = function.value(f"load atomic i64, ptr {at} acquire, align 8")
    return function.value(f"icmp eq i64 {code}, 0")


def emit_ask(function: Function) -> None:
    """Look for signals where a chunk may take any time; when a handler has raised, all is no longer well."""
    # cold: what a loop has in registers is saved only where it asks
    function.module.declare("void @pullback_ask(ptr, ptr) cold")
    function.do(f"call void @pullback_ask(ptr {function['context']}, ptr {function['scratch']})")
