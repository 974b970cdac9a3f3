"""Memory of results that were let go, for the next results of as many bytes.

The system gives fresh pages to who asks for memory, one at a time and each filled with zeros: for what a small network
returns, its gradients say, that takes longer than to compute it. So a result, unless it is small, is an array over
memory that a capsule holds. When the last array over it is gone, the capsule's destructor lays it into one of some
lists, and the next result of that size takes it from there. Once more than ``MOST_KEPT`` bytes would wait, all that
waits is let go.

The memory itself is an array of bytes, so NumPy asks for it and gives it back; while it waits, its first bytes are the
address of the next one in its list. One thread at a time is at the lists; others do without.
"""

from __future__ import annotations

import ctypes

import numpy as np

from pullback.compiler.llvm.language import Record
from pullback.compiler.runtime.memory import MappedMemory
from pullback.compiler.runtime.signature import numpy_function
from pullback.ownership import MEMORY

__all__ = [
    "KEPT", "LEAST_KEPT", "LISTS", "LIST_BITS", "MOST_KEPT", "MOST_LOOKED_AT", "RECYCLING", "SCATTERING",
    "Recycler",
]  # fmt: skip

LEAST_KEPT = 1 << 10
"""Bytes of a result from which on its memory is kept: what is smaller the system's allocator has at hand."""

MOST_KEPT = 1 << 27
"""Bytes that wait at most."""

LIST_BITS = 6
LISTS = 1 << LIST_BITS

SCATTERING = 0x5851F42D4C957F2D
"""An odd number (Knuth's, of MMIX) whose products with sizes differ in their first bits, powers of two among them."""

MOST_LOOKED_AT = 16
"""Of a list, for memory of a size: it holds other sizes, too, and may be long."""

KEPT = Record(
    BUSY="i32",  # a thread is at the lists
    HELD="i64",  # bytes that wait
    BYTE="ptr",  # numpy.dtype object
    SET_BASE="ptr",  # PyArray_SetBaseObject
    END="ptr",  # the destructor of capsules
    NAME="ptr",  # theirs
    HEADS="i64",  # of each list the first array, or null
)

_SET_BASE_OBJECT = 282  # its place in NumPy's table of functions

RECYCLING = """
# Where the list begins that memory of so many bytes is in.
def list_of(kept: Kept, bytes: i64) -> Pointers:
    return Pointers(address(kept.HEADS) + 8 * (bytes * SCATTERING >> 64 - LIST_BITS))

# Memory of so many bytes that waits, or null.
def waiting_memory(kept: Kept, bytes: i64) -> Object:
    found: Object = None
    if pullback_take(kept) != 0:
        return found
    place = list_of(kept, bytes)
    memory: Object = place[0]
    looks = 0
    while memory is not None and found is None and looks < MOST_LOOKED_AT:
        looks += 1
        after = Pointers(memory.DATA)
        if memory.SHAPE[0] == bytes:
            place[0] = after[0]
            kept.HELD -= bytes
            found = memory
        place = after
        memory = after[0]
    pullback_give(kept)
    return found

# A new array over the memory given, or new one; null with Python's error set if memory is short.
def new_array(descriptor: Descriptor, dtype: ptr, rank: i64, shape: ptr, data: ptr) -> Object:
    flags = i32(0) if data is None else i32(CARRAY)
    # the call takes it
    Py_IncRef(dtype)
    return call(
        Object, descriptor.NEW_ARRAY, descriptor.ARRAY_TYPE, dtype, i32(rank), shape, None, data, flags, None,
    )

# A new array over memory that has waited, or new memory; null with Python's error set if it is short.
def recycled_array(descriptor: Descriptor, spec: Spec, bytes: i64) -> Object:
    kept = descriptor.KEPT
    nothing: Object = None
    memory = waiting_memory(kept, bytes)
    if memory is None:
        shape: Words = reserve(8)
        shape[0] = bytes
        memory = new_array(descriptor, kept.BYTE, 1, shape, None)
        if memory is None:
            return nothing
    capsule = PyCapsule_New(memory, kept.NAME, kept.END)
    if capsule is None:
        Py_DecRef(memory)
        return nothing
    PyCapsule_SetContext(capsule, kept)
    array = new_array(descriptor, spec.DTYPE, spec.RANK, spec.SHAPE, memory.DATA)
    if array is None:
        Py_DecRef(capsule)
        return nothing
    # takes the capsule in any case
    if call(i32, kept.SET_BASE, array, capsule) != 0:
        Py_DecRef(array)
        return nothing
    return array

# Let go of all that waits.
def let_go(kept: Kept):
    heads = Pointers(address(kept.HEADS))
    for index in range(LISTS):
        memory: Object = heads[index]
        heads[index] = None
        while memory is not None:
            after: Object = Pointers(memory.DATA)[0]
            Py_DecRef(memory)
            memory = after
    kept.HELD = 0

# The end of a capsule that holds memory: nobody reads it any more.
def pullback_recycle(capsule: ptr):
    memory = Object(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)))
    kept = Kept(PyCapsule_GetContext(capsule))
    bytes = memory.SHAPE[0]
    if bytes > MOST_KEPT or pullback_take(kept) != 0:
        Py_DecRef(memory)
        return
    if kept.HELD + bytes > MOST_KEPT:
        let_go(kept)
    place = list_of(kept, bytes)
    Pointers(memory.DATA)[0] = place[0]
    place[0] = memory
    kept.HELD += bytes
    pullback_give(kept)
"""


class Recycler:
    """The lists of memory that waits, in this process; ``address`` is where they are."""

    def __init__(self, end: int) -> None:
        self._memory = MappedMemory(KEPT["HEADS"] + 8 * LISTS)
        self.address = self._memory.address
        self._byte, self._name = np.dtype(np.uint8), ctypes.create_string_buffer(MEMORY)
        known = {
            "BYTE": id(self._byte),
            "SET_BASE": numpy_function(_SET_BASE_OBJECT),
            "END": end,
            "NAME": ctypes.addressof(self._name),
        }
        self._memory.write(self.address, KEPT, known)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))  # arrays may end after all modules have

    @property
    def held(self) -> int:
        """The bytes that wait."""
        return self._memory.word(self.address + KEPT["HELD"])
