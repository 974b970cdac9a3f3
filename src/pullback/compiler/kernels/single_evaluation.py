"""One value, one set of bits: a sum whose order matters is evaluated in one place.

Sums and products of floats depend on the order of their terms, and the order depends on the loops around them: along
lanes, one row a lane, in a product's registers. If the sum were evaluated in two loops of a kernel, a value could
differ in its last bits from itself, and a comparison with its own maximum would find nobody:

    for i:    m[i] = max[j](add[k](d[i, j, k]))
    for i, j: t[i, j] = add[k](d[i, j, k]) == m[i]

So where a value is needed in several loops it is stored, and read by all of them; maxima, minima and integer sums are
the same in any order and may be evaluated again. What is the same for a whole row is evaluated once, before its loops.
The sums that a pool takes the largest of are the exception: which one it was is carried as an index.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from pullback.loops import Affine, Axis, Expression, Kernel, Reduce, walk
from pullback.loops.kernel import itself

__all__ = ["evaluated_twice"]

InnerLoop = tuple[Axis, ...] | Reduce
"""A loop inside a kernel's own: the inner axes of a store, or a reduction."""


def _order_matters(reduce: Reduce) -> bool:
    """Whether the value's last bits depend on the order in which it is computed."""
    return reduce.kind in ("add", "multiply") and reduce.dtype.kind not in "biu"


def _loops_around(kernel: Kernel, wanted: Collection[Expression]) -> Iterator[tuple[Expression, InnerLoop]]:
    """Each of the ``wanted`` expressions with each innermost loop of the kernel that its value differs in."""
    for store in kernel.stores:
        seen: set[tuple[int, int]] = set()
        stack: list[tuple[Expression, tuple[Reduce, ...]]] = [(root, ()) for root in store.roots()]
        while stack:
            expression, around = stack.pop()
            around = tuple(reduce for reduce in around if not expression.axes.isdisjoint(reduce.over))
            key = (id(expression), id(around[-1]) if around else 0)
            if key in seen:
                continue
            seen.add(key)
            if expression in wanted:
                inner = () if expression.axes.isdisjoint(store.inner) else store.inner
                yield expression, around[-1] if around else inner
            if isinstance(expression, Reduce):
                around = (*around, expression)
            stack.extend((operand, around) for operand in expression.operands)


def evaluated_twice(kernels: Iterable[Kernel]) -> Expression | None:
    """A sum whose order matters that is evaluated in two loops, if there is one.

    Two sums are the same if they differ in the names of axes only.
    """
    known: dict[object, tuple[Kernel, object]] = {}
    for kernel in kernels:
        sums = set(filter(_order_matters, kernel.reductions))
        for expression, loop in _loops_around(kernel, sums) if sums else ():
            place = (kernel, loop if isinstance(loop, tuple) else id(loop))
            if known.setdefault(_shape_of(expression, kernel), place) != place:
                return expression
    return None


def _shape_of(root: Expression, kernel: Kernel) -> object:
    """``root`` with its axes numbered: the kernel's in their order, then the others as they are met."""
    numbers = {axis: number for number, axis in enumerate(kernel.axes)}
    made: dict[int, int] = {}
    parts: list[object] = []

    def axis(each: Axis) -> object:
        return numbers.setdefault(each, len(numbers)), each.extent

    def index(affine: Affine) -> object:
        terms = sorted(affine.terms, key=lambda term: (term[1], term[0].extent, numbers.get(term[0], -1)))
        return tuple((axis(a), c) for a, c in terms), affine.constant

    for part in walk(root):
        operands = tuple(made[id(operand)] for operand in part.operands)
        made[id(part)] = len(parts)
        parts.append((type(part), part.dtype, itself(part, axis, id, index), operands))
    return tuple(parts)
