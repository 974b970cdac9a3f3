"""Printed loop programs: the notation of Python, names for what is shared or long."""

from __future__ import annotations

import ast

import numpy as np

from pullback.loops import Affine, Apply, Axis, Buffer, Kernel, Literal, Position, Reduce, Store, load_at
from pullback.loops.arithmetic import within
from pullback.loops.guard import guarded
from pullback.loops.printer import format_kernel, format_program

FLOAT, INT, BOOL = np.dtype("float64"), np.dtype("int64"), np.dtype(bool)
R, J, K = Axis("i", 4), Axis("j", 5), Axis("k", 3)
X = load_at(Buffer("x", FLOAT, (4,)), [Affine.of(R)])
Y = load_at(Buffer("y", FLOAT, (4,)), [Affine.of(R)])
M = load_at(Buffer("m", FLOAT, (4, 3)), [Affine.of(R), Affine.of(K)])


def format_expression(expression, width=100):
    """What a kernel that stores the expression says of it."""
    made = Store(Buffer("made", expression.dtype, ()), Affine(), expression)
    *lines, last = [line[4:] for line in format_kernel(Kernel((), (made,)), width).splitlines()[1:]]
    return "\n".join([*lines, last.removeprefix("made[0] = ")])


def binary(name, left, right, dtype=FLOAT):
    return Apply(name, (left, right), dtype)


def test_signs_bind_as_in_python():
    tree = {
        "x[i] + y[i] * x[i]": binary("add", X, binary("multiply", Y, X)),
        "(x[i] + y[i]) * x[i]": binary("multiply", binary("add", X, Y), X),
        "x[i] - (y[i] - x[i])": binary("subtract", X, binary("subtract", Y, X)),
        "x[i] - y[i] - x[i]": binary("subtract", binary("subtract", X, Y), X),
        "x[i] / (y[i] * x[i])": binary("divide", X, binary("multiply", Y, X)),
        "x[i] < y[i] and y[i] >= x[i]": binary(
            "logical_and", binary("less", X, Y, BOOL), binary("greater_equal", Y, X, BOOL), BOOL
        ),
        "(i + 1) // 3": binary("floor_divide", Position(Affine.of(R) + 1), Literal(3, INT), INT),
        "tanh(x[i])": Apply("tanh", (X,), FLOAT),
        "float32(x[i])": Apply("cast", (X,), np.dtype("float32")),
        "where(x[i] == y[i], x[i], 0.0)": Apply(
            "where", (binary("equal", X, Y, BOOL), X, Literal(0, FLOAT)), FLOAT
        ),
        "sum[k<3](m[3*i + k])": Reduce("add", (K,), M),
        "argmax[k<3](m[3*i + k])": Reduce("argmax", (K,), M, INT),
    }
    for expected, expression in tree.items():
        assert format_expression(expression) == expected
        ast.parse(expected.replace("<3]", "]"))


def test_places_in_memory():
    token = Apply(
        "check_index",
        (load_at(Buffer("at", INT, (4,)), [Affine.of(R)]),),
        INT,
        (("extent", 9), ("what", "a token"), ("wrap", False)),
    )
    row = load_at(Buffer("table", FLOAT, (9, 3)), [token, Affine.of(K)])
    checked = "check_index(at[i], extent=9, what='a token', wrap=False)"
    assert format_expression(row) == f"table[k + 3*{checked}]"
    assert format_expression(guarded(X, within(Affine.of(K), 1, 9))) == "x[i if k >= 1]"


def test_shared_parts_are_named_once():
    shared = Apply("exp", (X,), FLOAT)
    assert format_expression(binary("add", shared, binary("multiply", shared, Y))) == "\n".join(
        ["t0 = exp(x[i])", "t0 + t0 * y[i]"]
    )


def test_doubling_prints_in_proportion_to_its_parts():
    value = X
    for _ in range(60):
        value = binary("add", value, value)
    assert len(format_expression(value).splitlines()) == 60


def test_long_lines_are_broken():
    value = X
    for _ in range(2000):
        value = Apply("tanh", (binary("add", value, Y),), FLOAT)
    lines = format_expression(value, width=80).splitlines()
    assert 100 < len(lines) < 1000
    assert max(map(len, lines)) < 100


def test_reductions_with_names_inside_are_blocks():
    shared = Apply("exp", (M,), FLOAT)
    outside = Apply("log", (X,), FLOAT)
    body = binary("multiply", binary("add", shared, outside), binary("subtract", shared, outside))
    assert format_expression(Reduce("add", (K,), body)).splitlines() == [
        "t0 = log(x[i])",
        "s0 = sum[k<3]:",
        "    t1 = exp(m[3*i + k])",
        "    (t1 + t0) * (t1 - t0)",
        "s0",
    ]


def test_kernels_share_names_between_stores():
    shared = Apply("tanh", (X,), FLOAT)
    slope = binary("subtract", Literal(1, FLOAT), binary("multiply", shared, shared))
    out, rows = Buffer("out", FLOAT, (4,)), Buffer("rows", FLOAT, (4, 5))
    kernel = Kernel(
        (R,),
        (
            Store(out, Affine.of(R), shared),
            Store(rows, Affine.of(R) * 5 + Affine.of(J), slope, inner=(J,), accumulate="add"),
        ),
    )
    expected = [
        "for i<4:",
        "    t0 = tanh(x[i])",
        "    out[i] = t0",
        "    for j<5:",
        "        rows[5*i + j] += 1.0 - t0 * t0",
    ]
    assert format_kernel(kernel).splitlines() == expected
    single = Kernel((), (Store(Buffer("one", FLOAT, ()), Affine(), Literal(1, FLOAT)),))
    assert format_program([kernel, single]).splitlines() == [*expected, "", "once:", "    one[0] = 1.0"]


def test_different_axes_and_buffers_of_one_name_are_told_apart():
    inner, summed = Axis("i", 3), Axis("i", 5)
    w, other = Buffer("w", FLOAT, (5,)), Buffer("w", FLOAT, (4, 3))
    total = Reduce("add", (summed,), load_at(w, [Affine.of(summed)]))
    value = binary("multiply", X, total)
    kernel = Kernel((R, inner), (Store(other, Affine.of(R) * 3 + Affine.of(inner), value),))
    assert format_kernel(kernel).splitlines() == [
        "for i<4, i_1<3:",
        "    w[3*i + i_1] = x[i] * sum[i_2<5](w_1[i_2])",
    ]


def test_a_sum_that_is_stored_and_used_is_one_sum():
    total = Reduce("add", (K,), M)
    sums, scaled = Buffer("sums", FLOAT, (4,)), Buffer("scaled", FLOAT, (4, 3))
    share = Apply("divide", (M, total), FLOAT)
    stores = (
        Store(sums, Affine.of(R), total),
        Store(scaled, Affine.of(R) * 3 + Affine.of(K), share, inner=(K,)),
    )
    assert format_kernel(Kernel((R,), stores)).splitlines() == [
        "for i<4:",
        "    s0 = sum[k<3](m[3*i + k])",
        "    sums[i] = s0",
        "    for k<3:",
        "        scaled[3*i + k] = m[3*i + k] / s0",
    ]
