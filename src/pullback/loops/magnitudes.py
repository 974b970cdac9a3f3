"""How large the numbers are that a program computes: what is known of them whatever its arguments hold.

An image of bytes times a constant, for one, is finite; of an argument of floats nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pullback.loops.expression import Apply, Buffer, Expression, Literal, Load, Reduce
from pullback.loops.index import turns_of
from pullback.loops.kernel import Store

__all__ = ["largest"]


def largest(value: Expression, stored: Mapping[Buffer, Sequence[Store]]) -> float:
    """A bound of the magnitude of ``value``; infinity where it may be infinite or NaN.

    ``stored`` is all that is stored into each buffer that is no argument.

    >>> from pullback.loops import Affine, Axis
    >>> i, float32 = Axis("i", 4), np.dtype(np.float32)
    >>> bytes_, x, y = (Buffer(name, np.dtype(kind), (4,)) for name, kind in (("b", "u1"), ("x", "f4"), ("y", "f4")))
    >>> pixel = Apply("cast", (Load(bytes_, Affine.of(i)),), float32)
    >>> stores = {x: [Store(x, Affine.of(i), Apply("multiply", (pixel, Literal(0.5, float32)), float32))]}
    >>> round(largest(Load(x, Affine.of(i)), stores), 3), largest(Load(y, Affine.of(i)), stores)
    (127.5, inf)
    """
    found: dict[Expression, float] = {}
    entered = set[Expression]()
    stack = [value]
    while stack:  # without recursion: what is stored may be made of any number of other buffers
        part = stack[-1]
        needed = _made_of(part, stored)
        missing = [e for e in needed if e not in found]
        if missing and part not in entered:
            entered.add(part)
            stack += missing
            continue
        stack.pop()
        # What a buffer is made of itself is missing still.
        found[part] = _own(part, [found.get(e, math.inf) for e in needed])
    return found[value]


def _made_of(value: Expression, stored: Mapping[Buffer, Sequence[Store]]) -> Sequence[Expression]:
    """The expressions whose magnitudes say something of that of ``value``."""
    if value.dtype.kind != "f":
        return ()
    if isinstance(value, Load):
        stores = stored.get(value.buffer, ())
        return [] if any(store.accumulate for store in stores) else [store.value for store in stores]
    return value.operands[1:] if isinstance(value, Apply) and value.function == "where" else value.operands


def _own(value: Expression, operands: Sequence[float]) -> float:
    """The magnitude of ``value`` from those of what it is made of."""
    if value.dtype.kind == "b":
        return 1.0
    if value.dtype.kind in "iu":  # sums wrap around
        return float(max(-int(np.iinfo(value.dtype).min), int(np.iinfo(value.dtype).max)))
    if value.dtype.kind != "f":
        return math.inf
    if isinstance(value, Literal):
        magnitude = abs(float(value.value))
    elif not operands or not all(map(math.isfinite, operands)):
        return math.inf
    elif isinstance(value, Apply):
        magnitude = _APPLIED.get(value.function, _unknown)(*operands)
    elif isinstance(value, Reduce):
        magnitude = _reduced(value, *operands)
    else:
        magnitude = max(operands)
    limits = np.finfo(value.dtype)
    magnitude *= 1 + float(limits.eps)
    return magnitude if magnitude <= float(limits.max) else math.inf


def _unknown(*operands: float) -> float:
    return math.inf


def _reduced(value: Reduce, body: float) -> float:
    terms = turns_of(value.over)
    if value.kind in ("maximum", "minimum"):
        return body if terms else math.inf
    eps = float(np.finfo(value.dtype).eps)
    return body * terms * math.exp(min(terms * eps, 500.0)) if value.kind == "add" else math.inf


_APPLIED: dict[str, Callable[..., float]] = {
    **dict.fromkeys(("add", "subtract"), lambda x, y: x + y),
    "multiply": lambda x, y: x * y,
    **dict.fromkeys(("maximum", "minimum", "where"), max),
    **dict.fromkeys(("cast", "negative", "absolute", "relu", "rounded", "stop_gradient"), lambda x: x),
    **dict.fromkeys(("tanh", "sigmoid", "sin", "cos", "bell", "half_bell", "decay", "rise"), lambda x: 1.0),
}
"""Bounds of functions of floats, all of whose operands are finite."""
