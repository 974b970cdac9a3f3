"""Taylor mode: a few derivatives along a curve at once, of any order, without nesting.

    k y_k = coefficient k - 1 of J(x(t)) x'(t)

What an operator does to a series is what its pushforward does, which is a graph again: the one rule above gives series
of every operator that has a derivative. Products and quotients have rules of their own: all comes down to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from pullback.errors import TreeError
from pullback.graph import (
    OPERATORS,
    Node,
    Operation,
    TupleType,
    Variable,
    apply,
    is_float,
    mark,
    topological,
    written_at,
)
from pullback.operators.elementwise import filled, summed
from pullback.tracing.functions import transformed
from pullback.tracing.trace import ended, finish, tracing, whole
from pullback.tracing.tracebacks import shows_users_frames
from pullback.transforms.api import Arguments, directions_of, outputs_of, zero_if_absent
from pullback.transforms.forward import tangents

__all__ = ["taylor"]

PRODUCTS = frozenset(("multiply", "contract", "convolve"))
"""Operators that are linear in each of two inputs."""


@shows_users_frames
def taylor(
    function: Callable[..., Any], primals: Sequence[Any], series: Sequence[Sequence[Any]]
) -> tuple[Any, list[Any]]:
    r"""The Taylor coefficients of ``function`` along a curve that is given by its own.

    .. math:: f\Bigl(x + \sum_{k=1}^K x_k t^k\Bigr) = y + \sum_{k=1}^K y_k t^k + O(t^{K+1})

    ``primals`` is a tuple with a tree for each argument, ``series`` a tuple with a list for each: the trees
    :math:`x_1 \dots x_K`, like the argument. Returns ``(value, [y_1, ..., y_K])``, trees like the value. Along the line
    ``x + v t``, of which the list is ``[v, 0 * v, ...]``, the derivative of order ``k`` is ``y_k`` times the factorial
    of ``k``. The work grows with the square of ``K``, that of nested ``jvp`` as a power of 2; through loops and
    branches of the graph (``scan``, ``cond``, functions with rules of their own) it does so here, too.

    Raises ``DerivativeError`` where an argument holds integers, ``TreeError`` for series of different lengths or other
    structures.

    Source: Griewank & Walther, *Evaluating Derivatives*, 2nd ed., SIAM 2008, chapter 13.

    >>> value, coefficients = taylor(lambda x: 1 / (1 - x), (0.0,), ([1.0, 0.0, 0.0],))
    >>> float(value), [float(c) for c in coefficients]
    (1.0, [1.0, 1.0, 1.0])
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(series, (tuple, list)):
        raise TreeError("taylor: primals and series are tuples with an entry for each argument")
    if len(primals) != len(series):
        raise TreeError(f"taylor: {len(primals)} primals and {len(series)} series; give one for each")
    lengths = {len(each) for each in series}
    if len(lengths) != 1:
        raise TreeError(f"taylor: series of {sorted(lengths)} coefficients; give as many for each argument")
    compiled = transformed(_along_curves, function, ())
    if compiled is not None:
        return compiled(tuple(primals), tuple(series))  # type: ignore[no-any-return]
    order = lengths.pop()
    inside = Arguments("taylor", primals, range(len(primals)))
    given = [
        directions_of(f"taylor: coefficient {k + 1}", inside, [each[k] for each in series])
        for k in range(order)
    ]
    moving = [[Variable(x.type, "coefficient") for x in inside.variables] for _ in range(order)]
    since = mark()
    with whole():  # operations that hold graphs would cost a power of 2
        with tracing(inside.variables, inside.made):
            found = outputs_of(function(*inside.replaced), False, function)
        outputs = ended(found.outputs, since)
    known = _Series({x: list(row) for x, row in zip(inside.variables, zip(*moving))})
    nodes = topological(outputs)
    for k in range(1, order + 1):
        for node in nodes:
            known.coefficient(node, k)
    rows = [[zero_if_absent(known.coefficient(y, k), y) for y in outputs] for k in range(1, order + 1)]
    variables = [*inside.variables, *(x for row in moving for x in row)]
    leaves = [*inside.leaves, *(leaf for row in given for leaf in row)]
    values = finish([*outputs, *(y for row in rows for y in row)], variables, leaves)
    size = len(outputs)
    trees = [found.structure.unflatten(values[k * size : (k + 1) * size]) for k in range(order + 1)]
    return trees[0], trees[1:]


def _along_curves(function: Callable[..., Any]) -> Callable[..., tuple[Any, list[Any]]]:
    """``taylor`` as a function of primals and series."""
    return wraps(function)(lambda primals, series: taylor(function, primals, series))


class _Series:
    """The coefficients of nodes, each computed once; ``None`` for zero."""

    def __init__(self, curves: dict[Variable, Sequence[Node]]) -> None:
        self._curves: dict[int, Sequence[Node]] = {id(x): row for x, row in curves.items()}
        self._known: dict[tuple[int, int], Node | None] = {}
        self._moves: dict[int, bool] = {id(x): True for x in curves}
        self._velocities: dict[int, Variable] = {}
        self._moving: dict[int, Node] = {}
        """Of a velocity the node whose it is."""
        self._slopes: dict[int, Node | None] = {}
        self._kept: list[Node] = []
        """Nodes made here, which must live as long as their numbers are used."""

    def coefficient(self, node: Node, k: int) -> Node | None:
        """The coefficient of ``t ** k``."""
        key = id(node), k
        if key not in self._known:
            with written_at(getattr(node, "source", None)):
                self._known[key] = self._computed(node, k)
        return self._known[key]

    def _depends(self, node: Node) -> bool:
        if id(node) not in self._moves:
            for each in topological([node]):
                if id(each) not in self._moves:
                    self._moves[id(each)] = any(self._moves[id(x)] for x in each.inputs)
        return self._moves[id(node)]

    def _computed(self, node: Node, k: int) -> Node | None:
        if id(node) in self._moving:
            following = self.coefficient(self._moving[id(node)], k + 1)
            return None if following is None else _times(following, k + 1)
        if id(node) in self._curves:
            row = self._curves[id(node)]
            return node if k == 0 else row[k - 1] if k <= len(row) else None
        if not isinstance(node, Operation) or not self._depends(node):
            return node if k == 0 else None
        if isinstance(node.type, TupleType):
            return None  # the results that are taken of it have series
        if k == 0:
            return self._applied(node, 0)
        if not is_float(node.dtype) or _several(node).operator.pullback is None:
            return None
        if node.operator.linear and _several(node) is node:
            some = any(self.coefficient(x, k) is not None for x in node.inputs if is_float(x.dtype))
            return self._applied(node, k) if some else None
        if node.operator.name in PRODUCTS:
            a, b = node.inputs
            return self._sum(
                self._product(node, self.coefficient(a, j), self.coefficient(b, k - j)) for j in range(k + 1)
            )
        if node.operator.name == "divide":
            return self._quotient(node, k)
        slope = self._slope(node)
        found = None if slope is None else self.coefficient(slope, k - 1)
        return None if found is None else _times(found, 1 / k)

    def _applied(self, node: Operation, k: int) -> Node:
        """The operator on coefficients: of floats those of ``t ** k``, of all else the values."""
        several = _several(node)
        inputs = []
        for x in several.inputs:
            found = self.coefficient(x, k if is_float(x.dtype) else 0)
            inputs.append(filled(0, x.dtype, x.shape) if found is None else found)
        made = apply(several.operator, tuple(inputs), several.attributes)
        return made if several is node else apply(node.operator, (made,), node.attributes)

    def _product(self, node: Operation, a: Node | None, b: Node | None) -> Node | None:
        return None if a is None or b is None else apply(node.operator, (a, b), node.attributes)

    def _sum(self, parts: Any) -> Node | None:
        total: Node | None = None
        for part in parts:
            if part is not None:
                total = part if total is None else summed(total, part)
        return total

    def _quotient(self, node: Operation, k: int) -> Node | None:
        """``y = a / b`` from ``y b = a``."""
        a, b = node.inputs
        over = self._sum(
            OPERATORS["multiply"](below, before)
            for j in range(1, k + 1)
            if (below := self.coefficient(b, j)) is not None
            and (before := self.coefficient(node, k - j)) is not None
        )
        rest, first = self.coefficient(a, k), self.coefficient(b, 0)
        if over is not None:
            rest = OPERATORS["negative"](over) if rest is None else OPERATORS["subtract"](rest, over)
        if rest is None:
            return None
        return OPERATORS["divide"](rest, filled(0, b.dtype, b.shape) if first is None else first)

    def _slope(self, node: Operation) -> Node | None:
        """The pushforward of an operation, of the velocities of its inputs."""
        if id(node) not in self._slopes:
            inputs = dict.fromkeys(_several(node).inputs)
            moving = [x for x in inputs if is_float(x.dtype) and self._depends(x)]
            (found,) = tangents([node], moving, [self._velocity(x) for x in moving]) if moving else (None,)
            self._slopes[id(node)] = found
            self._kept += [node, *([] if found is None else [found])]
        return self._slopes[id(node)]

    def _velocity(self, x: Node) -> Variable:
        if id(x) not in self._velocities:
            made = Variable(x.type, "velocity")
            self._velocities[id(x)] = made
            self._moving[id(made)] = x
            self._moves[id(made)] = True
            self._kept.append(x)
        return self._velocities[id(x)]


def _several(node: Operation) -> Operation:
    """The operation of several results, such as a loop, that ``node`` is a result of; or ``node`` itself."""
    (first, *_) = node.inputs or (node,)
    return first if isinstance(first.type, TupleType) and isinstance(first, Operation) else node


def _times(x: Node, factor: float) -> Node:
    return x if factor == 1 else OPERATORS["multiply"](x, filled(factor, x.dtype, x.shape))
