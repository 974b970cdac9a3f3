"""Masks, constants and errors of elementwise operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import DTypeError, ShapeError
from pullback.graph import Operation, Type, Variable, constant
from pullback.operators.arithmetic import add, divide
from pullback.operators.elementwise import (
    MOST_MASKS,
    constant_value,
    filled,
    inside_masks,
    is_constant,
    is_zero,
    summed,
    where,
    zeros_like,
)
from pullback.operators.logic import logical_and
from pullback.operators.transcendental import exp


def variable(dtype: str, *shape: int) -> Variable:
    return Variable(Type(np.dtype(dtype), shape))


def test_shapes_must_be_equal() -> None:
    with pytest.raises(ShapeError, match=r"add: shapes \(3,\) and \(4,\) differ; broadcast"):
        add(variable("float32", 3), variable("float32", 4))


def test_dtypes_must_be_equal() -> None:
    with pytest.raises(DTypeError, match=r"add: dtypes float32 and float64 differ; cast one"):
        add(variable("float32", 3), variable("float64", 3))


@pytest.mark.parametrize(
    ("operator", "dtype", "repair"),
    [(exp, "int32", "np.float32"), (add, "bool", "np.float32"), (logical_and, "float32", "bool")],
)
def test_other_kinds_are_refused(operator: object, dtype: str, repair: str) -> None:
    inputs = [variable(dtype, 2) for _ in range(1 if operator is exp else 2)]
    with pytest.raises(
        DTypeError, match=rf"takes no {dtype}; cast it, for instance with .astype\({repair}\)"
    ):
        operator(*inputs)  # type: ignore[operator]


def test_where_says_what_is_wrong() -> None:
    x, mask = variable("float32", 3), variable("bool", 3)
    with pytest.raises(DTypeError, match=r"the mask is float32\[3\]; compare"):
        where(x, x, x)
    with pytest.raises(DTypeError, match="dtypes float32 and float64 differ"):
        where(mask, x, variable("float64", 3))
    with pytest.raises(ShapeError, match=r"\(3,\), \(3,\) and \(2,\) differ; broadcast"):
        where(mask, x, variable("float32", 2))


def test_weakness_survives_only_among_weak_inputs() -> None:
    weak = constant(2.0, np.float64, weak=True)
    strong = constant(2.0, np.float64)
    assert exp(weak).type.weak
    assert not divide(weak, strong).type.weak


def test_constants_are_seen_through_broadcasts() -> None:
    x = variable("float32", 2, 3)
    assert is_zero(zeros_like(x))
    assert constant_value(filled(2.5, x.dtype, (2, 3))) == 2.5
    assert constant_value(filled(2.5, x.dtype, ())) == 2.5
    assert is_constant(constant(np.arange(3.0)))
    assert constant_value(constant(np.arange(3.0))) is None
    assert not is_zero(constant(np.arange(3.0)))
    assert not is_constant(x)
    assert constant_value(constant(np.zeros(0))) is None


def test_products_are_made_inside_masks() -> None:
    mask, g, slope = variable("bool", 3), variable("float32", 3), variable("float32", 3)
    product = inside_masks(where(mask, g, zeros_like(g)), lambda bar: bar * slope)
    assert isinstance(product, Operation)
    assert product.operator is where
    assert product.inputs[0] is mask
    assert product.inputs[1] is g * slope
    assert is_zero(product.inputs[2])


def test_masks_come_out_of_broadcasts() -> None:
    from pullback.operators.shapes import broadcast

    mask, g, slope = variable("bool", 3), variable("float32", 3), variable("float32", 3, 2)
    masked = broadcast(where(mask, g, zeros_like(g)), shape=(3, 2), axes=(0,))
    product = inside_masks(masked, lambda bar: bar * slope)
    assert isinstance(product, Operation)
    assert product.operator is where
    assert product.inputs[0] is broadcast(mask, shape=(3, 2), axes=(0,))


def test_masks_of_a_long_chain_become_one() -> None:
    masks, slope = [variable("bool", 3) for _ in range(3000)], variable("float32", 3)
    bar = variable("float32", 3)
    for mask in masks:
        made = inside_masks(bar, lambda g, mask=mask: where(mask, g * slope, zeros_like(g)))
        assert made is not None
        bar = made
    depth, inner = 0, bar
    while isinstance(inner, Operation) and inner.operator is where:
        depth, inner = depth + 1, inner.inputs[1]
    assert depth <= MOST_MASKS + 1


def test_deep_towers_of_masks_are_added() -> None:
    a, b = variable("float32", 3), variable("float32", 3)
    zero, first, second = zeros_like(a), a, b
    for _ in range(3000):
        mask = variable("bool", 3)
        first, second = where(mask, first, zero), where(mask, second, zero)
    total = summed(first, second)
    assert isinstance(total, Operation)
    assert total.operator is where


def test_terms_under_one_mask_are_added_inside_it() -> None:
    mask, other = variable("bool", 3), variable("bool", 3)
    a, b = variable("float32", 3), variable("float32", 3)
    zero = zeros_like(a)
    assert summed(where(mask, a, zero), where(mask, b, zero)) is where(mask, a + b, zero)
    apart = summed(where(mask, a, zero), where(other, b, zero))
    assert isinstance(apart, Operation)
    assert apart.operator is add


def test_a_mask_around_both_terms_comes_out_of_others() -> None:
    mask, other = variable("bool", 3), variable("bool", 3)
    a, b = variable("float32", 3), variable("float32", 3)
    zero = zeros_like(a)
    inner = where(other, b, zero)
    for second in (where(other, where(mask, b, zero), zero), where(mask, inner, zero)):
        assert summed(where(mask, a, zero), second) is where(mask, a + inner, zero)


def test_second_derivatives_of_branches_not_taken_are_zero() -> None:
    """The mask of the origin, of ``arctan2``, stands around one of two terms under the branch's."""

    def branch(x: Any) -> Any:
        angle = np.arctan2(x, 1.0)
        return np.where(angle > 0, np.sqrt(angle), 0.0)

    slope = pb.grad(lambda x: np.sum(branch(x) ** 3))
    curvature = pb.grad(lambda x: np.sum(slope(x)))
    x = np.array([2.2, -0.5])
    with np.errstate(invalid="ignore"):
        for found in (curvature(x), pb.jit(curvature)(x)):
            assert found[0] < 0 and found[1] == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.where(x > 0, np.sqrt(x), 0.0),
        lambda x: np.where(x <= 0, 0.0, np.sqrt(x)),
        lambda x: np.where(x > 0, x * np.log(x), 0.0),
        lambda x: np.where(x > 0, 1 / x, 0.0),
        lambda x: np.where(x > 0, x**0.5, 0.0),
        lambda x: np.where(x * x > 0, np.sqrt(np.sqrt(x * x)), 0.0),
        lambda x: np.where(np.sum(x * x) > 0, np.sqrt(np.sum(x * x)), 0.0),
        lambda x: np.where(np.sqrt(x) > 0, np.sqrt(x) * np.log(np.sqrt(x)), 0.0),
        lambda x: np.maximum(np.log(x), -3.0),
    ],
)
def test_a_branch_not_taken_gives_no_nan(gradients, function) -> None:  # type: ignore[no-untyped-def]
    (gradient,) = gradients(function, np.zeros(3))
    np.testing.assert_array_equal(gradient, np.zeros(3))
    assert np.isfinite(gradients(function, np.full(3, 2.0))[0]).all()
