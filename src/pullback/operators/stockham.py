r"""Fourier transforms that the compiler writes itself, of any length.

A pass with the radix ``r`` makes of ``l r`` elements beside ``m`` others, ``x[u, p, k]`` with ``u < r`` and ``p < l``,

.. math:: y_{p, t, k} = w^{pt} \sum_u x_{u, p, k} e^{-2\pi i ut / r}, \qquad w = e^{-2\pi i / (l r)}

and leaves ``r m`` elements beside each other for the next one: what comes out of the last is in order. The radices are
4 and primes. Where one would be too large, ``jk = (j² + k² - (k - j)²) / 2`` makes of the transform

.. math:: y_k = c_k \sum_j (x_j c_j) \bar c_{k - j}, \qquad c_j = e^{-\pi i j^2 / n}

a convolution, hence a product of transforms of more elements, of which the number is a product of 2, 3 and 5.

A real transform is a complex one of half the length, of pairs of neighbours, whose spectrum is taken apart or put
together; if the length is odd, it is one of numbers without imaginary parts.

Source: Stockham, in Cochran et al., *What is the fast Fourier transform?*, 1967; Bluestein, *A linear filtering
approach to the computation of discrete Fourier transform*, 1970; Van Loan, *Computational Frameworks for the Fast
Fourier Transform*, 1992, sections 1.7, 4.2 and 4.3.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pullback.graph import InputAt, OutputAt, Routine, Scalar, Type, WorkAt, part_dtype
from pullback.graph.routine import number

__all__ = ["Plan", "columns", "halves", "planned", "root", "written_transform"]

_COLUMNS = 8
"""As many columns are transformed together at most, which lie in a cache then: as many numbers as a vector may have."""
_LARGEST = 31
"""The largest prime with a pass of its own, which is written out in code that grows with its square."""


@dataclass(frozen=True)
class Plan:
    """The radices of the passes over as many elements as are ``transformed``, more than ``length`` in a convolution."""

    length: int
    radices: tuple[int, ...]

    @property
    def transformed(self) -> int:
        """The product of the radices."""
        return math.prod(self.radices)

    @property
    def convolves(self) -> bool:
        """Whether it is a convolution."""
        return self.transformed > self.length

    def passes(self) -> list[tuple[int, int, int]]:
        """Of each pass the radix, how many elements ``l`` it leaves apart, and where its roots of unity begin."""
        made, left, first = [], self.transformed, 0
        for radix in self.radices:
            left //= radix
            made.append((radix, left, first))
            first += left * (radix - 1) if left > 1 else 0
        return made

    @property
    def pass_roots(self) -> int:
        """How many roots of unity the passes have together."""
        return sum(left * (radix - 1) for radix, left, _ in self.passes() if left > 1)


@lru_cache(maxsize=64)
def planned(length: int) -> Plan:
    """Passes over so many elements, the best radices first, or a convolution.

    >>> planned(2 * 4 * 4 * 3).radices, planned(7 * 13).radices, planned(101)
    ((4, 4, 2, 3), (7, 13), Plan(length=101, radices=(4, 2, 3, 3, 3)))
    """
    radices = _radices(length, _LARGEST)
    enough = itertools.count(2 * length - 1)
    return Plan(length, radices or next(filter(None, (_radices(more, 5) for more in enough))))


def _radices(length: int, largest: int) -> tuple[int, ...] | None:
    """The radices of passes over so many elements, if none is larger."""
    found: list[int] = []
    for radix in (4, 2, *range(3, largest + 1, 2)):
        while length % radix == 0:
            found.append(radix)
            length //= radix
    return (tuple(found) or (1,)) if length == 1 else None


def columns(beside: int) -> int:
    """How many of the elements that lie beside each other are transformed together.

    >>> columns(3), columns(8), columns(9), columns(100)
    (3, 8, 5, 8)
    """
    return -(-beside // max(1, -(-beside // _COLUMNS)))


def halves(name: str, n: int) -> bool:
    """Whether a transform of ``n`` elements is one of half as many.

    >>> halves("rfft", 16), halves("rfft", 15), halves("fft", 16)
    (True, False, False)
    """
    return name in ("rfft", "irfft") and n % 2 == 0


def written_transform(name: str, x: Type, y: Type, axis: int, factor: float) -> Routine:
    """``fft``, ``ifft``, ``rfft`` or ``irfft`` along ``axis``, times ``factor``."""
    n = y.shape[axis] if name == "irfft" else x.shape[axis]
    half, beside = halves(name, n), math.prod(x.shape[axis + 1 :])
    plan = planned(n // 2 if half else n)
    places = columns(beside) * (plan.length + plan.convolves * plan.transformed)
    kind = x.dtype if x.dtype.kind == "f" else part_dtype(x.dtype)
    return Routine(
        f"{name}.{kind}.{n}.{beside}",
        None,
        (
            InputAt(0),
            OutputAt(0),
            WorkAt(),
            InputAt(1),
            number(math.prod(x.shape[:axis])),
            Scalar(factor, kind, by_value=True),
        ),
        count=int(x.size > 0),
        workspace=4 * kind.itemsize * places,
        tables=(_roots(plan, half, kind),),
    )


@lru_cache(maxsize=8)  # so that transforms of one length have one table; of a million elements it takes 16 MB
def _roots(plan: Plan, half: bool, kind: np.dtype) -> np.ndarray:
    """The roots of unity of all passes, one after the other, of a convolution, and of half a spectrum."""
    parts = [np.zeros((0, 2))]
    for radix, left, _ in plan.passes():
        if left > 1:
            parts += [root(np.arange(left) * t, left * radix) for t in range(1, radix)]
    if plan.convolves:
        n, transformed = plan.length, plan.transformed
        places = np.arange(n)
        chirp = root(places * places, 2 * n)
        across = np.zeros(transformed, complex)
        across[:n] = chirp[:, 0] - 1j * chirp[:, 1]
        across[transformed - n + 1 :] = across[n - 1 : 0 : -1]
        spectrum = np.fft.fft(across, norm="forward")
        parts += [chirp, np.stack([spectrum.real, spectrum.imag], axis=-1)]
    if half:
        parts.append(root(np.arange(1, (plan.length + 1) // 2), 2 * plan.length))
    made = np.concatenate(parts)
    made = np.ascontiguousarray(made if len(made) else np.zeros((1, 2)), kind)
    made.flags.writeable = False
    return made


def root(steps: np.ndarray, n: int) -> np.ndarray:
    """The real and imaginary parts of ``exp(-2πi k / n)``, of angles below an eighth of a turn."""
    eighth, rest = np.divmod(8 * (steps % n), n)
    below = np.where(eighth % 2, n - rest, rest) * (math.pi / (4 * n))
    cosine, sine = np.cos(below), np.sin(below)
    swaps = np.isin(eighth, (1, 2, 5, 6))
    real = np.where(swaps, sine, cosine) * np.where(np.isin(eighth, (2, 3, 4, 5)), -1, 1)
    imaginary = np.where(swaps, cosine, sine) * np.where(eighth >= 4, 1, -1)
    return np.stack([real, imaginary], axis=-1)
