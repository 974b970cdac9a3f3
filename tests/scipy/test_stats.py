"""Densities against SciPy's, and their derivatives."""

import numpy as np
import pytest

import pullback as pb
from pullback.scipy import stats
from pullback.testing import check_grads

theirs = pytest.importorskip("scipy.stats")
RANDOM = np.random.default_rng(2)
X = np.array([-1.5, -0.3, 0.2, 0.7, 0.95, 1.3, 2.5, 6.0])
K = np.array([-1.0, 0.0, 1.0, 2.0, 2.5, 3.0, 7.0])

CONTINUOUS = {
    **dict.fromkeys(
        ("norm", "expon", "uniform", "laplace", "logistic", "cauchy", "gumbel_r", "halfnorm"), ()
    ),
    **dict.fromkeys(("gamma", "chi2", "invgamma", "t", "lognorm", "pareto", "weibull_min"), (1.7,)),
    "beta": (1.5, 2.5),
    "truncnorm": (-1.0, 2.0),
}
DISCRETE = {"poisson": (1.8,), "bernoulli": (0.3,), "geom": (0.4,), "binom": (5.0, 0.3), "nbinom": (2.5, 0.4)}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name):
    ours, other, shapes = getattr(stats, name), getattr(theirs, name), CONTINUOUS[name]
    for arguments in ((X, *shapes), (X, *shapes, 0.1, 1.3)):
        for function in ("logpdf", "pdf", "cdf", "sf", "logcdf", "logsf"):
            if not hasattr(ours, function):
                continue
            with np.errstate(all="ignore"):
                wanted = getattr(other, function)(*arguments)
            for run in (lambda f: f, pb.jit):
                found = run(getattr(ours, function))(*arguments)
                np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-14, err_msg=function)
    if hasattr(ours, "ppf"):
        q = np.array([0.1, 0.5, 0.8])
        np.testing.assert_allclose(
            ours.ppf(q, *shapes, 0.2, 2.0), other.ppf(q, *shapes, 0.2, 2.0), rtol=1e-10
        )
    inside = X[np.isfinite(other.logpdf(X, *shapes, 0.1, 1.3)) & (X != 0)]
    check_grads(ours.logpdf, [inside, *map(np.float64, (*shapes, 0.1, 1.3))], tolerance=1e-5)
    gradient = pb.grad(lambda *p: np.sum(np.where(np.isfinite(other.pdf(X, *shapes)), ours.pdf(X, *p), 0)))
    assert np.isfinite(gradient(*shapes, 0.1, 1.3)) if shapes else True


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name):
    ours, other, shapes = getattr(stats, name), getattr(theirs, name), DISCRETE[name]
    with np.errstate(all="ignore"):
        wanted = other.logpmf(K, *shapes)
    np.testing.assert_allclose(ours.logpmf(K, *shapes), wanted, rtol=1e-10)
    np.testing.assert_allclose(pb.jit(ours.pmf)(K, *shapes), np.exp(wanted), rtol=1e-10)
    inside = K[np.isfinite(wanted)]
    check_grads(lambda *p: ours.logpmf(inside, *p), [np.float64(s) for s in shapes], tolerance=1e-5)


def test_vectors():
    x, mean = RANDOM.normal(size=(4, 3)), RANDOM.normal(size=3)
    cov = np.array([[2.0, 0.3, 0.1], [0.3, 1.5, 0.2], [0.1, 0.2, 1.0]])
    wanted = theirs.multivariate_normal.logpdf(x, mean, cov)
    np.testing.assert_allclose(stats.multivariate_normal.logpdf(x, mean, cov), wanted)
    np.testing.assert_allclose(pb.jit(stats.multivariate_normal.logpdf)(x, mean, cov), wanted)
    np.testing.assert_allclose(
        stats.multivariate_normal.pdf(x[0]), theirs.multivariate_normal.pdf(x[0], np.zeros(3))
    )
    check_grads(stats.multivariate_normal.logpdf, [x, mean, cov], tolerance=1e-5)
    shares, alpha = np.array([0.2, 0.3, 0.5]), np.array([1.5, 2.0, 0.7])
    assert stats.dirichlet.logpdf(shares, alpha) == pytest.approx(theirs.dirichlet.logpdf(shares, alpha))
    check_grads(stats.dirichlet.logpdf, [shares, alpha], tolerance=1e-5)
    with pytest.raises(np.linalg.LinAlgError):
        pb.jit(stats.multivariate_normal.logpdf)(x, mean, -cov)


def test_normals_without_spread_in_some_directions():
    basis = np.linalg.qr(RANDOM.normal(size=(3, 3)))[0]
    cov = (basis[:, :2] * np.array([1.5, 0.4])) @ basis[:, :2].T
    mean = np.array([0.3, -0.1, 0.2])
    x = mean + RANDOM.normal(size=(4, 2)) @ basis[:, :2].T
    for place in (x, x + 0.1 * basis[:, 2]):
        wanted = theirs.multivariate_normal.logpdf(place, mean, cov, allow_singular=True)
        for run in (lambda f: f, pb.jit):
            found = run(lambda x: stats.multivariate_normal.logpdf(x, mean, cov, allow_singular=True))(place)
            np.testing.assert_allclose(found, wanted, rtol=1e-9)
    wanted = theirs.multivariate_normal.entropy(mean, cov + np.eye(3))
    assert stats.multivariate_normal.entropy(mean, cov + np.eye(3)) == pytest.approx(wanted)
    check_grads(lambda cov: stats.multivariate_normal.entropy(mean, cov), [cov + np.eye(3)], tolerance=1e-5)


@pytest.mark.parametrize("spread", [np.eye(3), np.diag([1.0, 1.0, 0.0]), np.diag([2.0, 0.0, 0.0])])
def test_normals_whose_spreads_are_equal_have_derivatives(spread):
    """Eigenvectors have none there."""
    mean, x = np.array([0.3, -0.1, 0.2]), np.array([1.0, 2.0, 0.5])
    inside = mean + np.where(np.diag(spread), x, 0.0)
    change = spread @ RANDOM.normal(size=(3, 3)) @ spread
    change += change.T

    def along(step):
        cov = spread + step * change
        return theirs.multivariate_normal.logpdf(inside, mean, cov, allow_singular=True)

    slopes = pb.grad(lambda cov: stats.multivariate_normal.logpdf(inside, mean, cov, allow_singular=True))(
        spread
    )
    wanted = (along(1e-5) - along(-1e-5)) / 2e-5
    assert np.sum(np.tril(change) * slopes) == pytest.approx(wanted, rel=1e-7)


def test_students_integral_has_derivatives_by_the_place():
    check_grads(lambda x: stats.t.cdf(x, 2.5), [X])
    assert pb.grad(lambda x: stats.t.cdf(x, 2.5))(0.0) == pytest.approx(theirs.t.pdf(0, 2.5))
    check_grads(lambda mu: stats.poisson.cdf(np.array([0.0, 2.0, 3.5]), mu), [np.array([0.5, 1.5, 4.0])])


def test_what_is_not_there_says_so():
    with pytest.raises(AttributeError, match="geom has no cdf here"):
        stats.geom.cdf(1.0, 0.2)
    with pytest.raises(TypeError, match="gamma: 0 shapes; it takes 1"):
        stats.gamma.logpdf(1.0)
