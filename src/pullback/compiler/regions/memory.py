"""The memory plan: where each buffer lies, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from pullback.compiler.lowering.items import Choice, Counter, HostCall, Loop, View, While, every_step
from pullback.compiler.regions.steps import Group, Job, Region, Step, buffers_of, keeps_to_rows
from pullback.loops import Buffer

__all__ = ["ChunkPrivate", "MemoryPlan", "Placed", "plan_memory"]


@dataclass(frozen=True)
class Placed:
    """A buffer of the arena: its offset, and the first and last moment when it is used.

    A moment is a region, or one kernel of a region that a single thread runs from end to end.
    """

    buffer: Buffer
    offset: int
    first: int
    last: int


@dataclass(frozen=True)
class ChunkPrivate:
    """A buffer of which a chunk needs only its own rows: where they lie in the chunk's scratch memory."""

    offset: int
    row_bytes: int


@dataclass(frozen=True)
class MemoryPlan:
    """All buffers of the arena and its size in bytes; and those that a chunk keeps to itself."""

    placed: tuple[Placed, ...]
    arena_bytes: int
    kept: Mapping[Buffer, ChunkPrivate]
    scratch_bytes: int

    def __str__(self) -> str:
        lines = [f"arena: {self.arena_bytes:,} bytes"]
        for p in self.placed:
            span = f"{p.offset:>10} +{p.buffer.nbytes:<10}"
            lines.append(f"  {span} moments {p.first}-{p.last}  {p.buffer!r}")
        lines.append(f"scratch: {self.scratch_bytes:,} bytes for each thread")
        for buffer, kept in self.kept.items():
            lines.append(f"  {kept.offset:>10} {kept.row_bytes} bytes a row  {buffer!r}")
        return "\n".join(lines)


def plan_memory(
    steps: Sequence[Step],
    elsewhere: Iterable[Buffer],
    apart: int,
    bound: Mapping[Buffer, View],
) -> MemoryPlan:
    """Give each buffer that is not ``elsewhere`` a place; buffers alive at the same moment never overlap.

    Places are multiples of ``apart`` bytes, which keeps threads out of each other's cache lines.
    Those ``bound`` to a view lie in its base. What is used inside a loop and outside of it is alive in all its turns.
    What only the kernels of one row group use, each row by itself, needs no place for all rows: every chunk writes and
    reads its own in the scratch memory of its thread, which stays in the cache from one chunk to the next.
    """
    nested = list(every_step(steps))
    outside = {*elsewhere, *bound}
    groups = [group for step, _ in nested if isinstance(step, Region) for group in step.groups]
    kept: dict[Buffer, ChunkPrivate] = {}
    scratch = 0
    for group, buffers in _kept_buffers(groups, outside):
        rows = {buffer: buffer.nbytes // group.rows for buffer in buffers}
        uses = _spans((buffers_of(job.kernel) for job in group.jobs), buffers)
        placed, total = _placed(uses, {buffer: group.grain * size for buffer, size in rows.items()}, apart)
        kept.update((p.buffer, ChunkPrivate(p.offset, rows[p.buffer])) for p in placed)
        scratch = max(scratch, total)
    moments: list[list[Buffer]] = []
    loops: dict[Loop[Any] | While[Any] | Counter, list[int]] = {}
    for step, around in nested:
        inside = step.groups if isinstance(step, Region) else []
        repeated: list[Loop[Any] | While[Any] | Counter] = [e for e in around if isinstance(e, (Loop, While))]
        repeated += [group.turns for group in inside if group.turns is not None]
        asked = [each.index.base for each in around if isinstance(each, Choice)]
        asked += [each.flag.base for each in around if isinstance(each, While)]
        for touched in _moments(step):
            for loop in repeated:
                loops.setdefault(loop, []).append(len(moments))
            moments.append([*asked, *(bound[b].base if b in bound else b for b in touched)])
    wanted = {buffer for touched in moments for buffer in touched} - outside - kept.keys()
    spans = {buffer: _in_all_turns(span, loops.values()) for buffer, span in _spans(moments, wanted).items()}
    placed, total = _placed(spans, {buffer: buffer.nbytes for buffer in spans}, apart)
    return MemoryPlan(tuple(sorted(placed, key=lambda p: p.offset)), total, kept, scratch)


def _moments(step: Region | HostCall) -> Iterator[list[Buffer]]:
    """What is touched at the same time."""
    if isinstance(step, HostCall):
        yield [view.base for view in (*step.inputs, *step.outputs)]
        return
    jobs = step.jobs
    in_turn = sum(group.chunks for group in step.groups) == 1
    ends = [group.end for group in step.groups] + [job.ended for job in jobs]
    before = [end.size for end in ends if end is not None]
    for part in [[job] for job in jobs] if in_turn else [jobs]:
        yield [*(buffer for job in part for buffer in buffers_of(job.kernel)), *before]


def _in_all_turns(span: tuple[int, int], loops: Iterable[Sequence[int]]) -> tuple[int, int]:
    """The span with all moments of the loops that it goes beyond, which are given from the inside out."""
    first, last = span
    grown = True
    while grown:
        grown = False
        for moments in loops:
            start, end = moments[0], moments[-1]
            inside = start <= first and last <= end
            apart = last < start or end < first
            if not inside and not apart and (start < first or last < end):
                first, last, grown = min(first, start), max(last, end), True
    return first, last


def _kept_buffers(groups: Iterable[Group], outside: set[Buffer]) -> Iterator[tuple[Group, set[Buffer]]]:
    """The buffers that no other group uses and that every kernel of the group uses row by row."""
    users: dict[Buffer, list[tuple[Group, Job]]] = {}
    for group in groups:
        for job in group.jobs:
            for buffer in buffers_of(job.kernel):
                users.setdefault(buffer, []).append((group, job))
    found: dict[Group, set[Buffer]] = {}
    for buffer, uses in users.items():
        group = uses[0][0]
        alone = buffer in outside or len(uses) == 1 or group.chunks == 1
        if not alone and all(other is group and keeps_to_rows(job, buffer) for other, job in uses):
            found.setdefault(group, set()).add(buffer)
    yield from found.items()


def _spans(moments: Iterable[Iterable[Buffer]], wanted: Set[Buffer]) -> dict[Buffer, tuple[int, int]]:
    """The first and the last moment when each of the ``wanted`` buffers is used."""
    spans: dict[Buffer, tuple[int, int]] = {}
    for moment, buffers in enumerate(moments):
        for buffer in buffers:
            if buffer in wanted:
                spans[buffer] = (spans.get(buffer, (moment, moment))[0], moment)
    return spans


def _placed(
    spans: Mapping[Buffer, tuple[int, int]], sizes: Mapping[Buffer, int], apart: int
) -> tuple[list[Placed], int]:
    """A place for each buffer, the largest first, and the bytes that all of them take."""
    placed: list[Placed] = []
    ends: dict[Buffer, int] = {}
    for buffer, (first, last) in sorted(spans.items(), key=lambda item: (-sizes[item[0]], item[1])):
        size = -(-sizes[buffer] // apart) * apart
        busy = sorted((p.offset, ends[p.buffer]) for p in placed if p.first <= last and first <= p.last)
        offset = 0
        for start, end in busy:
            if offset + size <= start:
                break
            offset = max(offset, end)
        placed.append(Placed(buffer, offset, first, last))
        ends[buffer] = offset + size
    return placed, max(ends.values(), default=0)
