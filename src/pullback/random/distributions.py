"""Random numbers of other distributions, made of uniform and normal ones.

Parameters are numbers or arrays, traced ones too. Where the numbers are smooth functions of them, and those of
``gamma`` and what is made of it, there are derivatives: ``pb.grad(lambda a: random.gamma(key, a))``. The same
key gives the same numbers for any number of threads; the last bit of a logarithm, and with it now and then whether a
number is accepted, is that of whoever computes it, NumPy or compiled code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pullback.errors import ShapeError, TracingError
from pullback.graph import Node
from pullback.numpy import argmax, astype, stack, stop_gradient, take
from pullback.numpy import linalg as pnp_linalg
from pullback.numpy.axes import normal_axis
from pullback.numpy.promotion import any_traced, broadcast_shapes, where_written
from pullback.random.keys import Shape, bernoulli, bits, float_kind, normal, permutation, split, uniform
from pullback.scipy import special

__all__ = [
    "beta",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "dirichlet",
    "exponential",
    "gamma",
    "geometric",
    "gumbel",
    "laplace",
    "logistic",
    "lognormal",
    "multivariate_normal",
    "pareto",
    "poisson",
    "rademacher",
    "randint",
    "rayleigh",
    "shuffle",
    "t",
    "truncated_normal",
    "weibull_min",
]

ATTEMPTS = 8
"""Numbers that are proposed for each of ``gamma``: one in twenty is rejected at worst, all of them once in
3e10 times.
"""

POISSON_ATTEMPTS = 16
"""The same for ``poisson``, where less than one in four is rejected."""

FEW = 10.0
"""Up to this mean a number of ``poisson`` is counted from 0 on, in so many steps at most: more have a
chance below 1e-16.
"""
FEW_STEPS = 46


def _shape_of(name: str, shape: Shape | None, *parameters: Any) -> tuple[int, ...]:
    """The shape that is asked for, or that of the parameters."""
    own = broadcast_shapes(f"[{name}]", *(np.shape(parameter) for parameter in parameters))
    if shape is None:
        return own
    wanted = (shape,) if isinstance(shape, int) else tuple(shape)
    try:
        fits = np.broadcast_shapes(own, wanted) == wanted
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"[{name}] parameters of shape {own} do not broadcast to shape {wanted}{where_written()}"
        )
    return wanted


def _share(key: Any, shape: Any, kind: np.dtype) -> Any:
    """Uniform floats above 0 and below 1."""
    least = 2.0**-25 if kind == np.float32 else 2.0**-54
    return np.maximum(uniform(key, shape, dtype=kind), kind.type(least))


def _as(kind: np.dtype, *parameters: Any) -> list[Any]:
    """Parameters in the dtype of the numbers."""
    return [astype(p, kind) if isinstance(p, Node) else np.asarray(p, kind)[()] for p in parameters]


# -- by the inverse of the distribution


def exponential(key: Any, shape: Shape = (), dtype: DTypeLike = np.float32) -> Any:
    """Floats of the density ``exp(-x)``.

    >>> from pullback import random
    >>> bool(abs(random.exponential(random.key(0), 10000).mean() - 1) < 0.05)
    True
    """
    return -np.log(_share(key, shape, float_kind("exponential", dtype)))


def gumbel(key: Any, shape: Shape = (), dtype: DTypeLike = np.float32) -> Any:
    """Floats of the distribution ``exp(-exp(-x))``, of the largest among many."""
    return -np.log(-np.log(_share(key, shape, float_kind("gumbel", dtype))))


def laplace(key: Any, shape: Shape = (), dtype: DTypeLike = np.float32) -> Any:
    """Floats of the density ``exp(-|x|) / 2``."""
    first, second = split(key)
    size = exponential(first, shape, dtype)
    return np.where(bernoulli(second, 0.5, shape), size, -size)


def logistic(key: Any, shape: Shape = (), dtype: DTypeLike = np.float32) -> Any:
    """Floats of the distribution ``1 / (1 + exp(-x))``."""
    u = _share(key, shape, float_kind("logistic", dtype))
    return np.log(u) - np.log1p(-u)


def cauchy(key: Any, shape: Shape = (), dtype: DTypeLike = np.float32) -> Any:
    """Floats of the density ``1 / (π (1 + x²))``."""
    u = _share(key, shape, float_kind("cauchy", dtype))
    return np.tan(np.pi * (u - 0.5))


def rayleigh(key: Any, scale: Any = 1.0, shape: Shape | None = None, dtype: DTypeLike = np.float32) -> Any:
    """The lengths of vectors of two normal numbers with this standard deviation."""
    kind = float_kind("rayleigh", dtype)
    (scale,) = _as(kind, scale)
    return scale * np.sqrt(2 * exponential(key, _shape_of("rayleigh", shape, scale), kind))


def pareto(key: Any, b: Any, shape: Shape | None = None, dtype: DTypeLike = np.float32) -> Any:
    """Floats from 1 on of the density ``b / x ** (b + 1)``."""
    kind = float_kind("pareto", dtype)
    (b,) = _as(kind, b)
    return np.exp(exponential(key, _shape_of("pareto", shape, b), kind) / b)


def weibull_min(
    key: Any, scale: Any, concentration: Any, shape: Shape | None = None, dtype: DTypeLike = np.float32
) -> Any:
    """Floats of the distribution ``1 - exp(-(x / scale) ** concentration)``."""
    kind = float_kind("weibull_min", dtype)
    scale, concentration = _as(kind, scale, concentration)
    drawn = exponential(key, _shape_of("weibull_min", shape, scale, concentration), kind)
    return scale * drawn ** (1 / concentration)


def lognormal(key: Any, sigma: Any = 1.0, shape: Shape | None = None, dtype: DTypeLike = np.float32) -> Any:
    """The exponentials of normal numbers with the standard deviation ``sigma``."""
    kind = float_kind("lognormal", dtype)
    (sigma,) = _as(kind, sigma)
    return np.exp(sigma * normal(key, _shape_of("lognormal", shape, sigma), kind))


def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Shape | None = None, dtype: DTypeLike = np.float32
) -> Any:
    """Normal numbers of mean 0 and variance 1 among those from ``lower`` to ``upper``, with derivatives by both.

    >>> from pullback import random
    >>> drawn = random.truncated_normal(random.key(0), -1.0, 2.0, 1000)
    >>> bool(drawn.min() >= -1), bool(drawn.max() <= 2)
    (True, True)
    """
    kind = float_kind("truncated_normal", dtype)
    lower, upper = _as(kind, lower, upper)
    share = _share(key, _shape_of("truncated_normal", shape, lower, upper), kind)
    # Where both bounds are positive the tail is the other one, which is exact.
    turned = lower > 0
    low, high = np.where(turned, -upper, lower), np.where(turned, -lower, upper)
    at = special.ndtr(low) * (1 - share) + special.ndtr(high) * share
    drawn = special.ndtri(at)
    return np.clip(np.where(turned, -drawn, drawn), lower, upper)


def geometric(key: Any, p: Any, shape: Shape | None = None, dtype: DTypeLike = np.float32) -> Any:
    """How many trials of probability ``p`` it takes, ``int64``, from 1 on."""
    kind = float_kind("geometric", dtype)
    (p,) = _as(kind, p)
    drawn = exponential(key, _shape_of("geometric", shape, p), kind)
    return astype(np.floor(stop_gradient(drawn / -np.log1p(-p))), np.int64) + 1


def rademacher(key: Any, shape: Shape = (), dtype: DTypeLike = np.float32) -> Any:
    """-1 and 1, each half of the time."""
    return np.where(bernoulli(key, 0.5, shape), np.dtype(dtype).type(1), np.dtype(dtype).type(-1))


# -- the gamma distribution and what is made of it


def _proposed(key: Any, shape: tuple[int, ...], kind: np.dtype, a: Any) -> Any:
    """Numbers of the gamma distribution of ``a`` from 1 on: the first of several proposals that is accepted."""
    first, second = split(key)
    x, u = normal(first, (ATTEMPTS, *shape), kind), _share(second, (ATTEMPTS, *shape), kind)
    d = a - 1 / 3
    v = (1 + x / np.sqrt(9 * d)) ** 3
    positive = v > 0
    safe = np.where(positive, v, np.ones((), kind))
    accepted = positive & (np.log(u) < 0.5 * x * x + d * (1 - safe + np.log(safe)))
    found = np.ones(shape, kind)
    for k in reversed(range(ATTEMPTS)):
        found = np.where(accepted[k], safe[k], found)
    return d * found


def _with_slope(a: Any, drawn: Any) -> Any:
    """``drawn``, whose derivative by ``a`` is that of the number at which the distribution has the same value."""
    from pullback.control.custom import custom_pullback
    from pullback.graph import OPERATORS

    what = "the derivative of a gamma number by its shape"

    def forward(a: Any, drawn: Any) -> Any:
        return drawn, (a, drawn)

    def backward(kept: Any, bar: Any) -> Any:
        a, drawn = (OPERATORS["fixed"](x, what=what) for x in kept)
        empty = drawn == 0
        z: Any = np.where(empty, np.ones((), drawn.dtype), drawn)
        density = np.exp((a - 1) * np.log(z) - z - special.gammaln(a))
        slope = -OPERATORS["gammainc_slope"](a, z) / density
        return np.where(empty, np.zeros((), z.dtype), bar * slope), None

    return custom_pullback(lambda a, drawn: drawn).define(forward, backward)(a, drawn)


def gamma(key: Any, a: Any, shape: Shape | None = None, dtype: DTypeLike = np.float32) -> Any:
    r"""Floats of the gamma distribution of shape ``a``, of the density :math:`x^{a - 1} e^{-x} / \Gamma(a)`.

    The derivative by ``a`` is that of the number at which the distribution stays what it is; there is no second
    one, which raises ``DerivativeError``.

    Source: Marsaglia & Tsang, *A simple method for generating gamma variables*, ACM TOMS 26, 2000; Figurnov,
    Mohamed & Mnih, *Implicit reparameterization gradients*, NeurIPS 2018.

    >>> from pullback import random
    >>> bool(abs(random.gamma(random.key(0), 3.0, 10000).mean() - 3) < 0.1)
    True
    """
    kind = float_kind("gamma", dtype)
    (a,) = _as(kind, a)
    wanted = _shape_of("gamma", shape, a)
    first, second = split(key)
    fixed = stop_gradient(a)
    small = fixed < 1
    drawn = _proposed(first, wanted, kind, np.where(small, fixed + 1, fixed))
    # Of a shape below 1 the number is one of the next shape, times a power of a uniform one.
    power = np.exp(-exponential(second, wanted, kind) / np.where(small, fixed, np.ones((), kind)))
    drawn = np.where(small, drawn * power, drawn)
    return _with_slope(np.broadcast_to(a, wanted), drawn) if isinstance(a, Node) else drawn


def beta(key: Any, a: Any, b: Any, shape: Shape | None = None, dtype: DTypeLike = np.float32) -> Any:
    """Floats of the beta distribution, of the density ``x ** (a - 1) * (1 - x) ** (b - 1)`` over its integral."""
    kind = float_kind("beta", dtype)
    wanted = _shape_of("beta", shape, a, b)
    first, second = (gamma(k, p, wanted, kind) for k, p in zip(split(key), (a, b)))
    return first / (first + second)


def dirichlet(key: Any, alpha: Any, shape: Sequence[int] = (), dtype: DTypeLike = np.float32) -> Any:
    """Vectors of shares along the last axis, which are 1 together, of the density ``prod(x ** (alpha - 1))``."""
    drawn = gamma(key, alpha, (*shape, *np.shape(alpha)), float_kind("dirichlet", dtype))
    return drawn / np.sum(drawn, axis=-1, keepdims=True)


def chisquare(key: Any, df: Any, shape: Shape | None = None, dtype: DTypeLike = np.float32) -> Any:
    """Sums of squares of ``df`` normal numbers, which need not be a whole number."""
    return 2 * gamma(key, df / 2, shape, dtype)


def t(key: Any, df: Any, shape: Shape | None = None, dtype: DTypeLike = np.float32) -> Any:
    """Floats of Student's distribution with ``df`` degrees of freedom."""
    kind = float_kind("t", dtype)
    wanted = _shape_of("t", shape, df)
    first, second = split(key)
    (half,) = _as(kind, df / 2)
    return normal(first, wanted, kind) * np.sqrt(half / gamma(second, half, wanted, kind))


def multivariate_normal(
    key: Any, mean: Any, cov: Any, shape: Sequence[int] = (), dtype: DTypeLike = np.float32
) -> Any:
    """Normal vectors along the last axis, with derivatives by the mean and the covariance.

    ``cov`` is positive definite, or ``MatrixError`` is raised.
    """
    kind = float_kind("multivariate_normal", dtype)
    mean, cov = _as(kind, mean, cov)
    size = cov.shape[-1]
    lead = np.broadcast_shapes(mean.shape[:-1], cov.shape[:-2])
    drawn = normal(key, (*shape, *lead, size), kind)
    return mean + np.sum(pnp_linalg.cholesky(cov) * drawn[..., None, :], axis=-1)


# -- whole numbers


def poisson(key: Any, lam: Any, shape: Shape | None = None) -> Any:
    """Counts of what happens ``lam`` times on average, ``int64``; they have no derivative.

    Source: W. Hörmann, *The transformed rejection method for generating Poisson random variables*, 1993.

    >>> from pullback import random
    >>> bool(abs(random.poisson(random.key(0), 4.0, 10000).mean() - 4) < 0.1)
    True
    """
    kind = np.dtype(np.float64)
    (lam,) = _as(kind, lam)
    lam = stop_gradient(lam)
    wanted = _shape_of("poisson", shape, lam)
    first, second, third = split(key, 3)
    few = lam <= FEW
    little, much = np.where(few, lam, 1.0), np.where(few, FEW, lam)
    u = uniform(first, wanted, dtype=kind)
    probability = np.exp(-little)
    below, count = probability, np.zeros(wanted)
    for k in range(1, FEW_STEPS):
        count = count + np.where(u >= below, 1.0, 0.0)
        probability = probability * little / k
        below = below + probability
    many = _transformed_rejection(second, third, wanted, much)
    return astype(np.where(few, count, many), np.int64)


def _transformed_rejection(first: Any, second: Any, shape: tuple[int, ...], mean: Any) -> Any:
    kind = np.dtype(np.float64)
    u = uniform(first, (POISSON_ATTEMPTS, *shape), dtype=kind) - 0.5
    v = _share(second, (POISSON_ATTEMPTS, *shape), kind)
    b = 0.931 + 2.53 * np.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    us = np.maximum(0.5 - np.abs(u), 1e-12)
    k = np.floor((2 * a / us + b) * u + mean + 0.43)
    held = np.maximum(k, 0.0)
    quick = (us >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2))
    likely = np.log(v * inverse / (a / (us * us) + b)) <= -mean + held * np.log(mean) - special.gammaln(
        held + 1
    )
    accepted = quick | ((k >= 0) & ((us >= 0.013) | (v <= us)) & likely)
    found = np.broadcast_to(np.floor(mean), shape)
    for n in reversed(range(POISSON_ATTEMPTS)):
        found = np.where(accepted[n], held[n], found)
    return found


def randint(key: Any, shape: Shape, low: Any, high: Any, dtype: DTypeLike = np.int64) -> Any:
    """Integers from ``low`` up to below ``high``, all equally likely to 64 bits.

    >>> from pullback import random
    >>> sorted({int(n) for n in random.randint(random.key(0), 100, -1, 2)})
    [-1, 0, 1]
    """
    if (
        not isinstance(low, Node)
        and not isinstance(high, Node)
        and np.any(np.asarray(low) >= np.asarray(high))
    ):
        raise ValueError(f"[randint] no integers from {low} up to below {high}. Give a larger high.")
    words = [astype(bits(key, shape, word), np.uint64) for word in (0, 1)]
    number = (words[0] << np.uint64(32)) | words[1]
    low, high = (astype(x, np.int64) if isinstance(x, Node) else np.asarray(x, np.int64) for x in (low, high))
    return astype(low + astype(number % astype(high - low, np.uint64), np.int64), dtype)


def categorical(key: Any, logits: Any, axis: int = -1, shape: Shape | None = None) -> Any:
    """Places along ``axis``, each as likely as ``exp(logits)`` there over the sum, ``int64``.

    ``shape`` is that of the result; by default that of ``logits`` without the axis.
    """
    last = np.moveaxis(logits, normal_axis("categorical", axis, np.ndim(logits)), -1)
    own = last.shape[:-1]
    wanted = _shape_of("categorical", shape, np.empty(own))
    kind = np.dtype(np.float64)
    return argmax(astype(last, kind) + gumbel(key, (*wanted, last.shape[-1]), kind), axis=-1)


def _logarithm(p: Any) -> Any:
    """Of probabilities; of 0 minus infinity, without a warning."""
    with np.errstate(divide="ignore"):
        return np.log(p)


def choice(key: Any, a: Any, shape: Shape = (), replace: bool = True, p: Any = None, axis: int = 0) -> Any:
    """Elements of ``a`` along ``axis``, or numbers below ``a``, with probabilities ``p``; each at most once
    without ``replace``.

    Raises ``ValueError`` for more elements than there are.
    """
    wanted = (shape,) if isinstance(shape, int) else tuple(shape)
    if any_traced(a) and not np.ndim(a):
        if not replace or p is not None:
            raise TracingError(
                "[choice] of as many numbers as a named axis has places takes replace=True and no p; draw keys, "
                f"pb.random.uniform(key, (n,)), and sort them{where_written()}"
            )
        return randint(key, wanted, 0, a)
    number = isinstance(a, (int, np.integer))
    extent = int(a) if number else np.shape(a)[axis]
    count = math.prod(wanted)
    if count and (not extent or (not replace and count > extent)):
        raise ValueError(f"[choice] {count} of {extent} elements. Ask for fewer, or say replace=True.")
    if p is not None and np.shape(p) != (extent,):
        raise ShapeError(
            f"[choice] p has shape {np.shape(p)}. Give a probability for each of {extent} elements."
        )
    if replace and p is None:
        places = randint(key, wanted, 0, extent)
    elif replace:
        places = categorical(key, _logarithm(p), shape=wanted)
    elif p is None:
        places = permutation(key, extent)[:count].reshape(wanted)
    else:
        weights, chosen = _logarithm(p) + gumbel(key, extent, np.float64), []
        for _ in range(count):
            chosen.append(argmax(weights))
            weights = np.where(np.arange(extent) == chosen[-1], -np.inf, weights)
        places = stack(chosen).reshape(wanted) if chosen else np.zeros(wanted, np.int64)
    return places if number else take(a, places, axis)


def shuffle(key: Any, x: Any, axis: int = 0) -> Any:
    """``x`` with what lies along ``axis`` in a random order."""
    return take(x, permutation(key, np.shape(x)[axis]), axis)
