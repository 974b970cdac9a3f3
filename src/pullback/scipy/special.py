"""Special functions under SciPy's names, of traced values and of concrete arrays, without SciPy.

The common ones are polynomials that are compiled in place; ``pullback.operators.special.ACCURACY`` states their errors.
``gammainc``, ``gammaincc``, ``betainc`` and functions of Bessel of other orders are computed by SciPy, and raise
``MissingExtra`` where it is not installed. SciPy's own functions of these names take traced values, too.

>>> import numpy as np
>>> import pullback as pb
>>> print(f"{erfc(1.0):.6f} {gammaln(10.0):.6f} {ndtri(0.975):.6f}")
0.157299 12.801827 1.959964
>>> pb.jit(pb.grad(lambda x: np.sum(xlogy(x, x))))(np.array([1.0, 2.0])).round(6)
array([1.      , 1.693147])
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from pullback.errors import DerivativeError
from pullback.graph import OPERATORS, Node
from pullback.numpy import elementwise as e
from pullback.numpy import reductions as r
from pullback.numpy.activations import log_sigmoid, sigmoid
from pullback.numpy.activations import log_softmax as _log_softmax
from pullback.numpy.activations import softmax as _softmax
from pullback.numpy.axes import normal_axes
from pullback.numpy.composite import hypot
from pullback.numpy.floats import sinc
from pullback.numpy.promotion import as_array_node, cast, float_dtype, operands, where_written
from pullback.operators import hosted  # noqa: F401  (fills the table)
from pullback.scipy.arrays import on_arrays

__all__ = [
    "ACCURACY",
    "beta",
    "betainc",
    "betaln",
    "binom",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcinv",
    "erfcx",
    "erfinv",
    "expit",
    "exprel",
    "factorial",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "gammasgn",
    "huber",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "iv",
    "ive",
    "j0",
    "j1",
    "jn",
    "jv",
    "k0",
    "k1",
    "kl_div",
    "kn",
    "kv",
    "kve",
    "log_expit",
    "log_ndtr",
    "log_softmax",
    "loggamma",
    "logit",
    "logsumexp",
    "multigammaln",
    "ndtr",
    "ndtri",
    "poch",
    "polygamma",
    "pseudo_huber",
    "psi",
    "rel_entr",
    "rgamma",
    "softmax",
    "xlog1py",
    "xlogy",
    "y0",
    "y1",
    "yn",
    "yv",
    "zeta",
]


def _node(x: Any) -> Any:
    node = as_array_node(x)
    return cast(node, float_dtype(node.dtype))


def _unary(name: str) -> Callable[[Any], Any]:
    """The function that an operator is."""

    def function(x: Any, /) -> Any:
        return OPERATORS[name](_node(x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The function ``{name}`` of each element, in double precision, rounded to the dtype."
    return on_arrays(function)


erf, erfc, erfcx, erfinv = (_unary(name) for name in ("erf", "erfc", "erfcx", "erfinv"))
ndtr, log_ndtr, ndtri = (_unary(name) for name in ("ndtr", "log_ndtr", "ndtri"))
gamma, gammaln, digamma = (_unary(name) for name in ("gamma", "gammaln", "digamma"))
i0, i0e, i1, i1e, j0, j1 = (_unary(name) for name in ("i0", "i0e", "i1", "i1e", "j0", "j1"))
psi, loggamma = digamma, gammaln


@on_arrays
def erfcinv(y: Any, /) -> Any:
    """``x`` with ``erfc(x) = y``."""
    return OPERATORS["ndtri"](_node(y) * 0.5) * -math.sqrt(0.5)


@on_arrays
def expit(x: Any, /) -> Any:
    """``1 / (1 + exp(-x))``."""
    return sigmoid(_node(x))


@on_arrays
def log_expit(x: Any, /) -> Any:
    """The logarithm of ``expit``, without underflow."""
    return log_sigmoid(_node(x))


@on_arrays
def logit(p: Any, /) -> Any:
    """``log(p / (1 - p))``, exact to the last bits near one half."""
    x = _node(p)
    near = e.absolute(x - 0.5) < 0.25
    inside = e.where(near, x, 0.5)
    return e.where(near, 2 * e.arctanh(2 * inside - 1), e.log(x) - e.log1p(-x))


def _product(name: str, x: Any, y: Any, logarithm: Callable[[Any], Any], least: float) -> Any:
    """``x`` times a logarithm, 0 where ``x`` is 0 and the logarithm is no finite number."""
    x, y = operands(name, (x, y), float_dtype)
    odd = (x == 0) & ((y <= least) | (y == math.inf))
    return x * logarithm(e.where(odd, least + 1.0, y))


@on_arrays
def xlogy(x: Any, y: Any, /) -> Any:
    """``x * log(y)``, and 0 where ``x`` is 0."""
    return _product("xlogy", x, y, e.log, 0.0)


@on_arrays
def xlog1py(x: Any, y: Any, /) -> Any:
    """``x * log1p(y)``, and 0 where ``x`` is 0."""
    return _product("xlog1py", x, y, e.log1p, -1.0)


@on_arrays
def entr(x: Any, /) -> Any:
    """``-x * log(x)``; 0 at 0, minus infinity below."""
    node = _node(x)
    positive = node > 0
    inside = e.where(positive, node, 1.0)
    return e.where(positive, -inside * e.log(inside), e.where(node < 0, -math.inf, node * 0.0))


def _relative(x: Any, y: Any) -> tuple[Any, Any, Any, Any]:
    """Where both are positive, the two there, and what stands elsewhere."""
    both = (x > 0) & (y > 0)
    beyond = cast(e.where(e.isnan(x) | e.isnan(y), math.nan, math.inf), x.dtype)
    other = e.where((x == 0) & (y >= 0), 0.0, beyond)
    return both, e.where(both, x, 1.0), e.where(both, y, 1.0), other


@on_arrays
def rel_entr(x: Any, y: Any, /) -> Any:
    """``x * log(x / y)``; 0 where ``x`` is 0, infinite where a number is negative or ``y`` alone is 0."""
    x, y = operands("rel_entr", (x, y), float_dtype)
    both, first, second, other = _relative(x, y)
    return e.where(both, first * OPERATORS["log_ratio"](first, second), other)


@on_arrays
def kl_div(x: Any, y: Any, /) -> Any:
    """``x * log(x / y) - x + y``; ``y`` where ``x`` is 0, infinite where a number is negative or ``y`` alone is 0."""
    x, y = operands("kl_div", (x, y), float_dtype)
    both, first, second, other = _relative(x, y)
    inside = OPERATORS["kl_div"](first, second)
    return e.where(both, inside, e.where((x == 0) & (y >= 0), y, other))


@on_arrays
def exprel(x: Any, /) -> Any:
    """``expm1(x) / x``, and 1 at 0."""
    return OPERATORS["exponential_share"](_node(x), order=0)


@on_arrays
def huber(delta: Any, r: Any, /) -> Any:
    """``r ** 2 / 2`` up to ``delta``, straight beyond; infinite for a negative ``delta``."""
    d, x = operands("huber", (delta, r), float_dtype)
    size = e.absolute(x)
    value = e.where(size <= d, 0.5 * x * x, d * (size - 0.5 * d))
    return e.where(d < 0, math.inf, value)


@on_arrays
def pseudo_huber(delta: Any, r: Any, /) -> Any:
    """``delta ** 2 * (sqrt(1 + (r / delta) ** 2) - 1)``, and 0 where ``delta`` is 0; infinite for a negative one."""
    d, x = operands("pseudo_huber", (delta, r), float_dtype)
    positive = d > 0
    share = x / e.where(positive, d, 1.0)
    value = x * (x / (1 + hypot(1.0, share)))
    return e.where(positive, value, e.where(d < 0, math.inf, d * 0.0))


# -- the gamma function's kin


def _in_doubles(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` of numbers in double precision, rounded to their dtype: what it is made of nearly cancels."""

    @wraps(function)
    def called(*given: Any) -> Any:
        nodes = operands(function.__name__, given, float_dtype)
        return cast(function(*(cast(each, np.dtype(np.float64)) for each in nodes)), nodes[0].dtype)

    return on_arrays(called)


@_in_doubles
def rgamma(x: Any, /) -> Any:
    """``1 / gamma(x)``, and 0 at 0, -1, -2, …"""
    low, negative = x < 0.5, x < -0.5
    below, above = e.where(low, x, 0.0), e.where(low, 1.0, x)
    # By reflection, which is smooth where the gamma function has its poles: sin(πx) / π times that of 1 - x, which is
    # -x times that of -x, a number that need not be rounded.
    turned = e.where(negative, -below, 1 - below)
    mirrored = below * sinc(below) * OPERATORS["gamma"](turned) * e.where(negative, -below, 1.0)
    return e.where(low, mirrored, OPERATORS["rgamma"](above))


@on_arrays
def gammasgn(x: Any, /) -> Any:
    """The sign of the gamma function; 0 at -1, -2, …"""
    node = _node(x)
    below = e.floor(node)
    odd = below - 2 * e.floor(below / 2) == 1
    return e.where(node >= 0, 1.0, e.where(below == node, 0.0, e.where(odd, -1.0, 1.0)))


@on_arrays
def factorial(n: Any, exact: bool = False) -> Any:
    """``gamma(n + 1)``, and 0 below 0; ``exact`` is refused."""
    if exact:
        raise ValueError(f"factorial: exact=True has no derivative; leave it out{where_written()}")
    node = _node(n)
    return e.where(node < 0, 0.0, OPERATORS["gamma"](e.where(node < 0, 0.0, node) + 1))


def _log_beta(a: Any, b: Any) -> Any:
    """That of numbers of which one is not positive, a sum that cancels."""
    of = OPERATORS["gammaln"]
    return of(a) + of(b) - of(a + b)


@_in_doubles
def betaln(a: Any, b: Any, /) -> Any:
    """The logarithm of the size of ``beta(a, b)``."""
    positive = (a > 0) & (b > 0)
    found = OPERATORS["betaln"](e.where(positive, a, 1.0), e.where(positive, b, 1.0))
    return e.where(positive, found, _log_beta(a, b))


@_in_doubles
def beta(a: Any, b: Any, /) -> Any:
    """``gamma(a) * gamma(b) / gamma(a + b)``."""
    positive = (a > 0) & (b > 0)
    sign = gammasgn(a) * gammasgn(b) * gammasgn(a + b)
    found = OPERATORS["beta"](e.where(positive, a, 1.0), e.where(positive, b, 1.0))
    return e.where(positive, found, sign * e.exp(e.where(positive, 0.0, _log_beta(a, b))))


@_in_doubles
def binom(x: Any, y: Any, /) -> Any:
    """``gamma(x + 1) / (gamma(y + 1) gamma(x - y + 1))``."""
    inside = (y > -1) & (x - y > -1) & (x > -1)
    found = OPERATORS["binom"](e.where(inside, x, 1.0), e.where(inside, y, 1.0))
    sign = gammasgn(x + 1) * gammasgn(y + 1) * gammasgn(x - y + 1)
    of = OPERATORS["gammaln"]
    outside = of(x + 1) - of(y + 1) - of(x - y + 1)
    return e.where(inside, found, sign * e.exp(e.where(inside, 0.0, outside)))


@_in_doubles
def poch(z: Any, m: Any, /) -> Any:
    """``gamma(z + m) / gamma(z)``."""
    inside = (z > 0) & (z + m > 0)
    found = OPERATORS["poch"](e.where(inside, z, 1.0), e.where(inside, m, 1.0))
    sign = gammasgn(z + m) * gammasgn(z)
    outside = OPERATORS["gammaln"](z + m) - OPERATORS["gammaln"](z)
    return e.where(inside, found, sign * e.exp(e.where(inside, 0.0, outside)))


@on_arrays
def multigammaln(a: Any, d: int) -> Any:
    """The logarithm of the gamma function of positive definite matrices of ``d`` rows."""
    node = _node(a)
    parts = [OPERATORS["gammaln"](node - k / 2) for k in range(d)]
    return sum(parts, d * (d - 1) / 4 * math.log(math.pi) + node * 0.0)


@on_arrays
def polygamma(n: int, x: Any) -> Any:
    """The derivative of ``digamma`` of order ``n``, a Python integer; ``digamma`` for 0."""
    if isinstance(n, Node) or int(n) != n or n < 0:
        raise DerivativeError(f"polygamma: order {n!r}; give an integer of Python, 0 or more")
    return OPERATORS["polygamma"](_node(x), order=int(n)) if n else OPERATORS["digamma"](_node(x))


def _fixed(x: Any, what: str) -> Any:
    return OPERATORS["fixed"](x, what=what) if isinstance(x, Node) else x


@on_arrays
def zeta(x: Any, q: Any = 1.0) -> Any:
    """The sum of ``(q + k) ** -x`` for ``k`` from 0 on. There is no derivative by ``x``."""
    s, q = operands("zeta", (x, q), float_dtype)
    return OPERATORS["zeta"](_fixed(s, "the exponent of zeta"), q)


@on_arrays
def gammainc(a: Any, x: Any, /) -> Any:
    """The integral of the gamma distribution with shape ``a`` from 0 to ``x``. Raises ``MissingExtra``
    without SciPy.
    """
    return OPERATORS["gammainc"](*operands("gammainc", (a, x), float_dtype))


@on_arrays
def gammaincc(a: Any, x: Any, /) -> Any:
    """``1 - gammainc(a, x)``. Raises ``MissingExtra`` without SciPy."""
    return OPERATORS["gammaincc"](*operands("gammaincc", (a, x), float_dtype))


@on_arrays
def betainc(a: Any, b: Any, x: Any, /) -> Any:
    """The integral of the beta distribution from 0 to ``x``, with derivatives by ``x``. ``MissingExtra``
    without SciPy.
    """
    a, b, x = operands("betainc", (a, b, x), float_dtype)
    return OPERATORS["betainc"](
        _fixed(a, "the first argument of betainc"), _fixed(b, "the second argument of betainc"), x
    )


@on_arrays
def stdtr(df: Any, t: Any, /) -> Any:
    """The integral of Student's distribution up to ``t``, with derivatives by ``t``. ``MissingExtra`` without SciPy."""
    df, t = operands("stdtr", (df, t), float_dtype)
    return OPERATORS["stdtr"](_fixed(df, "the derivative of stdtr by df"), t)


# -- Bessel's functions


def _bessel(name: str) -> Callable[[Any, Any], Any]:
    def function(v: Any, z: Any, /) -> Any:
        if isinstance(v, Node) or np.ndim(v):
            raise DerivativeError(f"{name}: an order that is traced, or an array; give one number of Python")
        return OPERATORS[name](_node(z), order=float(v))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"The function ``{name}`` of Bessel, its order one number. Raises ``MissingExtra`` without SciPy."
    )
    return on_arrays(function)


def _of_fixed_order(name: str, order: float) -> Callable[[Any], Any]:
    def function(z: Any, /) -> Any:
        return OPERATORS[name](_node(z), order=order)

    function.__name__ = function.__qualname__ = f"{name[0]}{int(order)}"
    function.__doc__ = f"``{name}`` of order {int(order)}. Raises ``MissingExtra`` without SciPy."
    return on_arrays(function)


jv, yv, iv, kv, ive, kve = (_bessel(name) for name in ("jv", "yv", "iv", "kv", "ive", "kve"))
jn, yn, kn = jv, yv, kv
y0, y1, k0, k1 = (_of_fixed_order(name, order) for name in ("yv", "kv") for order in (0.0, 1.0))


# -- sums of exponentials


@on_arrays
def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """The logarithm of the sum of ``b * exp(a)``, without overflow; with ``return_sign`` of its size, and the sign."""
    if b is None and not return_sign:
        return r.logsumexp(_node(a), axis, keepdims=keepdims)
    x, weights = operands("logsumexp", (a, 1.0 if b is None else b), float_dtype)
    axes = normal_axes("logsumexp", axis, x.ndim)
    top = r.finite_max(e.where(weights == 0, -math.inf, x), axes)
    total = r.sum(weights * e.exp(e.where(weights == 0, 0.0, x - top)), axes, keepdims=True)
    sign = e.sign(total)
    found = e.log(e.absolute(total) if return_sign else total) + top
    if not keepdims:
        shape = [n for k, n in enumerate(x.shape) if k not in axes]
        found, sign = found.reshape(shape), sign.reshape(shape)
    return (found, sign) if return_sign else found


@on_arrays
def softmax(x: Any, axis: Any = None) -> Any:
    """``exp(x)`` over its sum, by default over all axes."""
    node = _node(x)
    return _softmax(node, normal_axes("softmax", axis, node.ndim))


@on_arrays
def log_softmax(x: Any, axis: Any = None) -> Any:
    """The logarithm of ``softmax``, by default over all axes."""
    node = _node(x)
    return _log_softmax(node, normal_axes("log_softmax", axis, node.ndim))


UFUNCS = {
    "psi": digamma,
    "_zeta": zeta,
    "_gammaln": gammaln,
    "exp2": e.exp2,
    "expm1": e.expm1,
    "log1p": e.log1p,
}
"""What answers SciPy's ufuncs that have another name."""

ACCURACY = {
    "beta": (0.51, 9.0),
    "betaln": (0.51, 6.0),
    "binom": (0.51, 10.0),
    "entr": (2.5, 2.5),
    "erfcinv": (2.0, 4.0),
    "expit": (2.5, 2.5),
    "exprel": (0.51, 2.0),
    "kl_div": (0.51, 4.0),
    "log_expit": (1.75, 1.75),
    "log_softmax": (2.5, 2.5),
    "logit": (2.5, 2.5),
    "logsumexp": (2.5, 2.5),
    "poch": (0.51, 9.0),
    "pseudo_huber": (4.0, 4.0),
    "rel_entr": (2.0, 2.5),
    "rgamma": (0.51, 6.0),
    "softmax": (3.5, 3.5),
    "xlog1py": (2.5, 2.5),
    "xlogy": (2.0, 2.0),
}
"""The largest errors of functions made of others, in units in the last place of ``float32`` and of ``float64``.

Of ``logsumexp`` and ``log_softmax`` these are units of the largest operand where that is larger than the result; of
``softmax`` times one and the distance of the operand from the largest one. Of ``beta``, ``betaln``, ``binom`` and
``poch`` they hold where all arguments of gamma functions are positive, of ``betaln`` as units of one at least.
"""
