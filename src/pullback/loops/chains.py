"""Reductions written out as chains of their function."""

from __future__ import annotations

import functools
import itertools

from pullback.loops.expression import Apply, Expression, Literal, Reduce
from pullback.loops.index import Affine
from pullback.loops.kernel import rewrite
from pullback.loops.multiply_add import fused

__all__ = ["CHAINED", "chained"]

CHAINED = frozenset({"add", "multiply", "maximum", "minimum"})
"""Reductions that repeat the function of two numbers of the same name."""


def chained(reduce: Reduce) -> Expression:
    """A sum and the like as a chain of its function, in order; products are added unrounded, as in a loop.

    >>> import numpy as np
    >>> from pullback.loops import Axis, Buffer, Load
    >>> k, x = Axis("k", 2), Buffer("x", np.dtype(np.float32), (2,))
    >>> value = Load(x, Affine.of(k))
    >>> chained(Reduce("maximum", (k,), value, value.dtype))
    maximum(x[0], x[1])
    """
    terms: list[Expression] = []
    if reduce.kind == "add":  # it begins with zero: that of negative zeros is zero
        terms.append(Literal(0, reduce.dtype))
    for turns in itertools.product(*(range(axis.extent) for axis in reduce.over)):
        place = {axis: Affine() + turn for axis, turn in zip(reduce.over, turns)}
        terms.append(rewrite(reduce.body, place))
    return functools.reduce(lambda x, y: fused(Apply(reduce.kind, (x, y), reduce.dtype)), terms)
