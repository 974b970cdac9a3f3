"""Covariances, sliding products and polynomials."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.counts import count
from pullback.errors import ShapeError, TracingError
from pullback.graph import OPERATORS, Node, is_float
from pullback.graph.protocol import vocabulary
from pullback.numpy import elementwise as e
from pullback.numpy import reductions as r
from pullback.numpy.convolution import conv
from pullback.numpy.dispatch import implements, turns
from pullback.numpy.products import diagonal
from pullback.numpy.promotion import as_array_node, cast, float_dtype, promote, where_written
from pullback.numpy.shapes import concatenate, flip, part, to_shape, transpose

__all__ = [
    "convolve",
    "corrcoef",
    "correlate",
    "cov",
    "poly",
    "polyadd",
    "polyder",
    "polydiv",
    "polyint",
    "polymul",
    "polysub",
    "polyval",
]


@implements(np.cov)
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: float | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> Any:
    r"""The covariances of variables, rows of ``m`` (and ``y``): :math:`\tfrac1{f} \sum_k w_k d_{ik} d_{jk}`.

    ``fweights`` count observations, ``aweights`` weigh them; :math:`f` is the number of observations less one, less
    ``ddof`` where that is given, not less for ``bias``.
    """
    x = _variables(m, rowvar, dtype)
    if y is not None:
        x = concatenate([x, _variables(y, rowvar, dtype)], 0)
    freedom = (0 if bias else 1) if ddof is None else ddof
    weights = None
    for given in (fweights, aweights):
        if given is not None:
            weights = as_array_node(given) if weights is None else weights * given
    if weights is None:
        total: Any = x.shape[1]
        factor: Any = max(total - freedom, 0)
        deviation = x - r.mean(x, 1, keepdims=True)
        weighted = deviation
    else:
        total = r.sum(weights)
        deviation = x - r.average(x, 1, weights)[:, None]
        if freedom == 0:
            factor = total
        elif aweights is None:
            factor = total - freedom
        else:
            factor = total - freedom * r.sum(weights * aweights) / total
        weighted = deviation * weights
    return vocabulary["squeeze"](weighted @ e.conjugated(transpose(deviation)) / factor)


def _variables(m: Any, rowvar: bool, dtype: Any) -> Node:
    x = as_array_node(m)
    x = cast(x, np.promote_types(float_dtype(x.dtype), np.float64) if dtype is None else dtype)
    if x.ndim > 2:
        raise ShapeError(f"cov of shape {x.shape}; it takes vectors and matrices{where_written()}")
    if x.ndim < 2:
        return to_shape(x, (1, x.size))
    return x if rowvar or x.shape[0] == 1 else transpose(x)  # type: ignore[no-any-return]


@implements(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    r"""The correlations of variables: :math:`c_{ij} / \sqrt{c_{ii} c_{jj}}`, kept between -1 and 1."""
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return c / c
    scale = e.sqrt(diagonal(c))
    return vocabulary["clip"](c / scale[:, None] / scale[None, :], -1.0, 1.0)


# -- sliding products


def _slid(x: Node, window: Node, mode: str) -> Node:
    """The sums of products of a vector and a window that moves along it."""
    n, m = x.shape[0], window.shape[0]
    if mode not in ("full", "same", "valid"):
        raise TracingError(
            f"a sliding product in mode {mode!r}; use 'full', 'same' or 'valid'{where_written()}"
        )
    low = high = m - 1 if mode == "full" else 0
    if is_float(x.dtype):
        made = conv(to_shape(x, (1, 1, n)), to_shape(window, (1, 1, m)), padding=((low, high),))
        return to_shape(made, made.shape[2:])
    wide = OPERATORS["pad"](x, low=(low,), high=(high,)) if low or high else x
    count = wide.shape[0] - m + 1
    return r.sum(wide[np.arange(count)[:, None] + np.arange(m)] * window, 1, wide.dtype)  # type: ignore[no-any-return]


def _vectors(name: str, a: Any, v: Any) -> tuple[Node, Node]:
    x, y = promote((vocabulary["atleast_1d"](as_array_node(a)), vocabulary["atleast_1d"](as_array_node(v))))
    if x.ndim != 1 or y.ndim != 1 or not x.size or not y.size:
        raise ShapeError(
            f"{name} of shapes {x.shape} and {y.shape}; give vectors that are not empty{where_written()}"
        )
    return x, y


@implements(np.convolve)
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    r"""The convolution of two vectors: :math:`y_n = \sum_k a_k v_{n-k}`.

    ``mode`` tells of which places: all (``"full"``), as many as the longer has (``"same"``), or those where the shorter
    lies inside the longer (``"valid"``).

    >>> import numpy as np
    >>> print(convolve(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0])))
    [1. 3. 5. 3.]
    """
    x, y = _vectors("convolve", a, v)
    if x.size < y.size:
        x, y = y, x
    window = flip(y)
    return _middle(x, window, mode)


@implements(np.correlate)
def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    r"""The correlation of two vectors: :math:`y_n = \sum_k a_{n+k} \bar v_k`; see ``convolve``."""
    x, y = _vectors("correlate", a, v)
    y = e.conjugated(y)
    if x.size < y.size:
        return flip(_middle(y, x, mode))
    return _middle(x, y, mode)


def _middle(x: Node, window: Node, mode: str) -> Node:
    """``_slid``, the middle of the full one for ``"same"``: in NumPy its left half is the shorter."""
    if mode != "same":
        return _slid(x, window, mode)
    low = (window.size - 1) // 2
    return part(_slid(x, window, "full"), 0, low, low + x.size)


# -- polynomials, the highest power first


@implements(np.polyval)
def polyval(p: Any, x: Any) -> Any:
    """The polynomial with coefficients ``p``, the highest power first, at ``x``.

    >>> import numpy as np
    >>> print(polyval(np.array([1.0, 0.0, 2.0]), 3.0))
    11.0
    """
    coefficients, at = as_array_node(p), as_array_node(x)
    value: Any = vocabulary["zeros_like"](at)
    for k in turns("polyval", coefficients.shape[0]):
        value = value * at + coefficients[k]
    return value


def _aligned(a1: Any, a2: Any) -> tuple[Node, Node]:
    x, y = promote(tuple([vocabulary["atleast_1d"](as_array_node(a)) for a in (a1, a2)]))
    count = max(x.size, y.size)
    first, second = (
        OPERATORS["pad"](z, low=(count - z.size,), high=(0,)) if z.size < count else z for z in (x, y)
    )
    return first, second


@implements(np.polyadd)
def polyadd(a1: Any, a2: Any) -> Any:
    """The sum of two polynomials."""
    return e.add(*_aligned(a1, a2))


@implements(np.polysub)
def polysub(a1: Any, a2: Any) -> Any:
    """The difference of two polynomials."""
    return e.subtract(*_aligned(a1, a2))


@implements(np.polymul)
def polymul(a1: Any, a2: Any) -> Any:
    """The product of two polynomials; leading zeros stay."""
    return convolve(a1, a2)


@implements(np.polydiv)
def polydiv(u: Any, v: Any) -> Any:
    """The quotient and the remainder of two polynomials; the first coefficient of ``v`` is not zero."""
    x, y = promote(tuple([vocabulary["atleast_1d"](as_array_node(a)) for a in (u, v)]), e.true_divide_dtype)
    turns = x.size - y.size + 1
    if turns < 1:
        return vocabulary["zeros_like"](x[:1]), x
    quotient = []
    rest = x
    for _ in range(turns):
        factor = rest[:1] / y[:1]
        quotient.append(factor)
        head = rest[: y.size] - factor * y
        rest = concatenate([head[1:], rest[y.size :]])
    return concatenate(quotient), rest if rest.size else vocabulary["zeros_like"](x[:1])


@implements(np.polyder)
def polyder(p: Any, m: int = 1) -> Any:
    """The derivative of a polynomial, ``m`` times over."""
    x = as_array_node(p)
    for _ in range(count("polyder", "m", m, least=0)):
        terms = x.shape[0]
        x = part(x, 0, 0, max(terms - 1, 0)) * np.arange(terms - 1, 0, -1)
    return x


@implements(np.polyint)
def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """The integral of a polynomial, ``m`` times over, with the constants ``k``."""
    x = as_array_node(p)
    x = cast(x, e.true_divide_dtype(x.dtype))
    times = count("polyint", "m", m, least=0)
    constants = vocabulary["atleast_1d"](as_array_node(0.0 if k is None else k))
    for turn in range(times):
        own = constants[min(turn, constants.size - 1) : min(turn, constants.size - 1) + 1]
        x = concatenate([x / np.arange(x.shape[0], 0, -1), own])
    return x


@implements(np.poly)
def poly(seq_of_zeros: Any) -> Any:
    """The polynomial with these zeros, its first coefficient 1."""
    zeros = as_array_node(seq_of_zeros)
    if zeros.ndim != 1:
        raise TracingError(
            f"np.poly of a traced matrix; use np.poly of its eigenvalues, np.linalg.eigvalsh{where_written()}"
        )
    made: Any = as_array_node(np.ones(1, e.true_divide_dtype(zeros.dtype)))
    for k in turns("poly", zeros.shape[0]):
        longer = OPERATORS["pad"](made, low=(0,), high=(1,))
        made = longer - OPERATORS["pad"](made, low=(1,), high=(0,)) * zeros[k]
    return made
