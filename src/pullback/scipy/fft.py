r"""Fourier's, cosine and sine transforms under SciPy's names.

The transforms of cosines and sines are made of those of ``numpy.fft``, so their derivatives and their batches are too.

>>> import numpy as np
>>> import pullback as pb
>>> dct(np.array([1.0, 2.0, 4.0]), norm="ortho").round(6)
array([ 4.041452, -2.12132 ,  0.408248])
>>> pb.grad(lambda x: dct(x)[1])(np.array([1.0, 2.0, 4.0])).round(6) + 0
array([ 1.732051,  0.      , -1.732051])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from pullback.errors import ShapeError
from pullback.graph import OPERATORS, Node, is_complex
from pullback.numpy import fft as own
from pullback.numpy.axes import normal_axes, normal_axis
from pullback.numpy.elementwise import true_divide_dtype
from pullback.numpy.promotion import as_array_node, cast, where_written
from pullback.numpy.shapes import moveaxis
from pullback.operators.fourier import NORMS
from pullback.operators.shapes import framed
from pullback.scipy.arrays import on_arrays

__all__ = [
    "dct",
    "dctn",
    "dst",
    "dstn",
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "idct",
    "idctn",
    "idst",
    "idstn",
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

fft, ifft, rfft, irfft = (on_arrays(f) for f in (own.fft, own.ifft, own.rfft, own.irfft))
fft2, ifft2, rfft2, irfft2 = (on_arrays(f) for f in (own.fft2, own.ifft2, own.rfft2, own.irfft2))
fftn, ifftn, rfftn, irfftn = (on_arrays(f) for f in (own.fftn, own.ifftn, own.rfftn, own.irfftn))
hfft, ihfft, fftshift, ifftshift = (on_arrays(f) for f in (own.hfft, own.ihfft, own.fftshift, own.ifftshift))
fftfreq, rfftfreq = np.fft.fftfreq, np.fft.rfftfreq

INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}
"""The type that undoes a type, but for a factor."""


def _turns(dtype: np.dtype, angles: Any) -> Any:
    """``exp(i angles)`` as a constant beside arrays of ``dtype``."""
    return np.exp(1j * np.asarray(angles)).astype(np.result_type(dtype, np.complex64))


def _cosines(x: Any, kind: int) -> Any:
    r"""The unscaled transform of real numbers along the last axis; of type 2 it is
    :math:`2 \sum_j x_j \cos(\pi k (2j + 1) / 2n)`.
    """
    n = x.shape[-1]
    k = np.arange(n)
    if kind == 1:
        return np.fft.rfft(np.concatenate((x, x[..., n - 2 : 0 : -1]), axis=-1)).real
    if kind == 2:
        spectrum = np.fft.rfft(np.concatenate((x, x[..., ::-1]), axis=-1))[..., :n]
        return (spectrum * _turns(x.dtype, -math.pi / (2 * n) * k)).real
    if kind == 3:
        wide: Any = framed(
            x * _turns(x.dtype, math.pi / (2 * n) * k), (0,) * x.ndim, (0,) * (x.ndim - 1) + (1,)
        )
        return np.fft.irfft(wide, 2 * n, norm="forward")[..., :n]
    wide = framed(x * _turns(x.dtype, -math.pi / (2 * n) * k), (0,) * x.ndim, (0,) * (x.ndim - 1) + (n,))
    return 2 * (np.fft.fft(wide)[..., :n] * _turns(x.dtype, -math.pi / (4 * n) * (2 * k + 1))).real


def _sines(x: Any, kind: int) -> Any:
    """Likewise of sines: but for type 1 they are cosines of other numbers, in another order."""
    n = x.shape[-1]
    if kind == 1:
        zero = np.zeros_like(x[..., :1])
        odd = np.concatenate((zero, x, zero, -x[..., ::-1]), axis=-1)
        return -np.fft.rfft(odd)[..., 1 : n + 1].imag
    signs = (1 - 2 * (np.arange(n) % 2)).astype(x.dtype)
    return _cosines(x * signs, 2)[..., ::-1] if kind == 2 else _cosines(x[..., ::-1], kind) * signs


def _ends(n: int, places: Sequence[int], factor: float, dtype: np.dtype) -> np.ndarray:
    made = np.ones(n, dtype)
    made[list(places)] = factor
    return made


def _transformed(
    name: str, a: Any, kind: int, n: int | None, axis: int, norm: str | None, orthogonalize: bool | None
) -> Node:
    x = as_array_node(a)
    x = cast(x, true_divide_dtype(x.dtype))
    if is_complex(x.dtype):
        parts = [OPERATORS[part](x) for part in ("real", "imag")]
        made = [_transformed(name, part, kind, n, axis, norm, orthogonalize) for part in parts]
        return OPERATORS["complex_of"](*made)
    inverse, sines = name.startswith("i"), "s" in name
    axis = normal_axis(name, axis, x.ndim)
    n = x.shape[axis] if n is None else n
    least = 2 if kind == 1 and not sines else 1
    if kind not in INVERSE or (norm is not None and norm not in NORMS):
        raise ValueError(
            f"{name}: type={kind!r}, norm={norm!r}; types are 1 to 4, norms {', '.join(map(repr, NORMS))}"
            f"{where_written()}"
        )
    if n < least:
        raise ShapeError(
            f"{name}: {n} elements along axis {axis}; it takes {least} at least{where_written()}"
        )
    x = framed(x, (0,) * x.ndim, tuple(n - x.shape[k] if k == axis else 0 for k in range(x.ndim)))
    kind = INVERSE[kind] if inverse else kind
    period = 2 * (n + (0 if kind > 1 else 1 if sines else -1))
    orthogonal = norm == "ortho" if orthogonalize is None else orthogonalize
    rows: Any = moveaxis(x, axis, -1)
    ends = {1: () if sines else (0, n - 1), 2: (), 3: (n - 1 if sines else 0,), 4: ()}[kind]
    if orthogonal and ends:
        rows = rows * _ends(n, ends, math.sqrt(2), x.dtype)
    rows = (_sines if sines else _cosines)(rows, kind)
    ends = ends if kind == 1 else {2: (n - 1 if sines else 0,)}.get(kind, ())
    if orthogonal and ends:
        rows = rows * _ends(n, ends, math.sqrt(0.5), x.dtype)
    power = 0.5 if norm == "ortho" else 1.0 if (norm == "forward") != inverse else 0.0
    return moveaxis(rows * period**-power if power else rows, -1, axis)  # type: ignore[no-any-return]


def _of_one_axis(name: str, what: str) -> Callable[..., Any]:
    @on_arrays
    def transform(
        x: Any,
        type: int = 2,
        n: int | None = None,
        axis: int = -1,
        norm: str | None = None,
        overwrite_x: bool = False,
        workers: int | None = None,
        orthogonalize: bool | None = None,
    ) -> Any:
        return _transformed(name, x, type, n, axis, norm, orthogonalize)

    return _named(transform, name, f"{what} of ``type`` 1 to 4 along ``axis``, as SciPy scales it.")


def _of_axes(name: str, what: str) -> Callable[..., Any]:
    @on_arrays
    def transform(
        x: Any,
        type: int = 2,
        s: Any = None,
        axes: Any = None,
        norm: str | None = None,
        overwrite_x: bool = False,
        workers: int | None = None,
        *,
        orthogonalize: bool | None = None,
    ) -> Any:
        node: Any = as_array_node(x)
        extents = None if s is None else [s] if np.ndim(s) == 0 else list(s)
        if axes is None and extents is not None:
            axes = range(node.ndim - len(extents), node.ndim)
        places = normal_axes(name, axes, node.ndim)
        if extents is not None and len(extents) != len(places):
            raise ShapeError(f"{name}: s={extents} for axes {places}; give one for each{where_written()}")
        for k, axis in enumerate(places):
            n = None if extents is None or extents[k] in (None, -1) else extents[k]
            node = _transformed(name[:-1], node, type, n, axis, norm, orthogonalize)
        return node

    return _named(transform, name, f"{what} of ``type`` 1 to 4 along all ``axes``, one after the other.")


def _named(function: Callable[..., Any], name: str, text: str) -> Callable[..., Any]:
    @wraps(function)
    def named(*arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords)

    named.__name__ = named.__qualname__ = name
    named.__doc__ = text
    return named


dct, dctn = _of_one_axis("dct", "The transform of cosines"), _of_axes("dctn", "The transform of cosines")
dst, dstn = _of_one_axis("dst", "The transform of sines"), _of_axes("dstn", "The transform of sines")
idct, idctn = _of_one_axis("idct", "The inverse of ``dct``"), _of_axes("idctn", "The inverse of ``dctn``")
idst, idstn = _of_one_axis("idst", "The inverse of ``dst``"), _of_axes("idstn", "The inverse of ``dstn``")
