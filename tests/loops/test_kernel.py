"""Rewriting expressions: reductions close over their axes."""

from __future__ import annotations

import numpy as np

from pullback.loops import Affine, Axis, Buffer, Expression, Kernel, Load, Reduce, Store, rewrite

X, Y = (Buffer(name, np.dtype(np.float32), (4, 4)) for name in "xy")


def at(*axes: Axis) -> Expression:
    return Load(X, Affine.total(Affine.of(axis) * 4 ** (len(axes) - 1 - k) for k, axis in enumerate(axes)))


def test_an_axis_inside_a_reduction_over_it_keeps_its_meaning() -> None:
    a, c = Axis("a", 4), Axis("c", 4)
    row = Reduce("add", (a,), at(a))
    assert rewrite(row, {a: Affine.of(c)}) is row


def test_a_free_axis_is_replaced_beside_a_reduction_over_it() -> None:
    a, b, c = Axis("a", 4), Axis("b", 4), Axis("c", 4)
    inside = Reduce("add", (a,), at(b, a))
    assert rewrite(inside, {a: Affine.of(c), b: Affine.of(c)}) is Reduce("add", (a,), at(c, a))


def test_a_new_index_is_not_captured() -> None:
    a, b = Axis("a", 4), Axis("b", 4)
    captured = rewrite(Reduce("add", (a,), at(b, a)), {b: Affine.of(a)})
    assert isinstance(captured, Reduce)
    (own,) = captured.over
    assert own is not a and captured.axes == {a}
    assert captured.body is Load(X, Affine.of(a) * 4 + Affine.of(own))


def test_a_read_inside_a_reduction_is_replaced() -> None:
    a, b = Axis("a", 4), Axis("b", 4)
    load, other = at(b, a), at(a)
    kernel = Kernel((b,), (Store(Y, Affine.of(b), Reduce("add", (a,), load)),))
    (store,) = kernel.with_replaced({load: other}).stores
    assert store.value is Reduce("add", (a,), other)
