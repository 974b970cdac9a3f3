"""Memory that lies between fences: whoever reads or writes beyond its ends ends the process.

Elsewhere a vector that reaches over the end of an array mostly finds other memory, and nobody learns of it.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from pullback.compiler.runtime.memory import MappedMemory

__all__ = ["fence", "fenced_programs"]

_Block = tuple[mmap.mmap, ctypes.Array[ctypes.c_char]]


def fence(array: np.ndarray, front: bool = False) -> np.ndarray:
    """A copy in C order that ends where no memory follows, or with ``front`` begins where none comes before.

    Where the system has no fences it is a copy.

    >>> import numpy as np
    >>> fence(np.arange(3))
    array([0, 1, 2])
    """
    if not _has_fences() or not array.size:
        return np.array(array, order="C")
    (block, _), first, end = _between_fences(array.nbytes)
    start = first if front else end - array.nbytes
    made = np.frombuffer(block, array.dtype, array.size, start).reshape(array.shape)
    made[...] = array
    return made


@contextmanager
def fenced_programs() -> Iterator[None]:
    """A context in which what programs reserve for themselves ends, but for its alignment, where no memory follows."""
    before = MappedMemory._block
    if _has_fences():
        MappedMemory._block = _fenced_block  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        MappedMemory._block = before  # type: ignore[assignment, method-assign]


def _fenced_block(memory: MappedMemory, size: int, alignment: int) -> int:
    alignment = min(alignment, mmap.PAGESIZE)
    size = -(-max(size, 1) // alignment) * alignment
    block, _, end = _between_fences(size)
    memory._blocks.append(block)
    memory._end = ctypes.addressof(block[1]) + end
    memory._free = memory._end - size
    return memory._free


def _between_fences(size: int) -> tuple[_Block, int, int]:
    """Pages for so many bytes, and where in them the memory begins and ends that may be touched."""
    page, pages = mmap.PAGESIZE, -(-size // mmap.PAGESIZE)
    block = mmap.mmap(-1, (pages + 2) * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    there = (ctypes.c_char * len(block)).from_buffer(block)
    for first in (0, (pages + 1) * page):
        if _mprotect()(ctypes.addressof(there) + first, page, 0):
            raise OSError("the system takes no memory away")
    return (block, there), page, (pages + 1) * page


def _has_fences() -> bool:
    return sys.platform.startswith("linux")


@cache
def _mprotect() -> Any:
    function = ctypes.CDLL(None).mprotect
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function
