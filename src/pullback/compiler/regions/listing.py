"""A program with loops as text: blocks, or regions of chunks, and what is around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pullback.compiler.lowering.items import Block, Choice, Held, HostCall, Item, Loop, While
from pullback.compiler.regions.steps import Region, Step
from pullback.graph import format_graph
from pullback.loops.printer import format_kernel

__all__ = ["listed"]


def listed(steps: Sequence[Item] | Sequence[Step], seconds: Sequence[float] = ()) -> str:
    """The steps as text, numbered, with the time that each takes where that is known.

    >>> from pullback.compiler.lowering.items import Counter, Serial
    >>> print(listed([Loop(Counter(3), [Serial([Region()])])]))
    repeat 0, 3 turns
      serial 0.0, one chunk
        region 0.0.0
    """
    lines: list[str] = []
    for position, step in enumerate(steps):
        measured = f": {seconds[position] * 1e6:,.1f} microseconds" if seconds else ""
        lines += _lines(step, f"{position}", measured)
    return "\n".join(lines)


def _lines(step: Item | Step, number: str, measured: str = "") -> Iterator[str]:
    if isinstance(step, Block):
        yield f"block {number}"
        yield from (f"  reads {view}" for view in step.inputs)
        yield from (f"  {line}" for line in format_graph(step.graph).splitlines())
        yield from (f"  writes {view}" for view in step.outputs)
    elif isinstance(step, HostCall):
        given, made = (", ".join(map(str, views)) for views in (step.inputs, step.outputs))
        function = step.node.attributes["function"]
        yield f"call {number}, {function!r} of {given or 'nothing'} to {made or 'nothing'}{measured}"
    elif isinstance(step, Region):
        yield f"region {number}{measured}"
        yield from (f"  {line}" for line in _chunks(step))
    else:
        yield f"{_headline(step, number)}{measured}"
        branches = step.branches if isinstance(step, Choice) else [step.steps]
        for branch, inside in enumerate(branches):
            place = f"{number}.{branch}" if isinstance(step, Choice) else number
            for position, inner in enumerate(inside):
                yield from (f"  {line}" for line in _lines(inner, f"{place}.{position}"))


def _chunks(region: Region) -> Iterator[str]:
    for group in region.groups:
        turns = "" if group.turns is None else f", {group.turns.trips} turns each"
        end = "" if group.end is None else f" up to {group.end.size.name}"
        rows = f"{group.chunks} chunks of {group.grain} rows of {group.rows}{end}"
        yield f"{rows}, {group.cycles:,.0f} cycles{turns}"
        for job in group.jobs:
            yield f"  {job.schedule}" + ("" if job.ended is None else f" up to {job.ended.size.name}")
            yield from (f"    {line}" for line in format_kernel(job.kernel).splitlines())


def _headline(step: Held, number: str) -> str:
    if isinstance(step, Loop):
        return f"repeat {number}, {step.counter.trips} turns"
    if isinstance(step, Choice):
        return f"choose {number} by {step.index}, {len(step.branches)} branches"
    return f"while {number} by {step.flag}" if isinstance(step, While) else f"serial {number}, one chunk"
