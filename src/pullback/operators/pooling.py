"""The largest element of each window, who it is, and what its derivative needs.

The pullback of a maximum has one element for each window, which ``max_unpool`` puts at the winner's place, under a mask
that says where winners are. It stays in this form as long as the graph allows: what is multiplied or masked behind it
can be done for the winners alone (``gather_at_argmax``), and a weight gradient need only visit winners
(``convolve_max_unpooled``).
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Case, Node, Operation, Operator, Sample, Type
from pullback.loops import (
    Affine,
    Apply,
    Axis,
    Expression,
    Index,
    Literal,
    Operand,
    Position,
    Reduce,
    unlikely,
)
from pullback.loops.arithmetic import both, times, total, within_extent
from pullback.loops.expression import as_expression
from pullback.loops.guard import guarded
from pullback.operators.batching import any_batched, batch_first, batch_size
from pullback.operators.convolution import convolve, vary_convolution
from pullback.operators.elementwise import filled, refuse_complex, where, zeros_like
from pullback.operators.reductions import argmax, max
from pullback.operators.shapes import broadcast
from pullback.operators.varying import Padding, beside
from pullback.operators.windows import WINDOWS, covering, window_counts, windows

__all__ = [
    "argmax_index",
    "convolve_max_unpooled",
    "gather_at_argmax",
    "max_unpool",
    "pool_attributes",
    "window_argmax",
    "window_max",
    "won",
]

Shape = tuple[int, ...]

_INT, _INT32, _UINT32 = np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.uint32)
_BOOL = np.dtype(np.bool_)
_NAMES = ("axes", "sizes", "strides", "dilations")


def pool_attributes(node: Operation) -> dict[str, Shape]:
    """The windows of an operation of this file: axes, sizes, strides and dilations."""
    return {name: node.attributes[name] for name in _NAMES}


def _pooled(name: str, shape: Shape, *, axes: Shape, sizes: Shape, strides: Shape, dilations: Shape) -> Shape:
    """``shape`` with the number of windows in place of the extent of each of ``axes``."""
    counts = window_counts(name, shape, axes=axes, sizes=sizes, strides=strides, dilations=dilations)
    pairs = dict(zip(axes, counts))
    return tuple(pairs.get(axis, extent) for axis, extent in enumerate(shape))


def _inner_axes(axes: Shape) -> Shape:
    """The axes within the windows in the view that ``windows`` makes."""
    return tuple(axis + position + 1 for position, axis in enumerate(axes))


# -- the largest of each window, and who it is


def _pooled_type(name: str, x: Type, **attributes: Shape) -> Shape:
    refuse_complex(name, x)
    return _pooled(name, x.shape, **attributes)


def _window_max_pullback(node: Operation, g: Node) -> list[Node | None]:
    (x,) = node.inputs
    winner = window_argmax(x, **node.attributes)
    placed = max_unpool(g, winner, shape=x.shape, **node.attributes)
    return [where(won(placed), placed, zeros_like(placed))]


def won(placed: Operation) -> Node:
    """Where winners are in ``placed``, an ``max_unpool``: the mask of their cotangents."""
    y, winner = placed.inputs
    counts = max_unpool(filled(1, y.dtype, y.shape), winner, **placed.attributes)
    return OPERATORS["not_equal"](counts, zeros_like(counts))


def _reduced(
    reduction: Operator, node: Operation, operands: Sequence[Operand], index: Sequence[Index]
) -> Expression:
    """``reduction`` over the places within the windows."""
    view = windows(*node.inputs, **node.attributes)
    reduce = reduction(view, axes=_inner_axes(node.attributes["axes"]))
    assert view.operator.lower is not None and reduction.lower is not None
    lower_view = view.operator.lower
    value: Expression = reduction.lower(reduce, [lambda place: lower_view(view, operands, place)], index)
    return value


_MAX_CASES = tuple(Case((Sample(shape, kind="any"),), attributes) for shape, attributes in WINDOWS)

window_max = Operator(
    "window_max",
    lambda x, **attributes: x.with_shape(_pooled_type("window_max", x, **attributes)),
    lambda x, **attributes: max.reference(
        windows.reference(x, **attributes), axes=_inner_axes(attributes["axes"])
    ),
    _window_max_pullback,
    batch_first,
    lambda node, operands, index: _reduced(max, node, operands, index),
    _MAX_CASES,
    cost=float("inf"),
    vary=beside,
)
"""``y[..., p, ...] = max over k of x[..., p * stride + k * dilation, ...]``, NaN if one is NaN.

Windows move along ``axes``, which rise. The first of equal winners, in row-major order, takes the cotangent.
Raises ``ShapeError`` where a window is larger than the array.
"""


def _window_argmax_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    return Apply("cast", (_reduced(argmax, node, operands, index),), _INT32)


window_argmax = Operator(
    "window_argmax",
    lambda x, **attributes: Type(_INT32, _pooled_type("window_argmax", x, **attributes)),
    lambda x, **attributes: argmax.reference(
        windows.reference(x, **attributes), axes=_inner_axes(attributes["axes"])
    ).astype(_INT32),
    None,
    batch_first,
    _window_argmax_lower,
    _MAX_CASES,
    cost=float("inf"),
    vary=beside,
)
"""The place of each window's first largest element within the window, counted in row-major order, as ``int32``."""


# -- where the winners are


def _check_winner(name: str, winner: Type, shape: Shape, **attributes: Shape) -> None:
    wanted = _pooled(name, shape, **attributes)
    if winner.shape != wanted:
        raise ShapeError(
            f"{name}: winners of shape {winner.shape} for windows of shape {shape}, of which there are {wanted}; "
            "give one winner for each window"
        )
    if winner.dtype.kind not in "iu":
        raise DTypeError(f"{name}: winners of dtype {winner.dtype}; give places within windows, as integers")


def _places(winner: np.ndarray, attributes: dict[str, Any]) -> list[np.ndarray]:
    """The index of each winner, an array for each axis."""
    index: list[np.ndarray] = list(np.indices(winner.shape))
    inside = np.unravel_index(winner, (1, *attributes["sizes"]))[1:]
    for axis, k, stride, dilation in zip(
        attributes["axes"], inside, attributes["strides"], attributes["dilations"]
    ):
        index[axis] = index[axis] * stride + k * dilation
    return index


def _winner_index(attributes: Mapping[str, Any], winner: Expression, index: Sequence[Index]) -> list[Index]:
    """The index of the winner of the window at ``index``."""
    sizes = attributes["sizes"]
    found = list(index)
    rest = Apply("cast", (winner,), _UINT32)
    for position in reversed(range(len(sizes))):
        size = Literal(sizes[position], _UINT32)
        inside = rest if position == 0 else Apply("remainder", (rest, size), _UINT32)
        rest = Apply("floor_divide", (rest, size), _UINT32)
        limits = (("high", sizes[position] - 1), ("low", 0))
        k = Apply("bounded", (Apply("cast", (inside,), _INT),), _INT, limits)
        axis = attributes["axes"][position]
        moved = times(index[axis], attributes["strides"][position])
        found[axis] = total((moved, times(k, attributes["dilations"][position])))
    return found


def _argmax_index_type(winner: Type, shape: Shape, axis: int, **attributes: Shape) -> Type:
    _check_winner("argmax_index", winner, shape, **attributes)
    if axis not in attributes["axes"]:
        raise ShapeError(
            f"argmax_index: axis {axis} is none of {attributes['axes']}, along which windows move"
        )
    return Type(_INT, winner.shape)


def _argmax_index_reference(winner: np.ndarray, shape: Shape, axis: int, **attributes: Shape) -> np.ndarray:
    return _places(winner, attributes)[axis]


def _argmax_index_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    place = _winner_index(pool_attributes(node), operands[0](index), index)[node.attributes["axis"]]
    assert isinstance(place, Expression)
    return place


def _winners(shape: Shape, attributes: dict[str, Shape]) -> Sample:
    """A winner for each window of ``shape``."""
    return Sample(_pooled("", shape, **attributes), 0, math.prod(attributes["sizes"]), "index")


def _with_places(node: Operation) -> Padding:
    """Winners are places that there are; windows move along other axes than the named one."""
    beside(node)
    last = len(node.inputs) - 1
    return Padding((*(None,) * last, "index"), zeros_of=(0,) if last else ())


argmax_index = Operator(
    "argmax_index",
    _argmax_index_type,
    _argmax_index_reference,
    None,
    batch_first,
    _argmax_index_lower,
    tuple(
        Case((_winners(shape, attributes),), {"shape": shape, "axis": axis, **attributes})
        for shape, attributes in WINDOWS
        for axis in attributes["axes"]
    ),
    vary=_with_places,
)
"""``p * stride + k * dilation`` along ``axis`` for the window's winner at place ``k`` of window ``p``: ``int64``.

``shape`` is that of the array that the windows move over.
"""


# -- the adjoint pair


def _gather_at_argmax_type(x: Type, winner: Type, **attributes: Shape) -> Type:
    _check_winner("gather_at_argmax", winner, x.shape, **attributes)
    return x.with_shape(winner.shape)


def _gather_at_argmax_lower(
    node: Operation, operands: Sequence[Operand], index: Sequence[Index]
) -> Expression:
    return operands[0](_winner_index(node.attributes, operands[1](index), index))


def _gather_at_argmax_pullback(node: Operation, g: Node) -> list[Node | None]:
    x, winner = node.inputs
    return [max_unpool(g, winner, shape=x.shape, **node.attributes), None]


gather_at_argmax = Operator(
    "gather_at_argmax",
    _gather_at_argmax_type,
    lambda x, winner, **attributes: x[tuple(_places(winner, attributes))],
    _gather_at_argmax_pullback,
    batch_first,
    _gather_at_argmax_lower,
    tuple(
        Case((Sample(shape, kind="any"), _winners(shape, attributes)), attributes)
        for shape, attributes in WINDOWS
    ),
    linear=True,
    selects=True,
    vary=_with_places,
)
"""``y[..., p, ...] = x[..., p * stride + k * dilation, ...]`` with the winner's place ``k`` of each window ``p``.

``winner`` are places within windows, as ``window_argmax`` gives them. Any dtype. Raises ``ShapeError`` unless there
is a winner for each window.
"""


def _max_unpool_type(y: Type, winner: Type, shape: Shape, **attributes: Shape) -> Type:
    _check_winner("max_unpool", winner, shape, **attributes)
    if y.shape != winner.shape or y.dtype.kind == "b":
        raise ShapeError(
            f"max_unpool: {y} for winners of shape {winner.shape}; give one number for each winner"
        )
    return y.with_shape(shape)


def _max_unpool_reference(y: np.ndarray, winner: np.ndarray, shape: Shape, **attributes: Shape) -> np.ndarray:
    x = np.zeros(shape, y.dtype)
    np.add.at(x, tuple(_places(winner, attributes)), y)
    return x


def _max_unpool_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    """The sum of all windows that are won here; windows that do not overlap are at most one."""
    counts = node.inputs[0].shape
    axes, sizes, strides, dilations = pool_attributes(node).values()
    zero = Literal(0, node.dtype)
    inner, over, flat = list(index), list[Axis](), list[Index]()
    exists: Expression | bool = True
    weight = math.prod(sizes)
    for axis, size, stride, dilation in zip(axes, sizes, strides, dilations):
        reach = (size - 1) * dilation + 1
        # A single window has no next one to overlap with.
        step = builtins.max(stride, reach) if counts[axis] == 1 else stride
        found = covering(
            f"r{axis}", index[axis], count=counts[axis], size=size, stride=step, dilation=dilation
        )
        weight //= size
        exists = both(exists, found.exists)
        over += [found.turn] if found.turn is not None else []
        inner[axis] = found.window
        flat.append(times(found.k, weight))
    if exists is False:
        return zero
    winner, here = (
        Apply("cast", (part,), _INT32) for part in (operands[1](inner), as_expression(total(flat)))
    )
    won: Expression = Apply("equal", (winner, here), _BOOL)
    value = operands[0](inner)
    if isinstance(exists, Expression):
        won, value = Apply("logical_and", (exists, guarded(won, exists)), _BOOL), guarded(value, exists)
    value = Apply("where", (won, value, zero), node.dtype)
    return Reduce("add", tuple(over), value) if over else value


max_unpool = Operator(
    "max_unpool",
    _max_unpool_type,
    _max_unpool_reference,
    lambda node, g: [gather_at_argmax(g, node.inputs[1], **pool_attributes(node)), None],
    batch_first,
    _max_unpool_lower,
    tuple(
        Case(
            (Sample(_pooled("", shape, **attributes)), _winners(shape, attributes)),
            {"shape": shape, **attributes},
        )
        for shape, attributes in WINDOWS
        if 0 not in shape
    ),
    cost=5.0,
    linear=True,
    vary=_with_places,
)
"""``x[..., p * stride + k * dilation, ...] += y[..., p, ...]`` with the winner's place ``k`` of each window ``p``.

The adjoint of ``gather_at_argmax``: zeros of ``shape`` but for the winners. Integers and floats. Raises ``ShapeError``
unless there is a winner and an element of ``y`` for each window.
"""


# -- a convolution that visits winners only


def _by_label(layout: str, values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(layout, values))


def _max_unpooled(node: Operation) -> Operation:
    """The convolution that ``node`` computes, with the array of zeros and winners."""
    x, y, winner = node.inputs[:3]
    attributes = dict(node.attributes)
    pool, shape = dict(zip(_NAMES, attributes.pop("pool"))), attributes.pop("shape")
    return convolve(x, max_unpool(y, winner, shape=shape, **pool), **attributes)


def _convolution_with_places(node: Operation) -> Padding:
    fills = vary_convolution(node).fills
    return Padding((*fills[:2], "index", *(None for _ in node.inputs[3:])))


def _convolve_max_unpooled_type(
    x: Type, y: Type, winner: Type, *spoilt: Type, shape: Shape, pool: tuple[Shape, ...], **attributes: Any
) -> Type:
    refuse_complex("convolve_max_unpooled", y)
    w = _max_unpool_type(y, winner, shape, **dict(zip(_NAMES, pool)))
    spatial = tuple(axis for axis, label in enumerate(attributes["w_layout"]) if label.isdigit())
    if pool[0] != spatial:
        raise ShapeError(
            f"convolve_max_unpooled: windows that move along the axes {pool[0]} of {shape} laid out "
            f"{attributes['w_layout']!r}; pool along all spatial axes, or max_unpool first"
        )
    samples = (x.shape[attributes["x_layout"].index("c")],)
    if any(each.shape != samples or each.dtype != _BOOL for each in spoilt):
        raise ShapeError(
            f"convolve_max_unpooled: {spoilt[0]} to say which samples of {x} are spoilt; give bools {samples}"
        )
    return convolve.type_rule(x, w, **attributes)


def _convolve_max_unpooled_reference(
    x: np.ndarray,
    y: np.ndarray,
    winner: np.ndarray,
    *spoilt: np.ndarray,
    shape: Shape,
    pool: tuple[Shape, ...],
    **attributes: Any,
) -> np.ndarray:
    w = _max_unpool_reference(y, winner, shape, **dict(zip(_NAMES, pool)))
    product: np.ndarray = convolve.reference(x, w, **attributes)
    return product


def _convolve_max_unpooled_pullback(node: Operation, g: Node) -> list[Node | None]:
    whole = _max_unpooled(node)
    assert convolve.pullback is not None
    x_bar, w_bar = convolve.pullback(whole, g)
    y_bar = (
        None
        if w_bar is None
        else gather_at_argmax(w_bar, node.inputs[2], **dict(zip(_NAMES, node.attributes["pool"])))
    )
    return [x_bar, y_bar, *(None for _ in node.inputs[2:])]


def _convolve_max_unpooled_batch(node: Operation, inputs: Sequence[Node]) -> Node:
    """That of the convolution with the array of zeros and winners; a pass makes it sparse where it can."""
    x, y, winner = inputs[:3]
    whole = _max_unpooled(node)
    if not any_batched(inputs[:3], node.inputs[:3]):
        shape = (batch_size(inputs, node.inputs), *node.shape)
        return broadcast(whole, shape=shape, axes=tuple(range(1, len(shape))))
    w = whole.inputs[1]
    if any_batched((y, winner), node.inputs[1:3]):
        assert isinstance(w, Operation)
        w = max_unpool.batch(w, (y, winner))
    product: Node = convolve.batch(whole, (x, w))
    return product


def _convolve_max_unpooled_lower(
    node: Operation, operands: Sequence[Operand], index: Sequence[Index]
) -> Expression:
    """A sum over channels and windows; each winner says which element of ``x`` it meets, or all places are visited."""
    x_layout, w_layout, out_layout, strides, dilations = (
        node.attributes[key] for key in ("x_layout", "w_layout", "out_layout", "strides", "dilations")
    )
    counts = _by_label(w_layout, node.inputs[1].shape)
    over = {label: Axis(f"r{label}", counts[label]) for label in x_layout if label == "c" or label.isdigit()}
    if 0 in (axis.extent for axis in over.values()):
        return Literal(0, node.dtype)
    out = _by_label(out_layout, index)
    window: list[Index] = [Affine.of(over[label]) if label in over else out[label] for label in w_layout]
    pool = dict(zip(_NAMES, node.attributes["pool"]))
    met = _by_label(w_layout, _winner_index(pool, operands[2](window), window))

    def place(label: str) -> Index:
        if not label.isdigit():
            return Affine.of(over[label]) if label == "c" else out[label]
        k = int(label)
        return total((times(out[label], strides[k]), times(met[label], dilations[k])))

    factors = (operands[1](window), operands[0]([place(label) for label in x_layout]))
    product: Expression = Apply("multiply", factors, node.dtype)
    for spoilt in operands[3:]:
        rare = _all_places(node, operands, out, over)
        product = Apply("where", (unlikely(spoilt([Affine.of(over["c"])])), rare, product), node.dtype)
    turning = tuple(axis for axis in over.values() if axis.extent != 1)
    return Reduce("add", turning, product) if turning else product


def _rows_visited(node: Operation) -> int:
    """A row of ``x`` for each winner and each place of the window, if such a row is one element of the window."""
    out = _by_label(node.attributes["out_layout"], node.shape)
    window = math.prod(extent for label, extent in out.items() if label.isdigit())
    return node.inputs[1].size * window if node.attributes["x_layout"].endswith("b") else 0


def _all_places(
    node: Operation, operands: Sequence[Operand], out: Mapping[str, Index], over: Mapping[str, Axis]
) -> Expression:
    """The sum over the places from one window to the next, and behind the last one, zeros among them."""
    whole = _max_unpooled(node)
    placed = whole.inputs[1]
    assert isinstance(placed, Operation) and max_unpool.lower is not None
    x_layout, w_layout, strides, dilations = (
        whole.attributes[key] for key in ("x_layout", "w_layout", "strides", "dilations")
    )
    w_index: dict[str, Index] = {
        label: Affine.of(over[label]) if label in over else out[label] for label in w_layout
    }
    x_index: dict[str, Index] = {label: out[label] if label != "c" else w_index["c"] for label in x_layout}
    inside: list[Axis] = []
    exists: Expression | bool = True
    for position, axis in enumerate(placed.attributes["axes"]):
        label, digit = w_layout[axis], int(w_layout[axis])
        k, place, there = _between(
            over[label], placed.attributes["strides"][position], placed.shape[axis], f"k{label}"
        )
        inside.append(k)
        w_index[label] = place
        x_index[label] = total((times(out[label], strides[digit]), times(place, dilations[digit])))
        exists = both(exists, there)
    product: Expression = Apply(
        "multiply",
        (
            operands[0]([x_index[label] for label in x_layout]),
            max_unpool.lower(placed, operands[1:3], [w_index[label] for label in w_layout]),
        ),
        node.dtype,
    )
    if isinstance(exists, Expression):
        product = Apply("where", (exists, product, Literal(0, node.dtype)), node.dtype)
    turning = tuple(axis for axis in inside if axis.extent != 1)
    return Reduce("add", turning, product) if turning else product


def _between(window: Axis, step: int, extent: int, name: str) -> tuple[Axis, Index, Expression | bool]:
    """An axis from the start of each window to that of the next, the place there, and whether it is one.

    The last one goes on to the end, and may have more places than ``step``, or fewer.
    """
    last, end = extent - (window.extent - 1) * step, window.extent - 1
    k = Axis(name, last if window.extent == 1 else builtins.max(last, step))
    place = Affine.of(window) * step + Affine.of(k)
    if window.extent == 1 or last == step:
        return k, place, True
    within = Apply("minimum", (Position(place), Literal(extent - 1, _INT)), _INT)
    near = Apply("less", (Position(Affine.of(k)), Literal(builtins.min(last, step), _INT)), _BOOL)
    compare = "greater_equal" if last > step else "less"
    other = Apply(compare, (Position(Affine.of(window)), Literal(end, _INT)), _BOOL)
    return k, within_extent(within, extent), Apply("logical_or", (near, other), _BOOL)


def _max_unpooled_case(
    x: Shape,
    y: Shape,
    layouts: str,
    pool: tuple[Shape, ...],
    strides: Shape,
    dilations: Shape,
    spoilt: bool = False,
) -> Case:
    """A case from shapes, with those of the array before pooling, and layouts written as ``x, w -> result``."""
    x_layout, w_layout, out_layout = layouts.replace("->", ",").split(",")
    windows_of = dict(zip(_NAMES, pool))
    attributes = {
        "shape": y,
        "pool": pool,
        "x_layout": x_layout,
        "w_layout": w_layout,
        "out_layout": out_layout,
        "strides": strides,
        "dilations": dilations,
    }
    flags = [Sample((x[x_layout.index("c")],), kind="bool")] * spoilt
    return Case(
        (Sample(x), Sample(_pooled("", y, **windows_of)), _winners(y, windows_of), *flags), attributes
    )


_SQUARE = ((2, 3), (2, 2), (2, 2), (1, 1))

convolve_max_unpooled = Operator(
    "convolve_max_unpooled",
    _convolve_max_unpooled_type,
    _convolve_max_unpooled_reference,
    _convolve_max_unpooled_pullback,
    _convolve_max_unpooled_batch,
    _convolve_max_unpooled_lower,
    (
        _max_unpooled_case((2, 3, 6, 8), (2, 4, 4, 6), "cb01,co01->ob01", _SQUARE, (1, 1), (1, 1)),
        _max_unpooled_case(
            (2, 9, 8, 1), (2, 4, 3, 5), "c01b,c01o->01ob", ((1, 2), (3, 2), (1, 1), (1, 2)), (2, 1), (1, 2)
        ),
        _max_unpooled_case((3, 9, 5), (3, 8, 2), "c0b,c0o->ob0", ((1,), (4,), (4,), (1,)), (1,), (1,)),
        _max_unpooled_case((1, 9, 5), (1, 7, 2), "c0b,c0o->ob0", ((1,), (7,), (7,), (1,)), (1,), (1,)),
        _max_unpooled_case(
            (2, 2, 3, 6), (2, 2, 4, 5), "gcb0,gco0->gob0", ((3,), (2,), (3,), (1,)), (1,), (1,)
        ),
        _max_unpooled_case((0, 2, 6), (0, 2, 4), "cb0,co0->ob0", ((2,), (2,), (2,), (1,)), (1,), (1,)),
        _max_unpooled_case((3, 3, 6, 8), (3, 4, 4, 6), "cb01,co01->ob01", _SQUARE, (1, 1), (1, 1), True),
        _max_unpooled_case((2, 9, 5), (2, 8, 2), "c0b,c0o->ob0", ((1,), (3,), (2,), (1,)), (1,), (1,), True),
        _max_unpooled_case((3, 17, 5), (3, 8, 2), "c0b,c0o->ob0", ((1,), (3,), (3,), (1,)), (1,), (2,), True),
    ),
    cost=float("inf"),
    rereads=True,
    visits=_rows_visited,
    vary=_convolution_with_places,
)
"""``convolve(x, max_unpool(y, winner))``, computed from the winners.

``pool`` are axes, sizes, strides and dilations of the windows, which move along all spatial axes of the array of
``shape``; the other attributes are those of ``convolve``. A fourth input says of each sample, element of the axis ``c``
of ``x``, whether ``x`` is infinite or NaN somewhere: of such ones all places are visited, because zero times that is
NaN. Without it no sample is.
Raises what ``max_unpool`` and ``convolve`` raise.
"""
