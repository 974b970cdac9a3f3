"""The passes in their order, and how they are run.

>>> for each in PASSES:
...     print(each.name)
without_rules
with_factors
with_host_calls
distinct_windows
fold_constants
simplify_arithmetic
simplify_shapes
simplify_reductions
sparse_pooling
broadcast_late
simplify_products
transposed_products
sliced_convolutions
joined_scatters
sparse_updates
lazy_updates
gathered_scatters
masked_once
equal_regions
joined_loops
if_conversion
hoisted_steps
sunk_steps
distinct_rows
minimal_filtering
scattered_unpools
bodies

Two things need no pass. Equal operations on equal operands are one node from the moment they are made, and a
rule that makes an operation which is there already gets that very node: common subexpressions vanish by
themselves. And a graph is what its outputs need: what no output needs any more is not removed, it is simply
no longer reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import cast
from weakref import WeakSet

from pullback.compiler.legalise.factors import with_factors
from pullback.compiler.passes.broadcast_late import broadcast_late
from pullback.compiler.passes.distinct_rows import distinct_rows
from pullback.compiler.passes.equal_regions import equal_regions
from pullback.compiler.passes.fold_constants import fold_constants
from pullback.compiler.passes.gathered_scatters import gathered_scatters
from pullback.compiler.passes.hoisted_steps import hoisted_steps
from pullback.compiler.passes.if_conversion import if_conversion
from pullback.compiler.passes.joined_loops import joined_loops
from pullback.compiler.passes.joined_scatters import joined_scatters
from pullback.compiler.passes.lazy_updates import lazy_updates
from pullback.compiler.passes.loops import rewrite_held
from pullback.compiler.passes.masked_once import masked_once
from pullback.compiler.passes.minimal_filtering import minimal_filtering
from pullback.compiler.passes.rewriting import GraphPass, Rewriter, RulePass
from pullback.compiler.passes.scattered_unpools import scattered_unpools
from pullback.compiler.passes.simplify_arithmetic import simplify_arithmetic
from pullback.compiler.passes.simplify_products import simplify_products
from pullback.compiler.passes.simplify_reductions import simplify_reductions
from pullback.compiler.passes.simplify_shapes import simplify_shapes
from pullback.compiler.passes.sliced_convolutions import sliced_convolutions
from pullback.compiler.passes.sparse_pooling import sparse_pooling
from pullback.compiler.passes.sparse_updates import sparse_updates
from pullback.compiler.passes.sunk_steps import sunk_steps
from pullback.compiler.passes.transposed_products import transposed_products
from pullback.compiler.schedules.cost import MOST_HELD, MOST_ROUNDS
from pullback.compiler.target import Processor
from pullback.control.custom import without_rules
from pullback.control.host import with_host_calls
from pullback.control.unbounded import unbounded
from pullback.graph import Graph, Node, Operation, TupleType, every_node, regions, results, with_regions

__all__ = ["PASSES", "Pass", "optimise", "passes_for"]

Pass = RulePass | GraphPass


def _better_bodies(target: Processor, branching: bool) -> GraphPass:
    """Regions go through the same passes, and lose what nobody uses.

    In a loop whose end the values decide, as one thread does it, a processor goes on before a choice is known: choices
    between a few numbers, which are in registers, stay branches.
    """
    known: WeakSet[Graph] = WeakSet()

    def settled(region: Graph, branching: bool) -> Graph:
        """``region`` optimised, once: each round over a graph would otherwise be all rounds over those it holds."""
        if region in known:
            return region
        region = optimise(region, passes_for(target, branching, held=True))
        known.add(region)
        return region

    def better(node: Operation) -> Sequence[Node]:
        stays = branching or (node.operator is unbounded and _is_small(node))
        attributes = with_regions(node.attributes, lambda region: settled(region, stays))
        return results(node.operator(*node.inputs, **attributes))

    return GraphPass("bodies", partial(rewrite_held, rule=better))


def _is_small(node: Operation) -> bool:
    """Whether all that the regions of an operation compute may be in registers."""
    inside = (each for region in regions(node) for each in every_node(region))
    return all(isinstance(each.type, TupleType) or each.size <= MOST_HELD for each in inside)


@lru_cache(maxsize=32)
def passes_for(target: Processor, branching: bool = False, held: bool = False) -> tuple[Pass, ...]:
    """All passes, in the order in which they are run, with costs as ``target`` has them.

    Where ``branching`` choices stay branches. A graph that an operation has ``held`` is run many times.
    """
    return (
        GraphPass("without_rules", without_rules),
        GraphPass("with_factors", with_factors),
        GraphPass("with_host_calls", with_host_calls),
        *(() if held else (distinct_rows(target, early=True),)),
        fold_constants,
        simplify_arithmetic,
        simplify_shapes,
        simplify_reductions,
        sparse_pooling(target),
        broadcast_late,
        simplify_products,
        transposed_products,
        sliced_convolutions,
        joined_scatters,
        sparse_updates,
        lazy_updates,
        gathered_scatters,
        masked_once,
        equal_regions,
        joined_loops,
        if_conversion(target, branching),
        hoisted_steps,
        sunk_steps,
        *(() if held else (distinct_rows(target),)),
        minimal_filtering(target),
        scattered_unpools(target),
        _better_bodies(target, branching),
    )


PASSES = passes_for(Processor("generic", "", "x86_64", vector_bytes=64, vector_registers=32))
"""Those for long vectors."""


def optimise(
    graph: Graph, passes: Sequence[Pass] = PASSES, watch: Callable[[str, Graph], None] | None = None
) -> Graph:
    """A graph that computes what ``graph`` computes, with less work.

    Results have the same dtype and shape, NaN and infinities where they were, and the same values up to the
    rounding of sums in another order; ``minimal_filtering`` says where it differs. Passes made of rules share one walk
    over the graph, in which the rules of earlier passes are heard first; all passes are run again until none of them
    changes anything. ``watch(names, graph)`` sees each graph that differs from the one before, with the passes that
    made it.

    >>> import numpy as np
    >>> from pullback.graph import Graph, Type, Variable, format_graph
    >>> x = Variable(Type(np.dtype(np.float32), (3,)), "x")
    >>> print(format_graph(optimise(Graph((x,), (-(-x) / 1,))), sources=False))
    input  %0 x: float32[3]
    output %0
    """
    steps: list[tuple[str, Callable[[Graph], Graph]]] = []
    for kind, group in groupby(passes, type):
        if kind is GraphPass:
            steps += [(each.name, each) for each in group]
        else:
            rules = cast(list[RulePass], list(group))
            steps.append((", ".join(each.name for each in rules), Rewriter(rules)))
    unchanged = 0
    for names, step in steps * MOST_ROUNDS:
        before, graph = graph, step(graph)
        unchanged = unchanged + 1 if graph is before else 0
        if watch is not None and graph is not before:
            watch(names, graph)
        if unchanged == len(steps):
            break
    return graph
