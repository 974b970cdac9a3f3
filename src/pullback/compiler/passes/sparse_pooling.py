"""What follows the pullback of a maximum is done for the winners alone.

One element of each window has a derivative. Masks and factors behind ``max_unpool`` move before it, where there is an
element for each window; a bias gradient is a sum over windows; a weight gradient visits winners, and so does the
gradient of a convolution's input where that costs less than going over every place.

An element that did not win is zero under the mask of winners, whatever it is multiplied by inside it; so the mask goes
where all of it moves before ``max_unpool``. A convolution has no masks, and there zero times infinity is NaN. Samples
that are not finite are told by their sum, which is not either, and of these the weight gradient visits every place;
weights that are not have an ordinary convolution, element by element, in place of what the winners add. Neither costs
anything until it happens, and what is finite whatever the arguments hold (``finite.py``) is not asked.

>>> import numpy as np
>>> import pullback.numpy
>>> from pullback.graph import Graph, Type, Variable, constant, format_graph
>>> from pullback.operators.pooling import max_unpool, window_argmax
>>> pairs = {"axes": (1,), "sizes": (2,), "strides": (2,), "dilations": (1,)}
>>> x = Variable(Type(np.dtype(np.float32), (3, 8)), "x")
>>> g = Variable(Type(np.dtype(np.float32), (3, 4)), "g")
>>> wide = Processor("generic", "", "x86_64", vector_bytes=64, vector_registers=32)
>>> bar = max_unpool(g, window_argmax(x, **pairs), shape=(3, 8), **pairs)
>>> masked = where(won(bar), bar * x, filled(0, x))
>>> print(format_graph(sparse_pooling(wide)(Graph((x, g), (masked,))), sources=False))
input  %0 x: float32[3, 8]
input  %1 g: float32[3, 4]
%2 = window_max(%0, axes=(1,), dilations=(1,), sizes=(2,), strides=(2,)): float32[3, 4]
%3 = multiply(%1, %2): float32[3, 4]
%4 = window_argmax(%0, axes=(1,), dilations=(1,), sizes=(2,), strides=(2,)): int32[3, 4]
%5 = max_unpool(%3, %4, axes=(1,), dilations=(1,), shape=(3, 8), sizes=(2,), strides=(2,)): float32[3, 8]
output %5
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pullback.compiler.passes.finite import is_finite
from pullback.compiler.passes.rewriting import Rule, RulePass, filled, inner, is_zero, ordered, scalar, sliced
from pullback.compiler.schedules.cost import (
    DEEPEST_FACTOR,
    FINDING_ARGMAX,
    READ_AND_WRITTEN,
    SWEPT_PLACE,
    UNALIGNED,
)
from pullback.compiler.target import Processor
from pullback.graph import OPERATORS, Node, Operation, behind
from pullback.operators.convolution_where_read import convolve_where_read
from pullback.operators.elementwise import where
from pullback.operators.indexing import gather, gathers_rows
from pullback.operators.logic import rarely, spoilt, unlikely
from pullback.operators.pooling import (
    argmax_index,
    convolve_max_unpooled,
    gather_at_argmax,
    max_unpool,
    pool_attributes,
    window_max,
    won,
)
from pullback.operators.scatters import scatter_add
from pullback.operators.shapes import broadcast, contiguous, iota, reverse

__all__ = ["cycles_of_visits", "do_not_overlap", "sparse_pooling"]


def _pulled(node: Node, winner: Node, pool: dict[str, Any], depth: int = DEEPEST_FACTOR) -> Node:
    """``gather_at_argmax(node, winner)``, with elementwise operations done for the winners alone."""
    single, spread = scalar(node), inner(node, "broadcast")
    if single is not None:
        return filled(single, node, winner.shape)
    if spread is not None and not set(spread.attributes["axes"]) & set(pool["axes"]):
        return broadcast(spread.inputs[0], shape=winner.shape, axes=spread.attributes["axes"])
    named = inner(winner, "window_argmax")
    if named is not None and named.inputs[0] is node and pool_attributes(named) == pool:
        return window_max(node, **pool)
    if isinstance(node, Operation) and node.operator.elementwise and depth:
        inputs = [_pulled(child, winner, pool, depth - 1) for child in node.inputs]
        return node.operator(*inputs, **node.attributes)
    return gather_at_argmax(node, winner, **pool)


def do_not_overlap(pool: Mapping[str, Any]) -> bool:
    """Whether no place is in two windows."""
    return all(
        step > (size - 1) * dilation
        for size, step, dilation in zip(pool["sizes"], pool["strides"], pool["dilations"])
    )


def _placed(y: Node, like: Operation) -> Node:
    """``y`` in the places of ``like``, an ``max_unpool``."""
    return max_unpool(y, like.inputs[1], **like.attributes)


def _in_same_places(first: Operation, second: Operation) -> bool:
    """Whether two ``max_unpool`` are of the same winners."""
    return first.inputs[1] is second.inputs[1] and first.attributes == second.attributes


def _masked(node: Operation) -> Node | None:
    mask, yes, no = node.inputs
    first, second = inner(yes, "max_unpool"), inner(no, "max_unpool")
    like = second if first is None else first
    if like is None:
        return _of_winners(mask, yes) if is_zero(no) else None
    if like is first and is_zero(no) and mask is won(like):
        return like
    chosen = []
    for side, found in ((yes, first), (no, second)):
        if found is not None and _in_same_places(found, like):
            chosen.append(found.inputs[0])
        elif is_zero(side):
            chosen.append(filled(0, node, like.inputs[0].shape))
        else:
            return None
    return _placed(where(_pulled(mask, like.inputs[1], pool_attributes(like)), *chosen), like)


def _of_winners(mask: Node, node: Node) -> Node | None:
    """``where(mask, node, 0)`` where the mask is that of winners, and ``node`` their cotangents times other things."""
    found = _factored(node, mask, DEEPEST_FACTOR)
    if found is None:
        return None
    like, steps = found
    pool = pool_attributes(like)
    y, winner = like.inputs
    for name, other in steps:
        if name == "multiply":
            if not do_not_overlap(pool) and (scalar(other) is None or not is_finite(other)):
                return None  # of windows with one winner the sum is multiplied, and may be no longer zero
            y = y * _pulled(other, winner, pool)
        else:
            y = where(_pulled(other, winner, pool), y, filled(0, y))
    return _placed(y, like)


def _factored(node: Node, mask: Node, depth: int) -> tuple[Operation, list[tuple[str, Node]]] | None:
    """The ``max_unpool`` of the winners of ``mask``, and factors and masks that make ``node`` of it, in their order."""
    like = inner(node, "max_unpool")
    if like is not None:
        return (like, []) if won(like) is mask else None
    if not isinstance(node, Operation) or not depth or node.dtype.kind != "f":
        return None
    below: list[tuple[Node, ...]] = []
    if node.operator.name == "multiply":
        below = [node.inputs, node.inputs[::-1]]
    elif node.operator.name == "where" and is_zero(node.inputs[2]):
        below = [(node.inputs[1], node.inputs[0])]
    for part, other in below:
        if (found := _factored(part, mask, depth - 1)) is not None:
            return found[0], [*found[1], (node.operator.name, other)]
    return None


def _added(node: Operation) -> Node | None:
    first, second = (inner(child, "max_unpool") for child in node.inputs)
    if first is None or second is None or not _in_same_places(first, second):
        return None
    return _placed(first.inputs[0] + second.inputs[0], first)


def _summed(node: Operation) -> Node | None:
    """Every element is put into one place: their sum is the same."""
    placed = inner(node.inputs[0], "max_unpool")
    if placed is None or not set(placed.attributes["axes"]) <= set(node.attributes["axes"]):
        return None
    return OPERATORS["sum"](placed.inputs[0], axes=node.attributes["axes"])


# -- convolutions


def _spatial(layout: str) -> tuple[int, ...]:
    return tuple(axis for axis, label in enumerate(layout) if label.isdigit())


def _run(layout: str, extents: dict[str, int], sizes: dict[str, int], channel: str) -> int:
    """How many elements of an array a window takes side by side: along its last axes, as far as they are whole."""
    run = 1
    for label in reversed(layout):
        if label != channel and not label.isdigit():
            break
        run *= sizes[label] if label.isdigit() else extents[label]
        if run < math.prod(extents[other] for other in layout[layout.index(label) :]):
            break
    return run


def cycles_of_visits(winners: int, elements: int, run: int, lanes: int) -> float:
    """Cycles, more or less, in which each winner meets so many elements that lie in runs of ``run``."""
    vectors = (elements // run) * -(-run // lanes)
    return winners * (FINDING_ARGMAX + UNALIGNED * vectors)


def _sweep(places: int, elements: int, lanes: int) -> float:
    """Cycles in which each of so many places, most of them zeros that are written before, meets the elements."""
    return places * (SWEPT_PLACE + elements / lanes)


def _weight_gradient(target: Processor, node: Operation) -> Node | None:
    """``convolve(x, max_unpool(y, winner))`` visits winners, where that is less than the zeros cost between them."""
    x, placed = node.inputs[0], inner(node.inputs[1], "max_unpool")
    if placed is None or placed.attributes["axes"] != _spatial(node.attributes["w_layout"]) or not node.size:
        return None
    x_layout, out_layout = node.attributes["x_layout"], node.attributes["out_layout"]
    out, extents = dict(zip(out_layout, node.shape)), dict(zip(x_layout, x.shape))
    elements = out["b"] * math.prod(out[label] for label in out if label.isdigit())
    run = _run(x_layout, extents, out, "b") if set(node.attributes["strides"]) <= {1} else 1
    y, winner = placed.inputs
    lanes = target.lanes(node.dtype.itemsize)
    if cycles_of_visits(y.size, elements, run, lanes) >= _sweep(placed.size, elements, lanes):
        return None
    pool = tuple(pool_attributes(placed).values())
    flags = [] if is_finite(x) else [_is_spoilt(x, [x_layout.index("c")])]
    return convolve_max_unpooled(x, y, winner, *flags, shape=placed.shape, pool=pool, **node.attributes)


def _is_spoilt(x: Node, kept: Sequence[int]) -> Node:
    """``spoilt``, of the sums of rows where ``x`` reads them many times."""
    x = x if kept else behind(x, ("reverse", "transpose"))
    if isinstance(x, Operation) and gathers_rows(x) and x.size >= x.inputs[0].size and x.ndim - 1 not in kept:
        table, place = x.inputs  # the sum of a row that is read many times is made once
        x = gather(OPERATORS["sum"](table, axes=(1,)), place, axes=(0,))
    return spoilt(x, kept)


def _input_gradient(target: Processor, node: Operation) -> Node | None:
    """``convolve(pad(max_unpool(y, winner)), w)`` as what each winner adds to the result, on the same condition."""
    padded = inner(node.inputs[0], "pad")
    placed = inner(node.inputs[0] if padded is None else padded.inputs[0], "max_unpool")
    attributes = node.attributes
    if placed is None or not node.size or set(attributes["strides"]) > {1}:
        return None
    x_layout, w_layout, out_layout = (attributes[key] for key in ("x_layout", "w_layout", "out_layout"))
    if placed.attributes["axes"] != _spatial(x_layout):
        return None
    y, w = placed.inputs[0], node.inputs[1]
    low = padded.attributes["low"] if padded is not None else (0,) * placed.ndim
    sizes, whole = dict(zip(w_layout, w.shape)), dict(zip(out_layout, node.shape))
    kept = dict[str, tuple[int, int, int]]()
    for axis, label in enumerate(x_layout):
        if label.isdigit():
            reach = (sizes[label] - 1) * attributes["dilations"][int(label)]
            start = reach - low[axis]
            stop = start + whole[label]
            kept[label], whole[label] = (start, stop, 1), placed.shape[axis] + reach
            if start < 0 or stop > whole[label]:
                return None
        elif low[axis] or node.inputs[0].shape[axis] != placed.shape[axis]:
            return None
    elements = sizes["o"] * math.prod(sizes[label] for label in sizes if label.isdigit())
    run = _run(out_layout, whole, sizes, "o") if set(attributes["dilations"]) <= {1} else 1
    lanes = target.lanes(node.dtype.itemsize)
    visits = READ_AND_WRITTEN * cycles_of_visits(y.size, elements, run, lanes)
    if visits >= _sweep(placed.size, elements, lanes):
        return None
    return _spread(node, placed, whole, kept)


def _spread(
    node: Operation, placed: Operation, whole: dict[str, int], wanted: dict[str, tuple[int, int, int]]
) -> Node:
    """A scatter of the window's multiples, and the wanted part of its result."""
    attributes, w = node.attributes, node.inputs[1]
    (y, winner), pool = placed.inputs, pool_attributes(placed)
    x_layout, w_layout, out_layout = (attributes[key] for key in ("x_layout", "w_layout", "out_layout"))
    # Loops over winners and what adds to one place, then over the window, in the order in which it lies in the result.
    window = [label for label in out_layout if label == "o" or label.isdigit()]
    loops = [label if not label.isdigit() else f"p{label}" for label in x_layout] + window
    shape = (*winner.shape, *(dict(zip(w_layout, w.shape))[label] for label in window))

    def over_winners(node: Node) -> Node:
        return broadcast(node, shape=shape, axes=tuple(range(winner.ndim)))

    def counted(label: str, step: int = 1) -> Node:
        axis = loops.index(label)
        count = iota(shape=(shape[axis],), axis=0, dtype=np.dtype(np.int64))
        return broadcast(count * step if step != 1 else count, shape=shape, axes=(axis,))

    indices = []
    for label in out_layout:
        if not label.isdigit():
            indices.append(counted(label))
            continue
        place = argmax_index(winner, shape=placed.shape, axis=x_layout.index(label), **pool)
        indices.append(over_winners(place) + counted(label, attributes["dilations"][int(label)]))
    # Element k of the window, counted from its end, goes k places further.
    kept = [label for label in x_layout if label in "cg"] + window
    arranged = contiguous(ordered(_turned(w, w_layout), w_layout, kept))
    weights = broadcast(arranged, shape=shape, axes=tuple(loops.index(label) for label in kept))
    target = tuple(whole[label] for label in out_layout)
    updates = over_winners(y) * weights
    rare = unlikely(_is_spoilt(w, ()))
    if not is_finite(w):
        updates = rarely(rare, filled(0, updates), updates)
    made: Node = scatter_add(filled(0, y, target), updates, *indices, axes=tuple(range(len(target))))
    made = sliced(made, out_layout, wanted)
    if is_finite(w):
        return made
    again = _turned(ordered(arranged, kept, w_layout), w_layout)
    every = convolve_where_read(node.inputs[0], again, **attributes)
    places = (iota(shape=every.shape, axis=axis, dtype=np.dtype(np.int64)) for axis in range(every.ndim))
    rest = rarely(rare, every, filled(0, every))
    return scatter_add(made, rest, *places, axes=tuple(range(every.ndim)))


def _turned(w: Node, layout: str) -> Node:
    """``w`` with its window the other way round."""
    return reverse(w, axes=_spatial(layout)) if _spatial(layout) else w


def sparse_pooling(target: Processor) -> RulePass:
    """Derivatives of maxima, for winners alone, where that takes ``target`` less time."""
    rules: dict[str, tuple[Rule, ...]] = {
        "where": (_masked,),
        "add": (_added,),
        "sum": (_summed,),
        "convolve": (partial(_weight_gradient, target), partial(_input_gradient, target)),
    }
    return RulePass("sparse_pooling", rules)
