"""Floats of 16 bits as they lie in memory: their bits, of which the compiler makes numbers of 32 and back.

No graph of the user's holds these operators: ``compiler/legalise/parts.py`` writes them around the operations on
``float16`` and ``bfloat16``, so that kernels read and write 16 bits and compute with 32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.errors import DTypeError
from pullback.graph import Case, Operation, Operator, Sample, Type
from pullback.loops import Apply, Expression, Index, Literal, Operand
from pullback.loops.functions import FUNCTIONS
from pullback.operators.batching import batch_first
from pullback.operators.elementwise import SHAPE

__all__ = ["half_bits", "half_value"]

_BITS, _FLOAT = np.dtype(np.uint16), np.dtype(np.float32)
_WORD, _BOOL = np.dtype(np.uint32), np.dtype(np.bool_)
_KINDS = ("float16", "bfloat16")


def _bits_type(x: Type, kind: str) -> Type:
    wide = kind == "float16" and x.dtype == np.float64
    if kind not in _KINDS or not (x.dtype == _FLOAT or wide):
        raise DTypeError(f"half_bits: {x} as {kind}; take float32")
    return Type(_BITS, x.shape)


def _value_type(x: Type, kind: str) -> Type:
    if kind not in _KINDS or x.dtype != _BITS:
        raise DTypeError(f"half_value: {x} as {kind}; take uint16")
    return Type(_FLOAT, x.shape)


def _bits_reference(x: Any, kind: str = "float16") -> Any:
    if kind == "float16":
        return FUNCTIONS["half_bits"](x)
    bits = np.asarray(x).view(np.uint32)
    # Half of the last place that is kept is added, less one bit where that is even: to nearest, ties to even.
    near = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(x), bits >> 16 & 0x8000 | 0x7FC0, near).astype(np.uint16)


def _value_reference(x: Any, kind: str = "float16") -> Any:
    if kind == "float16":
        return FUNCTIONS["half_value"](x)
    return (np.asarray(x).astype(np.uint32) << 16).view(np.float32)


def _on_words(name: str, x: Expression, y: int | Expression) -> Expression:
    return Apply(name, (x, Literal(y, _WORD) if isinstance(y, int) else y), _WORD)


def _bits_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    x = operands[0](index)
    if node.attributes["kind"] == "float16":
        return Apply("half_bits", (x,), _BITS)
    bits = Apply("bitcast", (x,), _WORD, (("dtype", _WORD),))
    odd = _on_words("bitwise_and", _on_words("right_shift", bits, 16), 1)
    near = _on_words("right_shift", _on_words("add", _on_words("add", bits, 0x7FFF), odd), 16)
    sign = _on_words("bitwise_and", _on_words("right_shift", bits, 16), 0x8000)
    nan = Apply("isnan", (x,), _BOOL)
    found = Apply("where", (nan, _on_words("bitwise_or", sign, 0x7FC0), near), _WORD)
    return Apply("cast", (found,), _BITS)


def _value_lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
    x = operands[0](index)
    if node.attributes["kind"] == "float16":
        return Apply("half_value", (x,), _FLOAT)
    high = _on_words("left_shift", Apply("cast", (x,), _WORD), 16)
    return Apply("bitcast", (high,), _FLOAT, (("dtype", _FLOAT),))


half_bits = Operator(
    "half_bits",
    _bits_type,
    _bits_reference,
    None,
    batch_first,
    _bits_lower,
    tuple(
        Case((Sample(SHAPE, low, high),), {"kind": kind})
        for kind in _KINDS
        for low, high in ((-2, 2), (1e-8, 1e-4))
    ),
    cost=4.0,
    elementwise=True,
)
"""The bits, as ``uint16``, of the number of ``kind`` nearest to ``x``; of two the even one.

From the largest number and half a step on it is infinity, and NaN stays NaN with its sign. ``float16`` is made of
``float64`` in one rounding, ``bfloat16`` of ``float32`` alone.
"""

half_value = Operator(
    "half_value",
    _value_type,
    _value_reference,
    None,
    batch_first,
    _value_lower,
    tuple(Case((Sample(SHAPE, 0, 0x7C00, kind="int"),), {"kind": kind}) for kind in _KINDS),
    cost=2.0,
    elementwise=True,
)
"""The number of ``kind`` with the bits ``x``, which are of ``uint16``, as ``float32``: exact."""
