"""The memory plan: where each buffer lies, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pullback.compiler.schedule import Phase
from pullback.loops import Buffer

__all__ = ["MemoryPlan", "Placed", "plan_memory"]

ALIGNMENT = 128
"""Two cache lines: buffers of different threads do not share one, and the neighbour line is often fetched too."""


@dataclass(frozen=True)
class Placed:
    """A buffer of the arena: its offset, and the first and last moment when it is used.

    A moment is a phase, or one kernel of a phase that a single thread runs from end to end.
    """

    buffer: Buffer
    offset: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """All buffers of the arena and its size in bytes."""

    placed: tuple[Placed, ...]
    arena_bytes: int

    def offset(self, buffer: Buffer) -> int | None:
        """Where ``buffer`` starts, or ``None`` if it is not in the arena."""
        return next((p.offset for p in self.placed if p.buffer is buffer), None)

    def __str__(self) -> str:
        lines = [f"arena: {self.arena_bytes:,} bytes"]
        for p in self.placed:
            span = f"{p.offset:>10} +{p.buffer.nbytes:<10}"
            lines.append(f"  {span} moments {p.first}-{p.last}  {p.buffer!r}")
        return "\n".join(lines)


def plan_memory(phases: Sequence[Phase], elsewhere: Iterable[Buffer]) -> MemoryPlan:
    """Give each buffer that is not ``elsewhere`` a place; buffers alive at the same moment never overlap."""
    outside = set(elsewhere)
    spans: dict[Buffer, tuple[int, int]] = {}
    moment = 0
    for phase in phases:
        jobs = [job for group in phase.groups for job in group.jobs]
        in_turn = sum(group.chunks for group in phase.groups) == 1
        for job in jobs:
            for buffer in (*job.kernel.reads(), *job.kernel.writes()):
                if buffer not in outside:
                    first, _ = spans.get(buffer, (moment, moment))
                    spans[buffer] = (first, moment)
            moment += in_turn or job is jobs[-1]
    placed: list[Placed] = []
    for buffer, (first, last) in sorted(spans.items(), key=lambda item: (-item[0].nbytes, item[1])):
        size = -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
        busy = sorted(
            (p.offset, p.offset + -(-p.buffer.nbytes // ALIGNMENT) * ALIGNMENT)
            for p in placed
            if p.first <= last and first <= p.last
        )
        offset = 0
        for start, end in busy:
            if offset + size <= start:
                break
            offset = max(offset, end)
        placed.append(Placed(buffer, offset, first, last))
    total = max((p.offset + -(-p.buffer.nbytes // ALIGNMENT) * ALIGNMENT for p in placed), default=0)
    return MemoryPlan(tuple(sorted(placed, key=lambda p: p.offset)), total)
