"""Reductions over axes of one element, and over what a broadcast repeats, are no reductions.

Equal values are summed by one multiplication: it rounds once, so it is nearer to the true sum than additions
one after another (and it is what they give wherever they are exact); +0 is added to it, with which a sum begins.
A reduction of a reduction is one over all axes, and reductions stand inside reshapes that only add or drop axes of
extent 1. A sum in which all but the element of one number are zeros, as of a long row's one-hot mask, is that element.
Values with mean 0 and variance 1 are computed by sums: derivatives, which are what their operator is there for, have
been taken by now.

>>> import numpy as np
>>> import pullback.numpy as pnp
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> x = Variable(Type(np.dtype(np.float32), (5,)), "x")
>>> graph = Graph((x,), (pnp.sum(pnp.broadcast_to(x, (3, 5)), axis=0),))
>>> print(format_graph(graph, sources=False))
input  %0 x: float32[5]
%1 = broadcast(%0, axes=(1,), shape=(3, 5)): float32[3, 5]
%2 = sum(%1, axes=(0,)): float32[5]
output %2
>>> print(format_graph(simplify_reductions(graph), sources=False))
input  %0 x: float32[5]
%1 = constant 3.0: float32[]
%2 = broadcast(%1, axes=(), shape=(5,)): float32[5]
%3 = multiply(%0, %2): float32[5]
%4 = constant 0.0: float32[]
%5 = broadcast(%4, axes=(), shape=(5,)): float32[5]
%6 = add(%3, %5): float32[5]
output %6
"""

from __future__ import annotations

import math

import numpy as np

from pullback.compiler.passes.rewriting import Rule, RulePass, filled, in_rare_cases, inner, is_zero, shaped
from pullback.compiler.passes.simplify_shapes import long_axes, only_units
from pullback.compiler.schedules.cost import LEAST_PICKED_FROM
from pullback.graph import Constant, Node, Operation, behind
from pullback.operators.arithmetic import add, cast, maximum, minimum, multiply
from pullback.operators.elementwise import where
from pullback.operators.indexing import gather
from pullback.operators.logic import equal
from pullback.operators.normalisation import standardise_in_steps
from pullback.operators.shapes import broadcast, iota, reshape

__all__ = ["simplify_reductions"]

Axes = tuple[int, ...]

_INT = np.dtype(np.int64)


def _over_one_element(node: Operation) -> Node | None:
    """Axes of one element are dropped behind it; over nothing else each element is its own result."""
    (x,), axes = node.inputs, node.attributes["axes"]
    over = tuple(axis for axis in axes if x.shape[axis] != 1)
    if not over:
        if node.operator.name in ("argmax", "argmin"):
            return filled(0, node)
        return shaped(x, node.shape)
    return None if over == axes else reshape(node.operator(x, axes=over), shape=node.shape)


def _of_broadcast(node: Operation) -> Node | None:
    """What a broadcast repeats is reduced before it, and what it has added is not reduced at all."""
    spread, axes, name = inner(node.inputs[0], "broadcast"), node.attributes["axes"], node.operator.name
    if spread is None or 1 in spread.inputs[0].shape:
        return None
    (result,), own = spread.inputs, spread.attributes["axes"]
    repeated = [axis for axis in axes if axis not in own]
    if repeated and name in ("argmax", "argmin"):
        return None
    over = tuple(position for position, axis in enumerate(own) if axis in axes)
    alone = math.prod(result.shape[position] for position in over) == 1
    if over:
        result = node.operator(result, axes=over)
    if repeated and name == "sum":
        count = math.prod(spread.shape[axis] for axis in repeated)
        if not count:
            return filled(0, node)
        result = multiply(result, filled(np.asarray(count).astype(node.dtype), result))
        if alone and count > 1 and node.dtype.kind == "f":
            # The product of a negative zero is one, and the sum begins with +0.
            result = add(result, filled(0.0, result))
    if result.shape == node.shape:
        return result
    left = [axis for axis in range(spread.ndim) if axis not in axes]
    return broadcast(result, shape=node.shape, axes=tuple(left.index(axis) for axis in own if axis in left))


def _of_same(node: Operation) -> Node | None:
    """A reduction of a reduction of the same kind."""
    first = inner(node.inputs[0], node.operator.name)
    if first is None:
        return None
    (x,), gone = first.inputs, first.attributes["axes"]
    left = [axis for axis in range(x.ndim) if axis not in gone]
    return node.operator(x, axes=tuple(sorted((*gone, *(left[axis] for axis in node.attributes["axes"])))))


def _outside_units(node: Operation) -> Node | None:
    """Axes of one element that are added or dropped before a reduction are so after it."""
    reshaped = inner(node.inputs[0], "reshape")
    if reshaped is None or not only_units(reshaped.inputs[0].shape, reshaped.shape):
        return None
    (x,) = reshaped.inputs
    place = dict(zip(long_axes(reshaped.shape), long_axes(x.shape)))
    return reshape(
        node.operator(x, axes=tuple(place[axis] for axis in node.attributes["axes"])), shape=node.shape
    )


def _of_one_hot(node: Operation) -> Node | None:
    """``sum_k where(label == k, x_k, 0)`` of many elements is that at the label, or zero if there is none."""
    chosen, (axis, *more) = inner(node.inputs[0], "where"), node.attributes["axes"]
    if chosen is None or more or chosen.shape[axis] < LEAST_PICKED_FROM:
        return None
    mask, x, rest = chosen.inputs
    label = _label(mask, axis) if is_zero(rest) and not in_rare_cases(x) else None
    if label is None:
        return None
    check, count = inner(behind(label, ("broadcast", "reshape")), "check_index"), x.shape[axis]
    label = cast(label, dtype=_INT)
    checked = check is not None and check.attributes["extent"] <= count
    inside = label if checked else minimum(maximum(label, filled(0, label)), filled(count - 1, label))
    places = [iota(shape=label.shape, axis=k, dtype=_INT) for k in range(label.ndim)]
    found = gather(x, *places[:axis], inside, *places[axis:], axes=tuple(range(x.ndim)))
    if not checked:
        found = where(equal(label, inside), found, filled(0, found))
    return add(found, filled(0, found))


def _label(mask: Node, axis: int) -> Node | None:
    """What is compared with the numbers of an ``axis``, without the axis, if it is the same all along it."""
    compared = inner(mask, "equal")
    for label, number in (compared.inputs, compared.inputs[::-1]) if compared is not None else ():
        spread = inner(label, "broadcast")
        if label.dtype.kind not in "iu" or spread is None or not _counts(number, axis):
            continue
        (one,), own = spread.inputs, spread.attributes["axes"]
        kept = [position for position in own if position != axis]
        if axis in own and one.shape[own.index(axis)] != 1:
            continue
        shape = tuple(extent for position, extent in enumerate(label.shape) if position != axis)
        one = reshape(one, shape=tuple(one.shape[own.index(position)] for position in kept))
        return broadcast(one, shape=shape, axes=tuple(position - (position > axis) for position in kept))
    return None


def _counts(node: Node, axis: int) -> bool:
    """Whether elements are their numbers along an axis of several."""
    count, spread = node.shape[axis], inner(node, "broadcast")
    if spread is not None:
        (one,), own = spread.inputs, spread.attributes["axes"]
        return axis in own and one.shape[own.index(axis)] == count and _counts(one, own.index(axis))
    reshaped = inner(node, "reshape")
    known = node if reshaped is None else reshaped.inputs[0]
    if isinstance(known, Constant):
        return known.size == count and np.array_equal(known.value.reshape(-1), np.arange(count))
    numbers = inner(node, "iota")
    return (
        numbers is not None and numbers.attributes["axis"] == axis and count - 1 <= np.iinfo(node.dtype).max
    )


_RULES: dict[str, tuple[Rule, ...]] = {
    "sum": (_over_one_element, _of_broadcast, _of_same, _outside_units, _of_one_hot),
    "prod": (_over_one_element, _of_same, _outside_units),
    "max": (_over_one_element, _of_broadcast, _of_same, _outside_units),
    "min": (_over_one_element, _of_broadcast, _of_same, _outside_units),
    "argmax": (_over_one_element, _of_broadcast, _outside_units),
    "argmin": (_over_one_element, _of_broadcast, _outside_units),
    "standardise": (lambda node: standardise_in_steps(*node.inputs, **node.attributes),),
}

simplify_reductions = RulePass("simplify_reductions", _RULES)
"""Reductions over as few axes and elements as possible."""
