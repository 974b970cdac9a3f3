"""What every test of the namespace asks: is a function of traced values NumPy's function of arrays?"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pullback.tracing import flatten, trace


def _agrees(
    function: Callable[..., Any], *arrays: Any, expected: Any = None, tolerance: float = 1e-12
) -> None:
    """Trace, evaluate, and compare values, dtypes and shapes with NumPy's own result."""
    with np.errstate(all="ignore"):
        wanted = function(*arrays) if expected is None else expected
    found = trace(function, *arrays).evaluate(flatten((arrays, {}))[0])
    wanted, found = (list(each) if isinstance(each, (list, tuple)) else [each] for each in (wanted, found))
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        array = np.asarray(other)
        assert one.shape == array.shape
        assert one.dtype == array.dtype
        close = max(tolerance, 1e-5 if array.dtype == np.float32 else 0.0)
        np.testing.assert_allclose(one, array, rtol=close, atol=close)


@pytest.fixture
def agrees() -> Callable[..., None]:
    return _agrees


def _draw(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    """Values small enough for every function: a few units around zero, of unsigned integers above it."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return random.uniform(-2, 2, shape).astype(dtype)
    return random.integers(0 if dtype.kind in "ub" else -3, 2 if dtype.kind == "b" else 4, shape).astype(
        dtype
    )


@pytest.fixture
def draw() -> Callable[..., np.ndarray]:
    return _draw
