"""The exact GELU, ``x`` times the probability that a normal number is below ``x``, and its derivatives.

Value and derivative are made of one rational function and one exponential, which are computed once where both are
needed in one place. Nothing cancels: both have their digits far below zero, too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.graph import Operator
from pullback.operators.error_functions import normal_density
from pullback.operators.steps import in_halves, in_own_dtype

__all__ = ["gelu", "gelu_slope"]

DENSITY = 1 / math.sqrt(2 * math.pi)
"""That of a normal number at 0."""

TAIL = (
    (
        0.5,
        0.827944764869227,
        0.6796412646609712,
        0.35737050283835803,
        0.13205909155345602,
        0.03567230075336788,
        0.007123991628026602,
        0.0010399122871520994,
        0.0001065966386395662,
        6.977810437918309e-06,
        2.2425292079335056e-07,
    ),
    (
        1.0,
        2.4537740905413195,
        2.8171109918629456,
        2.0015448471492836,
        0.9801739059831752,
        0.34835146931639666,
        0.09198888997004809,
        0.018123272744986117,
        0.002624164319254585,
        0.00026776026710332446,
        1.7490776938731196e-05,
        5.621187119290703e-07,
    ),
)
"""``e^(x²/2)`` times the probability that a normal number is above ``x``, from 0 to 39: numerator and denominator.

They are minimax, found by repeated linear exchanges as those of ``codegen/vectormath``: 2^-59.9.
"""

SHORT_TAIL = (
    (
        0.5,
        0.43928915,
        0.18397331,
        0.040882513,
        0.0041534295,
    ),
    (
        1.0,
        1.6764632,
        1.2055658,
        0.4714197,
        0.102483384,
        0.0104109915,
    ),
)
"""The same from 0 to 15 for ``float32``: 2^-27.2, the roundings chosen by running the steps over the range."""


def _is_short(x: Any) -> bool:
    return bool(getattr(x, "expression", x).dtype == np.float32)


def _held(m: Any, x: Any) -> Any:
    """The size of ``x``, held where ``e^(-x²/2)`` is 0 anyway."""
    return m.minimum(m.absolute(x), 15.0 if _is_short(x) else 39.0)


def _tail(size: Any) -> Any:
    above, below = SHORT_TAIL if _is_short(size) else TAIL
    square = size * size
    return in_halves(above, size, square) / in_halves(below, size, square)


def _gelu(m: Any, x: Any) -> Any:
    """``max(x, 0) - |x| (1 - ndtr |x|)``, with the sign of ``x``, also of a zero."""
    size = _held(m, x)
    return m.copysign(m.relu(x) - (size * _tail(size)) * m.half_bell(x), x)


def _gelu_slope(m: Any, x: Any) -> Any:
    """``1 - ndtr |x| - |x| e^(-x²/2) / √(2π)`` below 0, and one less that from there on."""
    size = _held(m, x)
    falling = (_tail(size) - DENSITY * size) * m.half_bell(x)
    return m.where(x < 0.0, falling, 1.0 - falling)


gelu = in_own_dtype("gelu", _gelu, [lambda g, y, x: g * gelu_slope(x)], [(-2.0, 2.0)], 36.0)
"""``x`` times the probability that a normal number is below ``x``."""

gelu_slope: Operator = in_own_dtype(
    "gelu_slope", _gelu_slope, [lambda g, y, x: g * (normal_density(x) * (2 - x * x))], [(-2.0, 2.0)], 36.0
)
"""The derivative of ``gelu``."""
