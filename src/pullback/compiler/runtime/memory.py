"""Aligned memory outside Python's heap, and words in it."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence

__all__ = ["Memory"]


class Memory:
    """``size`` bytes of zeros at an ``address`` of the given alignment.

    The system gives pages when they are first touched; large blocks ask for huge ones. A forked
    child has its own copy, which the default of ``mmap`` (shared memory) would not give.
    """

    def __init__(self, size: int, alignment: int = 64) -> None:
        self.size = size
        length = max(size, 1) + alignment
        if hasattr(mmap, "MAP_PRIVATE"):
            self._map = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            self._map = mmap.mmap(-1, length)
        if alignment > mmap.PAGESIZE and hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._bytes = (ctypes.c_char * length).from_buffer(self._map)
        self.address = -(-ctypes.addressof(self._bytes) // alignment) * alignment
        self._words = (ctypes.c_int64 * (size // 8)).from_address(self.address)
        self._used = 0

    def reserve(self, size: int, alignment: int = 64) -> int:
        """The address of the next ``size`` bytes of this block."""
        start = -(-(self.address + self._used) // alignment) * alignment
        self._used = start + size - self.address
        if self._used > self.size:
            raise MemoryError(f"{self._used} bytes of a block of {self.size}")
        return start

    def put(self, values: Sequence[int]) -> int:
        """Reserve and fill consecutive 64-bit words; the address of the first."""
        at = self.reserve(8 * len(values), 8)
        for index, value in enumerate(values):
            self.set_word(at + 8 * index, value)
        return at

    def write(self, address: int, offsets: Mapping[str, int], values: Mapping[str, int]) -> None:
        """Set fields of a structure, 64-bit words at named offsets."""
        for name, value in values.items():
            self.set_word(address + offsets[name], value)

    def word(self, address: int) -> int:
        """The signed 64-bit word at an address of this block."""
        return self._words[(address - self.address) >> 3]

    def set_word(self, address: int, value: int) -> None:
        self._words[(address - self.address) >> 3] = value
