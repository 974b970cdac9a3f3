"""What a loop only gives away, or only adds up, is computed after it, for all steps at once.

    scan: h' = …, y = h' @ w                 →        scan: h' = …, keeping h'
                                                      y = h' @ w, one product with as many rows as there are steps
    scan: δ' = …, dw' = dw + h[t]ᵀ @ δ       →        scan: δ' = …, keeping δ
                                                      dw = Σ h[t]ᵀ @ δ[t], one product that sums over the steps too

Products gain by that; what is only elementwise stays in the loop, where it fuses. So the gradients of weights, which
the pullback of a loop adds up step by step, are products of what all steps have kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial

from pullback.compiler.passes.loops import (
    PRODUCTS,
    Rebuilt,
    all_steps,
    frontier,
    has_any,
    is_result,
    lazy,
    rewrite_scans,
)
from pullback.compiler.passes.rewriting import GraphPass, inner, uses
from pullback.control.regions import dependent
from pullback.graph import Node, Operation, Variable, substitute, topological
from pullback.operators.elementwise import summed
from pullback.operators.reductions import sum as sum_

__all__ = ["sunk_steps"]


def _sunk(node: Operation) -> Sequence[Node] | None:
    this = Rebuilt(node)
    leaving = _leaving(this)
    return _after_the_loop(this, leaving) if leaving.kept or leaving.added else None


@dataclass(frozen=True)
class _Leaving:
    """What is computed after a loop: what it keeps, what is added to its carries, by number; and the nodes of that."""

    kept: Mapping[int, Node]
    added: Mapping[int, Node]
    nodes: Set[int]


def _leaving(this: Rebuilt) -> _Leaving:
    inside = this.of_x | this.of_carry
    count = uses(this.order, (*this.carries, *this.ys))
    added = {
        k: term
        for k, (variable, after) in enumerate(zip(this.variables, this.carries))
        if count.get(id(variable), 0) == 1
        if (term := _term(after, variable)) is not None and id(term) in inside
    }
    needed = {id(node) for node in topological(c for k, c in enumerate(this.carries) if k not in added)}
    apart = {id(node) for node in this.order if isinstance(node, Operation)} & inside - needed
    apart -= lazy(this.order, apart)
    sinking = {k: y for k, y in enumerate(this.ys) if id(y) in apart and has_any(PRODUCTS, y, apart)}
    staying = [y for k, y in enumerate(this.ys) if k not in sinking]
    summing = {k: term for k, term in added.items() if id(term) in apart and has_any(PRODUCTS, term, apart)}
    # A sum over rows makes the rows of a step wait for each other; it leaves if what it reads takes no more memory than
    # what is kept for all steps anyway.
    late = _from_products_on(this.order, apart)
    kept = {id(n): n for n in (*staying, *frontier([*sinking.values(), *summing.values()], late, inside))}
    given = {id(n) for n in this.x_variables} | kept.keys()
    room = sum(n.type.nbytes for n in kept.values())
    for k, term in added.items():
        if k in summing or id(term) not in apart or not has_any({"sum"}, term, apart):
            continue
        more = sum(n.type.nbytes for n in frontier([term], late, inside) if id(n) not in given)
        if more <= room:
            summing[k] = term
            room -= more
    # What stays in the loop for its own sake is not computed again after it.
    staying += [term for k, term in added.items() if k not in summing]
    nodes = late - {id(n) for n in topological(staying)}
    # The results of a loop belong to where the loop is.
    nodes -= {id(n) for n in this.order if is_result(n) and id(n.inputs[0]) not in nodes}
    return _Leaving(sinking, dict(sorted(summing.items())), nodes)


def _after_the_loop(this: Rebuilt, leaving: _Leaving) -> Sequence[Node]:
    """The results of the loop without what is ``leaving``, which keeps what that reads, and of that."""
    roots = [*leaving.kept.values(), *leaving.added.values()]
    read = _read(roots, leaving.nodes, this.of_x | this.of_carry)
    xs: dict[Node, Node] = dict(zip(this.x_variables, this.xs))
    inits, y_count = this.inits, len(this.ys)
    carried = [k for k in range(len(inits)) if k not in leaving.added]
    staying = [y for k, y in enumerate(this.ys) if k not in leaving.kept]
    this.variables = [this.variables[k] for k in carried]
    this.carries = [this.carries[k] for k in carried]
    this.inits = [inits[k] for k in carried]
    this.ys = [*staying, *(node for node in read if node not in xs)]
    made = iter(this.results())
    carries = [next(made) for _ in carried]
    ys = [next(made) for _ in staying]
    many = [xs[node] if node in xs else next(made) for node in read]
    ones = [Variable(node.type) for node in read]
    after = iter(all_steps(substitute(roots, dict(zip(read, ones))), ones, many))
    kept = {k: next(after) for k in leaving.kept}
    totals = {k: summed(inits[k], sum_(next(after), axes=(0,))) for k in leaving.added}
    last, others = iter(carries), iter(ys)
    return [
        *(totals[k] if k in totals else next(last) for k in range(len(inits))),
        *(kept[k] if k in kept else next(others) for k in range(y_count)),
    ]


def _term(after: Node, variable: Node) -> Node | None:
    """What is added to a carry in every step."""
    total = inner(after, "add")
    if total is None:
        return None
    a, b = total.inputs
    return b if a is variable else a if b is variable else None


def _from_products_on(order: Sequence[Node], apart: Set[int]) -> set[int]:
    """Of the nodes that the loop does not need itself, the products and sums, and what is computed from them.

    What is elementwise before them stays in the loop, where it fuses; its result is kept for all steps.
    """
    taken = [node for node in order if id(node) in apart]
    roots = [n for n in taken if isinstance(n, Operation) and n.operator.name in PRODUCTS | {"sum"}]
    return dependent(taken, roots)


def _read(roots: Sequence[Node], here: Set[int], inside: set[int]) -> list[Node]:
    """What ``roots`` read of the loop when the nodes ``here`` are computed after it."""
    direct = [root for root in roots if id(root) not in here]
    return list({id(n): n for n in (*direct, *frontier(roots, here, inside))}.values())


sunk_steps = GraphPass("sunk_steps", partial(rewrite_scans, rule=_sunk))
"""Products whose results the loop itself does not need, after the loop."""
