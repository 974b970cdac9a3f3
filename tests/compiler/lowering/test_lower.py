"""Which nodes are stored, and what the kernels look like that store them."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler.lowering.lower import lower
from pullback.compiler.target import Processor
from pullback.graph import OPERATORS, Graph, Operator, Type, Variable, constant
from pullback.loops import Affine, Axis, Reduce
from pullback.loops.printer import format_kernel

TARGET = Processor.host()


def test_views_and_elementwise_work_are_one_kernel(stages):
    lowered = stages(lambda x: x.T[1:, ::2] * 2 + 1, (6, 5))["lower"]
    assert (
        lowered
        == """\
for i<4, j<3:
    result0[3*i + j] = argument0[i + 10*j + 1] * 2.0 + 1.0"""
    )


def test_what_is_cheap_is_computed_again_for_each_user(stages):
    lowered = stages(lambda x: (x + 1) * (x + 1).sum(), (4,))["lower"]
    assert (
        lowered
        == """\
once:
    sum1[0] = sum[r0<4](argument0[r0] + 1.0)
for i<4:
    result0[i] = (argument0[i] + 1.0) * sum1[0]"""
    )


def test_what_is_costly_is_stored_for_several_users(stages):
    lowered = stages(lambda x: (np.exp(x).sum(1), np.exp(x) * 2), (4, 5))["lower"]
    assert (
        lowered
        == """\
for i<4, j<5:
    exp1[5*i + j] = exp(argument0[5*i + j])
for i<4:
    result0[i] = sum[r1<5](exp1[5*i + r1])
for i<4, j<5:
    result1[5*i + j] = exp1[5*i + j] * 2.0"""
    )


@pytest.mark.parametrize(("readers", "stored"), [(5, False), (6, True)])
def test_what_many_read_in_other_places_is_stored(stages, readers, stored):
    """A division costs three of the twelve that others may spend on it again."""

    def neighbours(x):
        third = x / 3
        return sum(third[k : k + 3] for k in range(readers))

    assert stored == ("divide1[i] = argument0[i] / 3.0" in stages(neighbours, (9,))["lower"])


def test_what_a_product_becomes_is_stored_in_its_place(stages):
    """All readers find it finished, and the product itself never is in memory."""

    def masked(a, b, x):
        y = np.where(x > 0, a @ b, 0)
        return (y * x) @ b.T, y.sum(0)

    text = stages(masked, (4, 5), (5, 6), (4, 6))["fuse"]
    assert "contract" not in text
    assert "t0 = where(argument2[6*i + j] > 0.0, sum[r0<5]" in text
    assert "result1[i] = sum[r0<4](where4[i + 6*r0])" in text


def test_an_activation_and_its_derivative_are_made_of_a_product_together(stages):
    """What is read much later is the derivative, and what it is taken at never is in memory."""

    def slopes(a, b, c):
        return pb.grad(lambda a, b: np.sum((np.exp(np.sin(a @ b)) @ c) ** 2), (0, 1))(a, b)

    kernels = stages(slopes, (4, 5), (5, 6), (6, 3))["fuse"]
    (forward,) = [part for part in kernels.split("\nfor ") if "sin(" in part]
    assert "cos(" in forward and kernels.count("cos(") == 1
    assert "contract" not in forward.split(" = ")[0]


def test_what_others_read_of_a_product_stays_beside_its_functions(stages):
    """Then the derivative is computed where it is needed."""

    def slopes(a, b, c):
        def loss(a, b):
            product = a @ b
            return np.sum((np.sin(product) @ c) ** 2) + np.sum((product @ c) ** 2)

        return pb.grad(loss, (0, 1))(a, b)

    kernels = stages(slopes, (4, 5), (5, 6), (6, 3))["fuse"]
    (forward,) = [part for part in kernels.split("\nfor ") if "sin(" in part]
    assert "cos(" not in forward and kernels.count("cos(") == 1


def test_a_division_is_not_repeated_for_each_row(stages):
    """Along a row it is computed before the row's loop, so it need not be stored."""
    lowered = stages(lambda x, y: x * (1 / y), (3, 4), (4,))["lower"]
    assert (
        lowered
        == """\
for i<4:
    divide2[i] = 1.0 / argument1[i]
for i<3, j<4:
    result0[4*i + j] = argument0[4*i + j] * divide2[j]"""
    )
    along = stages(lambda x, y: x * (1 / y)[:, None], (3, 4), (3,))["lower"]
    assert (
        along
        == """\
for i<3, j<4:
    result0[4*i + j] = argument0[4*i + j] * (1.0 / argument1[i])"""
    )
    cheap = stages(lambda x, y: x * (1 + y), (3, 4), (4,))["lower"]
    assert "add" not in cheap


def test_parts_are_read_only_where_they_are(stages):
    lowered = stages(lambda x: np.concatenate([x, x * 2], 0), (3,))["lower"]
    assert (
        lowered
        == """\
for i<6:
    t0 = i < 3
    result0[i] = where(t0, argument0[i if t0], argument0[i + -3 if i >= 3] * 2.0)"""
    )


@pytest.mark.parametrize(("shape", "parts"), [((2, 50, 7), 2), ((2, 100), 1), ((2, 9, 3), 1)])
def test_lines_of_rows_are_written_part_by_part_if_they_are_long_on_average(stages, shape, parts):
    assert stages(lambda x: np.roll(x, 3, 1), shape)["lower"].count("result0[") == parts


def test_what_is_repeated_is_stored_without_dividing_an_index(stages):
    for axis, place in (1, "15*i + 3*j + k"), (0, "15*i + 5*j + k"):
        result = stages(lambda x, axis=axis: np.repeat(x, 3, axis), (4, 5))["lower"]
        assert f"result0[{place}] = argument0[5*i + {'kj'[axis]}]" in result


def test_results_that_are_inputs_or_equal_are_copies(stages):
    lowered = stages(lambda x: (x, x + 1, x + 1), (3,))["lower"]
    assert (
        lowered
        == """\
for i<3:
    result1[i] = argument0[i] + 1.0
for i<3:
    result0[i] = argument0[i]
for i<3:
    result2[i] = result1[i]"""
    )


def test_a_result_that_is_written_in_parts_has_any_shape(stages):
    """Unless others read it in that shape too, or it is an argument."""

    def halves(x, y):
        return np.reshape(np.concatenate([x, y]), (2, 40))

    assert (
        stages(halves, (40,), (40,))["lower"]
        == """\
for i<40:
    result0[i] = argument0[i]
for i<40:
    result0[i + 40] = argument1[i]"""
    )
    assert "result0[40*i + j]" in stages(lambda x, y: ((h := halves(x, y)), h @ h.T), (40,), (40,))["lower"]
    assert stages(lambda x: np.reshape(x, (2, 20)), (40,))["lower"].count("=") == 1


def test_a_sum_over_nothing_is_zero(stages):
    assert stages(lambda x: x.sum(0), (0, 3))["lower"] == "for i<3:\n    result0[i] = 0.0"
    assert stages(lambda x: x.T, (0, 3))["lower"] == ""


def test_a_sum_over_nothing_is_zero_wherever_it_is_used():
    def row_sum(node, operands, index):
        k = Axis("k", node.inputs[0].shape[1])
        return Reduce("add", (k,), operands[0]([*index, Affine.of(k)]))

    total = Operator(
        "total", lambda x: x.with_shape(x.shape[:1]), lambda x: x.sum(1), None, None, row_sum, ()
    )
    del OPERATORS["total"]
    x = Variable(Type(np.dtype(np.float32), (3, 0)), "x")
    (kernel,) = lower(Graph((x,), (total(x) + 2,)), TARGET).kernels
    assert format_kernel(kernel) == "for i<3:\n    result0[i] = 0.0 + 2.0"


def test_updates_are_added_after_their_base():
    x, i = Variable(Type(np.dtype(np.float32), (5,))), Variable(Type(np.dtype(np.int64), (9,)))
    zeros = OPERATORS["broadcast"](constant(0, np.float32), shape=(4,), axes=())
    updates = OPERATORS["gather"](x, i, axes=(0,))
    base, added = lower(
        Graph((x, i), (OPERATORS["scatter_add"](zeros, updates, i, axes=(0,)),)), TARGET
    ).kernels
    assert not base.stores[0].accumulate
    assert added.stores[0].accumulate
    assert added.reads()[-1] is added.writes()[0] is base.writes()[0]


@pytest.mark.parametrize(
    ("value", "buffers"),
    [
        (np.full(100, 3.0), 0),
        (np.array([0.0, -0.0]), 1),
        (np.full(2, np.nan), 0),
        (np.arange(3.0), 1),
        (np.array(2.0), 0),
    ],
)
def test_constants_that_repeat_one_value_are_part_of_the_code(value, buffers):
    assert len(lower(Graph((), (constant(value),)), TARGET).constants) == buffers


def test_a_chain_of_any_length_is_computed(compiler, traced):
    """Views cost nothing, so that no cost ends what is computed inside each other."""

    def turned(x):
        for _ in range(60):
            x = x.reshape(2, 6).T.reshape(3, 4)
        return x @ x.T

    def joined(x):
        return np.concatenate([x * k for k in range(300)])

    x = np.arange(12.0).reshape(3, 4)
    for function in (turned, joined):
        compiler.assert_same(traced(function, x), [x], rounding=4)


def test_what_is_the_same_along_an_axis_is_computed_once(stages):
    """A root for each channel, that two users read for each element."""

    def function(x, v):
        scale = (1 / np.sqrt(v)).reshape(-1, 1)
        return x * scale, np.tanh(x) * scale

    lowered = stages(function, (20, 30, 50), (30,))["lower"]
    assert "for i<30:\n    divide" in lowered


@pytest.mark.parametrize("shape", [(), (1000,)])
def test_what_deep_values_share_is_stored_once(stages, shape):
    """Values that are stored because they are deep are several places where their operands would be computed."""

    def slope(x):
        def power(x):
            y = x
            for _ in range(99):
                y = y * x
            return np.sum(y)

        return pb.grad(power)(x)

    assert stages(slope, shape)["lower"].count("*") < 4 * 200


@pytest.mark.parametrize(("size", "step", "stored"), [(5, 1, True), (2, 2, False), (3, 2, False)])
def test_padding_that_several_windows_see_is_written_once(stages, size, step, stored):
    found = stages(lambda x: nn.max_pool(x, size, step, size // 2), (2, 3, 12, 12))["lower"]
    assert ("concatenate" in found) == stored


def test_padding_is_written_sooner_for_where_the_largest_is(stages):
    found = stages(lambda x: nn.max_pool(x, 3, 2, 1, return_indices=True)[1], (2, 3, 12, 12))["lower"]
    assert "concatenate" in found
