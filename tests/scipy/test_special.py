"""Special functions under SciPy's names: SciPy's values, its own ufuncs on traced values, and derivatives."""

import sys

import numpy as np
import pytest

import pullback as pb
from pullback.errors import DerivativeError, MissingExtra
from pullback.scipy import special
from pullback.testing import check_grads

scipy_special = pytest.importorskip("scipy.special")

RANDOM = np.random.default_rng(3)
ANY, POSITIVE, SHARE = (
    RANDOM.normal(size=(3, 4)) * 2,
    RANDOM.random((3, 4)) * 4 + 0.2,
    RANDOM.random((3, 4)) * 0.9 + 0.05,
)
OTHER = RANDOM.random((3, 4)) * 3 + 0.3

ONE = {
    **dict.fromkeys(("erf", "erfc", "erfcx", "ndtr", "log_ndtr", "expit", "log_expit", "i0", "i0e"), ANY),
    **dict.fromkeys(("j0", "j1", "i1", "i1e", "exprel"), ANY),
    **dict.fromkeys(
        ("gamma", "gammaln", "digamma", "psi", "rgamma", "entr", "k0", "k1", "y0", "y1"), POSITIVE
    ),
    **dict.fromkeys(("erfinv", "erfcinv", "ndtri", "logit", "loggamma"), SHARE),
}
TWO = {
    **dict.fromkeys(("xlogy", "xlog1py", "rel_entr", "kl_div", "beta", "betaln", "huber"), (POSITIVE, OTHER)),
    **dict.fromkeys(("pseudo_huber", "poch", "binom"), (POSITIVE, OTHER)),
}


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_argument(name):
    theirs, ours, x = getattr(scipy_special, name), getattr(special, name), ONE[name]
    wanted = theirs(x)
    for found in (ours(x), pb.jit(ours)(x), pb.jit(theirs)(x)):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
        assert found.dtype == np.float64
    single = ours(x.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, theirs(x.astype(np.float32).astype(np.float64)), rtol=3e-7)
    check_grads(ours, [x], tolerance=1e-5)
    assert isinstance(ours(0.5), np.float64)
    if name[0] + name[-1] not in ("k0", "k1", "y0", "y1"):
        edges = np.array([0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, -0.5, 200.0])
        with np.errstate(all="ignore"):
            wanted = theirs(edges)
        if name in (
            "gammaln",
            "loggamma",
            "gamma",
            "digamma",
            "psi",
            "rgamma",
        ):  # what SciPy says at a pole varies
            edges, wanted = np.delete(edges, [2, 5]), np.delete(wanted, [2, 5])
        if name[0] in "ij":  # SciPy has no limits of these
            edges, wanted = np.delete(edges, [1, 2]), np.delete(wanted, [1, 2])
        if name == "loggamma":  # of a negative number it is complex, and here that of the size
            edges, wanted = np.delete(edges, 4), np.delete(wanted, 4)
        np.testing.assert_allclose(ours(edges), wanted, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_arguments(name):
    theirs, ours = getattr(scipy_special, name), getattr(special, name)
    x, y = TWO[name]
    wanted = theirs(x, y)
    for found in (ours(x, y), pb.jit(ours)(x, y), pb.jit(theirs)(x, y)):
        np.testing.assert_allclose(found, wanted, rtol=1e-11)
    check_grads(ours, [x, y], tolerance=1e-5)
    if name in ("xlogy", "xlog1py", "rel_entr", "kl_div"):
        x, y = np.meshgrid([0.0, 1.0, 2.0, np.nan], [0.0, 1.0, 3.0, np.inf, np.nan])
        np.testing.assert_allclose(ours(x, y), theirs(x, y), rtol=1e-12)


def test_entropy_has_the_slopes_of_its_factor_at_zero():
    for run in (lambda f: f, pb.jit):
        assert run(pb.grad(special.xlogy, 0))(0.0, 3.0) == pytest.approx(np.log(3))
        assert run(pb.grad(special.xlogy, 1))(0.0, 0.0) == 0


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma(name):
    theirs, ours = getattr(scipy_special, name), getattr(special, name)
    a, x = POSITIVE, OTHER
    np.testing.assert_allclose(pb.jit(theirs)(a, x), theirs(a, x), rtol=1e-14)
    check_grads(ours, [a, x], order=1, tolerance=1e-6)
    check_grads(lambda x: ours(a, x), [x])
    slope = pb.grad(lambda a: np.sum(ours(a, x)))
    with pytest.raises(DerivativeError, match="second derivative of gammainc"):
        pb.grad(lambda a: np.sum(slope(a)))(a)
    wide = np.array([0.01, 1.0, 30.0, 300.0, 300.0])
    at = np.array([3.0, 1e-3, 50.0, 290.0, 900.0])
    quotient = (theirs(wide * (1 + 1e-6), at) - theirs(wide * (1 - 1e-6), at)) / (2e-6 * wide)
    np.testing.assert_allclose(pb.grad(lambda a: np.sum(ours(a, at)))(wide), quotient, rtol=1e-5, atol=1e-9)


def test_incomplete_beta():
    np.testing.assert_allclose(
        pb.jit(scipy_special.betainc)(POSITIVE, OTHER, SHARE), scipy_special.betainc(POSITIVE, OTHER, SHARE)
    )
    check_grads(lambda x: special.betainc(POSITIVE, OTHER, x), [SHARE])
    with pytest.raises(DerivativeError, match="first argument of betainc"):
        pb.grad(lambda a: np.sum(special.betainc(a, OTHER, SHARE)))(POSITIVE)


@pytest.mark.parametrize("name", ["jv", "yv", "iv", "kv", "ive", "kve"])
def test_functions_of_bessel(name):
    for order in (0, 1.5, 3):

        def ours(z, order=order):
            return getattr(special, name)(order, z)

        np.testing.assert_allclose(pb.jit(ours)(POSITIVE), getattr(scipy_special, name)(order, POSITIVE))
        check_grads(ours, [POSITIVE + 1], tolerance=1e-5)
    with pytest.raises(DerivativeError, match="order"):
        pb.grad(lambda v: getattr(special, name)(v, 1.0))(1.0)


def test_polygamma_and_zeta():
    for n in range(5):
        np.testing.assert_allclose(
            special.polygamma(n, POSITIVE), scipy_special.polygamma(n, POSITIVE), rtol=1e-12
        )
        check_grads(lambda x, n=n: special.polygamma(n, x), [POSITIVE + 0.5], tolerance=1e-5)
    np.testing.assert_allclose(
        special.zeta(OTHER + 1, POSITIVE), scipy_special.zeta(OTHER + 1, POSITIVE), rtol=1e-12
    )
    check_grads(lambda q: special.zeta(2.5, q), [POSITIVE + 0.5], tolerance=1e-5)
    with pytest.raises(DerivativeError, match="exponent of zeta"):
        pb.grad(lambda s: special.zeta(s, 1.0))(2.0)


def test_sums_of_exponentials():
    x, b = ANY, RANDOM.normal(size=(3, 4))
    for ours, theirs in (
        (special.logsumexp, scipy_special.logsumexp),
        (
            lambda x: special.logsumexp(x, 1, b=np.abs(b)),
            lambda x: scipy_special.logsumexp(x, 1, b=np.abs(b)),
        ),
        (
            lambda x: special.logsumexp(x, 0, b=b, return_sign=True, keepdims=True),
            lambda x: scipy_special.logsumexp(x, 0, b=b, return_sign=True, keepdims=True),
        ),
        (special.softmax, scipy_special.softmax),
        (lambda x: special.log_softmax(x, 1), lambda x: scipy_special.log_softmax(x, 1)),
    ):
        for found, wanted in zip(np.atleast_1d(ours(x)), np.atleast_1d(theirs(x))):
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
    check_grads(lambda x, b: special.logsumexp(x, 1, b=b), [x, np.abs(b) + 0.1])
    assert special.multigammaln(3.5, 3) == pytest.approx(scipy_special.multigammaln(3.5, 3))
    np.testing.assert_allclose(special.factorial(np.arange(6)), scipy_special.factorial(np.arange(6)))
    signs = np.array([-2.5, -1.5, -0.5, -2.0, 0.5])
    np.testing.assert_array_equal(
        special.gammasgn(signs)[[0, 1, 2, 4]], scipy_special.gammasgn(signs)[[0, 1, 2, 4]]
    )


def test_without_scipy(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingExtra, match=r"pullback\[scipy\]"):
        special.gammainc(1.0, 2.0)
    assert special.gammaln(3.0) == pytest.approx(np.log(2))
