"""Products take over what is around their operands, and give away what is none of their work.

- A transposed operand is the operand with its labels in another order.
- A label of extent 1 is dropped; one that a broadcast has added to an operand is the other operand's alone.
- Where an operand is one number, that is multiplied with a sum of the other.
- A contraction that sums nothing (an outer product, a product of elements) is a multiplication, which fuses.
- A sum of products that is a product of matrices, each with rows or columns of its own, is a contraction.
- A sum over what both operands of a contraction have is part of it.
- Labels are numbered as they come, so that equal products are one node.

>>> import numpy as np
>>> import pullback.numpy as pnp
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> x = Variable(Type(np.dtype(np.float32), (5, 7)), "x")
>>> w = Variable(Type(np.dtype(np.float32), (3, 7)), "w")
>>> graph = Graph((x, w), (x @ w.T, pnp.sum(x[:, None, :] * w[None, :, :], axis=2)))
>>> print(format_graph(graph, sources=False))
input  %0 x: float32[5, 7]
input  %1 w: float32[3, 7]
%2 = transpose(%1, axes=(1, 0)): float32[7, 3]
%3 = contract(%0, %2, a_labels=(0, 1), b_labels=(1, 2), out_labels=(0, 2)): float32[5, 3]
%4 = reshape(%0, shape=(5, 1, 7)): float32[5, 1, 7]
%5 = broadcast(%4, axes=(0, 1, 2), shape=(5, 3, 7)): float32[5, 3, 7]
%6 = reshape(%1, shape=(1, 3, 7)): float32[1, 3, 7]
%7 = broadcast(%6, axes=(0, 1, 2), shape=(5, 3, 7)): float32[5, 3, 7]
%8 = multiply(%5, %7): float32[5, 3, 7]
%9 = sum(%8, axes=(2,)): float32[5, 3]
output %3, %9
>>> from pullback.compiler.passes import optimise
>>> from pullback.compiler.passes.simplify_shapes import simplify_shapes
>>> print(format_graph(optimise(graph, (simplify_shapes, simplify_products)), sources=False))
input  %0 x: float32[5, 7]
input  %1 w: float32[3, 7]
%2 = contract(%0, %1, a_labels=(0, 1), b_labels=(2, 1), out_labels=(0, 2)): float32[5, 3]
output %2, %2
"""

from __future__ import annotations

import numpy as np

from pullback.compiler.passes.rewriting import Rule, RulePass, filled, inner, labelled, ordered, scalar
from pullback.graph import Node, Operation
from pullback.operators.arithmetic import multiply
from pullback.operators.reductions import sum as sum_
from pullback.operators.shapes import broadcast, reshape

__all__ = ["both_ways", "extents_of", "simplify_products"]

Labels = tuple[int, ...]


def _operands(node: Operation) -> tuple[Node, Node, Labels, Labels, Labels]:
    """Both operands of a contraction, the labels of each, and those of the result."""
    (a, b), how = node.inputs, node.attributes
    return a, b, how["a_labels"], how["b_labels"], how["out_labels"]


def both_ways(node: Operation) -> tuple[tuple[Node, Labels, Node, Labels], ...]:
    """Each operand of a contraction with its labels, and the other one with its own."""
    a, b, a_labels, b_labels, _ = _operands(node)
    return (a, a_labels, b, b_labels), (b, b_labels, a, a_labels)


def extents_of(node: Operation) -> dict[int, int]:
    """How far each label of a contraction goes."""
    a, b, a_labels, b_labels, _ = _operands(node)
    return dict(zip((*a_labels, *b_labels), (*a.shape, *b.shape)))


def _in_order(node: Operation) -> Node:
    """Operands as they lie, their labels numbered as they come."""
    a, b, a_labels, b_labels, out = _operands(node)
    (a, a_labels), (b, b_labels) = _as_it_lies(a, a_labels), _as_it_lies(b, b_labels)
    return labelled(a, b, a_labels, b_labels, out)


def _as_it_lies(x: Node, labels: Labels) -> tuple[Node, Labels]:
    """What an operand is the transpose of, if it is one, and the labels of its axes."""
    turned = inner(x, "transpose")
    if turned is None:
        return x, labels
    axes = turned.attributes["axes"]
    return turned.inputs[0], tuple(labels[axes.index(axis)] for axis in range(len(axes)))


def _units(node: Operation) -> Node | None:
    a, b, a_labels, b_labels, out = _operands(node)
    if 1 not in a.shape and 1 not in b.shape:
        return None
    extents = extents_of(node)
    first, second = ([label for label in labels if extents[label] != 1] for labels in (a_labels, b_labels))
    small = labelled(
        reshape(a, shape=tuple(extents[label] for label in first)),
        reshape(b, shape=tuple(extents[label] for label in second)),
        first,
        second,
        [label for label in out if extents[label] != 1],
    )
    return reshape(small, shape=node.shape)


def _repeated(node: Operation) -> Node | None:
    """Labels of the result that a broadcast has added to an operand."""
    *operands, a_labels, b_labels, out = _operands(node)
    labels = [a_labels, b_labels]
    for position, operand in enumerate(operands):
        spread = inner(operand, "broadcast")
        if spread is None or 1 in spread.inputs[0].shape:
            continue
        (x,), axes, own = spread.inputs, spread.attributes["axes"], labels[position]
        left = [axis for axis, label in enumerate(own) if axis in axes or label not in out]
        if len(left) < len(own):
            shape = tuple(spread.shape[axis] for axis in left)
            operands[position] = broadcast(x, shape=shape, axes=tuple(left.index(axis) for axis in axes))
            labels[position] = tuple(own[axis] for axis in left)
    if labels == [a_labels, b_labels]:
        return None
    made = [label for label in out if label in labels[0] or label in labels[1]]
    product = labelled(operands[0], operands[1], labels[0], labels[1], made)
    return broadcast(product, shape=node.shape, axes=tuple(out.index(label) for label in made))


def _constant_operand(node: Operation) -> Node | None:
    """One number times a sum; infinite it would stay inside, where ``inf - inf`` is NaN."""
    out = node.attributes["out_labels"]
    for x, labels, other, other_labels in both_ways(node):
        value = scalar(x)
        if value is not None and np.isfinite(value) and not set(labels) & set(out):
            over = tuple(axis for axis, label in enumerate(other_labels) if label in labels)
            left = tuple(label for label in other_labels if label not in labels)
            total = _spread(sum_(other, axes=over), left, out, node.shape)
            return multiply(total, filled(value, node))
    return None


def _nothing_summed(node: Operation) -> Node | None:
    a, b, a_labels, b_labels, out = _operands(node)
    if len({*a_labels, *b_labels}) != len(out):
        return None
    return multiply(_spread(a, a_labels, out, node.shape), _spread(b, b_labels, out, node.shape))


def _spread(x: Node, labels: Labels, out: Labels, shape: tuple[int, ...]) -> Node:
    """``x`` with its axes in the order of ``out``, repeated along those that it has not."""
    order = sorted(labels, key=out.index)
    return broadcast(ordered(x, labels, order), shape=shape, axes=tuple(map(out.index, order)))


def _sum_of_products(node: Operation) -> Node | None:
    product, axes = inner(node.inputs[0], "multiply"), node.attributes["axes"]
    if product is None or node.dtype.kind != "f":
        return None
    a, b = (inner(child, "broadcast") for child in product.inputs)
    if a is None or b is None or 1 in a.inputs[0].shape or 1 in b.inputs[0].shape:
        return None
    a_labels, b_labels = a.attributes["axes"], b.attributes["axes"]
    both, out = {*a_labels} & {*b_labels}, [axis for axis in range(product.ndim) if axis not in axes]
    own_rows, own_columns = {*a_labels} - both, {*b_labels} - both
    if not (both.issuperset(axes) and own_rows and own_columns):
        return None
    missing = {*out} - {*a_labels, *b_labels}
    if any(product.shape[label] != 1 for label in missing):
        return None
    made = [label for label in out if label not in missing]
    return reshape(labelled(a.inputs[0], b.inputs[0], a_labels, b_labels, made), shape=node.shape)


def _sum_of_contraction(node: Operation) -> Node | None:
    """A sum over what both operands of a contraction have is a contraction that sums over that as well."""
    product, axes = inner(node.inputs[0], "contract"), node.attributes["axes"]
    if product is None:
        return None
    a, b, a_labels, b_labels, out = _operands(product)
    gone = [out[axis] for axis in axes]
    if not {*gone} <= {*a_labels} & {*b_labels}:
        return None
    return labelled(a, b, a_labels, b_labels, [label for label in out if label not in gone])


_RULES: dict[str, tuple[Rule, ...]] = {
    "contract": (_units, _in_order, _repeated, _nothing_summed, _constant_operand),
    "sum": (_sum_of_products, _sum_of_contraction),
}

simplify_products = RulePass("simplify_products", _RULES)
"""Products of what is in memory, with nothing beside the product left to them."""
