"""Inverse trigonometric and hyperbolic functions of complex numbers: NumPy's branch cuts and signs of zero."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pullback as pb

NAMES = ("arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh")
ONE_SIDED = [-2.5, -1.0, -0.3, -0.0, 0.0, 0.3, 1.0, 2.5]


def numbers(parts: Any, dtype: Any = np.complex128) -> np.ndarray:
    made = np.empty(len(parts) ** 2, dtype)
    made.real, made.imag = zip(*itertools.product(parts, parts))
    return made


def infinities(z: complex) -> tuple[bool, bool]:
    return bool(np.isinf(z.real)), bool(np.isinf(z.imag))


def agree(found: np.ndarray, wanted: np.ndarray, z: np.ndarray, eps: float) -> None:
    for place, a, b in zip(z, found, wanted):
        finite = np.isfinite(b)
        near = abs(a - b) <= 16 * eps * abs(b) if finite else infinities(a) == infinities(b)
        assert near, (place, a, b)
        for part, other in ((a.real, b.real), (a.imag, b.imag)):
            if other == 0 or abs(other) > 16 * eps * abs(b):  # a part that rounds to nothing has any sign
                assert np.signbit(part) == np.signbit(other), (place, a, b)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_values_and_branches_are_those_of_numpy(name: str, dtype: Any) -> None:
    function = getattr(np, name)
    info = np.finfo(dtype)
    large, small = float(info.max) ** 0.9, float(info.tiny) * 16
    for z in (
        numbers(ONE_SIDED, dtype),
        numbers([-large, -1.5, -0.0, 0.0, 2.0, large], dtype),
        numbers([-1.0, -small, -0.0, 0.0, small, 1.0], dtype),
    ):
        with np.errstate(all="ignore"):
            wanted = function(z)
            agree(pb.jit(function)(z), wanted, z, info.eps)


def moved(z: complex, by: float, along: complex) -> np.ndarray:
    """A number farther along an axis, the sign of whose other part stays."""
    return np.array(complex(z.real + by, z.imag) if along == 1.0 else complex(z.real, z.imag + by))


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_take_the_side_of_a_cut_that_the_value_is_on(name: str) -> None:
    function = getattr(np, name)
    along = {"arctan": 1j, "arcsinh": 1j}.get(name, 1.0)  # the direction of the cut
    for place in (2.5, -2.5):
        for side in (0.0, -0.0):
            z = complex(place, side) if along == 1.0 else complex(side, place)
            step = 1e-6 * along
            ahead, behind = (moved(z, sign * 1e-6, along) for sign in (1, -1))
            wanted = (function(ahead) - function(behind)) / (2 * step)
            for run in (lambda f: f, pb.jit):
                _, found = run(lambda z: pb.jvp(function, (z,), (np.ones_like(z),)))(np.array(z))
                assert abs(found - wanted) < 1e-8, (z, found, wanted)
