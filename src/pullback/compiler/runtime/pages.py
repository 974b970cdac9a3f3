"""Pages of a loaded library that only its start needed are given back to the system.

The loader relocates all of LLVM and runs its constructors, which touches some 40 MB of its file; code
generation uses a small part of them again. They are unchanged copies of the file: whatever is used again
comes back from the system's file cache.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from pathlib import Path

__all__ = ["give_back_pages"]

_MAPPING = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) r-[-x]p \S+ \S+ \S+\s+(/.*)")
"""The head of one that cannot be written."""


def give_back_pages(folder: Path) -> None:
    """Drop from this process the unchanged pages of the files in ``folder`` that it has mapped.

    Memory that can be written, or in which the loader has changed anything, is left alone. Where the system does not
    tell what was changed (other than Linux) nothing happens.
    """
    try:
        lines = Path("/proc/self/smaps").read_bytes().splitlines()
        advise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError, TypeError):
        return
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    inside = str(folder.resolve()).encode() + b"/"
    mapping = None
    for line in lines:
        if not line[:1].isupper():  # the head of a mapping, which its fields follow
            mapping = _MAPPING.match(line)
            if mapping is not None and not mapping[3].startswith(inside):
                mapping = None
        elif mapping is not None and line.startswith((b"Anonymous:", b"Swap:")):
            if line.split()[1] != b"0":
                mapping = None
            elif line.startswith(b"Swap:"):  # the later of the two
                start, end = int(mapping[1], 16), int(mapping[2], 16)
                advise(start, end - start, mmap.MADV_DONTNEED)
