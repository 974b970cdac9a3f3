"""Densities, distributions and their inverses under SciPy's names, of traced values and of concrete arrays.

Each distribution has ``logpdf`` or ``logpmf`` and ``pdf`` or ``pmf``; those whose integral is known have
``cdf``, ``logcdf``, ``sf``, ``logsf`` and ``ppf`` as well. Arguments are SciPy's: a place, shapes, ``loc`` and
``scale``. Outside of what a distribution takes the density is 0, its logarithm minus infinity, and the derivative 0.

>>> import numpy as np
>>> import pullback as pb
>>> print(f"{norm.logpdf(1.0, 0.0, 2.0):.6f} {gamma.logpdf(2.0, 3.0):.6f} {poisson.logpmf(2, 1.5):.6f}")
-1.737086 -1.306853 -1.382217
>>> print(f"{pb.grad(lambda s: norm.logpdf(1.0, 0.0, s))(2.0):.6f}")
-0.375000
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.numpy import elementwise as e
from pullback.numpy import linalg
from pullback.numpy import reductions as r
from pullback.numpy.promotion import as_array_node, cast, float_dtype, operands, where_written
from pullback.scipy import special
from pullback.scipy.arrays import on_arrays

__all__ = [
    "Distribution",
    "bernoulli",
    "beta",
    "binom",
    "cauchy",
    "chi2",
    "dirichlet",
    "expon",
    "gamma",
    "geom",
    "gumbel_r",
    "halfnorm",
    "invgamma",
    "laplace",
    "logistic",
    "lognorm",
    "multivariate_normal",
    "nbinom",
    "norm",
    "pareto",
    "poisson",
    "t",
    "truncnorm",
    "uniform",
    "weibull_min",
]

LOG_2_PI = math.log(2 * math.pi)


class Distribution:
    """A distribution of numbers, of ``shapes`` further parameters, by functions of the place that is brought to scale.

    ``logarithm(x, *shapes)`` is that of the density where ``inside(x, *shapes)`` holds; ``standard`` is a place inside.
    ``discrete`` distributions have no scale, and are zero between whole numbers.
    """

    def __init__(
        self,
        name: str,
        shapes: int,
        logarithm: Callable[..., Any],
        inside: Callable[..., Any] | None = None,
        standard: float = 1.0,
        cdf: Callable[..., Any] | None = None,
        sf: Callable[..., Any] | None = None,
        logcdf: Callable[..., Any] | None = None,
        ppf: Callable[..., Any] | None = None,
        discrete: bool = False,
    ) -> None:
        self.name, self.shapes, self.discrete = name, shapes, discrete
        self._logarithm, self._inside, self._standard = logarithm, inside, standard
        density, distribution = on_arrays(self._density), on_arrays(self._distribution)
        kind = "pmf" if discrete else "pdf"
        setattr(self, f"log{kind}", density)
        setattr(self, kind, on_arrays(lambda *a, **k: e.exp(self._density(*a, **k))))
        known = {"cdf": cdf, "sf": sf, "logcdf": logcdf}
        for each, function in known.items():
            if function is not None:
                setattr(self, each, self._bound(distribution, function))
        if cdf is not None and sf is None:
            self.sf = on_arrays(lambda *a, **k: 1 - self._distribution(cdf, *a, **k))
        if logcdf is None and cdf is not None:
            self.logcdf = on_arrays(lambda *a, **k: e.log(self._distribution(cdf, *a, **k)))
        if cdf is not None:
            other = sf or (lambda *a: 1 - cdf(*a))
            self.logsf = on_arrays(lambda *a, **k: e.log(self._distribution(other, *a, **k)))
        if ppf is not None:
            self.ppf = on_arrays(lambda *a, **k: self._inverse(ppf, *a, **k))

    @staticmethod
    def _bound(distribution: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **keywords: distribution(function, *arguments, **keywords)

    def __repr__(self) -> str:
        return f"Distribution({self.name})"

    def _parameters(self, x: Any, *shapes: Any, loc: Any = 0.0, scale: Any = 1.0) -> list[Any]:
        """All of one dtype and shape: the place, the shapes, ``loc`` and ``scale``."""
        if len(shapes) > self.shapes:
            given = [*shapes[self.shapes :]]
            loc, scale = given[0], given[1] if len(given) > 1 else scale
            shapes = shapes[: self.shapes]
        if len(shapes) < self.shapes:
            raise TypeError(f"{self.name}: {len(shapes)} shapes; it takes {self.shapes}{where_written()}")
        return list(operands(self.name, (x, *shapes, loc, scale), float_dtype))

    def _density(self, x: Any, *shapes: Any, **options: Any) -> Any:
        x, *shapes, loc, scale = self._parameters(x, *shapes, **options)  # type: ignore[assignment]
        place = (x - loc) / scale
        there = scale > 0
        if self._inside is not None:
            there = there & self._inside(place, *shapes)
        if self.discrete:
            there = there & (e.floor(place) == place)
        safe = e.where(there | e.isnan(place), place, self._standard)
        value = self._logarithm(safe, *shapes)
        if not self.discrete:
            value = value - e.log(e.where(scale > 0, scale, 1.0))
        nothing = e.where(e.isnan(place) | ~(scale > 0), math.nan, -math.inf)
        return e.where(there | e.isnan(place), value, nothing)

    def _distribution(self, function: Callable[..., Any], x: Any, *shapes: Any, **options: Any) -> Any:
        x, *shapes, loc, scale = self._parameters(x, *shapes, **options)  # type: ignore[assignment]
        return function((x - loc) / scale, *shapes)

    def _inverse(self, function: Callable[..., Any], q: Any, *shapes: Any, **options: Any) -> Any:
        q, *shapes, loc, scale = self._parameters(q, *shapes, **options)  # type: ignore[assignment]
        return loc + scale * function(q, *shapes)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self.name} has no {name} here; it has {', '.join(sorted(vars(self)))}")


def _positive(x: Any, *shapes: Any) -> Any:
    return x > 0


def _from_zero(x: Any, *shapes: Any) -> Any:
    return x >= 0


def _within(x: Any, *shapes: Any) -> Any:
    return (x >= 0) & (x <= 1)


norm = Distribution(
    "norm",
    0,
    lambda x: -0.5 * (x * x + LOG_2_PI),
    cdf=special.ndtr,
    sf=lambda x: special.ndtr(-x),
    logcdf=special.log_ndtr,
    ppf=special.ndtri,
)
"""The normal distribution."""

norm.logsf = on_arrays(lambda *a, **k: norm._distribution(lambda x: special.log_ndtr(-x), *a, **k))

expon = Distribution(
    "expon",
    0,
    lambda x: -x,
    _from_zero,
    cdf=lambda x: -e.expm1(-e.maximum(x, 0.0)),
    sf=lambda x: e.exp(-e.maximum(x, 0.0)),
    ppf=lambda q: -e.log1p(-q),
)
"""The exponential distribution."""

uniform = Distribution(
    "uniform",
    0,
    lambda x: x * 0.0,
    _within,
    0.5,
    cdf=lambda x: e.minimum(e.maximum(x, 0.0), 1.0),
    ppf=lambda q: q,
)
"""The uniform distribution from ``loc`` to ``loc + scale``."""

laplace = Distribution(
    "laplace",
    0,
    lambda x: -e.absolute(x) - math.log(2),
    cdf=lambda x: e.where(x < 0, 0.5 * e.exp(-e.absolute(x)), 1 - 0.5 * e.exp(-e.absolute(x))),
    sf=lambda x: e.where(x > 0, 0.5 * e.exp(-e.absolute(x)), 1 - 0.5 * e.exp(-e.absolute(x))),
)
"""Laplace's distribution."""

logistic = Distribution(
    "logistic",
    0,
    lambda x: -e.absolute(x) - 2 * e.log1p(e.exp(-e.absolute(x))),
    cdf=special.expit,
    sf=lambda x: special.expit(-x),
    logcdf=special.log_expit,
    ppf=special.logit,
)
"""The logistic distribution."""

cauchy = Distribution(
    "cauchy",
    0,
    lambda x: -math.log(math.pi) - e.log1p(x * x),
    cdf=lambda x: 0.5 + e.arctan(x) / math.pi,
    sf=lambda x: 0.5 - e.arctan(x) / math.pi,
    ppf=lambda q: e.tan(math.pi * (q - 0.5)),
)
"""Cauchy's distribution."""

gumbel_r = Distribution(
    "gumbel_r",
    0,
    lambda x: -x - e.exp(-x),
    cdf=lambda x: e.exp(-e.exp(-x)),
    sf=lambda x: -e.expm1(-e.exp(-x)),
    logcdf=lambda x: -e.exp(-x),
    ppf=lambda q: -e.log(-e.log(q)),
)
"""Gumbel's distribution, of the largest among many."""

halfnorm = Distribution(
    "halfnorm",
    0,
    lambda x: 0.5 * math.log(2 / math.pi) - 0.5 * x * x,
    _from_zero,
    cdf=lambda x: special.erf(e.maximum(x, 0.0) * math.sqrt(0.5)),
    sf=lambda x: special.erfc(e.maximum(x, 0.0) * math.sqrt(0.5)),
)
"""The size of a normal number."""

t = Distribution(
    "t",
    1,
    lambda x, v: (
        special.gammaln((v + 1) / 2)
        - special.gammaln(v / 2)
        - 0.5 * e.log(v * math.pi)
        - (v + 1) / 2 * e.log1p(x * x / v)
    ),
    cdf=lambda x, v: special.stdtr(v, x),
    sf=lambda x, v: special.stdtr(v, -x),
)
"""Student's distribution of ``df`` degrees of freedom."""

gamma = Distribution(
    "gamma",
    1,
    lambda x, a: special.xlogy(a - 1, x) - x - special.gammaln(a),
    _from_zero,
    cdf=lambda x, a: special.gammainc(a, e.maximum(x, 0.0)),
    sf=lambda x, a: special.gammaincc(a, e.maximum(x, 0.0)),
)
"""The gamma distribution of shape ``a``."""

chi2 = Distribution(
    "chi2",
    1,
    lambda x, k: special.xlogy(k / 2 - 1, x) - x / 2 - special.gammaln(k / 2) - k / 2 * math.log(2),
    _from_zero,
    cdf=lambda x, k: special.gammainc(k / 2, e.maximum(x, 0.0) / 2),
    sf=lambda x, k: special.gammaincc(k / 2, e.maximum(x, 0.0) / 2),
)
"""The distribution of a sum of ``df`` squares of normal numbers."""

invgamma = Distribution(
    "invgamma", 1, lambda x, a: -(a + 1) * e.log(x) - special.gammaln(a) - 1 / x, _positive
)
"""The distribution of ``1 / x`` for an ``x`` of the gamma distribution."""

beta = Distribution(
    "beta",
    2,
    lambda x, a, b: special.xlogy(a - 1, x) + special.xlog1py(b - 1, -x) - special.betaln(a, b),
    _within,
    0.5,
    cdf=lambda x, a, b: special.betainc(a, b, e.minimum(e.maximum(x, 0.0), 1.0)),
)
"""The beta distribution."""

lognorm = Distribution(
    "lognorm",
    1,
    lambda x, s: -0.5 * e.square(e.log(x) / s) - e.log(s * x) - 0.5 * LOG_2_PI,
    _positive,
    cdf=lambda x, s: special.ndtr(e.log(e.maximum(x, 0.0)) / s),
    ppf=lambda q, s: e.exp(s * special.ndtri(q)),
)
"""The distribution of the exponential of a normal number with standard deviation ``s``."""

pareto = Distribution(
    "pareto",
    1,
    lambda x, b: e.log(b) - (b + 1) * e.log(x),
    lambda x, b: x >= 1,
    2.0,
    cdf=lambda x, b: 1 - e.maximum(x, 1.0) ** -b,
    sf=lambda x, b: e.maximum(x, 1.0) ** -b,
    ppf=lambda q, b: (1 - q) ** (-1 / b),
)
"""Pareto's distribution."""

weibull_min = Distribution(
    "weibull_min",
    1,
    lambda x, c: e.log(c) + special.xlogy(c - 1, x) - x**c,
    _positive,
    cdf=lambda x, c: -e.expm1(-(e.maximum(x, 0.0) ** c)),
    sf=lambda x, c: e.exp(-(e.maximum(x, 0.0) ** c)),
    ppf=lambda q, c: (-e.log1p(-q)) ** (1 / c),
)
"""Weibull's distribution."""


def _normal_share(a: Any, b: Any) -> Any:
    """The logarithm of the probability of a normal number between ``a`` and ``b``."""
    turned = a > 0
    low, high = e.where(turned, -b, a), e.where(turned, -a, b)
    first, second = special.log_ndtr(low), special.log_ndtr(high)
    return second + e.log1p(-e.exp(first - second))


truncnorm = Distribution(
    "truncnorm",
    2,
    lambda x, a, b: -0.5 * (x * x + LOG_2_PI) - _normal_share(a, b),
    lambda x, a, b: (x >= a) & (x <= b),
    0.0,
)
"""The normal distribution between ``a`` and ``b``, counted in standard deviations."""


def _next_whole(k: Any) -> Any:
    return e.floor(e.maximum(k, 0.0)) + 1


poisson = Distribution(
    "poisson",
    1,
    lambda k, mu: special.xlogy(k, mu) - special.gammaln(k + 1) - mu,
    _from_zero,
    cdf=lambda k, mu: e.where(k < 0, 0.0, special.gammaincc(_next_whole(k), mu)),
    sf=lambda k, mu: e.where(k < 0, 1.0, special.gammainc(_next_whole(k), mu)),
    discrete=True,
)
"""Poisson's distribution of the mean ``mu``."""

bernoulli = Distribution(
    "bernoulli", 1, lambda k, p: special.xlogy(k, p) + special.xlog1py(1 - k, -p), _within, discrete=True
)
"""0 and 1, with the probability ``p`` of 1."""

geom = Distribution(
    "geom",
    1,
    lambda k, p: special.xlog1py(k - 1, -p) + e.log(p),
    lambda k, p: k >= 1,
    discrete=True,
)
"""How many trials of probability ``p`` it takes, from 1 on."""

binom = Distribution(
    "binom",
    2,
    lambda k, n, p: (
        special.gammaln(n + 1)
        - special.gammaln(k + 1)
        - special.gammaln(n - k + 1)
        + special.xlogy(k, p)
        + special.xlog1py(n - k, -p)
    ),
    lambda k, n, p: (k >= 0) & (k <= n),
    0.0,
    discrete=True,
)
"""How many of ``n`` trials of probability ``p`` succeed."""

nbinom = Distribution(
    "nbinom",
    2,
    lambda k, n, p: (
        special.gammaln(k + n)
        - special.gammaln(k + 1)
        - special.gammaln(n)
        + n * e.log(p)
        + special.xlog1py(k, -p)
    ),
    _from_zero,
    discrete=True,
)
"""How many trials of probability ``p`` fail before ``n`` succeed."""


# -- of vectors


class _Normals:
    """The normal distribution of vectors along the last axis."""

    @staticmethod
    @on_arrays
    def logpdf(x: Any, mean: Any = 0.0, cov: Any = 1.0, allow_singular: bool = False) -> Any:
        """The logarithm of the density, for one covariance; ``MatrixError`` where it is not positive definite.

        With ``allow_singular`` it may have no density in some directions: it is that in the others, and minus infinity
        where ``x`` leaves them.
        """
        node = as_array_node(x)
        kind = float_dtype(
            np.result_type(node.dtype, *(getattr(v, "dtype", np.float32) for v in (mean, cov)))
        )
        kind = kind if np.ndim(x) or not isinstance(x, float) else np.dtype(np.float64)
        node, centre, spread = (cast(as_array_node(v), kind) for v in (x, mean, cov))
        if np.ndim(spread) == 0:
            size = node.shape[-1] if node.ndim else 1
            spread = spread * np.eye(size, dtype=kind)
        apart: Any = np.atleast_1d(node - centre)
        if allow_singular:
            return _singular_density(apart, spread)
        factor = linalg.cholesky(spread)
        white = linalg.solve_nodes(
            "triangular_solve", factor, apart[..., None], False, lower=True, transposed=False
        )
        logarithms = e.log(np.diagonal(factor, axis1=-2, axis2=-1))
        squares = r.sum(e.square(white[..., 0]), -1)
        return -0.5 * (squares + factor.shape[-1] * LOG_2_PI) - r.sum(logarithms, -1)

    @classmethod
    def pdf(cls, x: Any, mean: Any = 0.0, cov: Any = 1.0, allow_singular: bool = False) -> Any:
        """The density."""
        return np.exp(cls.logpdf(x, mean, cov, allow_singular))

    @staticmethod
    @on_arrays
    def entropy(mean: Any = None, cov: Any = 1.0) -> Any:
        """The differential entropy; ``MatrixError`` where the covariance is not positive definite."""
        spread: Any = as_array_node(cov)
        spread = cast(spread, float_dtype(spread.dtype))
        spread = spread.reshape(1, 1) if spread.ndim == 0 else spread
        factor = linalg.cholesky(spread)
        logarithms = e.log(np.diagonal(factor, axis1=-2, axis2=-1))
        return r.sum(logarithms, -1) + 0.5 * factor.shape[-1] * (1 + LOG_2_PI)


def _singular_density(apart: Any, spread: Any) -> Any:
    """By the eigenvalues that are not zero up to rounding, as SciPy counts them."""
    values, vectors = linalg.eigh(spread)
    info = np.finfo(values.dtype)
    least = (1e6 if info.bits == 64 else 1e3) * float(info.eps)
    limit = least * r.max(e.absolute(values))
    there = values > limit
    safe = e.where(there, values, 1.0)
    along = apart @ vectors
    # Not by the eigenvectors, which have no derivative where eigenvalues are equal.
    squares = r.sum(apart * (apart @ linalg.pinv(spread, least, hermitian=True)), -1)
    rank = r.sum(cast(there, values.dtype))
    outside = r.safe_sqrt(r.sum(e.where(there, 0.0, e.square(along)), -1)) >= 1e3 * limit
    found = -0.5 * (squares + rank * LOG_2_PI + r.sum(e.log(safe)))
    return e.where(outside, -math.inf, found)


class _Dirichlet:
    """Dirichlet's distribution of shares along the first axis."""

    @staticmethod
    @on_arrays
    def logpdf(x: Any, alpha: Any) -> Any:
        """The logarithm of the density; ``x`` has all shares, which are 1 together."""
        shares, weights = as_array_node(x), as_array_node(alpha)
        wide: Any = np.reshape(weights, (*weights.shape, *(1,) * (shares.ndim - 1)))
        norm = special.gammaln(r.sum(weights)) - r.sum(special.gammaln(weights))
        return norm + r.sum(special.xlogy(wide - 1, shares), 0)

    @classmethod
    def pdf(cls, x: Any, alpha: Any) -> Any:
        """The density."""
        return np.exp(cls.logpdf(x, alpha))


multivariate_normal, dirichlet = _Normals(), _Dirichlet()
