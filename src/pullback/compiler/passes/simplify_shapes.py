"""Shape operators that undo each other, or change nothing, are left away.

What is left has a form of its own: reshapes and transposes stand inside broadcasts, what is broadcast has no
axis of extent 1, transposes and pooling stand inside reshapes that only add or drop axes of extent 1, slices stand
inside pads and reverses, and no operator is applied twice in a row. All rules are exact.

>>> import numpy as np
>>> import pullback.numpy as pnp
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> x = Variable(Type(np.dtype(np.float32), (5,)), "x")
>>> graph = Graph((x,), (pnp.broadcast_to(pnp.reshape(x, (5, 1)), (5, 3))[1:, :2].T,))
>>> print(format_graph(graph, sources=False))
input  %0 x: float32[5]
%1 = reshape(%0, shape=(5, 1)): float32[5, 1]
%2 = broadcast(%1, axes=(0, 1), shape=(5, 3)): float32[5, 3]
%3 = slice(%2, starts=(1, 0), steps=(1, 1), stops=(5, 2)): float32[4, 2]
%4 = transpose(%3, axes=(1, 0)): float32[2, 4]
output %4
>>> print(format_graph(simplify_shapes(graph), sources=False))
input  %0 x: float32[5]
%1 = slice(%0, starts=(1,), steps=(1,), stops=(5,)): float32[4]
%2 = broadcast(%1, axes=(1,), shape=(2, 4)): float32[2, 4]
output %2
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from pullback.compiler.passes.rewriting import (
    Range,
    Rule,
    RulePass,
    cut,
    filled,
    inner,
    is_positive_zero,
    ranges_of,
    shaped,
    sliced,
)
from pullback.graph import Constant, Node, Operation
from pullback.loops import Affine, Axis, Expression, Index, Literal, turns_of
from pullback.operators.concatenation import concatenate
from pullback.operators.interleave import interleave, part_shape, places
from pullback.operators.shapes import broadcast, iota, pad, reshape, reverse, transpose

__all__ = ["repeated", "simplify_shapes"]

Shape = tuple[int, ...]


def long_axes(shape: Shape) -> Shape:
    """The axes whose extent is not 1."""
    return tuple(axis for axis, extent in enumerate(shape) if extent != 1)


def squeezed(shape: Shape) -> Shape:
    """``shape`` without its axes of extent 1."""
    return tuple(extent for extent in shape if extent != 1)


def only_units(before: Shape, after: Shape) -> bool:
    """Whether a reshape only adds or drops axes of extent 1."""
    return squeezed(before) == squeezed(after)


# -- other places of the same elements


def _view(node: Operation) -> Node | None:
    """What operators of one kind, broadcasts, reverses and reshapes make of an array, said by as few as can say it.

    Their lowerings tell at which index of the array each element is found.
    """
    if node.operator is reshape:
        if (first := inner(node.inputs[0], "reshape")) is not None:
            return reshape(first.inputs[0], shape=node.shape)
        if node.shape != node.inputs[0].shape and inner(node.inputs[0], "broadcast") is None:
            return None
    axes = [Axis("i", extent) for extent in node.shape]
    index: list[Index] = [Affine.of(axis) for axis in axes]
    x: Node = node
    furthest: tuple[Node, list[Affine]] | None = None
    followed = (node.operator, broadcast, reverse)
    while isinstance(x, Operation) and (x.operator in followed or _adds_units(x)):
        index = _read_at(x, index)
        (x,) = x.inputs
        known = [i for i in index if isinstance(i, Affine) and len(i.terms) < 2]
        if len(known) == x.ndim:
            furthest = x, known
    return None if furthest is None else _followed(*furthest, axes)


def _adds_units(node: Operation) -> bool:
    return node.operator is reshape and only_units(node.inputs[0].shape, node.shape)


def _read_at(node: Operation, index: Sequence[Index]) -> list[Index]:
    """The index at which a shape operator reads its operand for the element at ``index``."""
    read: list[Index] = []

    def operand(at: Sequence[Index]) -> Expression:
        read.extend(at)
        return _ANYTHING

    assert node.operator.lower is not None
    node.operator.lower(node, [operand], index)
    return read


_ANYTHING = Literal(0, np.dtype(np.int64))


def _followed(x: Node, index: Sequence[Affine], axes: Sequence[Axis]) -> Node:
    """The elements of ``x`` at an ``index`` that follows each of its axes along one of ``axes``, or along none."""
    shape = tuple(axis.extent for axis in axes)
    steps = [sum(step for _, step in i.terms) for i in index]
    bounds = [i.bounds() if extent and turns_of(i.axes) else (0, -1) for i, extent in zip(index, x.shape)]
    x = cut(x, [(low, high + 1, abs(step) or 1) for (low, high), step in zip(bounds, steps)])
    turned = tuple(k for k, step in enumerate(steps) if step < 0)
    x = reverse(x, axes=turned) if turned else x
    order = [axes.index(axis) for i in index for axis in i.axes]
    if order != sorted(order):
        x = transpose(shaped(x, squeezed(x.shape)), axes=tuple(np.argsort(order).tolist()))
    if x.size == math.prod(shape):
        return shaped(x, shape)
    return broadcast(shaped(x, squeezed(x.shape)), shape=shape, axes=tuple(sorted(order)))


def repeated(node: Node) -> tuple[Node, Shape] | None:
    """What ``node`` repeats, or adds axes of extent 1 to, and the axes of ``node`` that go along its own."""
    if isinstance(node, Constant) and node.size == 1:
        return shaped(node, ()), ()
    if isinstance(node, Operation) and _adds_units(node) and node.inputs[0].ndim < node.ndim:
        return shaped(node.inputs[0], squeezed(node.shape)), long_axes(node.shape)
    spread = inner(node, "broadcast")
    return (
        None
        if spread is None or 1 in spread.inputs[0].shape
        else (spread.inputs[0], spread.attributes["axes"])
    )


def _inside_interleaves(node: Operation) -> Node | None:
    """The sum of arrays that are put together in the same way is put together of sums."""
    first, second = (inner(child, "interleave") for child in node.inputs)
    if first is None or second is None or first.attributes != second.attributes:
        return None
    return interleave(*map(node.operator, first.inputs, second.inputs), **first.attributes)


def _at(values: Shape, axes: Shape) -> Shape:
    return tuple(values[axis] for axis in axes)


def _pool_outside_units(node: Operation) -> Node | None:
    """Pooling of an array, or at winners, to which axes of extent 1 were added beside those that windows move along."""
    whole, moving = node.inputs[-1], node.attributes["axes"]
    reshaped = inner(whole, "reshape")
    if reshaped is None:
        return None
    before = reshaped.inputs[0].shape
    beside = [axis for axis in range(whole.ndim) if axis not in moving and whole.shape[axis] == 1]
    for added in combinations(beside, max(whole.ndim - len(before), 1)):
        left = tuple(axis for axis in range(whole.ndim) if axis not in added)
        if _at(whole.shape, left) == before:
            inputs = [reshape(child, shape=_at(child.shape, left)) for child in node.inputs]
            attributes = {**node.attributes, "axes": tuple(left.index(axis) for axis in moving)}
            if "shape" in attributes:
                attributes["shape"] = _at(attributes["shape"], left)
            return reshape(node.operator(*inputs, **attributes), shape=node.shape)
    return None


def _iota(node: Operation) -> Node | None:
    """Counting along one axis of several is repeated counting."""
    shape, axis, dtype = (node.attributes[key] for key in ("shape", "axis", "dtype"))
    if shape[axis] == 1:
        return filled(0, node)
    if len(shape) == 1:
        return None
    return broadcast(iota(shape=(shape[axis],), axis=0, dtype=dtype), shape=shape, axes=(axis,))


# -- slice


def _slice(node: Operation) -> Node | None:
    (x,), ranges = node.inputs, ranges_of(node)
    if (joined := inner(x, "concatenate")) is not None:
        return _slice_of_concatenate(joined, ranges)
    if (joined := inner(x, "interleave")) is not None:
        return _slice_of_interleave(joined, ranges)
    if (padded := inner(x, "pad")) is not None:
        return _slice_of_pad(padded, ranges)
    return None


def _slice_of_concatenate(joined: Operation, ranges: list[Range]) -> Node | None:
    """Only the pieces that the slice touches; without steps between, the first and the last of them cut to size.

    So a chain of rolls stays two pieces of one array, however long it is.
    """
    axis = joined.attributes["axis"]
    begin, end, step = ranges[axis]
    touched: list[Node] = []
    position = first = 0
    for piece in joined.inputs:
        after = position + piece.shape[axis]
        if position < end and after > begin:
            first = first if touched else position
            own = max(begin, position) - position, min(end, after) - position, 1
            touched.append(sliced(piece, range(piece.ndim), {axis: own}) if step == 1 else piece)
        position = after
    if not touched:
        return None
    rest = touched[0] if len(touched) == 1 else concatenate(*touched, axis=axis)
    first = begin if step == 1 else first
    ranges[axis] = begin - first, end - first, step
    return cut(rest, ranges)


def _slice_of_interleave(joined: Operation, ranges: Sequence[Range]) -> Node | None:
    """The slices of what was interleaved, put between each other; without those that it does not touch."""
    strides = joined.attributes["strides"]
    if any(step > 1 and step % stride for (_, _, step), stride in zip(ranges, strides)):
        return None
    shape = tuple(-(-(stop - start) // step) for start, stop, step in ranges)
    left = tuple(
        stride if stop - start > step == 1 else 1 for (start, stop, step), stride in zip(ranges, strides)
    )
    parts = dict(zip(places(strides), joined.inputs))
    chosen = []
    for place in places(left):
        first = [start + k for (start, _, _), k in zip(ranges, place)]
        part = parts[tuple(at % stride for at, stride in zip(first, strides))]
        own = []
        for at, stride, (_, _, step), size, extent in zip(
            first, strides, ranges, part_shape(shape, left, place), part.shape
        ):
            begin, apart = min(at // stride, extent), max(1, step // stride)
            own.append((begin, begin + (size - 1) * apart + 1 if size else begin, apart))
        chosen.append(cut(part, own))
    return chosen[0] if max(left, default=1) == 1 else interleave(*chosen, strides=left, shape=shape)


def _slice_of_pad(padded: Operation, ranges: Sequence[Range]) -> Node | None:
    """The slice of what was padded, with the zeros that are left around it."""
    (x,), lows, highs = padded.inputs, padded.attributes["low"], padded.attributes["high"]
    own, before, after = [], [], []
    for extent, low, high, (start, stop, step) in zip(x.shape, lows, highs, ranges):
        begin, end = (min(max(value - low, 0), extent) for value in (start, stop))
        if step > 1 and (low or high) and (start < low or stop > low + extent):
            return None
        own.append((begin, end, step))
        zeros = max(min(stop, low) - start, 0)
        before.append(zeros)
        after.append(max(stop - start - zeros - (end - begin), 0))
    return pad(cut(x, own), low=tuple(before), high=tuple(after))


# -- pad, concatenate


def _pad(node: Operation) -> Node | None:
    (x,), low, high = node.inputs, node.attributes["low"], node.attributes["high"]
    if x.shape == node.shape:
        return x
    if (first := inner(x, "pad")) is not None:
        low = tuple(map(sum, zip(low, first.attributes["low"])))
        high = tuple(map(sum, zip(high, first.attributes["high"])))
        return pad(first.inputs[0], low=low, high=high)
    if (joined := inner(x, "interleave")) is not None:
        return _pad_of_interleave(joined, low, node.shape)
    return filled(0, node) if is_positive_zero(x) or not x.size else None


def _pad_of_interleave(joined: Operation, low: Shape, shape: Shape) -> Node | None:
    """What was interleaved with zeros around it, if only parts that are zeros grow by them."""
    strides = joined.attributes["strides"]
    parts = dict(zip(places(strides), joined.inputs))
    chosen = []
    for place in places(strides):
        source = tuple((at - before) % stride for at, before, stride in zip(place, low, strides))
        part, wanted = parts[source], part_shape(shape, strides, place)
        first = tuple(
            (at + before - own) // stride for at, before, own, stride in zip(source, low, place, strides)
        )
        if is_positive_zero(part):
            part = filled(0, part, wanted)
        elif part.shape != wanted or any(first):
            return None
        chosen.append(part)
    return interleave(*chosen, strides=strides, shape=shape)


def _concatenate(node: Operation) -> Node | None:
    axis = node.attributes["axis"]
    pieces = _neighbours_joined([piece for whole in node.inputs for piece in _pieces(whole, axis)], axis)
    if len(pieces) == 1:
        return pieces[0]
    return concatenate(*pieces, axis=axis) if pieces else node.inputs[0]


def _pieces(node: Node, axis: int) -> Sequence[Node]:
    """What ``node`` is put together from along ``axis``, without what is empty."""
    joined = inner(node, "concatenate")
    if joined is not None and joined.attributes["axis"] == axis:
        return joined.inputs
    return (node,) if node.shape[axis] else ()


def _neighbours_joined(pieces: Sequence[Node], axis: int) -> list[Node]:
    """Pieces that were cut from one array, one where the other ends, as one piece."""
    joined: list[Node] = []
    for piece in pieces:
        whole = _common_slice(joined[-1], piece, axis) if joined else None
        if whole is None:
            joined.append(piece)
        else:
            joined[-1] = whole
    return joined


def _common_slice(first: Node, second: Node, axis: int) -> Node | None:
    a, b = inner(first, "slice"), inner(second, "slice")
    if a is None or b is None or a.inputs[0] is not b.inputs[0]:
        return None
    ours, theirs = ranges_of(a), ranges_of(b)
    (start, middle, step), (other, stop, other_step) = ours[axis], theirs[axis]
    ours[axis] = theirs[axis] = start, stop, 1
    fits = (middle, step, other_step) == (other, 1, 1) and ours == theirs
    return cut(a.inputs[0], ours) if fits else None


_RULES: dict[str, tuple[Rule, ...]] = {
    "add": (_inside_interleaves,),
    **dict.fromkeys(
        ("window_max", "window_argmax", "gather_at_argmax", "max_unpool"), (_pool_outside_units,)
    ),
    "iota": (_iota,),
    **dict.fromkeys(("reshape", "broadcast", "transpose", "reverse"), (_view,)),
    "slice": (_view, _slice),
    "pad": (_pad,),
    "concatenate": (_concatenate,),
}

simplify_shapes = RulePass("simplify_shapes", _RULES)
"""Shape operators in their simplest form."""
