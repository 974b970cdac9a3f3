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


def cycles_of_vectors(
    kernel: Kernel, lanes: int, target: Processor, places: Mapping[Axis, Any], known: Set[Axis]
) -> float:
    """Cycles of a plain map with vectors along axes that stand at ``places``, arrays, one after another.

    Along those ``known`` the places are known when the code is written; of others how far they are apart.
    """
    total, count = float(ROW_OVERHEAD), len(next(iter(places.values())))
    written_out = {axis for e in kernel.reductions if turns_of(e.over) <= WRITTEN_OUT for axis in e.over}
    found = fixed_values((store.value for store in kernel.stores), {axis: places[axis] for axis in known})
    seen: set[Expression] = set()
    stack: list[tuple[Expression, int]] = [(store.value, 1) for store in kernel.stores]
    while stack:
        e, turns = stack.pop()
        if e in seen or e in found or e.axes.isdisjoint(places):
            continue
        seen.add(e)
        if isinstance(e, Load):
            apart = _apart(e, places, found, known | written_out)
            total += turns * _cycles_of_read(apart, count, lanes, target)
            continue
        total += turns * -(-count // lanes) * vector_cycles(e, target)
        turns *= turns_of(e.bound_axes())
        stack.extend((operand, turns) for operand in e.operands)
    return total * turns_of(kernel.axes) / count


def _apart(load: Load, places: Mapping[Axis, Any], found: Mapping[Expression, Any], known: Set[Axis]) -> Any:
    """How far the elements that are read are from each other; None unless that is known, and which are not read.

    Truth values are not picked.
    """
    varying = [(e, stride) for e, stride in load.dynamic if not e.axes.isdisjoint(places)]
    asked = [condition for condition in conditions(load.guard) if not condition.axes.isdisjoint(places)]
    start = np.zeros_like(next(iter(places.values())))
    here = sum((step * places[axis] for axis, step in load.offset.terms if axis in places), start)
    if not varying and np.all(np.diff(here) == 1):
        return here
    near = all(e in found for e, _ in varying) and all(condition.axes <= known for condition in asked)
    if not near or load.dtype.kind == "b":
        return None
    return sum((stride * found[e] for e, stride in varying), here)


def _cycles_of_read(apart: Any, count: int, lanes: int, target: Processor) -> float:
    """Cycles to read vectors as they lie, with lanes that are picked out of some, or gathered."""
    ends = np.arange(0, count, lanes)
    if apart is None:
        return float(lanes * len(ends))
    if np.all(np.diff(apart) == 1):
        return 0.5 * len(ends)
    spans = np.maximum.reduceat(apart, ends) - np.minimum.reduceat(apart, ends)
    parts = spans // lanes + 1
    return float(np.where(parts <= target.gather_vectors, PICKED * parts, lanes).sum())
