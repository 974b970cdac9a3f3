"""Random numbers of other distributions: Kolmogorov's statistic, the same numbers traced and compiled, derivatives."""

import math

import numpy as np
import pytest

import pullback as pb
from pullback import random
from pullback.compiler.runtime.threads import get_num_threads, set_num_threads
from pullback.errors import DerivativeError, ShapeError

stats = pytest.importorskip("scipy.stats")

KEY, COUNT = random.key(77), 20_000

SMOOTH = {
    "exponential": (random.exponential, stats.expon),
    "gumbel": (random.gumbel, stats.gumbel_r),
    "laplace": (random.laplace, stats.laplace),
    "logistic": (random.logistic, stats.logistic),
    "cauchy": (random.cauchy, stats.cauchy),
    "rayleigh": (lambda k, n: random.rayleigh(k, 2.0, n), stats.rayleigh(scale=2)),
    "pareto": (lambda k, n: random.pareto(k, 3.0, n), stats.pareto(3)),
    "weibull_min": (lambda k, n: random.weibull_min(k, 2.0, 1.5, n), stats.weibull_min(1.5, scale=2)),
    "lognormal": (lambda k, n: random.lognormal(k, 0.5, n), stats.lognorm(0.5)),
    "truncated_normal": (lambda k, n: random.truncated_normal(k, -1.0, 2.0, n), stats.truncnorm(-1, 2)),
    "far truncated": (
        lambda k, n: random.truncated_normal(k, 5.0, 9.0, n, np.float64),
        stats.truncnorm(5, 9),
    ),
    "gamma": (lambda k, n: random.gamma(k, 3.5, n), stats.gamma(3.5)),
    "gamma of 1": (lambda k, n: random.gamma(k, 1.0, n, np.float64), stats.gamma(1)),
    "small gamma": (lambda k, n: random.gamma(k, 0.2, n), stats.gamma(0.2)),
    "beta": (lambda k, n: random.beta(k, 0.8, 2.5, n), stats.beta(0.8, 2.5)),
    "chisquare": (lambda k, n: random.chisquare(k, 3.0, n), stats.chi2(3)),
    "t": (lambda k, n: random.t(k, 4.0, n), stats.t(4)),
    "dirichlet": (lambda k, n: random.dirichlet(k, np.array([1.0, 2.0, 3.0]), (n,))[:, 0], stats.beta(1, 5)),
    "multivariate_normal": (
        lambda k, n: random.multivariate_normal(k, np.ones(2), np.array([[2.0, 1.0], [1.0, 3.0]]), (n,))[
            :, 1
        ],
        stats.norm(1, math.sqrt(3)),
    ),
}
COUNTS = {
    "poisson of few": (lambda k, n: random.poisson(k, 3.3, n), stats.poisson(3.3)),
    "poisson of many": (lambda k, n: random.poisson(k, 40.0, n), stats.poisson(40)),
    "poisson of very many": (lambda k, n: random.poisson(k, 1e4, n), stats.poisson(1e4)),
    "geometric": (lambda k, n: random.geometric(k, 0.3, n), stats.geom(0.3)),
    "randint": (lambda k, n: random.randint(k, n, -3, 4), stats.randint(-3, 4)),
    "categorical": (
        lambda k, n: random.categorical(k, np.log([0.2, 0.5, 0.3]), shape=n),
        stats.rv_discrete(values=([0, 1, 2], [0.2, 0.5, 0.3])),
    ),
    "choice": (
        lambda k, n: random.choice(k, np.array([0, 1, 2]), n, p=np.array([0.2, 0.5, 0.3])),
        stats.rv_discrete(values=([0, 1, 2], [0.2, 0.5, 0.3])),
    ),
    "choice of a number": (lambda k, n: random.choice(k, 5, n), stats.randint(0, 5)),
}


@pytest.mark.parametrize(("draw", "distribution"), SMOOTH.values(), ids=SMOOTH)
def test_the_distribution_is_right(draw, distribution):
    values = np.sort(np.asarray(draw(KEY, COUNT), np.float64))
    expected = distribution.cdf(values)
    above, below = np.arange(1, COUNT + 1) / COUNT - expected, expected - np.arange(COUNT) / COUNT
    # What Kolmogorov's statistic exceeds once in ten thousand times.
    assert max(above.max(), below.max()) < math.sqrt(-math.log(1e-4 / 2) / (2 * COUNT))


@pytest.mark.parametrize(("draw", "distribution"), COUNTS.values(), ids=COUNTS)
def test_the_probabilities_are_right(draw, distribution):
    values = draw(KEY, COUNT)
    assert values.dtype == np.int64
    mean, variance = distribution.mean(), distribution.var()
    assert abs(values.mean() - mean) < 4.5 * math.sqrt(variance / COUNT)
    for number in np.unique(values)[:: max(1, len(np.unique(values)) // 20)]:
        p = float(distribution.pmf(number))
        assert abs(np.mean(values == number) - p) < 4.5 * math.sqrt(p * (1 - p) / COUNT) + 1 / COUNT


@pytest.mark.parametrize("name", [*SMOOTH, *COUNTS])
def test_traced_and_compiled_they_are_the_same_numbers(name):
    draw = {**SMOOTH, **COUNTS}[name][0]
    at_once = draw(KEY, 500)
    traced, compiled = (
        pb.trace(lambda k: draw(k, 500), KEY).evaluate([KEY]),
        pb.jit(lambda k: draw(k, 500))(KEY),
    )
    assert at_once.dtype == traced.dtype == compiled.dtype
    for found in (traced, compiled):
        # Rounding decides about a number now and then.
        near = np.isclose(found, at_once, rtol=2e-5 if found.dtype == np.float32 else 1e-9, atol=1e-6)
        assert near.mean() > 0.99


def test_any_number_of_threads_gives_the_same_bits():
    draw = pb.jit(lambda k: (random.gamma(k, 2.5, (300, 200)), random.poisson(k, 20.0, (300, 200))))
    before, found = get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            found.append([part.tobytes() for part in draw(KEY)])
    finally:
        set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_implicit_derivatives_of_gamma():
    a = np.array([0.3, 1.0, 2.5, 40.0])
    drawn, push = random.gamma(KEY, a, dtype=np.float64), 1e-6
    for run in (lambda f: f, pb.jit):
        slopes = run(pb.grad(lambda a: np.sum(random.gamma(KEY, a, dtype=np.float64))))(a)
        moved = [stats.gamma(a + step).ppf(stats.gamma(a).cdf(drawn)) for step in (push, -push)]
        np.testing.assert_allclose(slopes, (moved[0] - moved[1]) / (2 * push), rtol=1e-5)
    many = np.full(4000, 3.0)
    mean_slope = pb.grad(lambda a: np.mean(random.gamma(KEY, np.broadcast_to(a, (4000,)))))(np.float64(3.0))
    assert abs(mean_slope - 1) < 0.05 and many.size == 4000
    first = pb.grad(lambda a: random.gamma(KEY, a))
    with pytest.raises(DerivativeError, match="gamma number"):
        pb.grad(first)(2.0)


def test_reparameterised_numbers_have_the_slopes_of_their_formulas():
    def total(low, scale, cov):
        drawn = random.truncated_normal(KEY, low, 3.0, 50, np.float64)
        other = random.weibull_min(KEY, scale, 1.5, 50, np.float64)
        vectors = random.multivariate_normal(KEY, np.zeros(2), cov, (5,), np.float64)
        return np.sum(drawn**2) + np.sum(other) + np.sum(vectors**3)

    pb.testing.check_grads(
        total, [np.float64(-0.5), np.float64(2.0), np.array([[2.0, 0.5], [0.5, 1.0]])], order=1
    )


def test_choices_without_replacement():
    drawn = random.choice(KEY, np.arange(10.0), (2, 4), replace=False)
    assert drawn.shape == (2, 4) and len(set(drawn.ravel())) == 8
    p = np.array([0.0, 0.5, 0.25, 0.25])
    for run in (lambda f: f, pb.jit):
        places = run(lambda k: random.choice(k, 4, 3, replace=False, p=p))(KEY)
        assert sorted(places.tolist()) == [1, 2, 3]
    shuffled = random.shuffle(KEY, np.arange(12).reshape(3, 4), axis=1)
    assert sorted(shuffled[0].tolist()) == [0, 1, 2, 3] and (shuffled[1] - shuffled[0] == 4).all()
    assert set(random.rademacher(KEY, 100).tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: random.gamma(KEY, np.ones(3), (2,)), ShapeError),
        (lambda: random.randint(KEY, 3, 5, 5), ValueError),
        (lambda: random.choice(KEY, 3, 4, replace=False), ValueError),
        (lambda: random.multivariate_normal(KEY, np.zeros(2), -np.eye(2)), np.linalg.LinAlgError),
    ],
)
def test_what_does_not_fit(make, error):
    with pytest.raises(error):
        make()
