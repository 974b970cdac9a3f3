"""L-BFGS against known minima, and its line search on functions that do not make it easy."""

import numpy as np
import pytest

from pullback import buffer, grad, jit, nn, optim, value_and_grad
from pullback import numpy as pnp
from pullback.errors import NonFiniteLoss, TreeError
from pullback.optim import LBFGS

random = np.random.default_rng(3)


def rosenbrock(p):
    return ((1 - p[:-1]) ** 2 + 100 * (p[1:] - p[:-1] ** 2) ** 2).sum()


@pytest.mark.parametrize("size", [2, 7, 50])
@pytest.mark.parametrize(
    ("dtype", "tolerance", "close"), [(np.float64, 1e-9, 1e-8), (np.float32, 1e-4, 1e-3)]
)
def test_rosenbrock(size, dtype, tolerance, close):
    begin = np.resize(np.array([-1.2, 1.0], dtype), size)
    found = LBFGS().minimise(rosenbrock, begin, tolerance=tolerance)
    assert found.converged and found.parameters.dtype == dtype
    np.testing.assert_allclose(found.parameters, 1, atol=close)
    np.testing.assert_array_equal(begin, np.resize(np.array([-1.2, 1.0], dtype), size))
    assert found.loss == pytest.approx(rosenbrock(found.parameters.astype(np.float64)), abs=close)


def test_a_quadratic_function_of_data():
    q, _ = np.linalg.qr(random.standard_normal((20, 20)))
    matrix, wanted = q @ np.diag(np.geomspace(0.01, 10, 20)) @ q.T, random.standard_normal(20)

    def loss(x, matrix, b):
        return 0.5 * x @ matrix @ x - b @ x

    found = LBFGS().minimise(loss, np.zeros(20), matrix, matrix @ wanted, tolerance=1e-9)
    assert found.converged and found.evaluations < 400
    np.testing.assert_allclose(found.parameters, wanted, atol=1e-6)


def logistic_data():
    x = random.standard_normal((200, 3))
    return x, (x @ [1.0, -2.0, 0.5] + random.standard_normal(200) > 0.3).astype(float)


def logistic_loss(model, x, y):
    logits = x @ model["weight"] + model["bias"]
    return nn.binary_cross_entropy(logits, y) + 0.01 * (model["weight"] ** 2).sum()


def test_logistic_regression_is_where_newton_ends():
    x, y = logistic_data()
    found = LBFGS().minimise(
        logistic_loss, {"weight": np.zeros(3), "bias": np.array(0.0)}, x, y, tolerance=1e-9
    )
    design, theta = np.column_stack([x, np.ones(200)]), np.zeros(4)
    ridge = np.diag([0.02, 0.02, 0.02, 0.0])
    for _ in range(20):
        p = 1 / (1 + np.exp(-design @ theta))
        hessian = (design * (p * (1 - p))[:, None]).T @ design / 200 + ridge
        theta -= np.linalg.solve(hessian, design.T @ (p - y) / 200 + ridge @ theta)
    np.testing.assert_allclose(found.parameters["weight"], theta[:3], atol=1e-7)
    np.testing.assert_allclose(found.parameters["bias"], theta[3], atol=1e-7)
    assert found.converged and found.evaluations < 40


@pytest.mark.parametrize("compiled", [True, False])
def test_logistic_regression_by_logaddexp_leaves_zero_weights(compiled):
    """All margins are equal at the start, where the loss has a slope of a half on either side."""
    x, y = logistic_data()
    signs = 2 * y - 1

    def loss(weights):
        return np.mean(np.logaddexp(0.0, -signs * (x @ weights))) + 0.01 * (weights**2).sum()

    def known(weights):
        return nn.binary_cross_entropy(x @ weights, y) + 0.01 * (weights**2).sum()

    run = jit if compiled else lambda f: f
    np.testing.assert_allclose(
        run(grad(loss))(np.zeros(3)), -(x.T @ signs) / (2 * len(y)), rtol=1e-12, atol=1e-15
    )
    found = LBFGS().minimise(loss, np.zeros(3), tolerance=1e-9)
    expected = LBFGS().minimise(known, np.zeros(3), tolerance=1e-9)
    assert found.converged and found.evaluations > 3
    np.testing.assert_allclose(found.parameters, expected.parameters, atol=1e-7)


def by_hand(function, begin, steps, memory):
    """The textbook: dense products of matrices in place of the two loops; yields each point that is reached."""
    x, (f, g) = begin, value_and_grad(function)(begin)
    pairs = []
    for _ in range(steps):
        estimate = np.eye(len(x)) / max(np.linalg.norm(g), 1.0)
        if pairs:
            s, y = pairs[-1]
            estimate = np.eye(len(x)) * (s @ y) / (y @ y)
        for s, y in pairs[-memory:]:
            turn = np.eye(len(x)) - np.outer(s, y) / (s @ y)
            estimate = turn @ estimate @ turn.T + np.outer(s, s) / (s @ y)
        direction, size, low, high = -estimate @ g, 1.0, 0.0, np.inf
        while True:
            trial = x + size * direction
            value, gradient = value_and_grad(function)(trial)
            if not value <= f + 1e-4 * size * (g @ direction):
                high = size
            elif gradient @ direction < 0.9 * (g @ direction):
                low = size
            else:
                break
            size = (low + high) / 2 if np.isfinite(high) else 2 * low
        pairs.append((trial - x, gradient - g))
        x, f, g = trial, value, gradient
        yield x


def test_points_are_those_of_the_formulas():
    begin, optimiser = np.array([-1.2, 1.0, 0.5, 2.0]), LBFGS(memory=3)
    state, point, reached = optimiser.init(begin), begin, [begin]
    for _ in range(40):
        value, gradients = value_and_grad(rosenbrock)(optimiser.trial(state, point))
        point, state, loss = optimiser.update(gradients, state, point, value)
        assert loss == pytest.approx(rosenbrock(point), rel=1e-12)
        if not np.array_equal(point, reached[-1]):
            reached.append(point)
    expected = list(by_hand(rosenbrock, begin, len(reached) - 1, memory=3))
    assert len(expected) > 20
    np.testing.assert_allclose(reached[1:], expected, rtol=1e-6)
    losses = [rosenbrock(point) for point in reached]
    assert (np.diff(losses) < 0).all()


class Curve(nn.Module):
    """Parameters of two dtypes, with an integer and a buffer between them."""

    first: np.ndarray
    count: np.ndarray
    fixed: np.ndarray = buffer()
    last: np.ndarray


def test_trees_of_several_dtypes_with_what_is_no_parameter_between():
    begin = Curve(np.ones((2, 3), np.float32), np.array([3]), np.array([5.0]), np.full(2, 2.0))

    def loss(curve):
        return ((curve.first - 3) ** 2).sum() + ((curve.last + curve.fixed) ** 4).sum()

    found = LBFGS().minimise(loss, begin, tolerance=1e-8).parameters
    assert found.first.dtype == np.float32 and found.last.dtype == np.float64
    assert found.count == 3 and found.fixed == 5
    np.testing.assert_allclose(found.first, 3, atol=1e-5)
    np.testing.assert_allclose(found.last, -5, atol=1e-2)


def test_trials_outside_the_domain_are_turned_down():
    """The first step ends where the logarithm is not defined."""
    found = LBFGS().minimise(lambda x: (x - pnp.log(x)).sum() * 100, np.array([0.9, 3.0]), tolerance=1e-8)
    assert found.converged
    np.testing.assert_allclose(found.parameters, 1, atol=1e-7)


def test_rounding_ends_a_search_that_finds_nothing_lower():
    """The gradient jumps where the loss is lowest: no trial is flat, and none is lower."""
    found = LBFGS().minimise(lambda x: pnp.maximum(x - 3, 6 - 2 * x).sum(), np.array([1.0, 2.5]))
    assert not found.converged and found.evaluations < 1000
    np.testing.assert_allclose(found.parameters, 3, atol=1e-6)


def test_a_minimum_is_found_beyond_what_the_loss_resolves():
    """Next to a million the loss of float32 moves in steps of a sixteenth; the slopes know better."""
    found = LBFGS().minimise(lambda x: ((x - 3) ** 2).sum() + 1e6, np.zeros(3, np.float32), tolerance=1e-4)
    assert found.converged
    np.testing.assert_allclose(found.parameters, 3, atol=1e-4)


def test_a_minimum_to_begin_with():
    found = LBFGS().minimise(lambda x: (x**2).sum(), np.zeros(3))
    assert found.converged and found.evaluations == 1 and found.loss == 0


def test_the_number_of_evaluations_is_limited():
    found = LBFGS().minimise(rosenbrock, np.array([-1.2, 1.0]), steps=5)
    assert found.evaluations == 5 and not found.converged
    assert found.loss == pytest.approx(rosenbrock(found.parameters))


def test_a_slope_without_end_is_followed():
    found = LBFGS().minimise(lambda x: -x.sum(), np.zeros(2), steps=100)
    assert not found.converged and found.loss < -1e6


@pytest.mark.parametrize("begin", [np.array([-1.0]), np.array([np.nan])])
def test_a_bad_beginning(begin):
    with pytest.raises(NonFiniteLoss, match="first parameters"):
        LBFGS().minimise(lambda x: pnp.log(x).sum(), begin)


def test_settings_and_trees_that_make_no_sense():
    for options in ({"memory": 0}, {"trials": -1}, {"learning_rate": 0.0}):
        with pytest.raises(ValueError, match=r"\[LBFGS\]"):
            LBFGS(**options)
    with pytest.raises(TreeError, match="no parameters"):
        LBFGS().init({"count": np.array([1])})
    with pytest.raises(TypeError, match="Give it full batches"):
        optim.Accumulate(LBFGS(), 2)
