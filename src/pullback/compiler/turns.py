"""Blocks and loops, run in NumPy: where a view lies in a turn, and what a program of blocks and loops computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.compiler.items import Block, Choice, Counter, HostCall, Item, View, While
from pullback.graph import Type, results
from pullback.interpreter import evaluate
from pullback.loops import Buffer

__all__ = ["branch_number", "call_host", "first_element", "run_items"]

Array = np.ndarray[Any, Any]
Seen = Callable[[Block, Sequence[Array], Sequence[Array]], None]


def first_element(view: View, turns: Mapping[Counter, int]) -> int:
    """Where in its base a view begins in these turns of the loops around."""
    moved = (stride * (turns[c] % period if period else turns[c]) for c, stride, period in view.moves)
    return view.start + sum(moved)


def branch_number(
    index: View, count: int, memory: Mapping[Buffer, Array], turns: Mapping[Counter, int]
) -> int:
    """Which of ``count`` branches is run."""
    return min(max(int(memory[index.base][first_element(index, turns)]), 0), count - 1)


def part(view: View, type: Type, memory: dict[Buffer, Array], turns: Mapping[Counter, int]) -> Array:
    """The array that lies at a view."""
    if view.base not in memory:
        memory[view.base] = np.full(view.base.nbytes, 0xFF, np.uint8).view(type.dtype)
    start = first_element(view, turns)
    return memory[view.base][start : start + type.size].reshape(type.shape)


def call_host(call: HostCall, memory: dict[Buffer, Array], turns: Mapping[Counter, int]) -> None:
    """Call a function out of the program on what lies at its places."""
    inputs = [part(view, x.type, memory, turns) for view, x in zip(call.inputs, call.node.inputs)]
    made = call.node.operator.reference(*inputs, **call.node.attributes)
    for view, picked, value in zip(call.outputs, results(call.node), made):
        part(view, picked.type, memory, turns)[...] = value


def run_items(
    items: Iterable[Item],
    memory: dict[Buffer, Array],
    turns: dict[Counter, int] | None = None,
    seen: Seen | None = None,
) -> None:
    """Run blocks by the interpreter of graphs, loops turn by turn; ``memory`` has a flat array for each buffer.

    ``seen(block, arguments, results)`` is called after each run of a block.
    """
    turns = {} if turns is None else turns

    for item in items:
        if isinstance(item, Block):
            graph = item.graph
            inputs = [part(view, v.type, memory, turns).copy() for view, v in zip(item.inputs, graph.inputs)]
            made = evaluate(graph, inputs)
            for view, node, value in zip(item.outputs, graph.outputs, made):
                part(view, node.type, memory, turns)[...] = value
            if seen is not None:
                seen(item, inputs, made)
            continue
        if isinstance(item, HostCall):
            call_host(item, memory, turns)
            continue
        if isinstance(item, While):
            while True:
                run_items(item.condition, memory, turns, seen)
                if not memory[item.flag.base][first_element(item.flag, turns)]:
                    break
                run_items(item.body, memory, turns, seen)
            continue
        if isinstance(item, Choice):
            number = branch_number(item.index, len(item.branches), memory, turns)
            run_items(item.branches[number], memory, turns, seen)
            continue
        for turn in range(item.counter.trips):
            turns[item.counter] = turn
            run_items(item.items, memory, turns, seen)
