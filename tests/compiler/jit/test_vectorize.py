"""Functions of numbers as compiled functions of arrays."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ShapeError, TracingError, TreeError


def smooth(x, y):
    return np.sin(x) * y + x


@pytest.mark.parametrize(
    "shapes",
    [
        ((), ()),
        ((3,), ()),
        ((), (4,)),
        ((3, 1), (4,)),
        ((2, 3, 4), (3, 1)),
        ((1,), (1, 1)),
        ((0, 3), (3,)),
        ((5, 1, 1), (1, 2, 3)),
    ],
)
def test_arguments_are_broadcast(shapes):
    generator = np.random.default_rng(0)
    x, y = (generator.normal(size=shape) for shape in shapes)
    result = pb.vectorize(smooth)(x, y)
    assert result.shape == np.broadcast_shapes(*shapes)
    np.testing.assert_allclose(result, smooth(x, y), rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_dtypes_stay(dtype):
    x = np.arange(3).astype(dtype)
    assert pb.vectorize(lambda x: x * 2)(x).dtype == dtype
    assert pb.vectorize(np.exp)(x).dtype == np.exp(x).dtype


def test_lists_and_numbers_are_taken():
    function = pb.vectorize(lambda x, y: x * y)
    assert function([1.0, 2.0], 3).tolist() == [3.0, 6.0]
    assert function(2.0, 3) == 6.0


def test_names_and_texts_stay():
    def payoff(price):
        """What it pays."""
        return price * 2

    function = pb.vectorize(payoff)
    assert (function.__name__, function.__doc__) == ("payoff", "What it pays.")


def test_a_tree_of_results():
    both = pb.vectorize(lambda x: {"sin": np.sin(x), "cos": (np.cos(x),)})
    x = np.linspace(0, 1, 5)
    np.testing.assert_allclose(both(x)["cos"][0], np.cos(x))


def test_keywords_are_broadcast_and_excluded():
    function = pb.vectorize(lambda x, *, scale=1.0: x * scale)
    assert function(2.0, scale=[1.0, 3.0]).tolist() == [2.0, 6.0]
    table = np.array([1.0, 10.0, 100.0])
    weighted = pb.vectorize(lambda x, *, table: np.sum(x**2 * table), excluded="table")
    assert weighted(np.array([1.0, 2.0]), table=table).tolist() == [111.0, 444.0]
    power = pb.vectorize(lambda x, tree: x * tree["a"].sum(), excluded=1)
    assert power([1.0, 2.0], {"a": table}).tolist() == [111.0, 222.0]


def test_signatures():
    a, x = np.random.default_rng(1).normal(size=(2, 1, 4, 3)), np.random.default_rng(2).normal(size=(5, 3))
    product = pb.vectorize(lambda a, x: a @ x, signature="(m,n),(n)->(m)")
    np.testing.assert_allclose(product(a, x), np.einsum("abmn,bn->abm", np.broadcast_to(a, (2, 5, 4, 3)), x))
    several = pb.vectorize(lambda x: (x.sum(), x * 2), signature="(n)->(),(n)")
    total, doubled = several(x)
    assert total.shape == (5,) and doubled.shape == (5, 3)


def test_derivatives_go_through_and_around():
    x, y = np.linspace(0.1, 1, 4), np.array([[1.0], [2.0]])
    slope = pb.vectorize(pb.grad(smooth))
    np.testing.assert_allclose(slope(x, y), np.cos(x) * y + 1, rtol=1e-14)
    function = pb.vectorize(smooth)
    by_y = pb.grad(lambda y: np.sum(function(x, y)))(y)
    np.testing.assert_allclose(by_y, np.sin(x).sum().repeat(2)[:, None], rtol=1e-14)
    compiled = pb.jit(pb.grad(lambda y: np.sum(function(x, y))))(y)
    np.testing.assert_allclose(compiled, by_y, rtol=1e-14)
    np.testing.assert_allclose(pb.vmap(function, (None, 0))(x, y), smooth(x, y), rtol=1e-14)


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ShapeError, match=r"shapes \(3,\), \(4,\) cannot be broadcast"):
        pb.vectorize(smooth)(np.zeros(3), np.zeros(4))
    with pytest.raises(ShapeError, match=r"a result of one element has shape \(3,\)"):
        pb.vectorize(lambda x: x * np.ones(3))(np.zeros(2))
    product = pb.vectorize(lambda a, x: a @ x, signature="(m,n),(n)->(m)")
    with pytest.raises(ShapeError, match="axis n is 3 long in argument 0 and 4 in argument 1"):
        product(np.zeros((2, 3)), np.zeros(4))
    with pytest.raises(ShapeError, match="argument 0 has shape"):
        product(np.zeros(3), np.zeros(3))
    with pytest.raises(ShapeError, match="2 arguments"):
        product(np.zeros((3, 3)))
    with pytest.raises(ShapeError, match="write it as"):
        pb.vectorize(smooth, signature="m,n->m")


def test_what_is_no_number_or_name_cannot_be_excluded():
    with pytest.raises(TreeError, match="excluded"):
        pb.vectorize(smooth, excluded=[1.5])


def test_a_function_that_decides_by_an_element_is_refused():
    with pytest.raises(TracingError, match="where"):
        pb.vectorize(lambda x: x if x > 0 else -x)(np.zeros(3))
