"""Products: one operator for every sum of products of two arrays (matmul, dot, outer, einsum, tensordot)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import Case, Node, Operation, Operator, Sample, Type, remembered
from pullback.loops import Affine, Apply, Axis, Expression, Index, Literal, Operand, Reduce
from pullback.operators.batching import is_batched
from pullback.operators.complex_parts import bilinear
from pullback.operators.varying import Padding, named_axes

__all__ = ["contract"]

Labels = tuple[int, ...]


@remembered
def _contract_type(a: Type, b: Type, a_labels: Labels, b_labels: Labels, out_labels: Labels) -> Type:
    clash = (
        f"contract: shapes {a.shape} labelled {a_labels} and {b.shape} labelled {b_labels} give {out_labels}"
    )
    for labels, rank in ((a_labels, a.rank), (b_labels, b.rank), (out_labels, len(out_labels))):
        if len(labels) != rank or len(set(labels)) != rank:
            raise ShapeError(
                f"{clash}; give each axis of an array a label of its own (take the diagonal first)"
            )
    extents = dict(zip(a_labels, a.shape))
    for label, extent in zip(b_labels, b.shape):
        if extents.setdefault(label, extent) != extent:
            raise ShapeError(
                f"{clash}: label {label} is {extents[label]} long in one and {extent} in the other; "
                "transpose or reshape one so that both have the same extent"
            )
    for label in out_labels:
        if label not in extents:
            raise ShapeError(f"{clash}: label {label} is in neither; broadcast the result instead")
    for label in set(a_labels) ^ set(b_labels):
        if label not in out_labels:
            raise ShapeError(
                f"{clash}: label {label} is in one only and not in the result; sum over that axis first"
            )
    if a.dtype != b.dtype:
        raise DTypeError(f"contract: dtypes {a.dtype} and {b.dtype} differ; cast one with .astype")
    if a.dtype.kind == "b":
        raise DTypeError("contract takes no bool; cast the arrays, for instance with .astype(np.int64)")
    return Type(a.dtype, tuple(extents[label] for label in out_labels), a.weak and b.weak)


def _contract_reference(
    a: np.ndarray, b: np.ndarray, a_labels: Labels, b_labels: Labels, out_labels: Labels
) -> np.ndarray:
    """A stack of matrix products: batch axes, then rows of ``a``, what is summed, columns of ``b``."""
    left, right, shape, order = _stacks(a.shape, b.shape, a_labels, b_labels, out_labels)
    product: np.ndarray = _arranged(a, *left) @ _arranged(b, *right)
    if shape is not None:
        product = product.reshape(shape)
    return product if order is None else product.transpose(order)


def _arranged(x: np.ndarray, order: list[int] | None, shape: list[int] | None) -> np.ndarray:
    if order is not None:
        x = x.transpose(order)
    return x if shape is None else x.reshape(shape)


@lru_cache(maxsize=2048)
def _stacks(
    a: tuple[int, ...], b: tuple[int, ...], a_labels: Labels, b_labels: Labels, out_labels: Labels
) -> tuple[Any, Any, list[int] | None, list[int] | None]:
    """For each operand of these shapes the order of its axes and its shape as a stack; the same of the product.

    ``None`` stands for what changes nothing.
    """
    extents = dict(zip((*a_labels, *b_labels), (*a, *b)))
    batch = [label for label in a_labels if label in b_labels and label in out_labels]
    rows = [label for label in a_labels if label not in b_labels]
    columns = [label for label in b_labels if label not in a_labels]
    summed = [label for label in a_labels if label in b_labels and label not in out_labels]

    def stack(labels: Labels, *groups: list[int]) -> tuple[list[int] | None, list[int] | None]:
        order = [label for group in groups for label in group]
        before = [extents[label] for label in order]
        shape = [math.prod(extents[label] for label in group) for group in groups]
        return moved(labels, order), None if shape == before else shape

    def moved(labels: Sequence[int], order: Sequence[int]) -> list[int] | None:
        places = [labels.index(label) for label in order]
        return None if places == list(range(len(places))) else places

    made = [*batch, *rows, *columns]
    stacked = [math.prod(extents[label] for label in group) for group in (batch, rows, columns)]
    shape = [extents[label] for label in made]
    return (
        stack(a_labels, batch, rows, summed),
        stack(b_labels, batch, summed, columns),
        None if stacked == shape else shape,
        moved(made, out_labels),
    )


def _contract_pullback(node: Operation, g: Node) -> list[Node | None]:
    r"""Each cotangent is a product of :math:`\bar y` and the other input.

    A label that was summed is kept and one of the other input alone is summed: a contraction again.
    """
    a, b = node.inputs
    a_labels, b_labels, out = (node.attributes[key] for key in ("a_labels", "b_labels", "out_labels"))
    return [
        contract(g, b, a_labels=out, b_labels=b_labels, out_labels=a_labels),
        contract(a, g, a_labels=a_labels, b_labels=out, out_labels=b_labels),
    ]


def _contract_batch(node: Operation, inputs: Sequence[Node]) -> Node:
    """A label for the batch axis, of the inputs that have it: a batch axis of the product, or rows or columns."""
    a_labels, b_labels, out = (node.attributes[key] for key in ("a_labels", "b_labels", "out_labels"))
    examples = max((*a_labels, *b_labels), default=-1) + 1
    a_labels, b_labels = (
        (examples, *labels) if is_batched(x, one) else labels
        for x, one, labels in zip(inputs, node.inputs, (a_labels, b_labels))
    )
    return contract(*inputs, a_labels=a_labels, b_labels=b_labels, out_labels=(examples, *out))


def _contract_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    a_labels, b_labels, out = (node.attributes[key] for key in ("a_labels", "b_labels", "out_labels"))
    place: dict[int, Index] = dict(zip(out, index))
    over: list[Axis] = []
    for label, extent in zip(a_labels, node.inputs[0].shape):
        if label not in place:
            axis = Axis(f"r{len(over)}", extent)
            over.append(axis)
            place[label] = Affine.of(axis)
    if any(axis.extent == 0 for axis in over):
        return Literal(0, node.dtype)
    factors = [
        operand([place[label] for label in labels]) for operand, labels in zip(operands, (a_labels, b_labels))
    ]
    product = Apply("multiply", factors, node.dtype)
    turning = tuple(axis for axis in over if axis.extent != 1)
    return Reduce("add", turning, product) if turning else product


def _contract_vary(node: Operation) -> Padding:
    """Zeros in both, where a named axis is summed: zero times infinity is none."""
    summed = set(node.attributes["a_labels"]) - set(node.attributes["out_labels"])
    fill = (
        0 if any(node.attributes["a_labels"][axis] in summed for axis in named_axes(node.inputs[0])) else None
    )
    return Padding((fill, fill))


def _case(a: tuple[int, ...], b: tuple[int, ...], labels: str, kind: str = "float") -> Case:
    """A case from shapes and labels written as in ``einsum``."""
    first, second, out = (tuple(map(ord, part)) for part in labels.replace("->", ",").split(","))
    return Case(
        (Sample(a, kind=kind), Sample(b, kind=kind)),
        {"a_labels": first, "b_labels": second, "out_labels": out},
    )


contract = Operator(
    "contract",
    _contract_type,
    _contract_reference,
    _contract_pullback,
    _contract_batch,
    _contract_lower,
    (
        _case((2, 3), (3, 4), "ik,kj->ij"),
        _case((2, 3), (4, 3), "ik,jk->ji"),
        _case((3, 2), (3, 4), "ki,kj->ij"),
        _case((3,), (3,), "k,k->"),
        _case((2, 3), (3,), "ik,k->i"),
        _case((2,), (3,), "i,j->ij"),
        _case((), (3,), ",i->i"),
        _case((2, 3), (2, 3), "bi,bi->bi"),
        _case((2, 2, 3), (3, 2, 2), "bik,kbj->jbi"),
        _case((2, 3, 2), (3, 2, 4), "ikl,klj->ij"),
        _case((2, 1, 3), (1, 3, 1), "ikl,klj->ji"),
        _case((2, 0), (0, 3), "ik,kj->ij"),
        _case((0, 2), (2, 3), "ik,kj->ij"),
        _case((2, 3), (3, 2), "ik,kj->ij", "int"),
    ),
    cost=float("inf"),
    stored=True,
    rereads=True,
    parts=bilinear,
    vary=_contract_vary,
)
"""``y[out] = sum(a[a_labels] * b[b_labels])`` over the labels that both inputs have and ``y`` has not.

Each axis has a label (an integer). A label of both inputs and of the result is a batch axis; one of a
single input must be in the result, for a sum over it is no product: ``sum`` it first. Integers, which wrap
around, floats and complex numbers. Raises ``ShapeError`` where a shared label has two extents or the labels do not fit,
``DTypeError`` where dtypes differ. The product of matrices is ``a_labels=(0, 1), b_labels=(1, 2),
out_labels=(0, 2)``.
"""
