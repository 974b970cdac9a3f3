"""What of a kernel's reads is asked for before it is needed: pieces of large arrays where computed indices say."""

from __future__ import annotations

import math

from pullback.compiler.target import Processor
from pullback.loops import Kernel, Load

__all__ = ["lines_of", "prefetched", "run_of"]


def prefetched(kernel: Kernel, target: Processor) -> dict[Load, int]:
    """What each turn of a kernel's first axis gathers of large arrays, and how many turns ahead to ask for it."""
    if not kernel.axes:
        return {}
    row = {kernel.axes[0]}
    return {
        load: max(1, target.flight_bytes // (run_of(load, kernel) * load.dtype.itemsize))
        for load in kernel.loads()
        if load.guard is None and load.buffer.nbytes >= target.far_bytes and run_of(load, kernel) > 1
        if row == {axis for index, _ in load.dynamic for axis in index.axes}
    }


def run_of(load: Load, kernel: Kernel) -> int:
    """How many elements side by side one turn of the rows reads."""
    inner = {*kernel.axes, *(axis for store in kernel.stores for axis in store.inner)}
    along = [axis for axis in load.offset.axes if axis in inner and load.offset.coefficient(axis) == 1]
    fixed = {axis for index, _ in load.dynamic for axis in index.axes}
    return along[0].extent if along and along[0] not in fixed else 1


def lines_of(load: Load, run: int, line: int) -> list[int]:
    """Bytes ahead of its start at which to touch every ``line`` of a piece, wherever a multiple of its pitch begins."""
    size = load.dtype.itemsize
    within = math.gcd(line, *(stride * size for _, stride in load.dynamic))
    last = run * size - 1
    starts = list(range(0, last + 1, line))
    return [*starts, last] if last - starts[-1] >= within else starts
