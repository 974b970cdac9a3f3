"""Convolution: one operator for every layout of its arrays, so that its derivatives are convolutions again.

As everywhere in this field the window is not turned round: what is computed is a correlation. Padding is an
operation of its own, done before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import OPERATORS, Case, Node, Operation, Operator, Sample, Type
from pullback.loops import Affine, Apply, Axis, Expression, Index, Literal, Operand, Reduce
from pullback.loops.arithmetic import times, total
from pullback.operators.batching import all_batched, any_batched, batch_size, is_batched, moved
from pullback.operators.complex_parts import bilinear
from pullback.operators.elementwise import filled
from pullback.operators.interleave import interleave, part_shape, places
from pullback.operators.logic import rarely, spoilt, unlikely
from pullback.operators.products import contract
from pullback.operators.shapes import dilated, framed, reshape, reverse, slice, transpose
from pullback.operators.varying import AtCapacity, Padding, named_axes, refuse_named

__all__ = ["convolve", "spatial", "transposed_convolve", "window_count", "windows_met"]

Widths = tuple[int, ...]

MOST_CONVOLUTIONS = 16
"""Of these a transposed convolution is made, at most: one for all elements that see the same part of the window."""


def window_count(extent: int, size: int, stride: int, dilation: int) -> int:
    """How many windows of ``size`` elements fit into ``extent``; 0 or less where not one does.

    >>> window_count(28, 3, 1, 1), window_count(26, 2, 2, 1), window_count(2, 3, 1, 1)
    (26, 13, 0)
    """
    return (extent - (size - 1) * dilation - 1) // stride + 1


def spatial(layout: Iterable[str]) -> list[str]:
    """The spatial labels of a layout in rising order."""
    return sorted(label for label in layout if label.isdigit())


def _check_layouts(x: Type, w: Type, *, x_layout: str, w_layout: str, out_layout: str, rank: int) -> None:
    group = "g" * ("g" in x_layout)
    digits = "".join(map(str, range(rank)))
    for what, layout, letters, extents in (
        ("x", x_layout, "bc", x.shape),
        ("w", w_layout, "oc", w.shape),
        ("the result", out_layout, "bo", None),
    ):
        wanted = letters + group + digits
        if sorted(layout) != sorted(wanted) or (extents is not None and len(extents) != len(layout)):
            of = "" if extents is None else f" of shape {extents}"
            raise ShapeError(
                f"convolve: the layout {layout!r} of {what}{of} must name its axes by {', '.join(wanted)}, "
                "each once"
            )


def _convolve_type(
    x: Type, w: Type, *, x_layout: str, w_layout: str, out_layout: str, strides: Widths, dilations: Widths
) -> Type:
    _check_layouts(x, w, x_layout=x_layout, w_layout=w_layout, out_layout=out_layout, rank=len(strides))
    if len(dilations) != len(strides) or min((*strides, *dilations), default=1) < 1:
        raise ShapeError(
            f"convolve: strides {strides} and dilations {dilations}; give one of 1 or more for each axis "
            "that the window moves along"
        )
    if x.dtype != w.dtype:
        raise DTypeError(f"convolve: dtypes {x.dtype} and {w.dtype} differ; cast one with .astype")
    if x.dtype.kind == "b":
        raise DTypeError("convolve takes no bool; cast the arrays, for instance with .astype(np.float32)")
    extents = {**dict(zip(w_layout, w.shape)), **dict(zip(x_layout, x.shape))}
    for label, extent in zip(w_layout, w.shape):
        if label in "cg" and extent != extents[label]:
            what = "channels" if label == "c" else "groups"
            raise ShapeError(
                f"convolve: shapes {x.shape} laid out {x_layout!r} and {w.shape} laid out {w_layout!r}: "
                f"{extents[label]} {what} meet {extent}; make the weight for the channels of its input"
            )
    for label, size in zip(w_layout, w.shape):
        if label.isdigit():
            k = int(label)
            count = window_count(extents[label], size, strides[k], dilations[k])
            if size < 1 or count < 1:
                raise ShapeError(
                    f"convolve: a window of {size} elements at distance {dilations[k]} does not fit into "
                    f"{extents[label]} along axis {x_layout.index(label)} of shape {x.shape}; pad the input, "
                    "or take a smaller window"
                )
            extents[label] = count
    return Type(x.dtype, tuple(extents[label] for label in out_layout), x.weak and w.weak)


def _convolve_reference(x: np.ndarray, w: np.ndarray, **how: Any) -> np.ndarray:
    """A product of ``w`` and the windows of ``x`` that it meets."""
    view, labels, window, out = windows_met(x, w, **how)
    product: np.ndarray = np.einsum(f"{labels},{window}->{out}", view, w, optimize=True)
    return product


def windows_met(
    x: np.ndarray,
    w: np.ndarray,
    *,
    x_layout: str,
    w_layout: str,
    out_layout: str,
    strides: Widths,
    dilations: Widths,
) -> tuple[np.ndarray, str, str, str]:
    """A view of ``x`` that has an axis for the window beside each axis it moves on; and the letters of ``einsum``.

    These are those of the view, of ``w`` and of the result.
    """
    sizes = dict(zip(w_layout, w.shape))
    shape, steps, labels = [], [], []
    for label, extent, step in zip(x_layout, x.shape, x.strides):
        if label.isdigit():
            stride, dilation = strides[int(label)], dilations[int(label)]
            shape += [window_count(extent, sizes[label], stride, dilation), sizes[label]]
            steps += [step * stride, step * dilation]
            labels += [_letter(label), _letter(label, window=True)]
        else:
            shape.append(extent)
            steps.append(step)
            labels.append(label)
    view = np.lib.stride_tricks.as_strided(x, shape, steps, writeable=False)
    window = "".join([_letter(label, window=True) for label in w_layout])
    return view, "".join(labels), window, "".join(map(_letter, out_layout))


def _letter(label: str, window: bool = False) -> str:
    """The letter of ``einsum`` for a label: spatial ones are apart for the window and its places."""
    return chr(ord("P" if window else "A") + int(label)) if label.isdigit() else label


def _swapped(layout: str, first: str, second: str) -> str:
    return layout.translate(str.maketrans(first + second, second + first))


def _convolve_pullback(node: Operation, g: Node) -> list[Node | None]:
    r"""Both cotangents are convolutions.

    .. math::
        \bar x_{b,c,h} = \sum_{o,k} \bar y_{b,o,(h - k d) / s} w_{o,c,k} \qquad
        \bar w_{o,c,k} = \sum_{b,p} \bar y_{b,o,p} x_{b,c,p s + k d}

    The first one is transposed; in the second the cotangent is the window, and batch and channels of ``x``
    change places.
    """
    x, w = node.inputs
    x_layout, w_layout, out_layout, strides, dilations = (
        node.attributes[key] for key in ("x_layout", "w_layout", "out_layout", "strides", "dilations")
    )
    extents, sizes, counts = (
        dict(zip(layout, shape))
        for layout, shape in ((x_layout, x.shape), (w_layout, w.shape), (out_layout, node.shape))
    )
    used = {
        label: (counts[label] - 1) * strides[k] + (sizes[label] - 1) * dilations[k] + 1
        for k, label in enumerate(spatial(x_layout))
    }
    high = tuple(extents[label] - used[label] for label in spatial(x_layout))
    x_bar = transposed_convolve(
        g,
        w,
        x_layout=_swapped(out_layout, "o", "c"),
        w_layout=_swapped(w_layout, "o", "c"),
        out_layout=_swapped(x_layout, "c", "o"),
        strides=strides,
        dilations=dilations,
        low=(0,) * len(strides),
        high=high,
    )
    read = tuple(used.get(label, extent) for label, extent in extents.items())
    if read != x.shape:
        x = slice(x, starts=(0,) * x.ndim, stops=read, steps=(1,) * x.ndim)
    w_bar = convolve(
        x,
        g,
        x_layout=_swapped(x_layout, "b", "c"),
        w_layout=_swapped(out_layout, "b", "c"),
        out_layout=_swapped(w_layout, "b", "c"),
        strides=dilations,
        dilations=strides,
    )
    return [x_bar, w_bar]


def transposed_convolve(
    x: Node,
    w: Node,
    *,
    x_layout: str,
    w_layout: str,
    out_layout: str,
    strides: Widths,
    dilations: Widths,
    low: Widths,
    high: Widths,
) -> Node:
    r"""Each element of ``x`` adds a window of its multiples: the adjoint of a convolution by ``strides``.

    .. math:: y_{b,o,h} = \sum_{p s + k d = h} \sum_c x_{b,c,p} w_{o,c,k}

    Along each spatial axis the result has ``low`` elements more before, and ``high`` more after, those that
    the windows reach; negative widths cut it.

    Elements of the result at a distance of the stride s see the same part of the window, every s-th of its
    elements. Each of these parts is a convolution of ``x``, with zeros around it, by its part of the reversed window;
    they are put between each other. Where the parts are many they are outputs of one convolution instead, side by side
    before they are put between each other.

    Of a single element, as where a window has seen the whole image, it is a product.

    Source: Shi et al., *Is the deconvolution layer the same as a convolutional layer?*, 2016.
    """
    if all(extent == 1 for label, extent in zip(x_layout, x.shape) if label.isdigit()):
        return _of_single_elements(x, w, (x_layout, w_layout, out_layout), dilations, low, high)
    if math.prod(strides) > MOST_CONVOLUTIONS:
        return _in_many_phases(
            x, w, x_layout=x_layout, w_layout=w_layout, out_layout=out_layout,
            strides=strides, dilations=dilations, low=low, high=high,
        )  # fmt: skip
    sizes, counts = dict(zip(w_layout, w.shape)), dict(zip(x_layout, x.shape))
    plans = {
        label: _Transposed(counts[label], sizes[label], strides[k], dilations[k], low[k], high[k])
        for k, label in enumerate(spatial(x_layout))
    }
    turned = tuple(axis for axis, label in enumerate(w_layout) if label in plans and w.shape[axis] > 1)
    w = reverse(w, axes=turned) if turned else w
    extents = {**counts, "o": sizes["o"], **{label: plan.extent for label, plan in plans.items()}}
    shape = tuple(extents[label] for label in out_layout)
    steps = tuple(plans[label].stride if label in plans else 1 for label in out_layout)
    parts = []
    for place in places(steps):
        taps = {label: plans[label].part(start) for label, start in zip(out_layout, place) if label in plans}
        if any(part.taps * part.extent == 0 for part in taps.values()):
            parts.append(filled(0, x.dtype, part_shape(shape, steps, place)))
            continue
        before, after = (
            [getattr(taps[label], side) if label in taps else 0 for label in x_layout]
            for side in ("before", "after")
        )
        window = slice(
            w,
            starts=tuple(taps[label].first if label in taps else 0 for label in w_layout),
            stops=tuple(taps[label].last + 1 if label in taps else sizes[label] for label in w_layout),
            steps=tuple(taps[label].step if label in taps else 1 for label in w_layout),
        )
        parts.append(
            convolve(
                framed(x, before, after),
                window,
                x_layout=x_layout,
                w_layout=w_layout,
                out_layout=out_layout,
                strides=(1,) * len(strides),
                dilations=tuple(taps[label].dilation for label in sorted(plans)),
            )
        )
    return interleave(*parts, strides=steps, shape=shape) if len(parts) > 1 else parts[0]


def _of_single_elements(
    x: Node, w: Node, layouts: tuple[str, str, str], dilations: Widths, low: Widths, high: Widths
) -> Node:
    """The multiples of one window for each sample."""
    x_layout, w_layout, out_layout = layouts
    along = {str(k): widths for k, widths in enumerate(zip(dilations, low, high))}
    steps, before, after = zip(*(along.get(label, (1, 0, 0)) for label in w_layout))
    if max(steps) > 1:  # which leaves zeros behind the last element, too
        w, after = dilated(w, steps), tuple(width + 1 - step for width, step in zip(after, steps))
    kept = [k for k, label in enumerate(x_layout) if not label.isdigit()]
    return contract(
        reshape(x, shape=tuple(x.shape[k] for k in kept)),
        framed(w, before, after),
        a_labels=tuple(ord(x_layout[k]) for k in kept),
        b_labels=tuple(map(ord, w_layout)),
        out_labels=tuple(map(ord, out_layout)),
    )


@dataclass(frozen=True)
class _Part:
    """Along one axis, the elements of a transposed convolution at a distance of its stride.

    ``taps`` elements of the reversed window, from ``first`` to ``last`` by ``step``, meet elements of ``x`` that lie
    ``dilation`` apart; ``before`` and ``after`` are the zeros around ``x``, negative where its ends are not met;
    ``extent`` is how many of such elements there are.
    """

    taps: int
    first: int
    last: int
    step: int
    dilation: int
    before: int
    after: int
    extent: int


@dataclass(frozen=True)
class _Transposed:
    """How a transposed convolution is made along one axis: ``extent`` elements in parts at a distance of ``stride``."""

    count: int
    size: int
    stride: int
    dilation: int
    low: int
    high: int

    @property
    def extent(self) -> int:
        """Elements of the result."""
        return (self.count - 1) * self.stride + (self.size - 1) * self.dilation + 1 + self.low + self.high

    def part(self, start: int) -> _Part:
        """The elements ``start + stride * i`` of the result: of ``p * stride + k * dilation == start - low``."""
        common = math.gcd(self.stride, self.dilation)
        step, dilation = self.stride // common, self.dilation // common
        firsts = (
            k
            for k in range(min(step, self.size))
            if (k * self.dilation - start + self.low) % self.stride == 0
        )
        there = range(next(firsts, self.size), self.size, step)
        extent = max(0, -(-(self.extent - start) // self.stride))
        if not there:
            return _Part(0, 0, 0, 1, 1, 0, 0, extent)
        # The element ``i`` meets ``p == i + reach - dilation * j`` with the j-th of these taps.
        reach = (start - self.low - there[0] * self.dilation) // self.stride
        return _Part(
            taps=len(there),
            first=self.size - 1 - there[-1],
            last=self.size - 1 - there[0],
            step=step,
            dilation=dilation if len(there) > 1 else 1,
            before=(len(there) - 1) * dilation - reach,
            after=extent - 1 + reach - (self.count - 1),
            extent=extent,
        )


def _in_many_phases(
    x: Node,
    w: Node,
    *,
    x_layout: str,
    w_layout: str,
    out_layout: str,
    strides: Widths,
    dilations: Widths,
    low: Widths,
    high: Widths,
) -> Node:
    """``transposed_convolve`` as one convolution: the parts of the reversed window are outputs of their own."""
    sizes, counts = dict(zip(w_layout, w.shape)), dict(zip(x_layout, x.shape))
    plans = {
        label: _Phases(counts[label], sizes[label], strides[k], dilations[k], low[k], high[k])
        for k, label in enumerate(spatial(x_layout))
    }
    apart = [plans[label].apart if label in plans else 1 for label in x_layout]
    if max(apart) > 1:
        x = dilated(x, apart)
    before, after = (
        [getattr(plans[label], side) if label in plans else 0 for label in x_layout]
        for side in ("before", "after")
    )
    made: Node = convolve(
        framed(x, before, after),
        _in_phases(w, w_layout, {label: plan.phases for label, plan in plans.items()}),
        x_layout=x_layout,
        w_layout=w_layout,
        out_layout=out_layout,
        strides=(1,) * len(strides),
        dilations=tuple(plan.dilation for plan in plans.values()),
    )
    made = _interleaved(made, out_layout, {label: plan.phases for label, plan in plans.items()})
    starts = tuple(plans[label].start if label in plans else 0 for label in out_layout)
    stops = tuple(
        plans[label].start + plans[label].extent if label in plans else extent
        for label, extent in zip(out_layout, made.shape)
    )
    if any(starts) or stops != made.shape:
        made = slice(made, starts=starts, stops=stops, steps=(1,) * made.ndim)
    return made


class _Phases:
    """How a transposed convolution of many phases is made along one axis.

    ``phases``: how many parts the window falls into; ``apart``: the distance that the elements of ``x`` are
    spread to instead, where the window is spread as well; ``before`` and ``after``: zeros around them;
    ``start`` and ``extent``: what is wanted of the result.
    """

    def __init__(self, count: int, size: int, stride: int, dilation: int, low: int, high: int) -> None:
        self.dilation = dilation if size > 1 else 1
        self.phases = stride if self.dilation == 1 else 1
        self.apart = stride // self.phases
        self.extent = (count - 1) * stride + (size - 1) * self.dilation + 1 + low + high
        first = -low // self.phases
        last = -(-(self.extent - low) // self.phases)
        self.start = -low - first * self.phases
        reach = (-(-size // self.phases) - 1) * self.dilation
        self.before = reach - first
        self.after = last - count * self.apart


def _in_phases(w: Node, layout: str, phases: dict[str, int]) -> Node:
    """The reversed window; its parts, every so many elements of it, are before the outputs on their axis."""
    high = [-extent % phases.get(label, 1) for label, extent in zip(layout, w.shape)]
    w = framed(w, (0,) * w.ndim, high)
    split: list[int] = []
    place: dict[str, int] = {}
    part: dict[str, int] = {}
    for label, extent in zip(layout, w.shape):
        place[label] = len(split)
        if phases.get(label, 1) > 1:
            part[label] = len(split) + 1
            split += [extent // phases[label], phases[label]]
        else:
            split.append(extent)
    turned = tuple(axis for label, axis in sorted(place.items()) if label in phases and split[axis] > 1)
    order = [
        axis
        for label in layout
        for axis in ([*(part[k] for k in sorted(part)), place["o"]] if label == "o" else [place[label]])
    ]
    merged = [split[place[label]] for label in layout]
    merged[layout.index("o")] *= math.prod(split[axis] for axis in part.values())
    if part:
        w = reshape(w, shape=tuple(split))
    if turned:
        w = reverse(w, axes=tuple(sorted(turned)))
    return reshape(transpose(w, axes=tuple(order)), shape=tuple(merged)) if part else w


def _interleaved(y: Node, layout: str, phases: dict[str, int]) -> Node:
    """The outputs of ``_in_phases`` put between each other."""
    several = {label: count for label, count in phases.items() if count > 1}
    if not several:
        return y
    outputs = layout.index("o")
    split = [*y.shape[:outputs], *several.values()]
    split += [y.shape[outputs] // math.prod(several.values()), *y.shape[outputs + 1 :]]
    order: list[int] = []
    for axis, label in enumerate(layout):
        order.append(axis if axis < outputs else axis + len(several))
        if label in several:
            order.append(outputs + list(several).index(label))
    shape = [extent * several.get(label, 1) for label, extent in zip(layout, y.shape)]
    shape[outputs] = split[outputs + len(several)]
    return reshape(transpose(reshape(y, shape=tuple(split)), axes=tuple(order)), shape=tuple(shape))


def _convolve_batch(node: Operation, inputs: Sequence[Node]) -> Node:
    """Examples are samples where only ``x`` differs, outputs where only the window does, and groups where both do."""
    layouts = [node.attributes[key] for key in ("x_layout", "w_layout", "out_layout")]
    (x, *window), (one, *ones) = inputs, node.inputs
    if any_batched(window, ones):
        window = all_batched(window, ones)
    of_x, of_window = is_batched(x, one), any_batched(window, ones)
    if of_x and of_window and "g" not in layouts[0]:
        x_layout, w_layout, out_layout = ("g" + layout for layout in layouts)
        grouped = {"x_layout": x_layout, "w_layout": w_layout, "out_layout": out_layout}
        return node.operator(x, *window, **{**node.attributes, **grouped})
    label = "g" if of_x and of_window else "b" if of_x else "o"
    if of_x:
        x = _merged(x, layouts[0].index(label))
    if of_window:
        window = [_merged(each, layouts[1].index(label)) for each in window]
    axis, size = layouts[2].index(label), batch_size(inputs, node.inputs)
    apart = (*node.shape[:axis], size, *node.shape[axis:])
    return moved(reshape(node.operator(x, *window, **node.attributes), shape=apart), axis, 0)


def _merged(x: Node, axis: int) -> Node:
    """``x`` with its first axis as part of the one that is ``axis`` of an example."""
    shape = x.shape[1:]
    extent = x.shape[0] * shape[axis]
    return reshape(moved(x, 0, axis), shape=(*shape[:axis], extent, *shape[axis + 1 :]))


def _convolve_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    """One sum over channels and window, in the order in which ``x`` lies in memory."""
    x_layout, w_layout, out_layout, strides, dilations = (
        node.attributes[key] for key in ("x_layout", "w_layout", "out_layout", "strides", "dilations")
    )
    sizes = dict(zip(w_layout, node.inputs[1].shape))
    over = {label: Axis(f"r{label}", sizes[label]) for label in x_layout if label == "c" or label.isdigit()}
    if sizes["c"] == 0:
        return Literal(0, node.dtype)
    out = dict(zip(out_layout, index))
    turn: dict[str, Index] = {label: Affine.of(axis) for label, axis in over.items()}

    def place(label: str) -> Index:
        if not label.isdigit():
            return turn[label] if label == "c" else out[label]
        k = int(label)
        return total((times(out[label], strides[k]), times(turn[label], dilations[k])))

    window = [turn[label] if label in turn else out[label] for label in w_layout]
    factors = operands[0]([place(label) for label in x_layout]), operands[1](window)
    product = Apply("multiply", factors, node.dtype)
    for inside in operands[2:]:
        product = Apply("where", (inside(window), product, Literal(0, node.dtype)), node.dtype)
    turning = tuple(axis for axis in over.values() if axis.extent != 1)
    return Reduce("add", turning, product) if turning else product


def vary_convolution(node: Operation) -> Padding:
    """Zeros where what is summed, channels or the window, lies along a named axis.

    The window is one in the cotangent of a window, and channels are there. Where it moves along a named axis, it moves
    by one place at a time. What its zeros make of infinite inputs is not added, see ``_inside_of_window``.
    """
    how = node.attributes
    labels = {how["x_layout"][axis] for axis in named_axes(node.inputs[0])}
    windows = {how["w_layout"][axis] for axis in named_axes(node.inputs[1])} - {"o", "g"}
    for label in labels:
        if label.isdigit() and how["strides"][int(label)] != 1:
            refuse_named(
                node, "moves windows along it by several places", "take windows of each place, then some"
            )
    fill = 0 if windows or "c" in labels else None
    inside = _inside_of_window if windows - {"c"} and node.dtype.kind in "fc" else None
    return Padding((fill, fill, *(None for _ in node.inputs[2:])), instead=inside)


def _inside_of_window(node: Operation, inputs: Sequence[Node], at: AtCapacity) -> Node:
    """A convolution by a window of named extent: where zeros behind its end make NaN, they are left out.

    Zeros times infinite inputs are what makes them, and that is rare: then all is computed again, product by product.
    """
    x, w, *met = inputs
    usual = node.operator(x, w, *met, **node.attributes)
    rare = unlikely(spoilt(usual))
    inside = met[0] if met else filled(True, rare.dtype, w.shape)
    for axis in named_axes(node.inputs[1]):
        place = OPERATORS["iota"](shape=w.shape, axis=axis, dtype=np.dtype(np.int64))
        end = OPERATORS["broadcast"](at.number(node.inputs[1].shape[axis]), shape=w.shape, axes=())
        inside = OPERATORS["logical_and"](inside, OPERATORS["less"](place, end))
    every: Node = OPERATORS["convolve_where_read"](x, w, inside, **node.attributes)
    return rarely(rare, every, usual)


def _case(
    x: tuple[int, ...],
    w: tuple[int, ...],
    layouts: str,
    strides: Widths,
    dilations: Widths | None = None,
    *,
    kind: str = "float",
) -> Case:
    """A case from shapes and layouts written as ``x, w -> result``."""
    x_layout, w_layout, out_layout = layouts.replace("->", ",").split(",")
    return Case(
        (Sample(x, kind=kind), Sample(w, kind=kind)),
        {
            "x_layout": x_layout,
            "w_layout": w_layout,
            "out_layout": out_layout,
            "strides": strides,
            "dilations": dilations or (1,) * len(strides),
        },
    )


convolve = Operator(
    "convolve",
    _convolve_type,
    _convolve_reference,
    _convolve_pullback,
    _convolve_batch,
    _convolve_lower,
    (
        _case((2, 3, 5), (4, 3, 2), "bc0,oc0->bo0", (1,)),
        _case((2, 7, 3), (4, 3, 2), "b0c,oc0->b0o", (2,), (2,)),
        _case((2, 2, 5, 6), (3, 2, 3, 2), "bc01,oc01->bo01", (1, 1)),
        _case((2, 5, 6, 2), (2, 3, 2, 3), "b01c,01co->b01o", (2, 1), (1, 2)),
        _case((2, 2, 2, 5, 4), (2, 3, 2, 2, 2), "bgc01,goc01->bgo01", (2, 1)),
        _case((2, 5, 4, 3, 1), (3, 1, 1, 2, 2), "b01gc,goc01->b01go", (1, 2)),
        _case((1, 2, 3, 4, 3), (2, 2, 2, 1, 2), "bc012,oc012->bo012", (1, 2, 1)),
        _case((1, 1, 3, 3), (1, 1, 1, 1), "bc01,oc01->bo01", (1, 1)),
        _case((1, 1, 8), (2, 1, 3), "bc0,oc0->bo0", (3,)),
        _case((2, 1, 4), (3, 1, 4), "bc0,oc0->bo0", (2,)),
        _case((2, 3), (4, 3), "bc,oc->bo", ()),
        _case((0, 2, 4), (3, 2, 2), "bc0,oc0->bo0", (1,)),
        _case((2, 0, 4), (3, 0, 2), "bc0,oc0->bo0", (1,)),
        _case((2, 2, 4), (3, 2, 2), "bc0,oc0->bo0", (1,), kind="int"),
    ),
    cost=float("inf"),
    rereads=True,
    parts=bilinear,
    vary=vary_convolution,
)
"""``y[b, o, g, p] = sum(x[b, c, g, p * stride + k * dilation] * w[o, c, g, k])`` over ``c`` and ``k``.

A layout names the axes of an array, a letter for each: ``b`` batch, ``c`` the channels that are summed,
``o`` those of the result, ``g`` groups (in all three layouts or in none), and digits for the axes that the
window moves along, whose extents in ``w`` are the window's size. ``strides`` and ``dilations`` are given in
the order of the digits. Along each the result has ``(extent - (size - 1) * dilation - 1) // stride + 1``
elements. Integers, which wrap around, floats and complex numbers.

Raises ``ShapeError`` where channels or groups differ or a window is larger than its input, ``DTypeError``
where dtypes differ.
"""
