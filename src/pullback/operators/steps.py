"""Functions written once, in double precision mostly: as arithmetic of NumPy's arrays, and as expressions of the
loop vocabulary.

A body is a function of ``m``, which has NumPy's functions and those of the loop vocabulary, and of values that
Python's operators act on. Given ``NUMBERS`` and arrays it computes, and is the operator's reference; given ``STEPS``
and values it gives the expression that is compiled.

>>> import numpy as np
>>> from pullback.loops import Placeholder
>>> def body(m, x):
...     return m.where(x > 0, m.sqrt(x), 0.0)
>>> float(body(NUMBERS, np.array(4.0)))
2.0
>>> body(STEPS, Value(Placeholder("x", (), np.dtype(np.float64)))).expression.function
'where'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from pullback.graph import Case, Operation, Operator, Sample, Type
from pullback.loops import Apply, Expression, Index, Literal, Operand, fused
from pullback.loops.functions import FUNCTIONS
from pullback.operators.batching import batch_first
from pullback.operators.elementwise import elementwise, elementwise_type, inside_masks, is_constant

__all__ = [
    "NUMBERS",
    "STEPS",
    "Body",
    "Value",
    "horner",
    "in_doubles",
    "in_halves",
    "in_own_dtype",
    "lower_in_steps",
]

_DOUBLE, _BOOL = np.dtype(np.float64), np.dtype(np.bool_)


class Value:
    """An expression of floats, or of bools, with Python's operators; numbers of Python take the dtype of the others."""

    __slots__ = ("expression",)

    def __init__(self, expression: Expression) -> None:
        self.expression = expression

    def __add__(self, other: Any) -> Value:
        return _of("add", self, other)

    def __radd__(self, other: Any) -> Value:
        return _of("add", other, self)

    def __sub__(self, other: Any) -> Value:
        return _of("subtract", self, other)

    def __rsub__(self, other: Any) -> Value:
        return _of("subtract", other, self)

    def __mul__(self, other: Any) -> Value:
        return _of("multiply", self, other)

    def __rmul__(self, other: Any) -> Value:
        return _of("multiply", other, self)

    def __truediv__(self, other: Any) -> Value:
        return _of("divide", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return _of("divide", other, self)

    def __neg__(self) -> Value:
        return _of("negative", self)

    def __lt__(self, other: Any) -> Value:
        return _of("less", self, other, dtype=_BOOL)

    def __le__(self, other: Any) -> Value:
        return _of("less_equal", self, other, dtype=_BOOL)

    def __gt__(self, other: Any) -> Value:
        return _of("greater", self, other, dtype=_BOOL)

    def __ge__(self, other: Any) -> Value:
        return _of("greater_equal", self, other, dtype=_BOOL)

    def __eq__(self, other: Any) -> Value:  # type: ignore[override]
        return _of("equal", self, other, dtype=_BOOL)

    __hash__ = object.__hash__

    def __and__(self, other: Value) -> Value:
        return _of("logical_and", self, other, dtype=_BOOL)

    def __or__(self, other: Value) -> Value:
        return _of("logical_or", self, other, dtype=_BOOL)


def _of(function: str, *operands: Any, dtype: np.dtype | None = None) -> Value:
    kinds = [x.expression.dtype for x in operands if isinstance(x, Value)]
    kind = next((kind for kind in kinds if kind != _BOOL), _DOUBLE)
    parts = [x.expression if isinstance(x, Value) else Literal(x, kind) for x in operands]
    return Value(fused(Apply(function, parts, dtype or kind)))


class _Numbers:
    """NumPy's functions and what else is in the loop vocabulary, of arrays."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] | None = getattr(np, name, None) or FUNCTIONS.get(name)
        if function is None:
            raise AttributeError(name)
        return function


class _Steps:
    """The same functions, of values."""

    def __getattr__(self, name: str) -> Callable[..., Value]:
        return lambda *operands: _of(name, *operands)


NUMBERS, STEPS = _Numbers(), _Steps()

Body = Callable[..., Any]


def horner(coefficients: Sequence[float], x: Any) -> Any:
    """The polynomial with these coefficients, the lowest first."""
    total: Any = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


def in_halves(coefficients: Sequence[float], x: Any, square: Any) -> Any:
    """The same by even and odd powers, polynomials of ``square``: fewer steps wait for each other, and fewer round."""
    return horner(coefficients[0::2], square) + x * horner(coefficients[1::2], square)


def _reference(body: Body) -> Callable[..., Any]:
    def reference(*arrays: Any, **attributes: Any) -> Any:
        inputs = [np.asarray(array) for array in arrays]
        with np.errstate(all="ignore"):
            made = body(NUMBERS, *(x.astype(np.float64) for x in inputs), **attributes)
            return np.asarray(made).astype(inputs[0].dtype)

    return reference


def lower_in_steps(body: Body, wide: bool = True) -> Callable[..., Expression]:
    """A lowering by ``body``, in double precision if ``wide``."""

    def lower(node: Operation, operands: Sequence[Operand], index: Sequence[Index]) -> Expression:
        given = [operand(index) for operand in operands]
        if wide:
            given = [x if x.dtype == _DOUBLE else Apply("cast", (x,), _DOUBLE) for x in given]
        made: Expression = body(STEPS, *map(Value, given), **node.attributes).expression
        return made if made.dtype == node.dtype else Apply("cast", (made,), node.dtype)

    return lower


def _contribution(rule: Any, node: Operation, g: Any) -> Any:
    return rule(g, node, *node.inputs)


def in_own_dtype(
    name: str, body: Body, rules: Sequence[Any] | None, domains: Sequence[tuple[float, float]], cost: float
) -> Operator:
    """The elementwise operator whose value is ``body(m, *inputs)``, compiled in the dtype of its inputs.

    Uncompiled it is computed in double precision, as there are no fused steps.
    """
    return elementwise(
        name, _reference(body), rules, domains, cost=cost, lower=lower_in_steps(body, wide=False)
    )


def in_doubles(
    name: str,
    body: Body,
    rules: Sequence[Any] | None,
    domains: Sequence[tuple[float, float]],
    cost: float,
    settings: Sequence[dict[str, Any]] = (),
    differentiable: tuple[int, ...] | None = None,
) -> Operator:
    """The elementwise operator whose value is ``body(m, *inputs)``, computed in double precision whatever the dtype.

    ``settings`` are attributes that the body takes, one choice for each case of the tests; ``differentiable`` are the
    inputs that have a derivative.
    """
    if not settings:
        return elementwise(name, _reference(body), rules, domains, cost=cost, lower=lower_in_steps(body))
    samples = tuple(Sample((3, 2), low, high) for low, high in domains)

    def pullback(node: Operation, g: Any) -> list[Any]:
        return [
            None if is_constant(x) else inside_masks(g, partial(_contribution, rule, node))
            for rule, x in zip(rules or (), node.inputs)
        ]

    def type_rule(*types: Type, **attributes: Any) -> Type:
        return elementwise_type(name, "f", None)(*types)

    return Operator(
        name,
        type_rule,
        _reference(body),
        pullback,
        batch_first,
        lower_in_steps(body),
        tuple(Case(samples, attributes, differentiable) for attributes in settings),
        cost=cost,
        elementwise=True,
    )
