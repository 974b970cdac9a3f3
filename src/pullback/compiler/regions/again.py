"""Steps that may be run a second time on what their first run has left in memory.

Whoever asks how long a step takes runs it over and over. What it computes then is of no use; but an index whose range
is known from what made it is not checked, and a loop ends only if its condition does.
"""

from __future__ import annotations

from collections.abc import Mapping

from pullback.compiler.lowering.items import HostCall, View, While, every_step
from pullback.compiler.regions.memory import MemoryPlan
from pullback.compiler.regions.steps import Step, every_job
from pullback.loops import Buffer

__all__ = ["runs_again"]


def runs_again(step: Step, bound: Mapping[Buffer, View], memory: MemoryPlan) -> bool:
    """Whether a second run of ``step`` finds the integers that the first one was given, and ends as that did.

    Not if it calls out of the program, has a loop without a bound, or writes where integers lie that it takes from the
    steps before.

    >>> from pullback.compiler.regions.steps import Region
    >>> runs_again(Region(), {}, MemoryPlan((), 0, {}, 0))
    True
    """
    if any(
        isinstance(part, (HostCall, While)) for each in every_step([step]) for part in (each[0], *each[1])
    ):
        return False
    offsets = {placed.buffer: placed.offset for placed in memory.placed}

    def base(buffer: Buffer) -> Buffer:
        return bound[buffer].base if buffer in bound else buffer

    def overlap(left: Buffer, right: Buffer) -> bool:
        if left is right or left not in offsets or right not in offsets:
            return left is right
        low, high = sorted((left, right), key=offsets.__getitem__)
        return offsets[low] + low.nbytes > offsets[high]

    written: dict[Buffer, None] = {}
    given: dict[Buffer, None] = {}
    for job in every_job([step]):
        reads = job.kernel.reads()
        given.update(dict.fromkeys(b for b in reads if b.dtype.kind in "iub" and b not in written))
        written.update(dict.fromkeys(job.kernel.writes()))
    return not any(
        buffer is not other and overlap(base(buffer), base(other)) for buffer in given for other in written
    )
