"""The compiled Python entry: the machine code behind every compiled function, without Python in between.

It is a ``PyCFunction`` bound to a tuple ``(address of a table, what is in it)``, which takes an array of arguments and
the tuple of keywords' names, as calls hand them over (compiled functions pass them on, ``objects.py``). A table lists
descriptors of signatures, and what is called when none of them fits. For each signature in turn the entry compares the
trees of arguments (``nodes.py``) and their leaves (``reading.py``); it refuses donated memory that overlaps another
argument; it makes the results, fills the context's slots, runs the driver and builds the tree of results. Nothing but
the results is allocated. Whatever it does not take (other classes, other byte orders, a program that is busy in another
thread, workers not yet started) it leaves to the function at the end of the table, or answers with ``NotImplemented``.

Arguments are held until the call ends: while the program runs without the interpreter lock, others may change the
containers that they came in.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from pullback.compiler.llvm.language import Record
from pullback.compiler.runtime.memory import structure
from pullback.compiler.runtime.signature import Signature

__all__ = ["ENTRY", "TABLE", "make_function"]

# The table: what is asked when no signature fits (or null), NotImplemented, int, how many descriptors, and these.
TABLE = Record(LAST="ptr", NOT_IMPLEMENTED="ptr", INT_TYPE="ptr", COUNT="i64", DESCRIPTORS="i64")

_METH_KEYWORDS, _METH_FASTCALL = 0x2, 0x80

ENTRY = """
# Whether these arguments, held in their records, are what a signature says: so many positional ones, and then those of
# keywords, if there is a tuple of their names.
def takes(descriptor: Descriptor, arguments: Pointers, given: i64, names: ptr, steps: i64) -> i1:
    taken = descriptor.TAKEN
    if given != taken.COUNT:
        return False
    for index in range(given):
        if not match(descriptor, taken.PARTS[index], arguments[index]):
            return False
    keywords = descriptor.KEYWORDS
    named = 0
    if names is not None:
        named = PyTuple_Size(names)
    if named != keywords.COUNT:
        return False
    for index in range(named):
        if not match(descriptor, keywords.PARTS[2 * index], PyTuple_GetItem(names, index)):
            return False
        if not match(descriptor, keywords.PARTS[2 * index + 1], arguments[given + index]):
            return False
    return descriptor.DONATED == 0 or not overlaps(descriptor.SPECS, descriptor.ARGUMENTS, steps)

# Whether the first argument is of another class, or rank, than a signature says; nothing is written to see that.
def differs(descriptor: Descriptor, arguments: Pointers, given: i64) -> i1:
    spec = descriptor.FIRST
    if spec is None or given == 0:
        return False
    object: Object = arguments[0]
    if object.TYPE == descriptor.ARRAY_TYPE:
        return object.RANK != i32(spec.RANK)
    return object.TYPE != spec.SCALAR and object.TYPE != spec.PYTHON

# The results of a call by one signature, null with Python's error set, or the descriptor itself if it does not fit.
def attempt(descriptor: Descriptor, arguments: Pointers, given: i64, names: ptr, steps: i64) -> ptr:
    if differs(descriptor, arguments, given):
        return descriptor
    context = descriptor.CONTEXT
    pool = context.POOL
    if steps >= context.SHARE_FROM and pool.STARTED + 1 < pool.WANTED:
        return descriptor
    if pullback_take(context) != 0:
        return descriptor
    if descriptor.IS_RUN != 0:
        set_steps(descriptor.SPECS, descriptor.ARGUMENTS + descriptor.RESULTS, steps)
    if takes(descriptor, arguments, given, names, steps):
        answer = results_of(descriptor, steps)
        if answer is None:
            give_up(descriptor)
            return None
    else:
        answer = descriptor
    release_objects(descriptor.SPECS, descriptor.ARGUMENTS)
    pullback_give(context)
    return answer

# Run the program on arguments that are held; null with Python's error set.
def results_of(descriptor: Descriptor, steps: i64) -> ptr:
    context = descriptor.CONTEXT
    slots = Slot(context + FIRST_ARGUMENT)
    point(descriptor.SPECS, descriptor.ARGUMENTS, slots)
    if not make_results(descriptor, slots[descriptor.ARGUMENTS], steps):
        return None
    status = pullback_run(context, steps)
    if status == STATUS_FAILED:
        PyObject_CallObject(descriptor.FAILED, None)
    if status == STATUS_FAILED or status == STATUS_INTERRUPTED or not make_scalars(descriptor):
        return None
    results = build(descriptor, descriptor.MADE)
    if results is None or descriptor.IS_RUN == 0:
        return results
    return pair_with(results, context.STEPS_DONE)

# Let go of everything; Python's error is set, and shown as the caller is to see it.
def give_up(descriptor: Descriptor):
    type: Pointers = reserve(8)
    error: Pointers = reserve(8)
    trace: Pointers = reserve(8)
    shown = descriptor.SHOWN
    # whatever is let go of must not meet the exception
    PyErr_Fetch(type, error, trace)
    release_objects(descriptor.SPECS, descriptor.ARGUMENTS + descriptor.RESULTS)
    pullback_give(descriptor.CONTEXT)
    if shown is None:
        PyErr_Restore(type[0], error[0], trace[0])
        return
    PyErr_NormalizeException(type, error, trace)
    if trace[0] is not None:
        PyException_SetTraceback(error[0], trace[0])
        Py_DecRef(trace[0])
    PyObject_CallFunctionObjArgs(shown, error[0], None)
    Py_DecRef(error[0])
    Py_DecRef(type[0])

# A tuple of the results, whose reference is taken, and a number; null with Python's error set if memory is short.
def pair_with(results: ptr, number: i64) -> ptr:
    count = PyLong_FromLongLong(number)
    pair: ptr = None
    if count is not None:
        pair = PyTuple_Pack(2, results, count)
        Py_DecRef(count)
    Py_DecRef(results)
    return pair

# What the first signature of a table that fits makes of a call, and otherwise the table itself.
def attempts(table: Table, arguments: Pointers, given: i64, names: ptr, steps: i64) -> ptr:
    descriptors = Pointers(address(table.DESCRIPTORS))
    for index in range(table.COUNT):
        descriptor: Descriptor = descriptors[index]
        answer = attempt(descriptor, arguments, given, names, steps)
        if answer != descriptor:
            return answer
    return table

def table_of(self: ptr) -> Table:
    return PyLong_AsVoidPtr(PyTuple_GetItem(self, 0))

def not_implemented(table: Table) -> ptr:
    Py_IncRef(table.NOT_IMPLEMENTED)
    return table.NOT_IMPLEMENTED

# A call with an array of arguments, those of keywords last, and the tuple of their names.
def pullback_entry(self: ptr, arguments: Pointers, given: i64, names: ptr) -> ptr:
    table = table_of(self)
    answer = attempts(table, arguments, given, names, 1)
    if answer != table:
        return answer
    if table.LAST is None:
        return not_implemented(table)
    return call_object(table.LAST, arguments, given, names)

# Of arguments, and a number of steps behind them: the results and the steps done, or NotImplemented.
def pullback_run_entry(self: ptr, arguments: Pointers, given: i64, no_names: ptr) -> ptr:
    table = table_of(self)
    overflow: Ints = reserve(4)
    last = given - 1
    number: Object = arguments[last]
    if number.TYPE == table.INT_TYPE:
        steps = PyLong_AsLongLongAndOverflow(number, overflow)
        if 0 < steps and steps <= LONGEST:
            answer = attempts(table, arguments, last, None, steps)
            if answer != table:
                return answer
    return not_implemented(table)

# The end of a capsule that holds a context: what it lies in is let go once no worker is in it. A finaliser written in
# Python would be the place where Ctrl-C is dropped, and where it keeps the workers from being waited for.
def pullback_release(capsule: ptr):
    context = Context(PyCapsule_GetPointer(capsule, None))
    pullback_quiesce(context)
    Py_DecRef(PyCapsule_GetContext(capsule))
"""


_definitions: dict[int, list[ctypes.Array[ctypes.c_char]]] = {}
"""For each address Python's PyMethodDef, and the texts that it names."""


def make_function(
    entry_address: int, signatures: Sequence[Signature], last: Callable[..., Any] | None = None
) -> Any:
    """A Python builtin that calls by the first of the signatures that fits; it keeps them alive.

    ``last`` is called with the arguments that fit none; without it they are answered with ``NotImplemented``.
    """
    if entry_address not in _definitions:
        texts = [ctypes.create_string_buffer(text) for text in (b"program", b"Run a compiled program.")]
        name, told = map(ctypes.addressof, texts)
        definition = structure("PPiP", name, entry_address, _METH_FASTCALL | _METH_KEYWORDS, told)
        _definitions[entry_address] = [definition, *texts]
    words = [0 if last is None else id(last), id(NotImplemented), id(int), len(signatures)]
    words += [signature.address for signature in signatures]
    table = (ctypes.c_int64 * len(words))(*words)
    bound = (ctypes.addressof(table), table, tuple(signatures), last)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p],
    )
    return make(ctypes.addressof(_definitions[entry_address][0]), bound, None)
