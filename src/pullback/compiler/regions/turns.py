"""Loops, choices and calls, run in NumPy: where a view lies in a turn, and what is run when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.compiler.lowering.items import Block, Choice, Counter, HostCall, Loop, Serial, View, While
from pullback.graph import Type, results
from pullback.interpreter import evaluate
from pullback.loops import Buffer

__all__ = ["first_element", "run_block", "run_steps", "unset"]

Array = np.ndarray[Any, Any]


def first_element(view: View, turns: Mapping[Counter, int]) -> int:
    """Where in its base a view begins in these turns of the loops around."""
    moved = (stride * (turns[c] % period if period else turns[c]) for c, stride, period in view.moves)
    return view.start + sum(moved)


def unset(buffer: Buffer) -> Array:
    """Memory for a buffer that nothing was written to: NaN for floats, -1 for integers."""
    return np.full(buffer.nbytes, 0xFF, np.uint8).view(buffer.dtype)


def _part(view: View, type: Type, memory: dict[Buffer, Array], turns: Mapping[Counter, int]) -> Array:
    """The array that lies at a view."""
    if view.base not in memory:
        memory[view.base] = unset(view.base)
    start = first_element(view, turns)
    return memory[view.base][start : start + type.size].reshape(type.shape)


def _call_host(call: HostCall, memory: dict[Buffer, Array], turns: Mapping[Counter, int]) -> None:
    """Call a function out of the program on what lies at its places."""
    inputs = [_part(view, x.type, memory, turns) for view, x in zip(call.inputs, call.node.inputs)]
    made = call.node.operator.reference(*inputs, **call.node.attributes)
    for view, picked, value in zip(call.outputs, results(call.node), made):
        _part(view, picked.type, memory, turns)[...] = value


def run_steps(
    steps: Iterable[Any],
    memory: dict[Buffer, Array],
    turns: dict[Counter, int],
    run: Callable[[Any], object],
    failures: Sequence[Exception] = (),
) -> None:
    """Run what a program consists of: blocks or regions by ``run``, in these ``turns`` of the loops around them.

    ``memory`` has a flat array for each buffer. A loop without a bound ends once there are ``failures``.
    """
    for step in steps:
        if isinstance(step, HostCall):
            _call_host(step, memory, turns)
        elif isinstance(step, While):
            while True:
                run_steps(step.condition, memory, turns, run, failures)
                if failures or not memory[step.flag.base][first_element(step.flag, turns)]:
                    break
                run_steps(step.body, memory, turns, run, failures)
        elif isinstance(step, Choice):
            number = int(memory[step.index.base][first_element(step.index, turns)])
            branch = step.branches[min(max(number, 0), len(step.branches) - 1)]
            run_steps(branch, memory, turns, run, failures)
        elif isinstance(step, Loop):
            for turn in range(step.counter.trips):
                turns[step.counter] = turn
                run_steps(step.steps, memory, turns, run, failures)
        elif isinstance(step, Serial):
            run_steps(step.steps, memory, turns, run, failures)
        else:
            run(step)


def run_block(block: Block, memory: dict[Buffer, Array], turns: Mapping[Counter, int]) -> list[Array]:
    """Run a block by the interpreter of graphs; gives what it read."""
    graph = block.graph
    inputs = [_part(view, v.type, memory, turns).copy() for view, v in zip(block.inputs, graph.inputs)]
    made = evaluate(graph, inputs)
    for view, node, value in zip(block.outputs, graph.outputs, made):
        _part(view, node.type, memory, turns)[...] = value
    return inputs
