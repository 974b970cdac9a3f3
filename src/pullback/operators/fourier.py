r"""Discrete Fourier transforms; compiled programs have their own (``stockham.py``).

.. math:: y_k = s \sum_j x_j e^{\mp 2\pi i jk / n}

along an axis of ``n`` elements, with minus and ``s = 1`` for the transform and plus and ``s = 1 / n`` for its inverse
if ``norm`` is "backward", with the factors changed round if it is "forward", and ``1 / sqrt(n)`` for both if it is
"ortho".

A transform is a symmetric matrix, so it is its own transpose: its pullback is itself. That of half a spectrum
(``rfft``, ``irfft``) is the other one, with the frequencies weighed that stand for two.

Source: Cooley & Tukey, *An algorithm for the machine calculation of complex Fourier series*, 1965.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError
from pullback.graph import (
    OPERATORS,
    Case,
    Node,
    Operation,
    Operator,
    Routine,
    Sample,
    Type,
    constant,
    is_half,
    part_dtype,
)
from pullback.operators.batching import batch_first
from pullback.operators.complex_numbers import complex_of, conjugate, imag, real
from pullback.operators.elementwise import repair_of
from pullback.operators.stockham import written_transform
from pullback.operators.varying import beside

__all__ = ["NORMS", "fft", "irfft", "rfft"]

_transforms: Any = np.fft
NORMS = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
"""Each way to share the factor out among a transform and its inverse, and the same seen from the inverse."""


def _factor(n: int, norm: str, inverse: bool) -> float:
    """What the sum over ``n`` elements is multiplied with."""
    shared = NORMS[norm] if inverse else norm
    return {"backward": 1.0, "ortho": 1 / math.sqrt(n), "forward": 1 / n}[shared]


def _check(name: str, x: Type, kind: str, axis: int, norm: str) -> None:
    if x.dtype.kind != kind or is_half(x.dtype):
        repair = (
            repair_of(x.dtype, kind) if kind == "f" else "cast it, for instance with .astype(np.complex128)"
        )
        raise DTypeError(f"{name} takes no {x.dtype}; {repair}")
    if not 0 <= axis < x.rank:
        raise ShapeError(f"{name}: axis {axis} of shape {x.shape}; name one of its axes")
    if norm not in NORMS:
        raise ShapeError(f"{name}: norm {norm!r}; it is one of {', '.join(map(repr, NORMS))}")
    if x.shape[axis] == 0:
        raise ShapeError(
            f"{name}: axis {axis} of shape {x.shape} has no elements; give n, its length with zeros"
        )


def _complex_of(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"complex{16 * dtype.itemsize}")


# -- complex to complex


def _fft_type(x: Type, axis: int, inverse: bool, norm: str) -> Type:
    _check("fft", x, "c", axis, norm)
    return Type(x.dtype, x.shape)


def _fft_reference(x: np.ndarray, axis: int, inverse: bool, norm: str) -> np.ndarray:
    x = np.asarray(x)
    made = (_transforms.ifft if inverse else _transforms.fft)(x, axis=axis, norm=norm)
    return np.asarray(made, x.dtype)


def _complex(*shape: int) -> tuple[Sample, ...]:
    return (Sample(shape, kind="complex"),)


def _fft_routine(x: Type, axis: int, inverse: bool, norm: str) -> Routine:
    name, factor = "ifft" if inverse else "fft", _factor(x.shape[axis], norm, inverse)
    return written_transform(name, x, x, axis, factor)


fft: Operator = Operator(
    "fft",
    _fft_type,
    _fft_reference,
    lambda node, g: [fft(g, **node.attributes)],
    batch_first,
    None,
    tuple(
        Case(_complex(*shape), {"axis": axis, "inverse": inverse, "norm": norm})
        for shape, axis, inverse, norm in (
            ((5,), 0, False, "backward"),
            ((6,), 0, True, "backward"),
            ((1,), 0, True, "forward"),
            ((2, 4), 1, False, "ortho"),
            ((3, 4), 0, True, "ortho"),
            ((2, 3, 4), 1, False, "forward"),
            ((0, 3), 1, False, "backward"),
            ((16,), 0, False, "backward"),
            ((2, 30), 1, True, "ortho"),
            ((2, 9, 3), 1, False, "backward"),
            ((10, 5), 0, True, "backward"),
            ((7, 9), 0, False, "ortho"),
            ((2, 22), 1, False, "backward"),
            ((37,), 0, True, "backward"),
            ((37, 2), 0, False, "forward"),
        )
    ),
    routine=_fft_routine,
    vary=beside,
)
"""The transform of a complex array along ``axis``, or its ``inverse``."""


# -- half a spectrum


def _weighed(y: Node, n: int, axis: int, share: float) -> Node:
    """Half a spectrum with those frequencies times ``share`` that stand for two of ``n``."""
    weights = np.full(y.shape[axis], share, part_dtype(y.dtype))
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    along: Any = OPERATORS["broadcast"](constant(weights), shape=y.shape, axes=(axis,))
    return complex_of(real(y) * along, imag(y) * along)


def _rfft_type(x: Type, axis: int, norm: str) -> Type:
    _check("rfft", x, "f", axis, norm)
    shape = tuple(extent // 2 + 1 if k == axis else extent for k, extent in enumerate(x.shape))
    return Type(_complex_of(x.dtype), shape)


def _rfft_reference(x: np.ndarray, axis: int, norm: str) -> np.ndarray:
    x = np.asarray(x)
    return np.asarray(_transforms.rfft(x, axis=axis, norm=norm), _complex_of(x.dtype))


def _rfft_routine(x: Type, axis: int, norm: str) -> Routine:
    n = x.shape[axis]
    y, factor = _rfft_type(x, axis, norm), _factor(n, norm, False)
    return written_transform("rfft", x, y, axis, factor)


def _rfft_pullback(node: Operation, g: Node) -> list[Node | None]:
    axis, norm = node.attributes["axis"], node.attributes["norm"]
    n = node.inputs[0].shape[axis]
    return [irfft(_weighed(conjugate(g), n, axis, 0.5), axis=axis, n=n, norm=NORMS[norm])]


rfft: Operator = Operator(
    "rfft",
    _rfft_type,
    _rfft_reference,
    _rfft_pullback,
    batch_first,
    None,
    tuple(
        Case((Sample(shape),), {"axis": axis, "norm": norm})
        for shape, axis, norm in (
            ((5,), 0, "backward"),
            ((6,), 0, "ortho"),
            ((1,), 0, "backward"),
            ((2,), 0, "forward"),
            ((3, 4), 1, "forward"),
            ((4, 2, 3), 0, "backward"),
            ((0, 3), 1, "backward"),
            ((16,), 0, "ortho"),
            ((2, 50), 1, "backward"),
            ((36,), 0, "forward"),
            ((8, 3), 0, "backward"),
            ((37, 2), 0, "ortho"),
            ((2, 74), 1, "backward"),
        )
    ),
    routine=_rfft_routine,
    vary=beside,
)
"""The first ``n // 2 + 1`` frequencies of a real array along ``axis``: the others are their conjugates."""


def _irfft_type(y: Type, axis: int, n: int, norm: str) -> Type:
    _check("irfft", y, "c", axis, norm)
    if n < 1 or y.shape[axis] != n // 2 + 1:
        raise ShapeError(
            f"irfft: {y.shape[axis]} frequencies along axis {axis} for n={n}; it takes n // 2 + 1 = {n // 2 + 1}"
        )
    return Type(part_dtype(y.dtype), tuple(n if k == axis else extent for k, extent in enumerate(y.shape)))


def _irfft_reference(y: np.ndarray, axis: int, n: int, norm: str) -> np.ndarray:
    y = np.asarray(y)
    return np.asarray(_transforms.irfft(y, n, axis=axis, norm=norm), part_dtype(y.dtype))


def _irfft_routine(y: Type, axis: int, n: int, norm: str) -> Routine:
    x, factor = _irfft_type(y, axis, n, norm), _factor(n, norm, True)
    return written_transform("irfft", y, x, axis, factor)


def _irfft_pullback(node: Operation, g: Node) -> list[Node | None]:
    axis, n, norm = (node.attributes[name] for name in ("axis", "n", "norm"))
    return [_weighed(conjugate(rfft(g, axis=axis, norm=NORMS[norm])), n, axis, 2.0)]


irfft: Operator = Operator(
    "irfft",
    _irfft_type,
    _irfft_reference,
    _irfft_pullback,
    batch_first,
    None,
    tuple(
        Case(_complex(*shape), {"axis": axis, "n": n, "norm": norm})
        for shape, axis, n, norm in (
            ((3,), 0, 5, "backward"),
            ((4,), 0, 6, "ortho"),
            ((1,), 0, 1, "forward"),
            ((2,), 0, 2, "backward"),
            ((3, 3), 1, 4, "forward"),
            ((3, 2, 3), 0, 4, "backward"),
            ((0, 3), 1, 4, "backward"),
            ((9,), 0, 16, "ortho"),
            ((2, 26), 1, 50, "backward"),
            ((19,), 0, 36, "forward"),
            ((5, 3), 0, 8, "backward"),
            ((19, 2), 0, 37, "ortho"),
            ((2, 38), 1, 74, "backward"),
        )
    ),
    routine=_irfft_routine,
    vary=beside,
)
"""The real array along ``axis`` of ``n`` elements, of whose transform the first ``n // 2 + 1`` frequencies are given.

The imaginary part of the first one is not read, nor, for an even ``n``, that of the last.
"""
