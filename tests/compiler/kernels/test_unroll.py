"""Short axes written out: which kernels, and that the programs stay what they were."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.kernels.unroll import unroll_short_axes
from pullback.compiler.schedules.choose import Schedules
from pullback.compiler.stages import check_stages
from pullback.compiler.target import Processor
from pullback.loops import Affine, Apply, Axis, Buffer, Kernel, Load, Reduce, Store, fused_product
from pullback.loops.printer import format_kernel

FLOAT = np.dtype(np.float32)
WIDE = Processor("generic", "", "x86_64", 64, 32)


def rows_of_three(rows: int, columns: int = 3) -> Kernel:
    """``y[j, k] = x[j, k] * sum(x[j] * x[j])``."""
    x, y = (Buffer(name, FLOAT, (rows, columns)) for name in "xy")
    j, k, r = Axis("j", rows), Axis("k", columns), Axis("r", columns)
    element = Load(x, Affine.of(j) * columns + Affine.of(k))
    each = Load(x, Affine.of(j) * columns + Affine.of(r))
    total = Reduce("add", (r,), Apply("multiply", (each, each), FLOAT))
    value = Apply("multiply", (element, total), FLOAT)
    return Kernel((j,), (Store(y, Affine.of(j) * columns + Affine.of(k), value, (k,)),))


def written_out(kernels, target=WIDE, outputs=None):
    if outputs is None:
        outputs = [kernel.stores[0].buffer for kernel in kernels]
    return unroll_short_axes(kernels, outputs, Schedules(target))


def test_rows_of_three_are_written_out():
    (kernel,) = written_out([rows_of_three(240)])
    assert [axis.extent for axis in kernel.axes] == [240]
    assert len(kernel.stores) == 3 and not any(store.inner for store in kernel.stores)
    assert not any(isinstance(e, Reduce) for e in kernel.expressions())
    assert "y[3*j + 2] =" in format_kernel(kernel)


@pytest.mark.parametrize("columns", [2, 3])
def test_rows_that_could_be_joined_with_those_before_them_are_written_out(stages, columns):
    """Only where all axes could be joined are lanes full as it is."""
    shape = (8, 25, 2, 20, columns)
    text = stages(lambda x: np.broadcast_to(x[:, :, None, :, None], shape), (8, 25, 20))["unroll"]
    assert text.count("result0[") == columns


def test_far_columns_are_not_written_out(stages):
    """They lie along the lanes as they are; of a near array what is written out may be joined with what goes on."""
    for depth, written in ((20, True), (300, False)):
        text = stages(lambda x: np.max(x, 0), (depth, 600))["unroll"]
        assert ("max[" in text.split("\n\n")[0]) is not written


@pytest.mark.parametrize("columns", [2, 5, 8, 12])
def test_longer_rows_are_written_out_if_there_are_many(columns):
    many, few = rows_of_three(4000, columns), rows_of_three(200, columns)
    assert not any(store.inner for store in written_out([many])[0].stores)
    assert (written_out([few])[0] is few) == (columns > 4)


@pytest.mark.parametrize(
    ("kernel", "lanes"),
    [
        (rows_of_three(1), 16),  # a vector would be emptier than with lanes along the three
        (rows_of_three(4000, 200), 16),  # too much to write out
    ],
)
def test_what_gains_nothing_stays(kernel, lanes):
    assert written_out([kernel], Processor("generic", "", "x86_64", 4 * lanes, 32)) == [kernel]


def test_elements_in_a_row_stay_a_map():
    x, y = (Buffer(name, FLOAT, (4000, 3)) for name in "xy")
    j, k = Axis("j", 4000), Axis("k", 3)
    place = Affine.of(j) * 3 + Affine.of(k)
    kernel = Kernel((j, k), (Store(y, place, Apply("tanh", (Load(x, place),), FLOAT)),))
    assert written_out([kernel]) == [kernel]


def test_kernels_that_hand_rows_on_become_one():
    first = rows_of_three(4000)
    y, z = first.stores[0].buffer, Buffer("z", FLOAT, (4000,))
    j, r = Axis("j", 4000), Axis("r", 3)
    total = Reduce("add", (r,), Load(y, Affine.of(j) * 3 + Affine.of(r)))
    second = Kernel((j,), (Store(z, Affine.of(j), total),))
    (one,) = written_out([first, second], outputs=[z])
    assert [store.buffer for store in one.stores] == [z] and one.reads() == (first.loads()[0].buffer,)
    # A product that is stored is rounded before it is added: three are fused multiply-adds of the square, none of z.
    assert sum(fused_product(e) is not None for e in one.expressions()) == 3
    assert [len(kernel.stores) for kernel in written_out([first, second])] == [4]


def test_kernels_that_would_wait_for_each_other_stay_apart():
    """Each of two pairs hands rows on, and needs other rows of what the other pair makes first."""
    first = [rows_of_three(4000), rows_of_three(4000)]
    made = [kernel.stores[0].buffer for kernel in first]
    last = []
    for own, other in (made, made[::-1]):
        j, r, s = Axis("j", 4000), Axis("r", 3), Axis("s", 3)
        here = Reduce("add", (r,), Load(own, Affine.of(j) * 3 + Affine.of(r)))
        there = Reduce("add", (s,), Load(other, Affine.of(j) * -3 + Affine.of(s) + 3 * 3999))
        total = Apply("add", (here, there), FLOAT)
        last.append(Kernel((j,), (Store(Buffer("z", FLOAT, (4000,)), Affine.of(j), total),)))
    results = [kernel.stores[0].buffer for kernel in last]
    found = written_out([*first, *last], outputs=results)
    assert {buffer for kernel in found for buffer in kernel.writes()} == {*made, *results}
    assert len(written_out([first[0], last[0]], outputs=results)) == 1


def test_rows_whose_places_tell_what_they_hold_are_as_long_as_what_each_holds(stages):
    """The gradient of a determinant is nine terms, each of them zeros but for one element."""
    text = stages(pb.grad(lambda x: np.sum(np.linalg.det(x) ** 2)), (2000, 3, 3))["unroll"]
    assert text.count("result0[") == 9 and "where" not in text


def unit(x):
    return x / np.sqrt(np.sum(x**2, axis=-1, keepdims=True) + 1)


def pulls(x):
    """Springs between neighbours along both axes: parts that are joined with zeros at either end."""
    total = 0.0
    for axis in (0, 1):
        along = np.diff(x, axis=axis)
        force = (1 - 1 / np.sqrt(np.sum(along**2, axis=-1, keepdims=True) + 1)) * along
        none = np.zeros_like(x[:1] if axis == 0 else x[:, :1])
        total = total + np.concatenate([force, none], axis) - np.concatenate([none, force], axis)
    return total


def at_least_from_product(x, y, z):
    """The product of a row is in memory for one kernel and in a register of another: both have the same bits."""
    positive = pb.softplus(x)
    distance = positive - np.prod(positive, axis=-1, keepdims=True)
    total = np.sum(z * positive[:, 1:2] * y, axis=-1, keepdims=True)
    return np.where(distance == np.min(distance, axis=-1, keepdims=True), total, 0)


PROGRAMS = {
    "unit vectors": (unit, [(37, 3)]),
    "pairs": (lambda x: x * np.max(x, axis=-1, keepdims=True), [(4, 33, 2)]),
    "colours": (
        lambda x: (x - np.array([1, 2, 3], x.dtype)) * np.array([2, 0.5, 4], x.dtype),
        [(2, 9, 16, 3)],
    ),
    "scaled rows": (lambda x, s: x * s[:, None], [(50, 4), (50,)]),
    "rows found by index": (lambda x: unit(x[np.arange(40) * 7 % 20]), [(20, 3)]),
    "neighbours in a net": (pulls, [(16, 16, 3)]),
    "neighbours in a wide net": (pulls, [(3, 40, 2)]),
    "what is compared": (lambda x: x > x.mean(-1, keepdims=True), [(70, 3)]),
    "ends joined": (lambda x: np.concatenate([x[5:], unit(x[:5])]), [(45, 3)]),
    "turned": (lambda x: unit(x).T * 2, [(40, 3)]),
    "every second row": (lambda x: unit(x[::2]), [(64, 2)]),
    "backwards": (lambda x: unit(x[::-1]), [(40, 3)]),
    "determinants": (np.linalg.det, [(70, 3, 3)]),
    "least distance from a product": (at_least_from_product, [(64, 3), (64, 3), (64, 1)]),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_on_short_rows(name, dtype, compiler, traced, processor):
    f, shapes = PROGRAMS[name]
    random = np.random.default_rng(len(name))
    arrays = [random.integers(-4, 5, shape).astype(dtype) for shape in shapes]
    compiler.assert_same(traced(f, *arrays), arrays, processor=processor, rounding=8)
    loss = pb.grad(lambda *a: np.sum(f(*a) ** 2), tuple(range(len(arrays))))
    if name != "what is compared":
        compiler.assert_same(traced(loss, *arrays), arrays, processor=processor, rounding=64)
        check_stages(traced(loss, *arrays), arrays, processor)


def tanh_loss(w, v, x, y):
    return (np.tanh(x @ w) @ v - y) ** 2


EXAMPLES = {
    "inputs of a network": lambda x, y, w, v: pb.vmap(lambda x, y: pb.grad(tanh_loss, 2)(w, v, x, y))(x, y),
    "weights of a network": lambda x, y, w, v: pb.vmap(lambda x, y: pb.grad(tanh_loss, (0, 1))(w, v, x, y))(
        x, y
    ),
    "quadratic forms": lambda x, y, w, v: pb.vmap(pb.grad(lambda x: np.exp(-((x @ w) @ (x @ w)))))(x),
    "softmax": lambda x, y, w, v: pb.vmap(pb.grad(lambda x: -np.log(np.exp(x[0]) / np.exp(x).sum())))(x),
    "neighbours": lambda x, y, w, v: pb.vmap(pb.grad(lambda x: np.sum((x[1:] - x[:-1] ** 2) ** 2)))(x),
    "largest": lambda x, y, w, v: pb.vmap(pb.grad(lambda x: np.max(x) * np.sum(x)))(x),
    "products": lambda x, y, w, v: pb.vmap(lambda x: np.prod(x) + np.min(x * x))(x),
    "outer products": lambda x, y, w, v: pb.vmap(pb.grad(lambda x: np.sum((x[:, None] * x) ** 2)))(x),
    "hessians": lambda x, y, w, v: pb.vmap(pb.hessian(lambda x: np.exp(-np.sum(x * x))))(x),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("features", [3, 8, 11])
@pytest.mark.parametrize("name", EXAMPLES)
def test_gradients_of_many_small_examples(name, features, dtype, compiler, traced, processor):
    f = EXAMPLES[name]
    random = np.random.default_rng(features)
    rows = 16 * processor.vector_bytes // np.dtype(dtype).itemsize + features
    arrays = [
        random.uniform(-1, 1, shape).astype(dtype)
        for shape in ((rows, features), (rows,), (features, 3), (3,))
    ]
    compiler.assert_same(traced(f, *arrays), arrays, processor=processor, rounding=64)
    check_stages(traced(f, *arrays), arrays, processor)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lanes_that_read_nothing_divide_nothing(dtype, compiler, traced, processor):
    """What is not selected has a slope of zero, not of 0 / 0."""

    def loss(x):
        selected = x[:, ::3]
        shifted = selected - np.max(selected, axis=0, keepdims=True)
        return np.sum(shifted - np.log(np.sum(np.exp(shifted), axis=0, keepdims=True)))

    x = np.ones((2, 4), dtype)
    compiler.assert_same(traced(pb.grad(loss), x), [x], processor=processor)


def test_quotients_that_are_not_chosen_are_not_taken_for_zero(compiler, traced, processor):
    """The mean of no numbers, with zeros around it."""
    x = np.zeros((0, 1, 1), np.float32)
    padded = traced(lambda x: np.pad(np.mean(x, keepdims=True), ((1, 2), (0, 1), (2, 0))), x)
    compiler.assert_same(padded, [x], processor=processor)


def test_nothing_stands_between_kernels_that_become_one():
    """What needs the one and is needed by the other would have to come before and after both."""
    first = rows_of_three(4000)
    y = first.stores[0].buffer
    means, z = Buffer("means", FLOAT, (3,)), Buffer("z", FLOAT, (4000, 3))
    j, k, r = Axis("j", 4000), Axis("k", 3), Axis("r", 4000)
    mean = Reduce("add", (r,), Load(y, Affine.of(r) * 3 + Affine.of(k)))
    place = Affine.of(j) * 3 + Affine.of(k)
    centred = Apply("subtract", (Load(y, place), Load(means, Affine.of(k))), FLOAT)
    kernels = [
        first,
        Kernel((k,), (Store(means, Affine.of(k), mean),)),
        Kernel((j, k), (Store(z, place, centred),)),
    ]
    assert len(written_out(kernels, outputs=[z])) == 3


def test_loops_inside_rows_that_are_read_whole(compiler, traced, processor):
    """A sum that is not written out takes the columns of its own rows."""
    arrays = [np.random.default_rng(1).uniform(-1, 1, (60, 40, 2))]

    def f(x):
        return np.sum(np.exp(x[..., 0]) * x[..., 1], axis=0)

    compiler.assert_same(traced(f, *arrays), arrays, processor=processor, rounding=64)
