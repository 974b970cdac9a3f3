"""Shape operators: the same elements in other places.

All are linear, and their lowering changes nothing but the index.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Case, Node, Operation, Operator, Sample, Type, remembered
from pullback.graph.named import is_named
from pullback.loops import Affine, Apply, Expression, Index, Literal, Operand, as_expression, row_major
from pullback.loops.arithmetic import both, divided, plus, times, total, within
from pullback.loops.guard import guarded
from pullback.operators.batching import batch_first, behind
from pullback.operators.ends import padded_in_front, regrouped, reversed_rows, sliced
from pullback.operators.varying import Padding, keeps, keeps_zeros

__all__ = [
    "broadcast",
    "contiguous",
    "dilated",
    "framed",
    "iota",
    "pad",
    "padded",
    "reshape",
    "reverse",
    "slice",
    "transpose",
]

Shape = tuple[int, ...]


def _any(*shape: int) -> Sample:
    return Sample(shape, kind="any")


def _case(shape: Shape, /, **attributes: Any) -> Case:
    return Case((Sample(shape, kind="any"),), attributes)


def _check_shape(name: str, shape: Shape) -> None:
    if any(extent < 0 for extent in shape):
        raise ShapeError(f"{name}: shape {shape} has a negative extent; extents are 0 or more")


def _check_lengths(name: str, x: Type, **attributes: Sequence[int]) -> None:
    for key, values in attributes.items():
        if len(values) != x.rank:
            raise ShapeError(
                f"{name}: {key} {tuple(values)} of shape {x.shape}; give one for each of its {x.rank} axes"
            )


# -- broadcast


@remembered
def _broadcast_type(x: Type, shape: Shape, axes: Shape) -> Type:
    _check_shape("broadcast", shape)
    if len(axes) != x.rank or not rising_axes(axes, len(shape)):
        raise ShapeError(
            f"broadcast: axes {axes} of shape {x.shape} in shape {shape}; name, in rising order, the axis of "
            "the result that each axis becomes (transpose first for another order)"
        )
    for extent, axis in zip(x.shape, axes):
        if extent not in (1, shape[axis]):
            raise ShapeError(
                f"broadcast: shape {x.shape} does not repeat to {shape} along axes {axes}: extent {extent} "
                f"meets {shape[axis]}; only an extent of 1 is repeated, reshape or slice the array first"
            )
    return x.with_shape(shape)


def rising_axes(axes: Shape, rank: int) -> bool:
    """Whether ``axes`` are axes of an array of that rank, each named once, in rising order."""
    return list(axes) == sorted(set(axes)) and all(0 <= axis < rank for axis in axes)


def _broadcast_reference(x: np.ndarray, shape: Shape, axes: Shape) -> np.ndarray:
    if not axes:  # what np.broadcast_to gives, but sooner
        number: np.ndarray = np.ndarray(shape, x.dtype, x, 0, (0,) * len(shape))
        number.flags.writeable = False
        return number
    aligned = [1] * len(shape)
    for axis, extent in zip(axes, x.shape):
        aligned[axis] = extent
    x = x.reshape(aligned)
    return x if x.shape == shape else np.broadcast_to(x, shape)


def _broadcast_pullback(node: Operation, g: Node) -> list[Node | None]:
    (x,) = node.inputs
    kept = [axis for axis, extent in zip(node.attributes["axes"], x.shape) if extent == node.shape[axis]]
    summed = tuple(axis for axis in range(node.ndim) if axis not in kept)
    bar = OPERATORS["sum"](g, axes=summed) if summed else g
    return [bar if bar.shape == x.shape else reshape(bar, shape=x.shape)]


def _broadcast_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    extents = node.inputs[0].shape
    axes = node.attributes["axes"]
    return operands[0]([Affine() if extent == 1 else index[axis] for axis, extent in zip(axes, extents)])


broadcast = Operator(
    "broadcast",
    _broadcast_type,
    _broadcast_reference,
    _broadcast_pullback,
    lambda node, inputs: node.operator(
        *inputs, shape=(inputs[0].shape[0], *node.shape), axes=(0, *behind(node.attributes["axes"]))
    ),
    _broadcast_lower,
    (
        _case((), shape=(2, 3), axes=()),
        _case((3,), shape=(2, 3), axes=(1,)),
        _case((2,), shape=(2, 3), axes=(0,)),
        _case((2, 1), shape=(2, 3), axes=(0, 1)),
        _case((1, 3), shape=(4, 2, 3), axes=(0, 2)),
        _case((2, 3), shape=(2, 3), axes=(0, 1)),
        _case((1,), shape=(0,), axes=(0,)),
        _case((1, 0), shape=(2, 0, 3), axes=(0, 1)),
    ),
    cost=0.0,
    linear=True,
    is_layer=lambda inputs: True,
    vary=keeps,
)
"""``y[..., i[0], ..., i[1], ...] = x[i]``: axis ``k`` of ``x`` becomes axis ``axes[k]`` of ``shape``.

``axes`` rise; the other axes are new. An extent of 1 is repeated to the extent that it meets. Any dtype.
Raises ``ShapeError`` where another extent meets a different one.
"""


# -- reshape


@remembered
def _reshape_type(x: Type, shape: Shape) -> Type:
    _check_shape("reshape", shape)
    if math.prod(shape) != x.size:
        raise ShapeError(
            f"reshape: shape {x.shape} holds {x.size} elements and {shape} {math.prod(shape)}; "
            "give a shape of the same size, or -1 for one extent"
        )
    return x.with_shape(shape)


def _groups(old: Shape, new: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """The shortest runs of axes longer than 1 that hold the same elements before and after.

    >>> list(_groups((2, 3, 1, 4), (6, 2, 2)))
    [([0, 1], [0]), ([3], [1, 2])]
    """
    befores = iter([axis for axis, extent in enumerate(old) if extent != 1])
    afters = iter([axis for axis, extent in enumerate(new) if extent != 1])
    for axis in befores:
        before, after = [axis], [next(afters)]
        size, reached = old[before[0]], new[after[0]]
        while size != reached:
            if size < reached:
                before.append(next(befores))
                size *= old[before[-1]]
            else:
                after.append(next(afters))
                reached *= new[after[-1]]
        yield before, after


def _reshape_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    old, new = node.inputs[0].shape, node.shape
    inner: list[Index] = [Affine()] * len(old)
    if node.size:
        for before, after in _groups(old, new):
            strides = row_major([new[axis] for axis in after])
            rest = total(times(index[axis], stride) for axis, stride in zip(after, strides))
            for axis in reversed(before[1:]):
                rest, inner[axis] = divided(rest, old[axis])
            inner[before[0]] = rest
    return operands[0](inner)


def _reshape_pullback(node: Operation, g: Node) -> list[Node | None]:
    return [reshape(g, shape=node.inputs[0].shape)]


def _reshape_vary(node: Operation) -> Padding:
    """Rows stay rows where the axis is the outermost of those that merge or are split."""
    inner = []
    if node.size:
        old, new = node.inputs[0].shape, node.shape
        for before, after in _groups(old, new):
            extents = [[shape[axis] for axis in axes] for shape, axes in ((old, before), (new, after))]
            named = [[k for k, extent in enumerate(each) if is_named(extent)] for each in extents]
            if named not in ([[], []], [[0], [0]]):
                inner.append((before, after))
    if inner:
        return keeps(node)._replace(instead=partial(regrouped, groups=inner))
    return keeps_zeros(node)


reshape = Operator(
    "reshape",
    _reshape_type,
    lambda x, shape: x.reshape(shape),
    _reshape_pullback,
    batch_first,
    _reshape_lower,
    (
        _case((6,), shape=(2, 3)),
        _case((2, 3), shape=(6,)),
        _case((2, 6), shape=(3, 4)),
        _case((2, 3, 4), shape=(6, 2, 2)),
        _case((4, 1, 3), shape=(1, 2, 6, 1)),
        _case((1,), shape=()),
        _case((), shape=(1, 1)),
        _case((0, 3), shape=(2, 0)),
    ),
    cost=0.0,
    linear=True,
    view=True,
    vary=_reshape_vary,
)
"""The elements in row-major order, in ``shape``, which holds as many. Any dtype.

Raises ``ShapeError`` where the sizes differ. In the loop form only axes that really merge or split are
computed with; an array in memory is read with plain strides.
"""


# -- transpose


@remembered
def _transpose_type(x: Type, axes: Shape) -> Type:
    if sorted(axes) != list(range(x.rank)):
        raise ShapeError(
            f"transpose: axes {axes} of shape {x.shape}; name each axis 0 to {x.rank - 1} exactly once"
            if x.rank
            else f"transpose: axes {axes} of a scalar, which has none; leave them away"
        )
    return x.with_shape(tuple(x.shape[axis] for axis in axes))


def _inverse(axes: Shape) -> Shape:
    return tuple(sorted(range(len(axes)), key=axes.__getitem__))


def _transpose_pullback(node: Operation, g: Node) -> list[Node | None]:
    return [transpose(g, axes=_inverse(node.attributes["axes"]))]


transpose = Operator(
    "transpose",
    _transpose_type,
    lambda x, axes: x.transpose(axes),
    _transpose_pullback,
    lambda node, inputs: node.operator(*inputs, axes=(0, *behind(node.attributes["axes"]))),
    lambda node, operands, index: operands[0]([index[axis] for axis in _inverse(node.attributes["axes"])]),
    (
        _case((), axes=()),
        _case((3,), axes=(0,)),
        _case((2, 3), axes=(1, 0)),
        _case((2, 3, 4), axes=(1, 2, 0)),
        _case((2, 1, 3, 2), axes=(3, 1, 0, 2)),
        _case((0, 3), axes=(1, 0)),
    ),
    cost=0.0,
    linear=True,
    view=True,
    vary=keeps_zeros,
)
"""``y[i[axes[0]], i[axes[1]], ...] = x[i]``: axis ``k`` of the result is axis ``axes[k]`` of ``x``.

Any dtype. Raises ``ShapeError`` unless ``axes`` names each axis once.
"""


# -- slice


@remembered
def _slice_type(x: Type, starts: Shape, stops: Shape, steps: Shape) -> Type:
    _check_lengths("slice", x, starts=starts, stops=stops, steps=steps)
    for axis, (extent, start, stop, step) in enumerate(zip(x.shape, starts, stops, steps)):
        if step < 1:
            raise ShapeError(
                f"slice: step {step} along axis {axis} of shape {x.shape}; steps are 1 or more, "
                "reverse the axis first"
            )
        if not 0 <= start <= stop <= extent:
            raise ShapeError(
                f"slice: [{start}:{stop}] along axis {axis} of shape {x.shape}; it needs "
                f"0 <= start <= stop <= {extent}"
            )
    return x.with_shape(tuple(-((start - stop) // step) for start, stop, step in zip(starts, stops, steps)))


def _slice_reference(x: np.ndarray, starts: Shape, stops: Shape, steps: Shape) -> np.ndarray:
    return x[tuple(map(builtins.slice, starts, stops, steps))]


def _slice_pullback(node: Operation, g: Node) -> list[Node | None]:
    """Zeros between the elements where the step is longer than 1, then zeros around them."""
    shape, starts, steps = node.inputs[0].shape, node.attributes["starts"], node.attributes["steps"]
    if any(step > 1 for step in steps):
        g = dilated(g, steps)
        room = tuple(extent - start for extent, start in zip(shape, starts))
        zeros, ones = (0,) * g.ndim, (1,) * g.ndim
        g = slice(g, starts=zeros, stops=tuple(map(min, g.shape, room)), steps=ones)
    high = tuple(extent - start - size for extent, start, size in zip(shape, starts, g.shape))
    return [pad(g, low=starts, high=high)]


def dilated(x: Node, steps: Sequence[int]) -> Node:
    """``x`` with ``step - 1`` zeros after each element of every axis."""
    apart = tuple(extent for size in x.shape for extent in (size, 1))
    high = tuple(width for step in steps for width in (0, step - 1))
    spread = pad(reshape(x, shape=apart), low=(0,) * len(high), high=high)
    return reshape(spread, shape=tuple(size * step for size, step in zip(x.shape, steps)))


def framed(x: Node, low: Sequence[int], high: Sequence[int]) -> Node:
    """``x`` with zeros before and after its elements; negative widths cut it."""
    starts = tuple(max(-width, 0) for width in low)
    stops = tuple(extent - max(-width, 0) for extent, width in zip(x.shape, high))
    if any(starts) or stops != x.shape:
        x = slice(x, starts=starts, stops=stops, steps=(1,) * x.ndim)
    low, high = (tuple(max(width, 0) for width in widths) for widths in (low, high))
    return pad(x, low=low, high=high) if any(low) or any(high) else x


def _slice_batch(node: Operation, inputs: Sequence[Node]) -> Node:
    (x,), (starts, stops, steps) = inputs, (node.attributes[key] for key in ("starts", "stops", "steps"))
    return slice(x, starts=(0, *starts), stops=(x.shape[0], *stops), steps=(1, *steps))


def _slice_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    starts, steps = node.attributes["starts"], node.attributes["steps"]
    return operands[0]([plus(times(i, step), start) for i, start, step in zip(index, starts, steps)])


def _slice_vary(node: Operation) -> Padding:
    """Rows from the first on, or a number that there must be; others begin where the size says."""
    least = 1
    how = node.attributes
    whole = True
    for extent, start, stop, step in zip(node.inputs[0].shape, how["starts"], how["stops"], how["steps"]):
        if is_named(extent) and not is_named(stop):
            least = builtins.max(least, stop)
        elif is_named(extent):
            whole = whole and (start, stop, step) == (0, extent, 1)
    if any(map(is_named, how["starts"])):
        return Padding((None,), least, instead=sliced)
    return Padding((None,), least, (0,) if whole else ())


slice = Operator(
    "slice",
    _slice_type,
    _slice_reference,
    _slice_pullback,
    _slice_batch,
    _slice_lower,
    (
        _case((), starts=(), stops=(), steps=()),
        _case((5,), starts=(1,), stops=(4,), steps=(1,)),
        _case((7,), starts=(1,), stops=(7,), steps=(3,)),
        _case((6,), starts=(1,), stops=(6,), steps=(2,)),
        _case((3, 5), starts=(1, 0), stops=(2, 5), steps=(1, 2)),
        _case((3, 1, 8), starts=(0, 0, 2), stops=(3, 1, 7), steps=(2, 1, 3)),
        _case((4,), starts=(2,), stops=(2,), steps=(2,)),
        _case((0, 3), starts=(0, 1), stops=(0, 3), steps=(1, 1)),
    ),
    cost=0.0,
    linear=True,
    view=True,
    vary=_slice_vary,
)
"""``y[i] = x[starts + steps * i]`` up to ``stops``, which are left out. Any dtype.

Raises ``ShapeError`` unless ``0 <= start <= stop <= extent`` and ``step >= 1`` along each axis: counting
from the end, and backwards, is arranged above.
"""


# -- reverse


def _reverse_type(x: Type, axes: Shape) -> Type:
    if not rising_axes(axes, x.rank):
        raise ShapeError(
            f"reverse: axes {axes} of shape {x.shape}; name axes from 0 to {x.rank - 1} in rising order"
        )
    return x


def _reverse_pullback(node: Operation, g: Node) -> list[Node | None]:
    return [reverse(g, axes=node.attributes["axes"])]


def _reverse_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    inner = list(index)
    for axis in node.attributes["axes"]:
        inner[axis] = plus(times(index[axis], -1), node.shape[axis] - 1)
    return operands[0](inner)


def _reverse_vary(node: Operation) -> Padding:
    """The last row comes first."""
    turned = any(is_named(node.shape[axis]) for axis in node.attributes["axes"])
    return keeps(node)._replace(instead=reversed_rows) if turned else keeps_zeros(node)


reverse = Operator(
    "reverse",
    _reverse_type,
    lambda x, axes: np.flip(x, axis=axes),
    _reverse_pullback,
    batch_first,
    _reverse_lower,
    (
        _case((4,), axes=(0,)),
        _case((2, 3), axes=(1,)),
        _case((2, 1, 3), axes=(0, 1, 2)),
        _case((2, 0), axes=(0, 1)),
    ),
    cost=0.0,
    linear=True,
    vary=_reverse_vary,
)
"""``y[i] = x[extent - 1 - i]`` along ``axes``. Any dtype.

Raises ``ShapeError`` unless ``axes`` are axes of ``x`` in rising order.
"""


# -- pad


@remembered
def _pad_type(x: Type, low: Shape, high: Shape) -> Type:
    _check_lengths("pad", x, low=low, high=high)
    if any(width < 0 for width in (*low, *high)):
        raise ShapeError(
            f"pad: widths {low} and {high} of shape {x.shape}; widths are 0 or more, slice to cut"
        )
    return x.with_shape(tuple(before + extent + after for before, extent, after in zip(low, x.shape, high)))


def _pad_reference(x: np.ndarray, low: Shape, high: Shape) -> np.ndarray:
    made = np.zeros([before + n + after for before, n, after in zip(low, x.shape, high)], x.dtype)
    made[padded(low, x.shape)] = x
    return made


def padded(low: Shape, shape: Shape) -> tuple[builtins.slice, ...]:
    """Where an array of ``shape`` lies in one that has ``low`` elements more before it on each axis."""
    return tuple([builtins.slice(start, start + extent) for start, extent in zip(low, shape)])


def _pad_pullback(node: Operation, g: Node) -> list[Node | None]:
    low, shape = node.attributes["low"], node.inputs[0].shape
    stops = tuple(before + extent for before, extent in zip(low, shape))
    return [slice(g, starts=low, stops=stops, steps=(1,) * len(low))]


def _pad_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    (x,) = node.inputs
    zero = Literal(0, node.dtype)
    if not x.size:
        return zero
    inner = [plus(i, -before) for i, before in zip(index, node.attributes["low"])]
    inside: Expression | bool = True
    for i, extent in zip(inner, x.shape):
        inside = both(inside, within(i, 0, extent))
    return _either(inside, operands[0](inner), zero)


def _either(condition: Expression | bool, value: Expression, other: Expression) -> Expression:
    """``value``, computed only where ``condition`` holds, and ``other`` elsewhere."""
    if isinstance(condition, bool):
        return value if condition else other
    return Apply("where", (condition, guarded(value, condition), other), value.dtype)


def _pad_vary(node: Operation) -> Padding:
    """Rows among zeros must be rows that there are: ``x.at[5].set(v)`` needs six."""
    least = 1
    fill: float | None = None
    how = node.attributes
    for extent, low, high in zip(node.inputs[0].shape, how["low"], how["high"]):
        if is_named(extent) and high:
            fill = 0
        elif is_named(high) and not is_named(low):
            least = builtins.max(least, low + extent)
    if any(map(is_named, how["low"])):
        return Padding((fill,), least, instead=padded_in_front)
    return Padding((fill,), least, (0,))


pad = Operator(
    "pad",
    _pad_type,
    _pad_reference,
    _pad_pullback,
    lambda node, inputs: node.operator(
        *inputs, **{side: (0, *node.attributes[side]) for side in ("low", "high")}
    ),
    _pad_lower,
    (
        _case((), low=(), high=()),
        _case((3,), low=(2,), high=(1,)),
        _case((2, 3), low=(0, 1), high=(2, 0)),
        _case((1, 2, 3), low=(1, 0, 0), high=(1, 0, 2)),
        _case((2, 2), low=(0, 0), high=(0, 0)),
        _case((0, 2), low=(1, 0), high=(2, 1)),
    ),
    linear=True,
    is_layer=lambda inputs: True,
    vary=_pad_vary,
)
"""``x`` with ``low`` zeros before and ``high`` zeros after its elements along each axis. Any dtype.

Raises ``ShapeError`` for negative widths.
"""


# -- contiguous


contiguous = Operator(
    "contiguous",
    lambda x: x,
    lambda x: np.ascontiguousarray(x).reshape(x.shape),
    lambda node, g: [g],
    batch_first,
    lambda node, operands, index: operands[0](index),
    (
        Case((Sample((2, 3), kind="any"),)),
        Case((Sample((), kind="any"),)),
        Case((Sample((0, 2), kind="any"),)),
    ),
    linear=True,
    stored=True,
    vary=keeps_zeros,
)
"""``y = x``, in an array of its own: for what is read often, in an order that suits the reader."""


# -- iota


def _iota_type(shape: Shape, axis: int, dtype: np.dtype) -> Type:
    _check_shape("iota", shape)
    if not 0 <= axis < len(shape):
        raise ShapeError(f"iota: axis {axis} of shape {shape}; name one of its {len(shape)} axes")
    if np.dtype(dtype).kind == "b":
        raise DTypeError("iota counts in integers or floats, not in bool; compare the count with a number")
    return Type(np.dtype(dtype), shape)


def _iota_reference(shape: Shape, axis: int, dtype: np.dtype) -> np.ndarray:
    aligned = [1] * len(shape)
    aligned[axis] = shape[axis]
    return np.broadcast_to(np.arange(shape[axis]).astype(dtype).reshape(aligned), shape)


def _iota_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    position = as_expression(index[node.attributes["axis"]])
    if position.dtype == node.dtype:
        return position
    return Apply("cast", (position,), node.dtype)


iota = Operator(
    "iota",
    _iota_type,
    _iota_reference,
    lambda node, g: [],
    batch_first,
    _iota_lower,
    tuple(
        Case((), {"shape": shape, "axis": axis, "dtype": np.dtype(dtype)})
        for shape, axis, dtype in (
            ((5,), 0, "int64"),
            ((2, 3), 1, "float32"),
            ((2, 3, 1), 0, "float64"),
            ((3, 2), 0, "uint8"),
            ((0, 3), 1, "int32"),
        )
    ),
    cost=0.0,
    vary=keeps,
)
"""``y[i] = i[axis]`` in ``shape``: counts from 0 along one axis. Integers and floats.

Raises ``ShapeError`` where ``shape`` has no such axis, ``DTypeError`` for ``bool``.
"""
