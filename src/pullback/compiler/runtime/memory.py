"""Aligned memory outside Python's heap, and words in it."""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from pullback.compiler.llvm.language import Record
from pullback.compiler.target import LINE_BYTES

__all__ = ["MappedMemory", "page_function", "structure"]


class MappedMemory:
    """``size`` bytes of zeros at an ``address`` of the given alignment; what is reserved beyond them lies elsewhere.

    The system gives pages when they are first touched; large blocks ask for huge ones. A forked
    child has its own copy, which the default of ``mmap`` (shared memory) would not give.
    """

    def __init__(self, size: int, alignment: int = LINE_BYTES) -> None:
        self._blocks: list[tuple[mmap.mmap, ctypes.Array[ctypes.c_char]]] = []
        self.address = self._block(size, alignment)

    def _block(self, size: int, alignment: int) -> int:
        """The address of a new block."""
        length = max(size, 1) + alignment
        if hasattr(mmap, "MAP_PRIVATE"):
            block = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            block = mmap.mmap(-1, length)
        if alignment > mmap.PAGESIZE and hasattr(mmap, "MADV_HUGEPAGE"):
            block.madvise(mmap.MADV_HUGEPAGE)
        there = (ctypes.c_char * length).from_buffer(block)
        self._blocks.append((block, there))
        self._free = -(-ctypes.addressof(there) // alignment) * alignment
        self._end = self._free + size
        return self._free

    def reserve(self, size: int, alignment: int = LINE_BYTES) -> int:
        """The address of ``size`` bytes that nobody else has reserved."""
        start = -(-self._free // alignment) * alignment
        if start + size > self._end:
            start = self._block(max(size, mmap.PAGESIZE), alignment)
        self._free = start + size
        return start

    def put(self, values: Sequence[int]) -> int:
        """Reserve and fill consecutive 64-bit words; the address of the first."""
        at = self.reserve(8 * len(values), 8)
        for index, value in enumerate(values):
            self.set_word(at + 8 * index, value)
        return at

    def write(self, address: int, record: Record, values: Mapping[str, int]) -> None:
        """Set fields of a structure, which are 64-bit words."""
        for name, value in values.items():
            self.set_word(address + record[name], value)

    def records(self, record: Record, values: Sequence[Mapping[str, int]]) -> range:
        """Reserve and fill structures side by side; their addresses."""
        start = self.reserve(record.size * len(values))
        places = range(start, start + record.size * len(values), record.size)
        for place, each in zip(places, values):
            self.write(place, record, each)
        return places

    def word(self, address: int) -> int:
        """The signed 64-bit word at an address of this memory."""
        return ctypes.c_int64.from_address(address).value

    def set_word(self, address: int, value: int) -> None:
        ctypes.c_int64.from_address(address).value = value


def structure(layout: str, *values: int) -> ctypes.Array[ctypes.c_char]:
    """A structure of C's in memory of its own, with fields as ``struct`` tells them."""
    return ctypes.create_string_buffer(struct.pack(layout, *values))


@functools.cache
def page_function(name: str) -> Any:
    """The system's function of that name for pages: of an address, a number of bytes, and what is to be done."""
    function = getattr(ctypes.CDLL(None), name)
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function
