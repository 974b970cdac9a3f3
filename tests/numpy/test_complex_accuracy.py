"""Complex elementwise functions, compiled, against multiple precision: errors in units in the last place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import pullback as pb
from pullback.operators.complex_parts import ACCURACY

EXACT: dict[str, Callable[..., Any]] = {
    "absolute": abs,
    "arccos": mpmath.acos,
    "arccosh": mpmath.acosh,
    "arcsin": mpmath.asin,
    "arcsinh": mpmath.asinh,
    "arctan": mpmath.atan,
    "arctanh": mpmath.atanh,
    "cos": mpmath.cos,
    "cosh": mpmath.cosh,
    "divide": lambda x, y: x / y,
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.power(2, x),
    "expm1": lambda x: mpmath.exp(x) - 1,
    "log": mpmath.log,
    "log10": lambda x: mpmath.log(x) / mpmath.log(10),
    "log1p": lambda x: mpmath.log(1 + x),
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "multiply": lambda x, y: x * y,
    "power": mpmath.power,
    "reciprocal": lambda x: 1 / x,
    "sin": mpmath.sin,
    "sinh": mpmath.sinh,
    "sqrt": mpmath.sqrt,
    "square": lambda x: x * x,
    "tan": mpmath.tan,
    "tanh": mpmath.tanh,
}


def spread(random: np.random.Generator, low: float, high: float, size: int) -> np.ndarray:
    """Both signs, magnitudes even in their logarithm."""
    return random.choice([-1, 1], size) * np.exp(random.uniform(np.log(low), np.log(high), size))


def operand(random: np.random.Generator, size: int) -> np.ndarray:
    """Numbers of ordinary size, of parts that differ, next to the unit circle, and next to 1, -1, i, -i and 0."""
    near = random.uniform(-3, 3, (2, size))
    far = spread(random, 1e-6, 20, 2 * size)
    circle = np.exp(1j * random.uniform(-3, 3, size)) * (1 + spread(random, 1e-7, 0.1, size))
    points = spread(random, 1e-9, 1e-2, 2 * size)
    around = points[:size] + 1j * points[size:] + random.choice([1, -1, 1j, -1j, 0], size)
    return np.concatenate([near[0] + 1j * near[1], far[:size] + 1j * far[size:], circle, around])


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", sorted(ACCURACY))
def test_errors_are_as_stated(name: str, dtype: type) -> None:
    random, limits = np.random.default_rng(4), np.finfo(dtype)
    count = 2 if name in ("divide", "multiply", "power") else 1
    operands = [operand(random, 100).astype(dtype) for _ in range(count)]
    found = pb.jit(getattr(np, name))(*operands)
    with mpmath.workprec(250):
        for value, *given in zip(found.tolist(), *[x.tolist() for x in operands]):
            exact = mpmath.mpmathify(EXACT[name](*map(mpmath.mpc, given)))
            if not limits.tiny < abs(exact) < limits.max / 4:
                continue
            unit = mpmath.ldexp(1, mpmath.frexp(abs(exact))[1] - 1 - limits.nmant)
            times = 1
            if name in ("power", "exp2"):
                base, exponent = given if name == "power" else (2, *given)
                times += abs(mpmath.mpmathify(exponent) * mpmath.log(base))
            error = abs(mpmath.mpmathify(value) - exact) / unit
            assert error <= ACCURACY[name] * times, (given, value)


def test_every_bound_has_a_test() -> None:
    assert set(EXACT) == set(ACCURACY)
