"""Sizes and names of the axes of a batch."""

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import BatchError, TracingError, TreeError

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
