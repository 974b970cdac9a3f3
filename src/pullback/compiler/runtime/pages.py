"""Pages of a loaded library that are needed now and then are given back to the system in between.

The loader relocates all of LLVM and runs its constructors, which touches some 40 MB of its file, and so does
code generation: other ones. They are unchanged copies of the file, and what is used again comes back from the
system's file cache.
"""

from __future__ import annotations

import functools
import mmap
import re
from pathlib import Path

from pullback.compiler.runtime.memory import page_function

__all__ = ["give_back_pages"]

_MAPPING = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) r-[-x]p \S+ \S+ \S+\s+(/.*)")
"""The head of one that cannot be written."""


def give_back_pages(folder: Path) -> None:
    """Drop from this process the unchanged pages of the files in ``folder`` that it has mapped.

    Memory that can be written, or in which the loader has changed anything, is left alone. Which that is, is asked
    once. Where the system does not tell what was changed (other than Linux) nothing happens.
    """
    for start, end in _unchanged(folder):
        page_function("madvise")(start, end - start, mmap.MADV_DONTNEED)


@functools.cache
def _unchanged(folder: Path) -> tuple[tuple[int, int], ...]:
    """Start and end of the mappings that hold nothing but what is in their files."""
    try:
        lines = Path("/proc/self/smaps").read_bytes().splitlines()
    except OSError:
        return ()
    inside = str(folder.resolve()).encode() + b"/"
    found, mapping = [], None
    for line in lines:
        if not line[:1].isupper():  # the head of a mapping, which its fields follow
            mapping = _MAPPING.match(line)
            if mapping is not None and not mapping[3].startswith(inside):
                mapping = None
        elif mapping is not None and line.startswith((b"Anonymous:", b"Swap:")):
            if line.split()[1] != b"0":
                mapping = None
            elif line.startswith(b"Swap:"):  # the later of the two
                found.append((int(mapping[1], 16), int(mapping[2], 16)))
    return tuple(found)
