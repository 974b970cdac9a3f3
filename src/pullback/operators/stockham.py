r"""Fourier transforms that the compiler writes itself, of lengths that are products of 2, 3, 4 and 5.

A pass with the radix ``r`` makes of ``l r`` elements beside ``m`` others, ``x[u, p, k]`` with ``u < r`` and ``p < l``,

.. math:: y_{p, t, k} = w^{pt} \sum_u x_{u, p, k} e^{-2\pi i ut / r}, \qquad w = e^{-2\pi i / (l r)}

and leaves ``r m`` elements beside each other for the next one: what comes out of the last is in order. A real transform
is a complex one of half the length, of pairs of neighbours, whose spectrum is taken apart or put together.

Source: Stockham, in Cochran et al., *What is the fast Fourier transform?*, 1967; Van Loan, *Computational Frameworks
for the Fast Fourier Transform*, 1992, sections 1.7 and 4.2.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from pullback.graph import InputAt, OutputAt, Routine, Scalar, Type, part_dtype
from pullback.graph.routine import number

__all__ = ["radices", "written_transform"]

_LEAST = 8
"""The shortest complex transform that is worth passes of its own."""


def radices(length: int) -> tuple[int, ...] | None:
    """The radix of each pass over ``length`` complex elements, if these are all; the best ones first.

    >>> radices(2 * 4 * 4 * 3), radices(7)
    ((4, 4, 2, 3), None)
    """
    found: list[int] = []
    for radix in (4, 2, 3, 5):
        while length % radix == 0:
            found.append(radix)
            length //= radix
    return tuple(found) if length == 1 else None


def written_transform(name: str, x: Type, y: Type, axis: int, factor: float) -> Routine | None:
    """``fft``, ``ifft``, ``rfft`` or ``irfft`` along ``axis``, times ``factor``.

    ``None`` for lengths that have other factors and short ones; for real arrays also for odd lengths, and for axes that
    others come behind.
    """
    half = name in ("rfft", "irfft")
    n = y.shape[axis] if name == "irfft" else x.shape[axis]
    length = n // 2 if half else n
    passes = radices(length) if length >= _LEAST else None
    beside = math.prod(x.shape[axis + 1 :])
    if passes is None or (half and (n % 2 or beside != 1)):
        return None
    kind = x.dtype if x.dtype.kind == "f" else part_dtype(x.dtype)
    rows = math.prod(x.shape[:axis])
    return Routine(
        f"{name}.{kind}.{length}.{beside}",
        None,
        (
            InputAt(0),
            OutputAt(0),
            OutputAt(1),
            InputAt(1),
            number(rows),
            Scalar(factor, kind, by_value=True),
        ),
        count=int(x.size > 0),
        workspace=2 * length * beside * kind.itemsize,
        tables=(_roots(length, passes, half, kind),),
    )


@lru_cache(maxsize=8)  # so that transforms of one length have one table; of a million elements it takes 16 MB
def _roots(length: int, passes: tuple[int, ...], half: bool, kind: np.dtype) -> np.ndarray:
    """The roots of unity of all passes, those of one after those of the other, and of half a spectrum's frequencies."""
    parts: list[np.ndarray] = []
    left = length
    for radix in passes:
        steps = np.arange(left // radix)
        if len(steps) > 1:
            parts += [_root(steps * t, left) for t in range(1, radix)]
        left //= radix
    if half:
        parts.append(_root(np.arange(1, (length + 1) // 2), 2 * length))
    made = np.concatenate(parts) if parts else np.zeros((1, 2))
    made = np.ascontiguousarray(made, kind)
    made.flags.writeable = False
    return made


def _root(steps: np.ndarray, n: int) -> np.ndarray:
    """The real and imaginary parts of ``exp(-2πi k / n)``, of angles below an eighth of a turn."""
    eighth, rest = np.divmod(8 * (steps % n), n)
    below = np.where(eighth % 2, n - rest, rest) * (math.pi / (4 * n))
    cosine, sine = np.cos(below), np.sin(below)
    swaps = np.isin(eighth, (1, 2, 5, 6))
    real = np.where(swaps, sine, cosine) * np.where(np.isin(eighth, (2, 3, 4, 5)), -1, 1)
    imaginary = np.where(swaps, cosine, sine) * np.where(eighth >= 4, 1, -1)
    return np.stack([real, imaginary], axis=-1)
