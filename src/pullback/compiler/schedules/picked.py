"""What a map costs whose lanes read elements that lie apart: near ones are picked out of whole vectors."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from pullback.compiler.schedules.cost import PICKED, ROW_OVERHEAD, WRITTEN_OUT, vector_cycles
from pullback.compiler.target import Processor
from pullback.loops import Axis, Expression, Kernel, Load, turns_of
from pullback.loops.arithmetic import conditions
from pullback.loops.fixed import fixed_values

__all__ = ["cycles_of_vectors"]


def cycles_of_vectors(kernel: Kernel, lanes: int, target: Processor) -> float:
    """Cycles of a plain map with vectors along its last axis, whose places are known when the code is written."""
    lane, total = kernel.axes[-1], float(ROW_OVERHEAD)
    known = {lane} | {axis for e in kernel.reductions if turns_of(e.over) <= WRITTEN_OUT for axis in e.over}
    places = fixed_values((store.value for store in kernel.stores), {lane: np.arange(lane.extent)})
    seen: set[Expression] = set()
    stack: list[tuple[Expression, int]] = [(store.value, 1) for store in kernel.stores]
    while stack:
        e, turns = stack.pop()
        if e in seen or e in places or lane not in e.axes:
            continue
        seen.add(e)
        if isinstance(e, Load):
            total += turns * _cycles_of_read(e, lane, places, known, lanes, target)
            continue
        total += turns * -(-lane.extent // lanes) * vector_cycles(e, target)
        turns *= turns_of(e.bound_axes())
        stack.extend((operand, turns) for operand in e.operands)
    return total * turns_of(kernel.axes[:-1])


def _cycles_of_read(
    load: Load, lane: Axis, places: Mapping[Expression, Any], known: Set[Axis], lanes: int, target: Processor
) -> float:
    """Cycles to read all along ``lane``: vectors as they lie, lanes picked out of some, or gathered.

    They are picked where the ``places`` are known and near, and the guard follows from ``known`` axes; but for truth
    values.
    """
    ends, turns = np.arange(0, lane.extent, lanes), np.arange(lane.extent)
    varying = [(e, step) for e, step in load.dynamic if lane in e.axes]
    step = load.offset.coefficient(lane)
    if not varying and step == 1:
        return 0.5 * len(ends)
    asked = [condition for condition in conditions(load.guard) if lane in condition.axes]
    near = all(e in places for e, _ in varying) and all(condition.axes <= known for condition in asked)
    if not near or load.dtype.kind == "b":
        return float(lanes * len(ends))
    found = step * turns + sum(stride * places[e] for e, stride in varying)
    spans = np.maximum.reduceat(found, ends) - np.minimum.reduceat(found, ends)
    parts = spans // lanes + 1
    return float(np.where(parts <= target.gather_vectors, PICKED * parts, lanes).sum())
