"""A value is the same bits wherever it is used: compared with its own maximum, it is found."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.kernels.single_evaluation import evaluated_twice
from pullback.errors import LoopError
from pullback.loops import Affine, Apply, Axis, Buffer, Kernel, Load, Reduce, Store, fused
from pullback.loops.checker import check_kernel

FLOAT = np.dtype(np.float32)


def squared_distances(x, c):
    return np.sum((x[:, None] - c) ** 2, axis=-1)


def k_means(c, x):
    return np.sum(np.min(squared_distances(x, c), axis=1))


def log_sum_exp(c, x):
    d = -squared_distances(x, c)
    top = np.max(d, axis=1, keepdims=True)
    return np.sum(top[:, 0] + np.log(np.sum(np.exp(d - top), axis=1)))


def mixture(c, x):
    spread = 1 + c * c
    d = -np.sum((x[:, None] - c) ** 2 / spread, axis=-1) - np.sum(np.log(spread), axis=-1)
    top = np.max(d, axis=1, keepdims=True)
    return np.sum(top[:, 0] + np.log(np.sum(np.exp(d - top), axis=1)))


@pytest.mark.parametrize("loss", [k_means, log_sum_exp, mixture])
@pytest.mark.parametrize(("clusters", "size"), [(10, 3), (100, 2), (40, 20)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sum_finds_itself_among_its_own_maxima(loss, clusters, size, dtype, compiler, traced):
    random = np.random.default_rng(clusters)
    c, x = (
        random.standard_normal((clusters, size)).astype(dtype),
        random.standard_normal((50, size)).astype(dtype),
    )
    for processor in compiler.processors:
        compiler.assert_same(traced(pb.grad(loss), c, x), [c, x], processor=processor, rounding=256)


def test_rows_inside_rows_find_their_maximum(compiler, traced):
    def loss(x, lengths):
        mask = (np.arange(x.shape[2]) < lengths[:, None])[:, None, :]
        x = np.where(mask, x, 0)
        scaled = pb.sigmoid(x / (np.linalg.norm(x, axis=2, keepdims=True) + 1e-3))
        below = scaled - np.max(np.where(mask, scaled, -np.inf), axis=-1, keepdims=True)
        return np.sum(np.where(mask, below, 0))

    x = np.random.default_rng(0).standard_normal((8, 2, 8)).astype(np.float32)
    arrays = [x, np.arange(1, 9)]
    for processor in compiler.processors:
        compiler.assert_same(traced(pb.grad(loss), *arrays), arrays, processor=processor, rounding=256)


@pytest.mark.parametrize("reduction", [np.max, np.min])
@pytest.mark.parametrize("shape", [(3, 4, 2), (20, 100, 5), (7, 33, 40), (2, 2, 300)])
def test_someone_is_the_extreme_of_each_row(reduction, shape, compiler, traced):
    def winners(x):
        sums = np.sum(x * x + x, axis=-1)
        return np.sum(sums == reduction(sums, axis=-1, keepdims=True), axis=-1)

    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for processor in compiler.processors:
        compiler.assert_same(traced(winners, x), [x], processor=processor)


def kernels(i: Axis, j: Axis, k: Axis, stored: bool) -> Kernel:
    """A row's largest sum, and with ``stored`` the sums as well."""
    x = Buffer("x", FLOAT, (3, 4, 5))

    def sums(j: Axis, k: Axis) -> Reduce:
        return Reduce("add", (k,), Load(x, Affine.of(i) * 20 + Affine.of(j) * 5 + Affine.of(k)))

    largest = Store(Buffer("m", FLOAT, (3,)), Affine.of(i), Reduce("maximum", (j,), sums(j, k)))
    own, depth = Axis("j", 4), Axis("k", 5)
    each = Store(Buffer("s", FLOAT, (3, 4)), Affine.of(i) * 4 + Affine.of(own), sums(own, depth), (own,))
    return Kernel((i,), (largest, each) if stored else (largest,))


def test_sums_that_differ_in_the_names_of_axes_are_one() -> None:
    i, k, j = Axis("i", 3), Axis("k", 5), Axis("j", 4)
    assert evaluated_twice([kernels(i, j, k, stored=False)]) is None
    again = evaluated_twice([kernels(i, j, k, stored=True)])
    assert isinstance(again, Reduce) and again.kind == "add"
    assert (
        evaluated_twice([kernels(i, j, k, stored=False), kernels(Axis("i", 3), j, k, stored=False)]) is None
    )


def test_what_is_the_same_for_a_row_may_be_used_by_all_its_loops() -> None:
    i, j, k = Axis("i", 3), Axis("j", 4), Axis("k", 4)
    x, y = Buffer("x", FLOAT, (3, 4)), Buffer("y", FLOAT, (3, 4))
    total = Reduce("add", (k,), Load(x, Affine.of(i) * 4 + Affine.of(k)))
    share = Apply("divide", (Load(x, Affine.of(i) * 4 + Affine.of(j)), total), FLOAT)
    largest = Reduce("maximum", (j,), share)
    kernel = Kernel(
        (i,),
        (
            Store(y, Affine.of(i) * 4 + Affine.of(j), share, (j,)),
            Store(Buffer("m", FLOAT, (3,)), Affine.of(i), largest),
        ),
    )
    assert evaluated_twice([kernel]) is None


def test_extremes_and_counts_may_be_evaluated_again() -> None:
    i, j = Axis("i", 3), Axis("j", 4)
    x = Buffer("x", FLOAT, (3, 4))
    largest = Reduce("maximum", (j,), Load(x, Affine.of(i) * 4 + Affine.of(j)))
    stores = [Store(Buffer(name, FLOAT, (3,)), Affine.of(i), largest) for name in "ab"]
    assert evaluated_twice([Kernel((i,), (store,)) for store in stores]) is None


def scaled_activation(x):
    return pb.selu(x) * 1.1


@pytest.mark.parametrize(
    "zero",
    [
        lambda v: v - v.max(-1, keepdims=True),
        lambda v: v.T - v.T.max(0),
        lambda v: np.reshape(v, (-1,))[:1] - v.ravel().max(),
        lambda v: np.stack([v, v * 1.5])[1] - (v * 1.5).max(-1, keepdims=True),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_product_that_is_needed_elsewhere_is_rounded_before_it_is_added(zero, dtype, compiler, traced):
    """Fused with the addition it would differ from itself: the largest minus the largest would not be 0."""
    x = np.array([[2.9544163550136876, -1.28], [1 / 3, -0.1], [-0.7, -0.3]]).astype(dtype)
    for processor in compiler.processors:
        graph = traced(lambda x: zero(scaled_activation(x)).max(), x)
        (found,) = compiler.run(graph, [x], processor=processor)
        assert found == 0


def test_a_stored_product_that_moves_into_its_readers_is_rounded_there(compiler, traced):
    x = np.array([[-0.2, -0.9], [-2.4, 1.1]], np.float32)

    def zero(x):
        v = pb.gelu(x)
        return v - v.max(-1, keepdims=True)

    for processor in compiler.processors:
        (found,) = compiler.run(traced(zero, x), [x], processor=processor)
        assert found.max(-1).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_product_and_its_negation_cancel(dtype, compiler, traced):
    """As products by numbers of either sign they would differ by what rounding takes from one of them."""
    x = np.array([2.9544163550136876, 1.0, -0.1], dtype)
    for processor in compiler.processors:
        (found,) = compiler.run(traced(lambda x: -(x * 1.1) + x * 1.1, x), [x], processor=processor)
        assert found.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_negated_product_keeps_the_sign_of_zeros(dtype, compiler, traced):
    x = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, 0.0, -0.0], dtype)
    y = np.array([2.0, 2.0, 0.1, 0.1, 1.0, 1.0, -2.0, -2.0], dtype)
    for processor in compiler.processors:
        found = compiler.run(traced(lambda x, y: (-x * y, x * -y), x, y), [x, y], processor=processor)
        for product in found:
            np.testing.assert_array_equal(product, -x * y)
            np.testing.assert_array_equal(np.signbit(product), np.signbit(-x * y))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_difference_of_equal_products_is_zero_though_one_is_needed_elsewhere(dtype, compiler, traced):
    x = np.array([2.9544163550136876, 1 / 3, -0.1], dtype)
    for processor in compiler.processors:
        graph = traced(lambda x, y: (np.sqrt(x * x - y * y), x * x), x, x)
        found, _ = compiler.run(graph, [x, x], processor=processor)
        assert found.tolist() == [0.0, 0.0, 0.0]


def test_a_fused_operand_is_a_product():
    x, i = Buffer("x", FLOAT, (3,)), Axis("i", 3)
    value = Load(x, Affine.of(i))
    total = fused(Apply("add", (value, Apply("multiply", (value, value), FLOAT)), FLOAT))
    check_kernel(Kernel((i,), (Store(Buffer("y", FLOAT, (3,)), Affine.of(i), total),)), True)
    other = Apply("add", (value, value), FLOAT, total.attributes)
    with pytest.raises(LoopError, match="operand 1 is no product"):
        check_kernel(Kernel((i,), (Store(Buffer("y", FLOAT, (3,)), Affine.of(i), other),)), True)
