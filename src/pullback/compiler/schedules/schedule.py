"""What all schedules have in common: what of a kernel may be shared out, and how much memory of its own a thread needs.

A schedule says how a kernel of one kind is turned into code: where the lanes lie, what stays in registers, what is
packed, and all sizes. It is chosen once, travels with the kernel, and the emitter of its kind does as it says.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pullback.compiler.schedules.cost import kernel_cycles
from pullback.compiler.target import Processor
from pullback.loops import Kernel
from pullback.loops.nest import Nest

__all__ = ["NestSchedule", "Schedule"]

MOST_TILES = 64
"""Nests of more tiles are interpreted in a few parts, those of fewer tile by tile."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """How a kernel is turned into code; a class for each kind of kernel."""

    name: ClassVar[str]
    """The kind, as a listing calls it."""

    def parts(self, kernel: Kernel) -> int:
        """How many parts of the kernel there are to share out: turns of the first axis, unless the kind has others."""
        return kernel.axes[0].extent if kernel.axes else 1

    def rows(self, kernel: Kernel) -> int:
        """The parts, or 1 where only one thread may do all of them."""
        return 1 if any(store.accumulate for store in kernel.stores) else self.parts(kernel)

    def cycles(self, kernel: Kernel, target: Processor) -> float:
        """How long the kernel is estimated to take."""
        return kernel_cycles(kernel, None, target)

    def aligned(self, kernel: Kernel, lanes: int) -> int:
        """What grains of the parts must be multiples of, a power of two."""
        return 1

    @property
    def alone(self) -> bool:
        """Whether the parts are no rows that other kernels may have too."""
        return False

    @property
    def scratch_bytes(self) -> int:
        """Memory that a thread needs for itself."""
        return 0

    def runs(self, kernel: Kernel, low: int, high: int) -> Iterator[Mapping[str, Any]]:
        """What the interpreter of kernels is told to run the parts ``low`` to ``high``, one run after another."""
        yield {"places": {axis: range(low, high) for axis in kernel.axes[:1]}}

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class NestSchedule(Schedule):
    """A schedule whose loops are a nest."""

    nest: Nest

    def runs(self, kernel: Kernel, low: int, high: int) -> Iterator[Mapping[str, Any]]:
        tiles = list(itertools.islice(self.nest.tiles(low, high), MOST_TILES + 1))
        if len(tiles) <= MOST_TILES:
            yield {"places": {axis: range(low, high) for axis in kernel.axes[:1]}, "tiles": tiles}
        else:
            yield from ({"places": part} for part in self.nest.tiles(low, high, together=True))

    def __str__(self) -> str:
        return f"{self.name}: {self.nest}"
