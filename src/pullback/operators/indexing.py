"""Indexing with integer arrays: ranges checked, elements gathered. Updates are scattered in ``scatters.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.errors import DTypeError, IndexRangeError, MatrixError, ShapeError
from pullback.graph import OPERATORS, Case, Node, Operation, Operator, Sample, Type
from pullback.graph.named import is_named
from pullback.loops import Apply, Expression, Index, Literal, Operand, walk
from pullback.loops.arithmetic import as_index
from pullback.operators.batching import all_batched, any_batched, batch_first, behind, is_batched, moved
from pullback.operators.elementwise import zeros_like
from pullback.operators.shapes import iota, rising_axes
from pullback.operators.varying import Padding, is_count, keeps, least_for, named_axes, refuse_named

__all__ = [
    "MATRIX_FAULTS",
    "check_axes",
    "check_index",
    "examples",
    "gather",
    "gathered_shape",
    "gathers_rows",
    "index_sample",
    "range_error",
]

_INT = np.dtype(np.int64)


# -- check_index

MATRIX_FAULTS: set[str] = set()
"""What is checked that is no index: a number of 0 where a matrix is as it must be, and by its name what it is not."""


def _check_index_type(index: Type, extent: int, what: str, wrap: bool = True) -> Type:
    if index.dtype.kind not in "iu":
        raise DTypeError(
            f"{what}: {index.dtype} indices; index with integers, for instance with .astype(np.int64)"
        )
    return Type(_INT, index.shape, index.weak)


def _check_index_reference(index: np.ndarray, extent: int, what: str, wrap: bool = True) -> np.ndarray:
    index = index.astype(_INT)
    low = -extent if wrap else 0
    outside = (index < low) | (index >= extent)
    if outside.any():
        place = tuple(np.argwhere(outside)[0].tolist())
        raise range_error(what, int(index[place]), low, extent, place)
    return np.where(index < 0, index + extent, index) if wrap else index


def range_error(
    what: str, value: int, low: int, extent: int, place: tuple[int, ...] | None = None
) -> IndexRangeError | MatrixError:
    """The error of an index out of range: the value, where it stands, and what is allowed; or that of a matrix."""
    if what in MATRIX_FAULTS:
        return MatrixError(what)
    position = f" at position {place}" if place else ""
    if extent == 0:
        said = f"{value}{position} is outside an axis of no elements; select from an axis that has some"
    else:
        said = f"{value}{position} is outside {low} to {extent - 1}; correct the index or widen the axis"
    return IndexRangeError(f"{what}: {said}", what=what, value=value, low=low, extent=extent, position=place)


def _check_index_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    value = operands[0](index)
    if value.dtype != _INT:
        value = Apply("cast", (value,), _INT)
    # The line goes along to the code that finds an index out of range.
    attributes: dict[str, Any] = {"wrap": True, **node.attributes, "source": node.source}
    return Apply("check_index", (value,), _INT, tuple(sorted(attributes.items())))


def _check_index_vary(node: Operation) -> Padding:
    if is_named(node.attributes["extent"]):
        (index,) = node.inputs
        if any(
            index.shape[axis] == node.attributes["extent"] and is_count(index, axis)
            for axis in named_axes(index)
        ):
            return keeps(node)
        refuse_named(
            node,
            "selects rows by number along a named axis, of which there are others for each size",
            "compare with the rows' numbers in np.where, give the rows as an argument, or leave the axis out of "
            "shapes=",
            f"{node.attributes['what']}: {index.type}",
        )
    return Padding(("index",))


check_index = Operator(
    "check_index",
    _check_index_type,
    _check_index_reference,
    None,
    batch_first,
    _check_index_lower,
    (
        Case((Sample((5,), -4, 4, "index"),), {"extent": 4, "what": "index"}),
        Case((Sample((2, 3), 0, 6, "index"),), {"extent": 6, "what": "label", "wrap": False}),
        Case((Sample((), -1, 1, "index"),), {"extent": 1, "what": "index"}),
        Case((Sample((0,), 0, 1, "index"),), {"extent": 3, "what": "index"}),
    ),
    vary=_check_index_vary,
)
"""``y = i`` where ``i >= 0``, else ``i + extent``: ``int64`` positions along an axis of ``extent`` elements.

Any integer dtype. Raises ``IndexRangeError`` when the graph is computed and an index is outside ``[-extent,
extent)``, or with ``wrap=False`` outside ``[0, extent)``; ``what`` names it in the message.
"""


# -- gather


def check_axes(name: str, x: Type, indices: Sequence[Type], axes: tuple[int, ...]) -> None:
    """Raise unless ``indices`` are one ``int64`` index for each of ``axes``, all of one shape."""
    if not indices or len(indices) != len(axes):
        raise ShapeError(
            f"{name}: {len(indices)} indices for axes {axes} of {x}; give one index for each axis"
        )
    if not rising_axes(axes, x.rank):
        raise ShapeError(f"{name}: axes {axes} of shape {x.shape}; name axes below {x.rank} in rising order")
    for index in indices:
        if index.shape != indices[0].shape:
            raise ShapeError(
                f"{name}: indices of shapes {indices[0].shape} and {index.shape} differ; "
                "broadcast one to the other"
            )
        if index.dtype != _INT:
            raise DTypeError(f"{name}: {index.dtype} indices; cast them with .astype(np.int64)")


def gathered_shape(x: Type, index: Type, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The index's axes, then those of ``x`` that nothing was selected from."""
    return (*index.shape, *(extent for axis, extent in enumerate(x.shape) if axis not in axes))


def _gather_type(x: Type, *indices: Type, axes: tuple[int, ...]) -> Type:
    check_axes("gather", x, indices, axes)
    return Type(x.dtype, gathered_shape(x, indices[0], axes))


def _gather_reference(x: np.ndarray, *indices: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return np.asarray(np.moveaxis(x, axes, range(len(axes)))[indices])


def _gather_pullback(node: Operation, g: Node) -> list[Node | None]:
    x, *indices = node.inputs
    scattered = OPERATORS["scatter_add"](zeros_like(x), g, *indices, axes=node.attributes["axes"])
    return [scattered, *(None for _ in indices)]


def gathers_rows(node: Node) -> bool:
    """Whether ``node`` is whole rows of a table of two axes, one for each place of an array."""
    if not isinstance(node, Operation) or node.operator is not gather or len(node.inputs) != 2:
        return False
    return node.inputs[0].ndim == 2 and node.attributes["axes"] == (0,)


def examples(index: Node) -> Node:
    """The number of the example at each place of a batched ``index``: it selects the example's own array."""
    return iota(shape=index.shape, axis=0, dtype=_INT)


def _gather_batch(node: Operation, inputs: Sequence[Node]) -> Node:
    """The axes of the places come first: the batch axis of an array is brought before them."""
    (x, *indices), (one, *ones), axes = inputs, node.inputs, node.attributes["axes"]
    if not any_batched(indices, ones):
        return moved(gather(x, *indices, axes=behind(axes)), ones[0].ndim, 0)
    indices = all_batched(indices, ones)
    if not is_batched(x, one):
        return gather(x, *indices, axes=axes)
    return gather(x, examples(indices[0]), *indices, axes=(0, *behind(axes)))


def _gather_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    x, *indices = node.inputs
    rank = indices[0].ndim
    positions = [operand(index[:rank]) for operand in operands[1:]]
    selected = dict(zip(node.attributes["axes"], map(as_index, positions)))
    others = iter(index[rank:])
    value = operands[0]([selected[axis] if axis in selected else next(others) for axis in range(x.ndim)])
    used = set(map(id, walk(value)))
    for part in walk(*positions):
        if isinstance(part, Apply) and part.function == "check_index" and id(part) not in used:
            # Where one element is repeated along the axis no index matters; a wrong one is an error still.
            inside = Apply("greater_equal", (part, Literal(0, _INT)), np.dtype(np.bool_))
            value = Apply("where", (inside, value, Literal(0, value.dtype)), value.dtype)
    return value


def _gather_vary(node: Operation) -> Padding:
    x, *indices = node.inputs
    return Padding((None, *("index" for _ in indices)), least_for(x, indices, node.attributes["axes"]))


def index_sample(*shape: int, below: int) -> Sample:
    """Positions of an axis of ``below`` elements."""
    return Sample(shape, 0, below, "index")


gather = Operator(
    "gather",
    _gather_type,
    _gather_reference,
    _gather_pullback,
    _gather_batch,
    _gather_lower,
    (
        Case((Sample((5,), kind="any"), index_sample(3, below=5)), {"axes": (0,)}),
        Case((Sample((4, 3), kind="any"), index_sample(2, 3, below=4)), {"axes": (0,)}),
        Case((Sample((2, 4, 3)), index_sample(5, below=4)), {"axes": (1,)}),
        Case((Sample((3, 4)), index_sample(6, below=3), index_sample(6, below=4)), {"axes": (0, 1)}),
        Case((Sample((3, 2, 4)), index_sample(2, 1, below=3), index_sample(2, 1, below=4)), {"axes": (0, 2)}),
        Case((Sample((3, 2)), index_sample(below=3)), {"axes": (0,)}),
        Case((Sample((1, 2)), index_sample(3, below=1)), {"axes": (0,)}),
        Case((Sample((3, 2)), index_sample(0, below=3)), {"axes": (0,)}),
    ),
    linear=True,
    selects=True,
    vary=_gather_vary,
)
"""``y[p, r] = x[indices[p], r]``: elements of ``x`` along ``axes``, one ``int64`` index for each.

The result has the indices' axes first (``p``), then the axes of ``x`` that nothing was selected from, in
order (``r``). Any dtype. Indices are in range (``check_index`` sees to it). Raises ``ShapeError`` where
indices differ in shape or are not as many as ``axes``.
"""
