"""Expressions: one object for equal ones, their axes, guards on what they read."""

from __future__ import annotations

import gc

import numpy as np

from pullback.loops import Affine, Apply, Axis, Buffer, Literal, Load, Position, Reduce, load_at, walk
from pullback.loops.arithmetic import within
from pullback.loops.guard import guarded

FLOAT, INT = np.dtype("float64"), np.dtype("int64")
R, K = Axis("i", 4), Axis("k", 3)
X = Buffer("x", FLOAT, (4,))
M = Buffer("m", FLOAT, (4, 3))


def test_equal_expressions_are_one_object():
    x = load_at(X, [Affine.of(R)])
    assert load_at(X, [Affine.of(R)]) is x
    assert Apply("sin", (x,), FLOAT) is Apply("sin", (x,), FLOAT)
    assert Apply("sin", (x,), FLOAT) is not Apply("cos", (x,), FLOAT)
    assert Literal(0.0, FLOAT) is Literal(0, FLOAT)
    assert Literal(0.0, FLOAT) is not Literal(-0.0, FLOAT)
    assert Literal(1, FLOAT) is not Literal(1, INT)
    assert load_at(Buffer("x", FLOAT, (4,)), [Affine.of(R)]) is not x


def test_expressions_nobody_holds_are_dropped():
    from pullback.loops.expression import _interned

    gc.collect()
    before = len(_interned)
    held = Apply("sin", (Apply("cos", (load_at(X, [Affine.of(R)]),), FLOAT),), FLOAT)
    assert len(_interned) == before + 3
    del held
    gc.collect()
    assert len(_interned) == before


def test_axes_are_what_the_value_depends_on():
    row = Reduce("add", (K,), load_at(M, [Affine.of(R), Affine.of(K)]))
    assert row.body.axes == {R, K}
    assert row.axes == {R}
    assert Apply("add", (row, Position(Affine.of(K))), FLOAT).axes == {R, K}
    assert Literal(1, FLOAT).axes == frozenset()


def test_deep_expressions_need_no_recursion():
    value = load_at(X, [Affine.of(R)])
    for _ in range(10_000):
        value = Apply("sin", (value,), FLOAT)
    assert value.axes == {R}
    assert sum(1 for _ in walk(value)) == 10_001


def test_walk_gives_each_part_once_and_operands_first():
    x = load_at(X, [Affine.of(R)])
    square = Apply("multiply", (x, x), FLOAT)
    total = Apply("add", (square, x), FLOAT)
    assert list(walk(total, square)) == [x, square, total]


def test_guards_reach_every_load():
    condition = within(Affine.of(R), 1, 3)
    table = load_at(X, [load_at(Buffer("at", INT, (4,)), [Affine.of(R)])])
    row = Reduce("add", (K,), load_at(M, [Affine.of(R), Affine.of(K)]))
    value = Apply("add", (table, row), FLOAT)
    loads = [part for part in walk(guarded(value, condition)) if isinstance(part, Load)]
    assert {load.buffer.name for load in loads} == {"x", "at", "m"}
    assert all(load.guard is condition for load in loads)


def test_guards_add_up():
    outer, inner = within(Affine.of(R), 1, 9), within(Affine.of(K), 0, 2)
    load = guarded(guarded(load_at(M, [Affine.of(R), Affine.of(K)]), inner), outer)
    assert load.guard is Apply("logical_and", (outer, inner), np.dtype(bool))


def test_guarded_checks_pass_where_nothing_is_read(expression_value):
    """Only the places inside are checked: the index at turn 0 is out of range and does not matter."""
    raw = load_at(Buffer("at", INT, (4,)), [Affine.of(R)])
    checked = Apply("check_index", (raw,), INT, (("extent", 4), ("what", "index"), ("wrap", True)))
    value = guarded(load_at(X, [checked]), within(Affine.of(R), 1, 4))
    arrays = {raw.buffer: np.array([99, 3, -1, 0]), X: np.array([1.0, 2.0, 3.0, 4.0])}
    np.testing.assert_array_equal(expression_value(value, [R], arrays), [0, 4, 4, 1])
