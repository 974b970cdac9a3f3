"""What a loop's body computes of a step's input alone is computed for all steps at once, before the loop.

    scan: h' = tanh(x[t] @ w + h @ u)        →        a = x @ w, one product with as many rows as there are steps
                                                      scan: h' = tanh(a[t] + h @ u)

The batching rules of the operators say how: steps are examples. What is cheap stays in the body, where it needs no
memory; what is the same in every step leaves it altogether. What is kept of a step and needs no state is not computed
by the loop at all.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import partial

from pullback.compiler.passes.loops import Rebuilt, all_steps, lazy, rewrite_scans
from pullback.compiler.passes.rewriting import GraphPass
from pullback.compiler.schedules.cost import CHEAP_FOR_STEPS
from pullback.control.regions import PARTS, same_for_all
from pullback.graph import Constant, Node, Operation, Variable, behind, topological

__all__ = ["hoisted_steps"]


def _hoisted(node: Operation) -> Sequence[Node] | None:
    this = Rebuilt(node)
    ahead = this.of_x - this.of_carry
    staying = lazy(this.order, ahead)
    ahead -= staying
    free = {
        k: y for k, y in enumerate(this.ys) if id(y) not in this.of_carry and id(y) not in staying
    }  # what is kept and needs no state: of a step's input, or the same in every step
    bases = {**_read(this, this.of_carry | staying), **{id(base): base for base in map(_base, this.carries)}}
    wanted = {key: base for key, base in bases.items() if _is_dear(base, ahead)}
    moving = [y for y in free.values() if id(y) in ahead]
    if not wanted and not free and not _has_fixed(this):
        return None
    made = all_steps([*wanted.values(), *moving], this.x_variables, this.xs)
    replaced: dict[Node, Node] = {}
    for one, many in zip(wanted.values(), made):
        variable = Variable(one.type)
        replaced[one] = variable
        this.x_variables.append(variable)
        this.xs.append(many)
    supply = iter(made[len(wanted) :])
    whole = {k: next(supply) if id(y) in ahead else same_for_all(y, y, this.trips) for k, y in free.items()}
    this.ys = [y for k, y in enumerate(this.ys) if k not in free]
    this.replace(replaced)
    results = iter(this.results())
    carries = [next(results) for _ in this.carries]
    count = len(this.ys) + len(free)
    return [*carries, *(whole[k] if k in whole else next(results) for k in range(count))]


def _base(node: Node) -> Node:
    """What ``node`` shows a part of."""
    return behind(node, PARTS)


def _read(this: Rebuilt, inside: Set[int]) -> dict[int, Node]:
    """What the nodes ``inside`` read, or show a part of, by ``id``."""
    children = (child for user in this.order if id(user) in inside for child in user.inputs)
    return {id(base): base for base in map(_base, children)}


def _is_dear(node: Node, ahead: set[int]) -> bool:
    """Whether ``node`` is computed of a step's input, and takes more than a few instructions for an element."""
    if id(node) not in ahead or not isinstance(node, Operation):
        return False
    cost = 0.0
    for part in topological([node]):
        if id(part) in ahead and isinstance(part, Operation):
            if not part.operator.elementwise and part.operator.name not in PARTS:
                return True
            cost += part.operator.cost
    return cost > CHEAP_FOR_STEPS


def _has_fixed(this: Rebuilt) -> bool:
    """Whether something is computed in the body that is the same in every step."""
    changing = this.of_x | this.of_carry
    consts = {id(const) for const in this.scan.inputs.consts}
    read = _read(this, changing)
    return any(_depends(read[key], consts) for key in read.keys() - changing - consts)


def _depends(node: Node, consts: set[int]) -> bool:
    """Whether ``node`` is computed in the body from what comes from around it."""
    parts = topological([node], lambda part: id(part) in consts)
    return any(id(part) in consts and not isinstance(part, Constant) for part in parts)


hoisted_steps = GraphPass("hoisted_steps", partial(rewrite_scans, rule=_hoisted))
"""Work that does not wait for the state, before the loop."""
