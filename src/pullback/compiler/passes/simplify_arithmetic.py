"""Arithmetic that changes nothing is left away, and some is done with fewer operations.

Every rule here is exact, to the sign of zero and for infinities and NaN (whose bits mean nothing):
``x - 0.0`` is ``x``, but ``x + 0.0`` is not where ``x`` is ``-0.0``, and ``x * 0`` is 0 only for integers. A
small power is the product that rounds once, which the power of a mathematics library may miss by one unit.

>>> import numpy as np
>>> import pullback.numpy as pnp
>>> from pullback.graph import Graph, Type, Variable, format_graph
>>> x = Variable(Type(np.dtype(np.float32), (3,)), "x")
>>> y = Variable(Type(np.dtype(np.float32), (3,)), "y")
>>> graph = Graph((x, y), (-x * 1 + y / 4,))
>>> print(format_graph(graph, sources=False))
input  %0 x: float32[3]
input  %1 y: float32[3]
%2 = negative(%0): float32[3]
%3 = constant 1.0: float32[]
%4 = broadcast(%3, axes=(), shape=(3,)): float32[3]
%5 = multiply(%2, %4): float32[3]
%6 = constant 4.0: float32[]
%7 = broadcast(%6, axes=(), shape=(3,)): float32[3]
%8 = divide(%1, %7): float32[3]
%9 = add(%5, %8): float32[3]
output %9
>>> print(format_graph(simplify_arithmetic(graph), sources=False))
input  %0 x: float32[3]
input  %1 y: float32[3]
%2 = constant 0.25: float32[]
%3 = broadcast(%2, axes=(), shape=(3,)): float32[3]
%4 = multiply(%1, %3): float32[3]
%5 = subtract(%4, %0): float32[3]
output %5
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from pullback.compiler.passes.rewriting import Rule, RulePass, filled, inner, scalar
from pullback.graph import Node, Operation
from pullback.operators.arithmetic import absolute, add, cast, divide, multiply, negative, subtract
from pullback.operators.logic import equal, not_equal, where

__all__ = ["simplify_arithmetic"]


def _is(value: np.ndarray | None, number: float) -> bool:
    """Whether a constant is ``number``, in floats the sign of zero included."""
    return (
        value is not None
        and value.dtype.kind != "b"
        and bool(value == number)
        and (value.dtype.kind != "f" or bool(np.signbit(value)) == (math.copysign(1, number) < 0))
    )


def _negated(node: Node) -> Node | None:
    """``x`` where ``node`` is ``-x``."""
    found = inner(node, "negative")
    return None if found is None else found.inputs[0]


def _constant_second(node: Operation) -> Node | None:
    x, y = node.inputs
    return node.operator(y, x) if scalar(x) is not None and scalar(y) is None else None


def _add(node: Operation) -> Node | None:
    x, y = node.inputs
    if _is(scalar(y), -0.0):
        return x
    if (b := _negated(y)) is not None:
        return subtract(x, b)
    if (a := _negated(x)) is not None:
        return subtract(y, a)
    return _scaled(x, 2.0) if x is y else None


def _scaled(x: Node, factor: float) -> Node | None:
    """A constant operand of ``x`` times a power of two, and with it the whole: ``(1 - y) * 2`` is ``2 - y * 2``.

    What is rounded is the same number but for its exponent; and no product of a whole number and no difference from a
    number that is neither tiny nor huge is rounded because it is subnormal, or is finite where its double overflows.
    """
    if (
        x.dtype.kind != "f"
        or not isinstance(x, Operation)
        or x.operator.name not in ("add", "subtract", "multiply")
    ):
        return None
    limits = np.finfo(x.dtype)
    smallest, largest = float(limits.tiny), float(limits.max) / factor
    rounded = 2.0 ** (limits.nmant + 4)
    for first, (operand, other) in enumerate(zip(x.inputs, reversed(x.inputs))):
        value = scalar(operand)
        if value is None or not np.isfinite(value):
            continue
        size = abs(float(value))
        if x.operator.name == "multiply":
            exact = size == round(size) and size < largest
            return multiply(other, filled(factor * float(value), operand)) if exact else None
        if inner(other, "multiply") is not None:  # it is one instruction with the sum as it is
            return None
        if size == 0 or smallest * rounded <= size <= largest / rounded:
            pair = filled(factor * float(value), operand), multiply(other, filled(factor, other))
            return x.operator(*(pair if first == 0 else reversed(pair)))
    return None


def _subtract(node: Operation) -> Node | None:
    x, y = node.inputs
    if _is(scalar(y), 0.0):
        return x
    if _is(scalar(x), -0.0):
        return negative(y)
    if (b := _negated(y)) is not None:
        return add(x, b)
    if x.dtype.kind == "f" and _negated(x) is y:
        return multiply(y, filled(-2.0, y))
    return None


def _by_one(node: Operation) -> Node | None:
    """Of a product or quotient by 1 or -1."""
    x, y = node.inputs
    value = scalar(y)
    if _is(value, 1):
        return x
    return negative(x) if _is(value, -1) else None


def _multiply(node: Operation) -> Node | None:
    x, y = node.inputs
    value = scalar(y)
    if y.dtype.kind in "iu" and _is(value, 0):
        return y
    if value is not None and x.dtype.kind == "f" and value > 1 and _has_exact_reciprocal(value):
        return _scaled(x, float(value))
    return None


def _divide(node: Operation) -> Node | None:
    x, y = node.inputs
    value = scalar(y)
    if value is not None and _has_exact_reciprocal(value):
        return multiply(x, filled(1 / value, y))
    return None


def _has_exact_reciprocal(value: np.ndarray) -> bool:
    """Whether it is a power of two whose reciprocal is a normal number: no product with that is rounded."""
    fraction, _ = np.frexp(np.abs(value))
    smallest = np.finfo(value.dtype).smallest_normal
    return bool(fraction == 0.5) and bool(smallest <= np.abs(value) <= 1 / smallest)


def _signs(node: Operation) -> Node | None:
    """Of a product or quotient: two negations cancel, and one goes into a constant."""
    x, y = node.inputs
    a = _negated(x)
    if a is None:
        return None
    if (b := _negated(y)) is not None:
        return node.operator(a, b)
    value = scalar(y)
    return None if value is None else node.operator(a, filled(-value, y))


def _negative(node: Operation) -> Node | None:
    # A negation does not go into a product: that may have other users, and two of them differ by their rounding.
    # One by a power of two is not rounded.
    (x,) = node.inputs
    if x.dtype.kind == "f" and (product := inner(x, "multiply")) is not None:
        value = scalar(product.inputs[1])
        if value is not None and _has_exact_reciprocal(value):
            return multiply(product.inputs[0], filled(-value, x))
    return _negated(x)


def _absolute(node: Operation) -> Node | None:
    (x,) = node.inputs
    if x.dtype.kind == "u" or inner(x, "absolute") is not None:
        return x
    return None if (a := _negated(x)) is None else absolute(a)


def _power(node: Operation) -> Node | None:
    """Small exponents. ``x ** 0.5`` is no square root: the power of ``-inf`` is ``inf``, of ``-0.0`` 0."""
    x, y = node.inputs
    value = scalar(y)
    if _is(value, 1):
        return x
    if _is(value, 2):
        return multiply(x, x)
    if _is(value, -1) and x.dtype.kind == "f":
        return divide(filled(1, x), x)
    if value is not None and not value:
        return filled(1, x)
    return None


def _equal_operands(node: Operation) -> Node | None:
    x, y = node.inputs
    return x if x is y else None


def _extreme(node: Operation, least: bool) -> Node | None:
    """Of two equal operands, or of one and the bound of its dtype, the first is the result."""
    x, y = node.inputs
    if _is_bound(scalar(x), least):
        return y
    return x if x is y or _is_bound(scalar(y), least) else None


def _is_bound(value: np.ndarray | None, least: bool) -> bool:
    """Whether a constant is the least value of its dtype, or else the greatest."""
    if value is None or value.dtype.kind == "b":
        return False
    if value.dtype.kind == "f":
        return bool(value == (-np.inf if least else np.inf))
    limits = np.iinfo(value.dtype)
    return bool(value == (limits.min if least else limits.max))


def _where(node: Operation) -> Node | None:
    mask, x, y = node.inputs
    if x is y:
        return x
    if (known := scalar(mask)) is not None:
        return x if known else y
    if (opposite := inner(mask, "logical_not")) is not None:
        return where(opposite.inputs[0], y, x)
    if (under := inner(x, "where")) is not None and under.inputs[0] is mask:
        return where(mask, under.inputs[1], y)
    if (under := inner(y, "where")) is not None and under.inputs[0] is mask:
        return where(mask, x, under.inputs[2])
    return None


def _logical_not(node: Operation) -> Node | None:
    (x,) = node.inputs
    for name, opposite in (("equal", not_equal), ("not_equal", equal)):
        if (found := inner(x, name)) is not None:
            return opposite(*found.inputs)
    found = inner(x, "logical_not")
    return None if found is None else found.inputs[0]


def _cast(node: Operation) -> Node | None:
    (x,) = node.inputs
    if x.dtype == node.dtype:
        return x
    first = inner(x, "cast")
    if first is None:
        return None
    source = first.inputs[0]
    kept = _keeps(source.dtype, x.dtype) and (
        # Beyond its range an integer wraps around, and a float becomes its end.
        node.dtype.kind in "bf" or x.dtype.kind in "iu" or _keeps(source.dtype, node.dtype)
    )
    return cast(source, dtype=node.dtype) if kept else None


def _keeps(source: np.dtype, target: np.dtype) -> bool:
    """Whether ``target`` has every value of ``source``; of long integers NumPy thinks so of ``float64``, too."""
    rounded = source.itemsize == 8 and source.kind in "iu" and target.kind == "f"
    return np.can_cast(source, target) and not rounded


_RULES: dict[str, tuple[Rule, ...]] = {
    "add": (_constant_second, _add),
    "subtract": (_subtract,),
    "multiply": (_constant_second, _by_one, _multiply, _signs),
    "divide": (_by_one, _divide, _signs),
    "negative": (_negative,),
    "absolute": (_absolute,),
    "power": (_power,),
    "maximum": (partial(_extreme, least=True),),
    "minimum": (partial(_extreme, least=False),),
    "logical_and": (_equal_operands,),
    "logical_or": (_equal_operands,),
    "logical_not": (_logical_not,),
    "where": (_where,),
    "cast": (_cast,),
    "stop_gradient": (lambda node: node.inputs[0],),
}

simplify_arithmetic = RulePass("simplify_arithmetic", _RULES)
"""Arithmetic in fewer operations, exactly."""
