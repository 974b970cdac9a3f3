"""Gradients that nobody compiles: what each operation of a function costs that Python runs as it stands.

Each is a program by its name, a function of a library's NumPy and of what it is differentiated by, and its argument, in
double precision. Arrays are small, so that what is measured is the work beside NumPy's own. Only NumPy is used here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["PROGRAMS", "argument", "named"]


def sin_cos(o: Any, x: Any) -> Any:
    """Two functions of a number."""
    return o.sin(o.cos(x))


def power_by_loop(o: Any, x: Any) -> Any:
    """``x ** 100`` as 99 products."""
    y = x
    for _ in range(99):
        y = y * x
    return y


def rosenbrock(o: Any, x: Any) -> Any:
    """Rosenbrock's function, by slices."""
    return o.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def rosenbrock_by_index(o: Any, x: Any) -> Any:
    """The same, element by element."""
    total = 0.0
    for k in range(len(x) - 1):
        total = total + 100.0 * (x[k + 1] - x[k] ** 2) ** 2 + (1 - x[k]) ** 2
    return total


def ackley(o: Any, x: Any) -> Any:
    """Ackley's function."""
    hills = o.exp(o.mean(o.cos(2 * math.pi * x)))
    return -20 * o.exp(-0.2 * o.sqrt(o.mean(x**2))) - hills + 20 + math.e


def logsumexp(o: Any, x: Any) -> Any:
    """The logarithm of a sum of exponentials."""
    largest = o.max(x)
    return largest + o.log(o.sum(o.exp(x - largest)))


def perceptron(o: Any, weights: Any) -> Any:
    """The squared error of a network of one hidden layer: 32 examples, 20 inputs, 32 units, 4 outputs."""
    hidden = o.tanh(o.dot(_INPUTS, weights["w"]) + weights["b"])
    return o.mean((o.dot(hidden, weights["v"]) + weights["c"] - _OUTPUTS) ** 2)


def recurrent(o: Any, weights: Any) -> Any:
    """The mean square of the last state of a recurrent cell: 10 steps, 16 rows of 8, 16 units."""
    state = np.zeros((16, 16))
    for step in _STEPS:
        state = o.tanh(o.dot(step, weights["w"]) + o.dot(state, weights["u"]) + weights["b"])
    return o.mean(state**2)


_random = np.random.default_rng(0)
_INPUTS, _OUTPUTS = _random.standard_normal((32, 20)), _random.standard_normal((32, 4))
_STEPS = _random.standard_normal((10, 16, 8))

PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "sin(cos x)": sin_cos,
    "x**100 by a loop": power_by_loop,
    "Rosenbrock, 1,000": rosenbrock,
    "Rosenbrock, 20 by index": rosenbrock_by_index,
    "Ackley, 1,000": ackley,
    "logsumexp, 1,000": logsumexp,
    "perceptron": perceptron,
    "recurrent": recurrent,
}


def argument(program: str) -> Any:
    """What the program is differentiated by."""
    random = np.random.default_rng(1)

    def weights(**shapes: tuple[int, ...]) -> Any:
        return {name: 0.3 * random.standard_normal(shape) for name, shape in shapes.items()}

    if program == "perceptron":
        return weights(w=(20, 32), b=(32,), v=(32, 4), c=(4,))
    if program == "recurrent":
        return weights(w=(8, 16), u=(16, 16), b=(16,))
    if program in ("sin(cos x)", "x**100 by a loop"):
        return 1.01
    return random.standard_normal(20 if "index" in program else 1000)


def named(gradient: Any) -> dict[str, Any]:
    """The arrays of a gradient by their names."""
    parts = gradient if isinstance(gradient, dict) else {"gradient": gradient}
    return {name: np.asarray(part) for name, part in parts.items()}
