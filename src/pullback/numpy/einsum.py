"""Einstein's sums: any number of operands, ellipses, labels repeated within an operand, implicit results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.errors import ShapeError, TracingError
from pullback.graph import Node
from pullback.graph.named import is_named
from pullback.graph.protocol import vocabulary
from pullback.numpy.dispatch import implements
from pullback.numpy.products import Label, _diagonal, contracted
from pullback.numpy.promotion import as_array_node, broadcast_to_shape, promote, where_written
from pullback.numpy.shapes import permuted, to_shape

__all__ = ["einsum"]

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

WORTH = 8
"""Times the multiplications of another order, from which on NumPy's, from the left, is given up for it."""

_ANY_SIZE = 1 << 10
"""What counts as the extent of a named axis where costs are compared: NumPy refuses arrays as long as its stand-in."""

Term = tuple[Node, list[Label]]
"""An operand and the labels of its axes."""


@implements(np.einsum)
def einsum(subscripts: Any, /, *operands: Any, optimize: Any = None, dtype: Any = None) -> Any:
    """The sum of products that ``subscripts`` describes: labels that are missing after ``->`` are summed.

    Axes under ``...`` are broadcast. Operands with lists of numbers for their axes behind each, and one for the result
    at the end, say the same: ``einsum(x, [0, 1], y, [1, 2], [0, 2])``. More than two operands are multiplied from the
    left, as NumPy does, and what nobody else has is summed at once. Where the greedy order of ``np.einsum_path`` takes
    less than an eighth of the multiplications it is taken instead. ``optimize`` true, ``"greedy"``, ``"optimal"`` or a
    path takes that order, false the one from the left, whatever it costs. Raises ``ShapeError`` when labels and shapes
    do not fit.

    >>> import numpy as np
    >>> print(einsum("ij,j->i", np.eye(2), np.array([1.0, 2.0])))
    [1. 2.]
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _as_text((subscripts, *operands))
    nodes = promote(operands, None if dtype is None else lambda _: np.dtype(dtype))
    terms, out = _parse(subscripts, nodes)
    extents = _extents(subscripts, terms)
    terms = [_fitted(term, extents) for term in terms]
    known = {label for _, labels in terms for label in labels}
    if missing := [label for label in out if label not in known]:
        raise ShapeError(
            f"einsum {subscripts!r}: {missing[0]!r} is in the result only, so its extent is not known; take it away or "
            f"give an operand that has it{where_written()}"
        )
    if not all(extents[label] for label in known.difference(out)):
        # No products at all, whatever some operands may be summed to before others are known to be empty.
        zero = as_array_node(np.zeros((), nodes[0].dtype))
        return broadcast_to_shape(zero, tuple(extents[label] for label in out))
    for pair in _path(terms, out, extents, optimize):
        taken = [terms.pop(position) for position in sorted(pair, reverse=True)][::-1]
        result = taken[0]
        for position, term in enumerate(taken[1:], 1):
            others = [label for _, labels in (*terms, *taken[position + 1 :]) for label in labels]
            result = _joined(result, term, {*out, *others})
        terms.append(result)
    node, labels = _summed(terms[0], set(out))
    return permuted(node, tuple([labels.index(label) for label in out]))


def _as_text(arguments: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Operands and the numbers of their axes as subscripts and operands."""
    pairs = len(arguments) // 2
    lists = [*arguments[1 : 2 * pairs : 2], *arguments[2 * pairs :]]
    texts = []
    for axes in lists:
        if not isinstance(axes, (list, tuple)) or not all(
            axis is ... or (isinstance(axis, (int, np.integer)) and 0 <= axis < len(_LETTERS))
            for axis in axes
        ):
            raise TracingError(
                f"einsum takes its subscripts as a string such as 'ij,jk->ik', or a list of axes from 0 to "
                f"{len(_LETTERS) - 1} behind each operand; found {axes!r:.40}{where_written()}"
            )
        texts.append("".join("..." if axis is ... else sorted(_LETTERS)[axis] for axis in axes))
    result = f"->{texts[pairs]}" if len(texts) > pairs else ""
    return ",".join(texts[:pairs]) + result, arguments[: 2 * pairs : 2]


def _parse(subscripts: str, nodes: Sequence[Node]) -> tuple[list[Term], list[Label]]:
    """The operands with their labels, and those of the result; axes under an ellipsis are numbered from the
    last.
    """
    text, arrow, result = subscripts.replace(" ", "").partition("->")
    parts = text.split(",")
    if len(parts) != len(nodes):
        raise ShapeError(
            f"einsum {subscripts!r} is for {len(parts)} operands, {len(nodes)} came{where_written()}"
        )
    terms = []
    deepest = 0
    for part, node in zip(parts, nodes):
        before, dots, after = part.partition("...")
        hidden = node.ndim - len(before) - len(after)
        if not set(before + after) <= set(_LETTERS) or hidden < 0 or (hidden and not dots):
            raise ShapeError(
                f"einsum {subscripts!r}: {part!r} does not label shape {node.shape}{where_written()}"
            )
        deepest = max(deepest, hidden)
        terms.append((node, [*before, *range(hidden, 0, -1), *after]))
    ellipsis: list[Label] = list(range(deepest, 0, -1))
    if not arrow:
        counted = Counter(letter for letter in text if letter in _LETTERS)
        return terms, [*ellipsis, *sorted(letter for letter, times in counted.items() if times == 1)]
    before, dots, after = result.partition("...")
    out: list[Label] = [*before, *(ellipsis if dots else []), *after]
    if len(set(out)) != len(out) or (ellipsis and not dots):
        raise ShapeError(
            f"einsum {subscripts!r}: the result {result!r} must name each label once, and the ellipsis when "
            f"there is one{where_written()}"
        )
    return terms, out


def _extents(subscripts: str, terms: Sequence[Term]) -> dict[Label, int]:
    """How long each label is; extents of one stretch to the others."""
    extents: dict[Label, int] = {}
    for node, labels in terms:
        for label, extent in zip(labels, node.shape):
            known = extents.setdefault(label, extent)
            if known == 1:
                extents[label] = extent
            elif extent not in (1, known):
                shapes = ", ".join(str(each.shape) for each, _ in terms)
                raise ShapeError(
                    f"einsum {subscripts!r} of shapes {shapes}: label {label!r} has extents {known} and "
                    f"{extent}{where_written()}"
                )
    return extents


def _fitted(term: Term, extents: dict[Label, int]) -> Term:
    """The operand with each label once, and without the axes of extent one that stretch."""
    node, labels = term
    kept = [k for k, label in enumerate(labels) if node.shape[k] == extents[label]]
    node, labels = to_shape(node, tuple([node.shape[k] for k in kept])), [labels[k] for k in kept]
    while repeated := [label for label, times in Counter(labels).items() if times > 1]:
        first = labels.index(repeated[0])
        second = labels.index(repeated[0], first + 1)
        node = _diagonal(node, first, second)
        labels = [label for k, label in enumerate(labels) if k not in (first, second)] + [repeated[0]]
    return node, labels


def _summed(term: Term, wanted: set[Label]) -> Term:
    """The operand summed over the labels that nobody else wants."""
    node, labels = term
    axes = tuple([k for k, label in enumerate(labels) if label not in wanted])
    if not axes:
        return term
    total = (
        vocabulary["sum"](node, axes, node.dtype) if node.dtype.kind != "b" else vocabulary["any"](node, axes)
    )
    return total, [label for label in labels if label in wanted]


def _joined(left: Term, right: Term, wanted: set[Label]) -> Term:
    """The product of two operands, summed over what is no longer wanted."""
    x, x_labels = _summed(left, wanted | set(right[1]))
    y, y_labels = _summed(right, wanted | set(x_labels))
    out = [label for label in x_labels if label in wanted]
    out += [label for label in y_labels if label in wanted and label not in x_labels]
    return contracted(x, y, x_labels, y_labels, out), out


def _path(
    terms: Sequence[Term], out: Sequence[Label], extents: dict[Label, int], optimize: Any
) -> list[tuple[int, ...]]:
    """Which operands to multiply at each step; the product goes behind the others."""
    if len(terms) < 3:
        return [(0, 1)] if len(terms) == 2 else []
    onward: list[tuple[int, ...]] = [
        (0, 1),
        *((0, len(terms) - step - 1) for step in range(1, len(terms) - 1)),
    ]
    if optimize is False:
        return onward
    letters = dict(zip(dict.fromkeys(label for _, labels in terms for label in labels), _LETTERS))
    text = ",".join("".join(letters[label] for label in labels) for _, labels in terms)
    extents = {label: _ANY_SIZE if is_named(extent) else extent for label, extent in extents.items()}
    shapes = [np.broadcast_to(np.bool_(0), [extents[label] for label in labels]) for _, labels in terms]
    how = "greedy" if optimize is None else optimize
    try:
        path, _ = np.einsum_path(f"{text}->{''.join(letters[k] for k in out)}", *shapes, optimize=how)
    except (KeyError, IndexError, TypeError):
        raise TracingError(
            f"einsum: optimize={optimize!r}; give True, False, 'greedy', 'optimal' or a path of np.einsum_path"
            f"{where_written()}"
        ) from None
    best: list[tuple[int, ...]] = [tuple(step) for step in path[1:]]
    if optimize is None and _cost(onward, terms, out, extents) <= WORTH * _cost(best, terms, out, extents):
        return onward
    return best


def _cost(
    path: Sequence[tuple[int, ...]], terms: Sequence[Term], out: Sequence[Label], extents: dict[Label, int]
) -> int:
    """How many multiplications a path takes."""
    left = [set(labels) for _, labels in terms]
    total = 0
    for step in path:
        taken = [left.pop(position) for position in sorted(step, reverse=True)][::-1]
        made = taken[0]
        for position, labels in enumerate(taken[1:], 1):
            total += math.prod(extents[label] for label in made | labels)
            made = (made | labels) & set(out).union(*left, *taken[position + 1 :])
        left.append(made)
    return total
