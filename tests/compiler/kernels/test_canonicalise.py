"""Axes joined where memory does not tell them apart, and shared by the loops of one row."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler.kernels.canonicalise import canonicalise, coalesced_rows
from pullback.compiler.target import Processor
from pullback.loops import Affine, Apply, Axis, Buffer, Kernel, Load, Reduce, Store, row_major
from pullback.loops.printer import format_kernel

FLOAT = np.dtype(np.float32)
WIDE = Processor("generic", "", "x86_64", 64, 32)


def test_neighbouring_axes_are_joined_but_for_the_first(stages):
    assert (
        stages(lambda x: np.exp(x) + 1, (4, 5, 6))["canonicalise"]
        == """\
for i<4, k<30:
    result0[30*i + k] = exp(argument0[30*i + k]) + 1.0"""
    )
    assert (
        stages(lambda x: (x * x).sum((1, 2)), (4, 5, 6))["canonicalise"]
        == """\
for i<4:
    result0[i] = sum[r2<30](argument0[30*i + r2] * argument0[30*i + r2])"""
    )


def test_axes_that_some_operand_tells_apart_stay(stages):
    tidied = stages(lambda x, y: x * y[:, None], (4, 5, 6), (4, 6))["canonicalise"]
    assert tidied.startswith("for i<4, j<5, k<6:")


def test_the_first_axis_is_joined_for_a_kernel_by_itself():
    i, j, k = Axis("i", 3), Axis("j", 4), Axis("k", 5)
    x, y = Buffer("x", FLOAT, (3, 4, 5)), Buffer("y", FLOAT, (3, 4, 5))
    place = Affine.of(i) * 20 + Affine.of(j) * 5 + Affine.of(k)
    joined = coalesced_rows(Kernel((i, j, k), (Store(y, place, Load(x, place)),)))
    assert format_kernel(joined) == "for k<60:\n    y[k] = x[k]"
    turned = Affine.of(i) + Affine.of(j) * 3 + Affine.of(k) * 12
    apart = Kernel((i, j, k), (Store(y, place, Load(x, turned)),))
    assert coalesced_rows(apart) is apart


@pytest.mark.parametrize(
    ("product", "x", "w"),
    [
        (lambda x, w: x @ w, (35, 20, 200), (200, 2000)),
        (lambda x, w: x @ w.T, (35, 20, 200), (2000, 200)),
        (lambda x, w: np.tanh(x @ w), (5, 7, 20, 200), (200, 2000)),
    ],
)
def test_rows_of_a_product_are_one_axis_where_it_packs_a_large_operand(stages, product, x, w):
    """A dense layer of sequences reads its weights once for all of them, not once for each."""
    assert stages(product, x, w)["canonicalise"].startswith(
        "for j<700, k<2000:" if len(x) == 3 else "for k<700,"
    )


def test_rows_of_a_product_stay_where_its_operand_stays_near_or_differs(stages):
    near = stages(lambda x, w: x @ w.T, (35, 20, 128), (128, 128))["canonicalise"]  # it would be packed
    assert near.startswith("for i<35, j<20, k<128:")
    each = stages(lambda x, w: x @ w, (5, 140, 200), (5, 200, 2000))["canonicalise"]
    assert each.startswith("for i<5, j<140, k<2000:")


def test_loops_of_a_row_share_their_axis(stages):
    tidied = stages(lambda x: x - x.max(1, keepdims=True), (4, 5))["canonicalise"]
    assert (
        tidied
        == """\
for i<4:
    s0 = max[j<5](argument0[5*i + j])
    for j<5:
        result0[5*i + j] = argument0[5*i + j] - s0"""
    )


def test_an_axis_is_not_shared_where_it_would_mean_two_things():
    """The inner sum depends on the turn of the outer one; both are of one length."""
    i, outer, inner = Axis("i", 3), Axis("o", 4), Axis("n", 4)
    x, w, y = Buffer("x", FLOAT, (3, 4)), Buffer("w", FLOAT, (4, 4)), Buffer("y", FLOAT, (3,))
    product = Apply(
        "multiply",
        (
            Load(w, Affine.of(outer) * 4 + Affine.of(inner)),
            Load(x, Affine.of(i) * 4 + Affine.of(inner)),
        ),
        FLOAT,
    )
    value = Reduce("add", (outer,), Reduce("add", (inner,), product))
    kernel = Kernel((i,), (Store(y, Affine.of(i), value),))
    (found,) = canonicalise(kernel, WIDE).stores
    assert isinstance(found.value, Reduce)
    assert isinstance(found.value.body, Reduce)
    assert found.value.over != found.value.body.over
    assert found.value.body.axes == {i, *found.value.over}


@pytest.mark.parametrize(
    ("axis", "axes"),
    [(0, "i<9, k<35"), (1, "j<5, i<9, k<7"), (2, "j<5, k<7, i<9")],
    ids=["rows", "middle", "last"],
)
def test_rows_of_a_scatter_come_before_its_places(axis, axes):
    """Updates lie with the axis of their places first, whatever axis of the target it is."""
    i, j, k = Axis("i", 9), Axis("j", 5), Axis("k", 7)
    places, updates = Buffer("places", np.dtype(np.int64), (9,)), Buffer("updates", FLOAT, (9, 5, 7))
    place = Apply("bounded", (Load(places, Affine.of(i)),), np.dtype(np.int64), (("high", 3), ("low", 0)))
    shape = [5, 7]
    shape.insert(axis, 4)
    steps = list(row_major(shape))
    step = steps.pop(axis)
    offset = Affine.of(j) * steps[0] + Affine.of(k) * steps[1]
    value = Load(updates, Affine.of(i) * 35 + Affine.of(j) * 7 + Affine.of(k))
    store = Store(Buffer("table", FLOAT, tuple(shape)), offset, value, (), ((place, step),), "add")
    assert format_kernel(canonicalise(Kernel((i, j, k), (store,)), WIDE)).startswith(f"for {axes}:")


@pytest.mark.parametrize("reduction", [np.sum, np.max, np.prod])
def test_reductions_go_through_memory_in_its_order(stages, reduction):
    """Of an array that is transposed before, so that its axes come in another order."""
    found = stages(lambda x: reduction(x.transpose(2, 0, 1), (0, 2)), (4, 5, 6))["canonicalise"]
    assert "[r0<30](argument0[30*i + r0])" in found


def test_reductions_at_computed_places_stay(stages):
    """Rows are found at places, and their elements lie behind each other."""

    def total(x, places):
        return np.sum(x[places.astype(np.int64)], (1, 2))

    found = stages(total, (9, 6), (4, 5))
    assert "sum[r1<5, r2<6]" in found["lower"] and "sum[r1<5, r2<6]" in found["canonicalise"]


def test_reductions_stay_where_the_largest_array_has_not_all_axes(stages):
    """An axis that it does not have is no step in it, and would come last."""

    def total(x, y):
        return np.sum(np.maximum(x[:, None, :], y[None, :, None]), (1, 2))

    assert "sum[r1<5, r2<60]" in stages(total, (4, 60), (5,))["canonicalise"]


@pytest.mark.parametrize(
    ("shape", "step", "axes"),
    [
        ((9, 40, 2, 40), 1, "j<2, i<40"),
        ((9, 40, 2, 6), 1, "i<6, j<2"),
        ((1, 4, 2, 40), 1, "i<40, j<2"),
        ((9, 40, 2, 40), 2, "i<40, j<2"),
    ],
    ids=[
        "that all arrays lie along",
        "of less than a vector",
        "whose sums are written out",
        "that one is read across",
    ],
)
def test_a_sum_whose_results_end_in_few_has_an_axis_last(stages, shape, step, axes):
    """Its results are stored across memory, and all that is summed is read along it."""
    rows, columns, _, channels = shape

    def total(x, g):
        x, g = x[..., ::step].transpose(2, 0, 1), g.transpose(3, 2, 0, 1)
        return (x[:, None, :, 1:] * g).sum((2, 3))

    found = stages(total, (rows, columns + 1, step * channels), shape)["canonicalise"]
    assert found.startswith(f"for {axes}:")


@pytest.mark.parametrize(
    ("channels", "count", "axes"),
    [(64, 28, "j<64, k<5, i<64"), (64, 4, "i<64, j<64, k<5"), (512, 16, "i<512, j<512, k<5")],
    ids=["long sums", "short sums", "results whole pages apart"],
)
def test_lanes_of_a_window_s_gradient_lie_where_summing_and_storing_takes_least(
    stages, channels, count, axes
):
    """Its results end in five: their lanes lie along channels, or windows are copied side by side later."""

    def gradient(x, w, g):
        return pb.grad(lambda w: np.sum(nn.conv(x, w) * g))(w)

    shapes = (8, channels, count + 4), (channels, channels, 5), (8, channels, count)
    assert f"for {axes}:\n    result0" in stages(gradient, *shapes)["canonicalise"]


@pytest.mark.parametrize(("inputs", "outputs", "axes"), [(192, 32, "j<192, i<32"), (32, 192, "i<192, j<32")])
def test_lanes_of_a_projection_s_gradient_lie_along_the_smaller_operand(stages, inputs, outputs, axes):
    """Both lie along the sum, so that one of them is copied."""

    def gradient(x, w, g):
        return pb.grad(lambda w: np.sum(nn.conv(x, w) * g))(w)

    shapes = (8, inputs, 256), (outputs, inputs, 1), (8, outputs, 256)
    assert f"for {axes}:\n    result0" in stages(gradient, *shapes)["few rows last"]
