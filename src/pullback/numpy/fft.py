"""Fourier transforms: ``numpy.fft`` on traced values.

>>> import numpy as np, pullback as pb
>>> power = lambda x: np.sum(np.abs(np.fft.rfft(x)[1:]) ** 2)
>>> print(pb.grad(power)(np.array([1.0, 0.0, -1.0, 0.0])))
[ 4.  0. -4.  0.]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import ShapeError
from pullback.graph import OPERATORS, Node, is_complex, is_half
from pullback.numpy import elementwise as e
from pullback.numpy.axes import normal_axes, normal_axis
from pullback.numpy.dispatch import implements
from pullback.numpy.elementwise import true_divide_dtype
from pullback.numpy.promotion import any_traced, as_array_node, cast, where_written
from pullback.numpy.ranges import arange
from pullback.numpy.shapes import roll
from pullback.operators.fourier import NORMS
from pullback.operators.shapes import framed

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

rfftfreq = np.fft.rfftfreq


def fftfreq(n: Any, d: Any = 1.0) -> Any:
    """``np.fft.fftfreq``: the frequencies of ``fft`` of ``n`` places a distance ``d`` apart; ``n`` may be a size.

    >>> print(fftfreq(4))
    [ 0.    0.25 -0.5  -0.25]
    """
    if not any_traced(n):
        return np.fft.fftfreq(n, d)
    place = arange(n)
    return e.where(2 * place < n, place, place - n) * (1.0 / (n * d))


def _norm(name: str, norm: str | None) -> str:
    if norm is None:
        return "backward"
    if norm not in NORMS:
        raise ShapeError(
            f"{name}: norm={norm!r}; it is one of {', '.join(map(repr, NORMS))}{where_written()}"
        )
    return norm


def _float(a: Any) -> Node:
    """``a`` as real floats, of which a half of the spectrum says all."""
    node = as_array_node(a)
    kind = true_divide_dtype(node.dtype)
    return cast(node, np.float32 if is_half(kind) else kind)


def _complex(a: Any) -> Node:
    node = as_array_node(a)
    kind = true_divide_dtype(node.dtype)
    return cast(node, kind if is_complex(kind) else np.promote_types(kind, np.complex64))


def _of_length(name: str, x: Node, axis: int, n: int | None) -> Node:
    """``x`` with ``n`` elements along ``axis``: cut, or with zeros behind."""
    if n is None:
        n = x.shape[axis]
    if n < 1:
        raise ShapeError(
            f"{name}: {n} elements along axis {axis}; there must be at least one{where_written()}"
        )
    return framed(x, (0,) * x.ndim, tuple(n - x.shape[k] if k == axis else 0 for k in range(x.ndim)))


def _one(name: str, a: Any, n: int | None, axis: int, norm: str | None, inverse: bool) -> Node:
    x = _complex(a)
    axis = normal_axis(name, axis, x.ndim)
    x = _of_length(name, x, axis, n)
    return OPERATORS["fft"](x, axis=axis, inverse=inverse, norm=_norm(name, norm))


@implements(np.fft.fft)
def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    r"""The discrete Fourier transform along ``axis``: :math:`\sum_j a_j e^{-2\pi i jk/n}`."""
    return _one("fft", a, n, axis, norm, False)


@implements(np.fft.ifft)
def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    r"""The inverse transform along ``axis``: :math:`\tfrac1n \sum_j a_j e^{2\pi i jk/n}`."""
    return _one("ifft", a, n, axis, norm, True)


@implements(np.fft.rfft)
def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The first ``n // 2 + 1`` frequencies of real numbers along ``axis``."""
    return _rfft("rfft", a, n, axis, norm)


def _rfft(name: str, a: Any, n: int | None, axis: int, norm: str | None) -> Node:
    x = _float(a)
    axis = normal_axis(name, axis, x.ndim)
    return OPERATORS["rfft"](_of_length(name, x, axis, n), axis=axis, norm=_norm(name, norm))


@implements(np.fft.irfft)
def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The real numbers along ``axis`` that have these frequencies; ``2 (m - 1)`` of them unless ``n`` is given."""
    return _irfft("irfft", a, n, axis, norm)


def _irfft(name: str, a: Any, n: int | None, axis: int, norm: str | None) -> Node:
    y = _complex(a)
    axis = normal_axis(name, axis, y.ndim)
    n = 2 * (y.shape[axis] - 1) if n is None else n
    if n < 1:
        raise ShapeError(
            f"{name}: {n} elements along axis {axis}; there must be at least one{where_written()}"
        )
    return OPERATORS["irfft"](_of_length(name, y, axis, n // 2 + 1), axis=axis, n=n, norm=_norm(name, norm))


@implements(np.fft.hfft)
def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """The real spectrum of a signal that is its own conjugate the other way round, of which half is given."""
    return _irfft("hfft", e.conjugated(_complex(a)), n, axis, NORMS[_norm("hfft", norm)])


@implements(np.fft.ihfft)
def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Half of the signal that has this real spectrum: the inverse of ``hfft``."""
    return e.conjugated(_rfft("ihfft", a, n, axis, NORMS[_norm("ihfft", norm)]))


# -- several axes


def _axes(name: str, x: Node, s: Sequence[int] | None, axes: Sequence[int] | None) -> tuple[int, ...]:
    if axes is None:
        axes = range(x.ndim) if s is None else range(-len(s), 0)
    if s is not None and len(s) != len(axes):
        raise ShapeError(
            f"{name}: s={tuple(s)} for axes {tuple(axes)}; give a length for each{where_written()}"
        )
    return tuple(normal_axis(name, axis, x.ndim) for axis in axes)


def _lengths(x: Node, s: Sequence[int | None] | None, axes: Sequence[int]) -> list[int]:
    given = [None] * len(axes) if s is None else list(s)
    return [x.shape[axis] if n is None or n == -1 else n for n, axis in zip(given, axes)]


def _several(name: str, a: Any, s: Any, axes: Any, norm: str | None, inverse: bool) -> Node:
    x = _complex(a)
    axes = _axes(name, x, s, axes)
    for n, axis in zip(_lengths(x, s, axes), axes):
        x = _of_length(name, x, axis, n)
    return _over(x, axes, inverse, _norm(name, norm))


def _over(x: Node, axes: Sequence[int], inverse: bool, norm: str) -> Node:
    """Transforms along each of ``axes``, the last one first."""
    for axis in reversed(axes):
        x = OPERATORS["fft"](x, axis=axis, inverse=inverse, norm=norm)
    return x


@implements(np.fft.fftn)
def fftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """The transform along all of ``axes``; ``s`` are lengths, with zeros or cut."""
    return _several("fftn", a, s, axes, norm, False)


@implements(np.fft.ifftn)
def ifftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """The inverse transform along all of ``axes``."""
    return _several("ifftn", a, s, axes, norm, True)


@implements(np.fft.fft2)
def fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """The transform along two axes."""
    return _several("fft2", a, s, axes, norm, False)


@implements(np.fft.ifft2)
def ifft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """The inverse transform along two axes."""
    return _several("ifft2", a, s, axes, norm, True)


def _rfftn(name: str, a: Any, s: Any, axes: Any, norm: str | None) -> Node:
    x, norm = _float(a), _norm(name, norm)
    *others, last = axes = _some(name, _axes(name, x, s, axes))
    for n, axis in zip(_lengths(x, s, axes), axes):
        x = _of_length(name, x, axis, n)
    return _over(OPERATORS["rfft"](x, axis=last, norm=norm), others, False, norm)


def _irfftn(name: str, a: Any, s: Any, axes: Any, norm: str | None) -> Node:
    y, norm = _complex(a), _norm(name, norm)
    *others, last = axes = _some(name, _axes(name, y, s, axes))
    lengths = _lengths(y, s, axes)
    if s is None or s[-1] is None or s[-1] == -1:
        lengths[-1] = 2 * (y.shape[last] - 1)
    for n, axis in zip(lengths[:-1], others):
        y = _of_length(name, y, axis, n)
    return _irfft(name, _over(y, others, True, norm), lengths[-1], last, norm)


def _some(name: str, axes: tuple[int, ...]) -> tuple[int, ...]:
    if not axes:
        raise ShapeError(f"{name}: no axes; name at least one{where_written()}")
    return axes


@implements(np.fft.rfftn)
def rfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """The transform of real numbers along ``axes``, of the last of them half the frequencies."""
    return _rfftn("rfftn", a, s, axes, norm)


@implements(np.fft.irfftn)
def irfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None) -> Any:
    """The real numbers whose ``rfftn`` is given."""
    return _irfftn("irfftn", a, s, axes, norm)


@implements(np.fft.rfft2)
def rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """``rfftn`` along two axes."""
    return _rfftn("rfft2", a, s, axes, norm)


@implements(np.fft.irfft2)
def irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None) -> Any:
    """``irfftn`` along two axes."""
    return _irfftn("irfft2", a, s, axes, norm)


# -- orders of frequencies


def _shifted(name: str, x: Any, axes: Any, steps: Callable[[int], int]) -> Any:
    node = as_array_node(x)
    every = normal_axes(name, axes, node.ndim)
    return roll(node, tuple(steps(node.shape[axis]) for axis in every), every)


@implements(np.fft.fftshift)
def fftshift(x: Any, axes: Any = None) -> Any:
    """Frequencies from the lowest negative one up, with 0 in the middle."""
    return _shifted("fftshift", x, axes, lambda n: n // 2)


@implements(np.fft.ifftshift)
def ifftshift(x: Any, axes: Any = None) -> Any:
    """What ``fftshift`` does, undone."""
    return _shifted("ifftshift", x, axes, lambda n: -(n // 2))
