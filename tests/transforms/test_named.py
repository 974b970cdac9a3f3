"""Sizes and names of the axes of a batch."""

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import BatchError, ShapeError, TracingError, TreeError

X = np.random.default_rng(0).normal(size=(4, 3))


@pytest.mark.parametrize("run", [lambda f: f, pb.jit])
def test_sizes(run: Any):
    np.testing.assert_array_equal(run(pb.vmap(lambda: np.arange(3.0), axis_size=2))(), [[0, 1, 2]] * 2)
    found = run(pb.vmap(lambda x: x * 2, in_axes=None, axis_size=3))(X[0])
    np.testing.assert_array_equal(found, np.stack([2 * X[0]] * 3))
    np.testing.assert_array_equal(run(pb.vmap(lambda x: x * 2, axis_size=4))(X), 2 * X)


def test_sizes_that_do_not_fit():
    with pytest.raises(BatchError, match=r"axis_size is 3, but argument 0 has 4 along axis 0"):
        pb.vmap(lambda x: x, axis_size=3)(X)
    with pytest.raises(BatchError, match=r"no array of the arguments is batched.*or give axis_size"):
        pb.vmap(lambda x: x, in_axes=None)(X)
    with pytest.raises(TreeError, match=r"axis_size holds 1\.5"):
        pb.vmap(lambda x: x, axis_size=1.5)
    with pytest.raises(BatchError, match="axis_size=-1"):
        pb.vmap(lambda x: x, axis_size=-1)


@pytest.mark.parametrize("run", [lambda f: f, pb.jit])
def test_sums_and_means_over_examples(run: Any):
    def standardised(x: Any) -> Any:
        centred = x - pb.pmean(x, "batch")
        return centred / np.sqrt(pb.pmean(centred**2, "batch"))

    found = run(pb.vmap(standardised, axis_name="batch"))(X)
    np.testing.assert_allclose(found, (X - X.mean(0)) / X.std(0))
    tree = run(pb.vmap(lambda t: pb.psum(t, "batch"), axis_name="batch"))({"x": X, "n": np.arange(4)})
    np.testing.assert_allclose(tree["x"], np.stack([X.sum(0)] * 4))
    np.testing.assert_array_equal(tree["n"], [6] * 4)
    same = run(pb.vmap(lambda x: pb.psum(2.0, "batch") + pb.psum(1, "batch") * x, axis_name="batch"))(X)
    np.testing.assert_allclose(same, 8 + 4 * X)
    numbers = run(pb.vmap(lambda: pb.axis_index("batch"), axis_size=3, axis_name="batch"))()
    np.testing.assert_array_equal(numbers, [0, 1, 2])


@pytest.mark.parametrize("run", [lambda f: f, pb.jit])
def test_derivatives(run: Any):
    def loss(x: Any) -> Any:
        return np.sum(np.sin(pb.vmap(lambda x: x * pb.psum(x**2, "batch"), axis_name="batch")(x)))

    def plain(x: Any) -> Any:
        return np.sum(np.sin(x * np.sum(x**2, 0)))

    for transform in (pb.grad, pb.hessian):
        np.testing.assert_allclose(run(transform(loss))(X), transform(plain)(X), rtol=1e-10, atol=1e-12)
    inside = run(pb.vmap(pb.grad(lambda x: np.sum(x * pb.psum(x, "batch"))), axis_name="batch"))(X)
    np.testing.assert_allclose(inside, np.stack([2 * X.sum(0)] * 4))


@pytest.mark.parametrize("run", [lambda f: f, pb.jit])
def test_nested_names(run: Any):
    cube = np.random.default_rng(1).normal(size=(2, 3, 4))

    def function(x: Any) -> Any:
        return x - pb.psum(x, "outer") + 2 * pb.psum(x, "inner") - pb.psum(pb.psum(x, "inner"), "outer")

    both = pb.vmap(pb.vmap(function, axis_name="inner"), axis_name="outer")
    rows, columns = cube.sum(0, keepdims=True), cube.sum(1, keepdims=True)
    np.testing.assert_allclose(
        run(both)(cube), cube - rows + 2 * columns - cube.sum((0, 1), keepdims=True), atol=1e-12
    )
    shadowed = pb.vmap(pb.vmap(lambda x: pb.psum(x, "a"), axis_name="a"), axis_name="a")
    np.testing.assert_allclose(run(shadowed)(cube), np.broadcast_to(columns, cube.shape))
    through = pb.vmap(pb.vmap(lambda x: pb.psum(x, "outer")), axis_name="outer")
    np.testing.assert_allclose(run(through)(cube), np.broadcast_to(rows, cube.shape))


@pytest.mark.parametrize("run", [lambda f: f, pb.jit])
def test_in_loops(run: Any):
    def function(x: Any) -> Any:
        def step(total: Any, x: Any) -> Any:
            return total + pb.psum(x, "batch") + pb.psum(1.0, "batch"), None

        return pb.scan(step, 0.0, x)[0]

    found = run(pb.vmap(function, axis_name="batch"))(X)
    np.testing.assert_allclose(found, [X.sum() + 12] * 4)
    slope = run(pb.grad(lambda x: pb.vmap(function, axis_name="batch")(x).sum()))(X)
    np.testing.assert_allclose(slope, np.full(X.shape, 4.0))


def test_names_that_are_not_there():
    with pytest.raises(TracingError, match="psum: there is no axis 'batch' here, names in use: none"):
        pb.psum(X, "batch")
    with pytest.raises(TracingError, match="pmean: there is no axis 'b' here, names in use: 'a'"):
        pb.vmap(lambda x: pb.pmean(x, "b"), axis_name="a")(X)
    with pytest.raises(TracingError, match="axis_index: there is no axis"):
        pb.axis_index("batch")


@pytest.mark.parametrize("run", [lambda f: f, pb.jit])
def test_the_largest_and_the_smallest(run: Any):
    x = np.array([[1.0, 5.0], [3.0, 5.0], [2.0, -1.0]])
    largest, smallest = run(pb.vmap(lambda x: (pb.pmax(x, "b"), pb.pmin(x, "b")), axis_name="b"))(x)
    np.testing.assert_array_equal(largest, np.broadcast_to(x.max(0), x.shape))
    np.testing.assert_array_equal(smallest, np.broadcast_to(x.min(0), x.shape))
    same = run(pb.vmap(lambda x: pb.pmax(2.0, "b") * x, axis_name="b"))(x)
    np.testing.assert_array_equal(same, 2 * x)

    def softmax(x: Any) -> Any:
        powers = np.exp(x - pb.pmax(x, "b"))
        return powers / pb.psum(powers, "b")

    np.testing.assert_allclose(run(pb.vmap(softmax, axis_name="b"))(x), pb.softmax(x, 0))
    for one, many in ((pb.pmax, np.max), (pb.pmin, np.min)):
        mapped = pb.vmap(lambda x, one=one: x * one(x**2, "b"), axis_name="b")
        found = run(pb.grad(lambda x, mapped=mapped: np.sum(np.sin(mapped(x)))))(x)
        expected = pb.grad(lambda x, many=many: np.sum(np.sin(x * many(x**2, 0))))(x)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("run", [lambda f: f, pb.jit])
def test_values_of_all_examples(run: Any):
    found = run(pb.vmap(lambda x: pb.all_gather(x, "b"), axis_name="b"))(X)
    np.testing.assert_array_equal(found, np.broadcast_to(X, (4, 4, 3)))
    found = run(pb.vmap(lambda x: pb.all_gather(x, "b", axis=-1), axis_name="b"))(X)
    np.testing.assert_array_equal(found, np.broadcast_to(X.T, (4, 3, 4)))
    found = run(pb.vmap(lambda x: pb.all_gather(1.5, "b") + x[0], axis_name="b"))(X)
    np.testing.assert_array_equal(found, 1.5 + np.broadcast_to(X[:, :1], (4, 4)))

    def forces(x: Any) -> Any:
        mapped = pb.vmap(lambda x: np.sum(np.tanh(pb.all_gather(x, "b") - 2 * x)), axis_name="b")
        return np.sum(np.sin(mapped(x)))

    def plain(x: Any) -> Any:
        return np.sum(np.sin(np.sum(np.tanh(x[None] - 2 * x[:, None]), (1, 2))))

    for transform in (pb.grad, pb.hessian):
        np.testing.assert_allclose(run(transform(forces))(X), transform(plain)(X), rtol=1e-10, atol=1e-12)
    inside = run(pb.vmap(pb.grad(lambda x: np.sum(pb.all_gather(x, "b"))), axis_name="b"))(X)
    np.testing.assert_allclose(inside, np.full((4, 3), 4.0))


@pytest.mark.parametrize("run", [lambda f: f, pb.jit])
def test_all_of_them_through_another_axis(run: Any):
    cube = np.random.default_rng(1).normal(size=(2, 3, 4))

    def function(x: Any) -> Any:
        rows = pb.all_gather(x, "outer")
        return np.sum(np.sin(rows), 0) + pb.pmax(x, "outer") * x + pb.pmin(x, "inner")

    both = pb.vmap(pb.vmap(function, axis_name="inner"), axis_name="outer")

    def plain(cube: Any) -> Any:
        return np.sum(np.sin(cube), 0) + np.max(cube, 0) * cube + np.min(cube, 1, keepdims=True)

    np.testing.assert_allclose(run(both)(cube), plain(cube), rtol=1e-12)
    found = run(pb.grad(lambda x: np.sum(both(x) ** 2)))(cube)
    np.testing.assert_allclose(found, pb.grad(lambda x: np.sum(plain(x) ** 2))(cube), rtol=1e-12)


def test_an_axis_that_a_gathered_value_has_not():
    with pytest.raises(ShapeError, match=r"axis 3 of 2 axes"):
        pb.vmap(lambda x: pb.all_gather(x, "b", axis=3), axis_name="b")(X)
    with pytest.raises(TracingError, match="there is no axis 'c' here"):
        pb.vmap(lambda x: pb.pmax(x, "c"), axis_name="b")(X)
