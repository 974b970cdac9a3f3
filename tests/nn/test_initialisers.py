"""The distributions that parameters begin with."""

import math

import numpy as np
import pytest

from pullback.errors import ShapeError
from pullback.nn import initialisers

SHAPE = (3, 40, 60)  # fans of 120 and 180
UNIFORM = {
    "fan_in_uniform": 1 / math.sqrt(120),
    "glorot_uniform": math.sqrt(6 / 300),
    "he_uniform": math.sqrt(6 / 120),
    "lecun_uniform": math.sqrt(3 / 120),
}
NORMAL = {
    "glorot_normal": math.sqrt(2 / 300),
    "he_normal": math.sqrt(2 / 120),
    "lecun_normal": math.sqrt(1 / 120),
}


def drawn(initialiser, shape=SHAPE, seed=0):
    return initialiser(shape, np.random.default_rng(seed))


@pytest.mark.parametrize("name", UNIFORM)
def test_uniform_ones_fill_their_limits(name):
    values, limit = drawn(getattr(initialisers, name)), UNIFORM[name]
    assert values.shape == SHAPE and 0.99 * limit < np.abs(values).max() <= limit
    assert abs(values.mean()) < 0.05 * limit and values.std() == pytest.approx(limit / math.sqrt(3), rel=0.03)


@pytest.mark.parametrize("name", NORMAL)
def test_normal_ones_have_their_deviation(name):
    values = drawn(getattr(initialisers, name))
    assert values.std() == pytest.approx(NORMAL[name], rel=0.05) and abs(values.mean()) < 0.1 * NORMAL[name]


def test_those_with_a_parameter():
    assert np.abs(drawn(initialisers.uniform(0.2))).max() <= 0.2
    assert drawn(initialisers.normal(0.3)).std() == pytest.approx(0.3, rel=0.05)
    assert not drawn(initialisers.zeros).any()
    assert (drawn(initialisers.constant(3)) == 3.0).all()


def test_what_is_far_is_drawn_again():
    values = drawn(initialisers.truncated_normal(0.3))
    assert 0.59 < np.abs(values).max() <= 0.6
    cut = 2 * math.exp(-2) / math.sqrt(2 * math.pi) / math.erf(math.sqrt(2))
    assert values.std() == pytest.approx(0.3 * math.sqrt(1 - 2 * cut), rel=0.02)
    assert drawn(initialisers.truncated_normal(1.0), ()).shape == ()


@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (5, 5), (2, 3, 4)])
def test_orthogonal_rows_or_columns(shape):
    matrix = drawn(initialisers.orthogonal, shape).reshape(-1, shape[-1])
    product = matrix @ matrix.T if matrix.shape[0] < matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, np.eye(min(matrix.shape)), atol=1e-12)


def test_orthogonal_needs_a_matrix():
    with pytest.raises(ShapeError, match="no matrix"):
        drawn(initialisers.orthogonal, (5,))


@pytest.mark.parametrize("name", [*UNIFORM, *NORMAL, "orthogonal"])
def test_seeds_decide(name):
    initialiser = getattr(initialisers, name)
    np.testing.assert_array_equal(drawn(initialiser), drawn(initialiser))
    assert not np.array_equal(drawn(initialiser), drawn(initialiser, seed=1))


def test_vectors_have_fans_too():
    assert initialisers.fans((5,)) == (5, 5) and initialisers.fans(()) == (1, 1)
