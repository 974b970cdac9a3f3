"""Comparisons, logic, bits and questions, none of which has a derivative, and ``where``, which has one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pullback.graph import OPERATORS, Case, Node, Sample
from pullback.loops import rare
from pullback.operators import complex_parts
from pullback.operators.elementwise import SHAPE, elementwise, where

__all__ = [
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "equal",
    "greater",
    "greater_equal",
    "invert",
    "isfinite",
    "isinf",
    "isnan",
    "left_shift",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "rarely",
    "right_shift",
    "spoilt",
    "unlikely",
    "where",
]

PAIR = ((-2.0, 2.0), (-2.0, 2.0))
ONE = PAIR[:1]
BITS = ((-100.0, 100.0), (-100.0, 100.0))
SHIFT = ((-100.0, 100.0), (0.0, 7.0))

equal = elementwise("equal", np.equal, None, PAIR, kinds="biufc", result=bool, parts=complex_parts.equal)
"""Whether ``x == y``."""

not_equal = elementwise(
    "not_equal", np.not_equal, None, PAIR, kinds="biufc", result=bool, parts=complex_parts.not_equal
)
"""Whether ``x != y``; true of NaN."""

less = elementwise("less", np.less, None, PAIR, kinds="biuf", result=bool)
"""Whether ``x < y``."""

less_equal = elementwise("less_equal", np.less_equal, None, PAIR, kinds="biuf", result=bool)
"""Whether ``x <= y``."""

greater = elementwise("greater", np.greater, None, PAIR, kinds="biuf", result=bool)
"""Whether ``x > y``."""

greater_equal = elementwise("greater_equal", np.greater_equal, None, PAIR, kinds="biuf", result=bool)
"""Whether ``x >= y``."""

logical_and = elementwise("logical_and", np.logical_and, None, PAIR, kinds="b")
"""Whether both are true."""

logical_or = elementwise("logical_or", np.logical_or, None, PAIR, kinds="b")
"""Whether one is true."""

logical_xor = elementwise("logical_xor", np.logical_xor, None, PAIR, kinds="b")
"""Whether exactly one is true."""

logical_not = elementwise("logical_not", np.logical_not, None, ONE, kinds="b")
"""Whether it is false."""

unlikely = elementwise(
    "unlikely",
    lambda x: x,
    None,
    ONE,
    kinds="b",
    lower=lambda node, operands, index: rare.unlikely(operands[0](index)),
    cost=0.0,
)
"""The condition itself, which is not expected to hold: what ``where`` takes where it does is computed only then."""

bitwise_and = elementwise("bitwise_and", np.bitwise_and, None, BITS, kinds="iu")
"""The bits that both integers have."""

bitwise_or = elementwise("bitwise_or", np.bitwise_or, None, BITS, kinds="iu")
"""The bits that one of two integers has."""

bitwise_xor = elementwise("bitwise_xor", np.bitwise_xor, None, BITS, kinds="iu")
"""The bits that exactly one of two integers has."""

invert = elementwise("invert", np.invert, None, BITS[:1], kinds="iu")
"""The bits that an integer does not have."""

left_shift = elementwise("left_shift", np.left_shift, None, SHIFT, kinds="iu")
"""``x`` with its bits ``y`` places higher; 0 once ``y`` reaches the number of bits."""

right_shift = elementwise("right_shift", np.right_shift, None, SHIFT, kinds="iu")
"""``x`` with its bits ``y`` places lower, the sign kept; 0 or -1 once ``y`` reaches the number of bits."""

# Far beyond the range of float32, so that some samples are infinite there and some finite.
HUGE = (Case((Sample(SHAPE, -1e39, 1e39),)),)

isnan = elementwise("isnan", np.isnan, None, ONE, kinds="fc", result=bool, parts=complex_parts.isnan)
"""Whether it is NaN."""

isinf = elementwise(
    "isinf", np.isinf, None, ONE, kinds="fc", result=bool, cases=HUGE, parts=complex_parts.isinf
)
"""Whether it is infinite, of either sign."""

isfinite = elementwise(
    "isfinite", np.isfinite, None, ONE, kinds="fc", result=bool, cases=HUGE, parts=complex_parts.isfinite
)
"""Whether it is neither infinite nor NaN."""


def spoilt(x: Node, kept: Sequence[int] = ()) -> Node:
    """For each place of the axes ``kept`` whether ``x`` has there what is not finite, or numbers beyond all measure."""
    total = OPERATORS["sum"](x, axes=tuple(axis for axis in range(x.ndim) if axis not in kept))
    made: Node = OPERATORS["logical_not"](OPERATORS["isfinite"](total))
    return made


def rarely(rare: Node, then: Node, usual: Node) -> Node:
    """``then`` if a condition without axes holds, which is ``unlikely``, and ``usual`` if not."""
    return where(OPERATORS["broadcast"](rare, shape=usual.shape, axes=()), then, usual)
