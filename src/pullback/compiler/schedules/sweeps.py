"""Sums along a row that are made in one loop, where each by itself would compute the same functions again.

    for i:                                             for i:
        for j: t[i, j] = tanh(x[i, j])                     for j:
        s[i] = add[j](tanh(x[i, j]))              →            t[i, j] = tanh(x[i, j])
        g[i] = add[j](1 - tanh(x[i, j])²)                      s[i] += tanh(x[i, j]);  g[i] += 1 - tanh(x[i, j])²

Rows that registers hold have no need of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from pullback.compiler.schedules.cost import FEWEST_LANES, REPEATED_COST, costs_of
from pullback.compiler.schedules.reduction import runs_along
from pullback.compiler.target import Processor
from pullback.loops import Axis, Expression, Kernel, Load, Position, Reduce, rare_case, walk
from pullback.loops.rare import usual_parts

__all__ = ["sums_in_one_loop"]


def sums_in_one_loop(
    kernel: Kernel, target: Processor
) -> tuple[Mapping[Reduce, tuple[Reduce, ...]], tuple[Reduce, ...]]:
    """For each sum of ``kernel`` those of its loop, if they are several, and those of the loop that stores the row."""
    most = max(1, target.vector_registers // (2 * target.accumulators))
    sums = _sums(kernel)
    beside = _beside(kernel, sums, most)
    groups: dict[object, list[list[Reduce]]] = {}
    for reduce, depth in sums.items():
        if reduce in beside:
            continue
        alike = groups.setdefault((reduce.over, reduce.axes, depth), [])
        own = next((g for g in alike if len(g) < most and any(_share(reduce, each) for each in g)), [])
        if not own:
            alike.append(own)
        own.append(reduce)
    several = [own for alike in groups.values() for own in alike if len(own) > 1]
    return {reduce: tuple(own) for own in several for reduce in own}, beside


def _sums(kernel: Kernel) -> dict[Reduce, int]:
    """The reductions that could share a loop, each with how many others stand inside each other in it.

    Those as deep as each other do not wait for each other.
    """
    roots = [root for store in kernel.stores for root in store.roots()]
    usual, own = set(usual_parts(*roots)), {*kernel.axes[-1:]}
    depth: dict[Expression, int] = {}
    for e in kernel.expressions():
        depth[e] = max((depth[operand] for operand in e.operands), default=0) + isinstance(e, Reduce)
    return {
        e: depth[e]
        for e in kernel.reductions
        if e in usual
        and e.kind not in ("argmax", "argmin")
        and len(e.over) == 1
        and e.over[0].extent >= FEWEST_LANES
        and own <= e.axes
        and runs_along(e)
    }


def _beside(kernel: Kernel, sums: Mapping[Reduce, int], most: int) -> tuple[Reduce, ...]:
    """The sums that nothing in the loop that stores the row waits for, and that read what it reads.

    What is read may be overwritten there. So what is stored of such a sum, behind the loop, is made of them alone.
    """
    loops = [(axes, stores) for axes, stores in kernel.by_inner if axes]
    if len(loops) != 1 or len(loops[0][0]) != 1 or not all(store.is_plain for store in kernel.stores):
        return ()
    axis, values = loops[0][0][0], [store.value for store in loops[0][1]]
    needed = set(walk(*values, *(reduce.body for reduce in sums)))
    there = set(walk(*values, enter=lambda e: not isinstance(e, Reduce)))
    if any(isinstance(e, Position) and axis in e.axes for e in there):
        return ()  # what asks for its place does so at the ends of a loop of its own
    found = [
        reduce
        for reduce in sums
        if reduce.over == (axis,)
        and reduce not in needed
        and all(
            e in there and e.guard is None
            for e in walk(reduce.body)
            if isinstance(e, Load) and axis in e.axes
        )
        and _worth_sharing(axis, walk(reduce.body), there)
    ][:most]
    behind = [store.value for store in kernel.stores if not store.inner]
    while any(not _made_of(found, value) for value in behind):
        mixed = {e for value in behind if not _made_of(found, value) for e in walk(value)}
        found = [reduce for reduce in found if reduce not in mixed]
    return tuple(found)


def _made_of(sums: Sequence[Reduce], value: Expression) -> bool:
    """Whether ``value`` is made of ``sums`` and of nothing else that is read, summed or rare; or of none of them."""
    parts = list(walk(value, enter=lambda e: e not in sums))
    return not any(e in sums for e in parts) or not any(
        (isinstance(e, Load | Reduce) and e not in sums) or rare_case(e) is not None for e in parts
    )


def _share(one: Reduce, other: Reduce) -> bool:
    return _worth_sharing(one.over[0], walk(one.body), set(walk(other.body)))


def _worth_sharing(axis: Axis, parts: Iterable[Expression], others: Collection[Expression]) -> bool:
    """Whether functions of each element that are among both are more than what is computed again anyhow."""
    return sum(costs_of(e for e in parts if e in others and axis in e.axes)) > REPEATED_COST
