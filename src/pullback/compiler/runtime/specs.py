"""What describes a program to the runtime beside the types of its arguments and results: the schedule, as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pullback.compiler.runtime.layout import MAX_CHUNKS
from pullback.graph import Source

__all__ = ["Check", "Failure", "RegionSpec", "RepeatSpec", "Scheduled"]


@dataclass(frozen=True)
class RegionSpec:
    """Calls of one function for the chunks ``0 … chunks-1``, in any order and at the same time.

    Unless it ``writes`` in place, into donated memory, a step may be left in it. One that is the ``callers``, of one
    chunk, no other thread may run.

    >>> RegionSpec("forward", 2000)
    Traceback (most recent call last):
    ValueError: region 'forward' has 2000 chunks: give it 1 to 1023 and let each do more
    """

    function: str
    chunks: int = 1
    writes: bool = True
    callers: bool = False

    def __post_init__(self) -> None:
        if self.callers and self.chunks != 1:
            raise ValueError(f"region {self.function!r} of the caller has {self.chunks} chunks: give it one")
        if not 1 <= self.chunks <= MAX_CHUNKS:
            raise ValueError(
                f"region {self.function!r} has {self.chunks} chunks: "
                f"give it 1 to {MAX_CHUNKS} and let each do more"
            )


@dataclass(frozen=True)
class RepeatSpec:
    """``regions`` run ``trips`` times in order; their functions see the turn as ``iteration``."""

    trips: int
    regions: Sequence[Scheduled]


Scheduled = RegionSpec | RepeatSpec
"""An entry of the schedule."""


@dataclass(frozen=True)
class Failure:
    """What compiled code found wrong: the compiler's number for it, where, which value, in which step."""

    code: int
    position: int
    value: int
    step: int = 0


@dataclass(frozen=True)
class Check:
    """An index check: what it is of, the least index allowed, the axis' extent, and the line that asks for it.

    ``shape`` is that of the array that the index is read from, ``()`` where it is computed from none; ``loops`` are the
    numbers of turns of the loops around it, the outermost first, and whether each goes from the last step to the first.
    """

    what: str
    low: int
    extent: int
    source: Source | None
    shape: tuple[int, ...]
    loops: tuple[tuple[int, bool], ...]
