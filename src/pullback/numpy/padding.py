"""``pad`` in all of NumPy's modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.errors import ShapeError, TracingError
from pullback.graph import OPERATORS, Node
from pullback.numpy import elementwise as e
from pullback.numpy import reductions as r
from pullback.numpy.dispatch import implements
from pullback.numpy.promotion import any_traced, as_array_node, broadcast_to_shape, cast, where_written
from pullback.numpy.quantiles import median
from pullback.numpy.ranges import linspace
from pullback.numpy.shapes import flip, joined, part, take_rows

__all__ = ["pad"]

STATISTICS: dict[str, Callable[..., Any]] = {
    "maximum": r.max,
    "minimum": r.min,
    "mean": r.mean,
    "median": median,
}


@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **how: Any) -> Any:
    """An array with more elements around it: ``pad_width`` is one width, a pair (before, after), or pairs.

    ``mode`` is one of NumPy's: ``"constant"`` with ``constant_values``, ``"edge"``, ``"linear_ramp"`` with
    ``end_values``, ``"maximum"``, ``"minimum"``, ``"mean"``, ``"median"`` with ``stat_length``, ``"reflect"`` and
    ``"symmetric"`` with ``reflect_type``, ``"wrap"``, ``"empty"`` (zeros).

    >>> import numpy as np
    >>> print(pad(np.array([1, 2]), (1, 2)))
    [0 1 2 0 0]
    """
    x = as_array_node(array)
    pairs = _pairs("pad", pad_width, x.ndim)
    widths = [(int(low), int(high)) for low, high in pairs]
    if any(n < 0 for pair in widths for n in pair):
        raise ShapeError(f"pad: widths {pad_width} are negative; slice the array instead{where_written()}")
    known = _MODES.get(mode) if isinstance(mode, str) else None
    if known is None or set(how) - {known[1]}:
        raise TracingError(
            f"pad in mode {mode!r} with {sorted(how)}: on a traced value it is one of {', '.join(_MODES)}, with the "
            f"keyword of its own; concatenate the pieces{where_written()}"
        )
    for axis, pair in enumerate(widths):
        if mode not in ("constant", "empty") and not x.shape[axis] and any(pair):
            raise ShapeError(
                f"pad in mode {mode!r}: axis {axis} of shape {x.shape} has no elements to go on from; pad it with "
                f"zeros, in mode 'constant'{where_written()}"
            )
    return known[0](x, widths, how.get(known[1]))


def _pairs(name: str, given: Any, rank: int) -> list[tuple[Any, Any]]:
    """One value, a pair or pairs as a pair for each axis; values may be traced."""
    if isinstance(given, dict):
        full: list[tuple[Any, Any]] = [(0, 0)] * rank
        for axis, width in given.items():
            full[axis] = (width, width) if np.ndim(width) == 0 else tuple(width)
        return full
    if not any_traced(given):
        try:
            return [tuple(pair) for pair in np.broadcast_to(np.asarray(given), (rank, 2)).tolist()]
        except ValueError:
            raise ShapeError(
                f"{name}: {given} for {rank} axes; give a pair for each axis{where_written()}"
            ) from None
    if isinstance(given, Node):
        return [(given, given)] * rank if not given.ndim else _pairs(name, list(given), rank)
    entries = list(given)
    if not any(isinstance(each, (list, tuple)) for each in entries):
        return [(entries[0], entries[-1])] * rank
    entries = entries * rank if len(entries) == 1 else entries
    return [(pair[0], pair[-1]) for pair in entries]


def _constant(x: Node, widths: list[tuple[int, int]], values: Any) -> Node:
    low, high = (tuple(pair[side] for pair in widths) for side in (0, 1))
    if not any(low) and not any(high):
        return x
    if not any_traced(values) and (values is None or not np.any(values)):
        return OPERATORS["pad"](x, low=low, high=high)
    if np.ndim(values) == 0 and not isinstance(values, (list, tuple)):
        inside = OPERATORS["pad"](broadcast_to_shape(as_array_node(np.True_), x.shape), low=low, high=high)
        padded = OPERATORS["pad"](x, low=low, high=high)
        return e.where(inside, padded, cast(as_array_node(values), x.dtype))  # type: ignore[no-any-return]
    for axis, (pair, ends) in enumerate(zip(widths, _pairs("pad", values, x.ndim))):
        sides = [cast(as_array_node(end), x.dtype) for end in ends]
        x = _joined(x, axis, [broadcast_to_shape(v, _shape(x, axis, n)) for v, n in zip(sides, pair)])
    return x


def _shape(x: Node, axis: int, extent: int) -> tuple[int, ...]:
    return (*x.shape[:axis], extent, *x.shape[axis + 1 :])


def _joined(x: Node, axis: int, sides: list[Node]) -> Node:
    return joined([piece for piece in (sides[0], x, sides[1]) if piece.shape[axis] or piece is x], axis)


def _ramp(x: Node, widths: list[tuple[int, int]], values: Any) -> Node:
    for axis, (pair, ends) in enumerate(zip(widths, _pairs("pad", 0 if values is None else values, x.ndim))):
        sides = []
        for side, (count, end) in enumerate(zip(pair, ends)):
            place = x.shape[axis] - 1 if side else 0
            edge = part(x, axis, place, place + 1)
            lines = _along(linspace(end, edge, count, endpoint=False, dtype=x.dtype), axis)
            sides.append(flip(lines, axis) if side else lines)
        x = _joined(x, axis, sides)
    return x


def _along(lines: Node, axis: int) -> Node:
    """``lines`` with its first axis in the place of ``axis``, which has extent one behind it."""
    order = [k + 1 for k in range(lines.ndim - 1)]
    order[axis] = 0
    moved = OPERATORS["transpose"](lines, axes=(*order, axis + 1))
    return OPERATORS["reshape"](moved, shape=moved.shape[:-1])


def _statistic(name: str) -> Callable[..., Node]:
    def padded(x: Node, widths: list[tuple[int, int]], lengths: Any) -> Node:
        for axis, pair in enumerate(widths):
            extent = x.shape[axis]
            own = (None, None) if lengths is None else _pairs("pad", lengths, x.ndim)[axis]
            sides = []
            for side, (count, length) in enumerate(zip(pair, own)):
                kept = extent if length is None else min(int(length), extent)
                region = part(x, axis, extent - kept if side else 0, extent if side else kept)
                value = STATISTICS[name](region, axis, keepdims=True)
                value = e.rint(value) if x.dtype.kind in "iu" and value.dtype.kind == "f" else value
                sides.append(broadcast_to_shape(cast(value, x.dtype), _shape(x, axis, count)))
            x = _joined(x, axis, sides)
        return x

    return padded


def _places(mode: str) -> Callable[..., Node]:
    """Modes of which each new element is one of the old: NumPy tells which."""

    def padded(x: Node, widths: list[tuple[int, int]], _: Any) -> Node:
        for axis, pair in enumerate(widths):
            if any(pair):
                x = take_rows(x, np.pad(np.arange(x.shape[axis]), pair, mode=mode), axis)  # type: ignore[call-overload]
        return x

    return padded


def _mirrored(mode: str) -> Callable[..., Node]:
    plain = _places(mode)

    def padded(x: Node, widths: list[tuple[int, int]], kind: Any) -> Node:
        if kind not in (None, "even", "odd"):
            raise TracingError(f"pad: reflect_type {kind!r} is neither 'even' nor 'odd'{where_written()}")
        if kind != "odd":
            return plain(x, widths, None)
        for axis, pair in enumerate(widths):
            if any(pair):
                # Odd reflection is linear: NumPy's own of unit vectors tells the share of each element.
                shares = np.pad(np.eye(x.shape[axis]), ((0, 0), pair), mode=mode, reflect_type="odd")  # type: ignore[call-overload]
                made = OPERATORS["contract"](
                    x,
                    as_array_node(shares.astype(x.dtype)),
                    a_labels=tuple(range(x.ndim)),
                    b_labels=(axis, x.ndim),
                    out_labels=tuple([x.ndim if k == axis else k for k in range(x.ndim)]),
                )
                x = made
        return x

    return padded


def _empty(x: Node, widths: list[tuple[int, int]], _: Any) -> Node:
    return _constant(x, widths, None)


_MODES: dict[str, tuple[Callable[..., Node], str]] = {
    "constant": (_constant, "constant_values"),
    "edge": (_places("edge"), ""),
    "linear_ramp": (_ramp, "end_values"),
    **{name: (_statistic(name), "stat_length") for name in STATISTICS},
    "reflect": (_mirrored("reflect"), "reflect_type"),
    "symmetric": (_mirrored("symmetric"), "reflect_type"),
    "wrap": (_places("wrap"), ""),
    "empty": (_empty, ""),
}
"""Each mode and the keyword of its own."""
