"""How large values can be: bounds hold for whatever the arguments are, and what may be infinite has none."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pullback.loops import Affine, Apply, Axis, Buffer, Literal, Load, Reduce, Store
from pullback.loops.functions import FUNCTIONS
from pullback.loops.magnitudes import largest

AXIS = Axis("i", 300)
HALF, SINGLE, DOUBLE = (np.dtype(f"f{size}") for size in (2, 4, 8))


def read(dtype, name="x"):
    return Load(Buffer(name, np.dtype(dtype), (300,)), Affine.of(AXIS))


def of(function, *operands, dtype=SINGLE):
    return Apply(function, operands, dtype)


PIXEL = of("cast", read("u1"))


@pytest.mark.parametrize(
    ("value", "bound"),
    [
        (PIXEL, 255),
        (of("cast", read("?")), 1),
        (of("multiply", PIXEL, Literal(-2.0, SINGLE)), 510),
        (of("add", PIXEL, PIXEL), 510),
        (of("subtract", PIXEL, Literal(0.5, SINGLE)), 255.5),
        (of("negative", of("relu", PIXEL)), 255),
        (
            of("where", of("greater", read("f4"), PIXEL, dtype=np.dtype("?")), PIXEL, Literal(-300, SINGLE)),
            300,
        ),
        (of("maximum", PIXEL, Literal(300, SINGLE)), 300),
        (of("tanh", PIXEL), 1),
        (Reduce("add", (AXIS,), PIXEL), 300 * 255),
        (Reduce("maximum", (AXIS,), PIXEL), 255),
        (of("cast", read("i8"), dtype=SINGLE), 2.0**63),
        (of("cast", read("u2"), dtype=SINGLE), 65535),
    ],
)
def test_a_bound_and_hardly_more(value, bound):
    assert bound <= largest(value, {}) <= bound * 1.001


@pytest.mark.parametrize(
    "value",
    [
        read("f4"),
        read("c8"),
        of("multiply", PIXEL, read("f4")),
        of("divide", PIXEL, PIXEL),
        of("log", PIXEL),
        of("tanh", read("f4")),  # of NaN
        of("multiply", PIXEL, Literal(math.inf, SINGLE)),
        of("add", PIXEL, Literal(math.nan, SINGLE)),
        of("multiply", PIXEL, Literal(3e38, SINGLE)),
        of("cast", read("u2"), dtype=HALF),  # 65520 and more are infinite
        of("cast", of("cast", read("i8"), dtype=DOUBLE), dtype=HALF),
        of("cast", Literal(1e300, DOUBLE), dtype=SINGLE),
        Reduce("add", (AXIS,), of("cast", read("u1"), dtype=HALF), HALF),
        Reduce("multiply", (AXIS,), PIXEL),
    ],
)
def test_what_may_be_infinite_or_nan_has_no_bound(value):
    assert largest(value, {}) == math.inf


def stores(*values, accumulate=""):
    buffer = Buffer("y", SINGLE, (300,))
    return Load(buffer, Affine.of(AXIS)), {
        buffer: [Store(buffer, Affine.of(AXIS), value, accumulate=accumulate) for value in values]
    }


def test_a_buffer_is_as_large_as_all_that_is_stored_there():
    value, stored = stores(PIXEL, Literal(300, SINGLE))
    assert 300 <= largest(value, stored) <= 300.1
    value, stored = stores(PIXEL, read("f4"))
    assert largest(value, stored) == math.inf
    value, stored = stores(PIXEL, accumulate="add")
    assert largest(value, stored) == math.inf


def test_a_buffer_that_is_made_of_itself_has_no_bound():
    value, stored = stores(PIXEL)
    (buffer,) = stored
    stored[buffer].append(Store(buffer, Affine.of(AXIS), of("add", value, PIXEL)))
    assert largest(value, stored) == math.inf


def test_integers_wrap_around():
    byte = read("u1")
    assert largest(of("subtract", byte, byte, dtype=np.dtype("u1")), {}) == 255


@pytest.mark.parametrize(
    "function", ["add", "subtract", "multiply", "maximum", "minimum", "relu", "tanh", "cos"]
)
def test_no_value_is_larger(function):
    random = np.random.default_rng(0)
    count = 2 if function in ("add", "subtract", "multiply", "maximum", "minimum") else 1
    arrays = [random.integers(0, 256, 300).astype(np.float32) for _ in range(count)]
    bound = largest(of(function, *[PIXEL] * count), {})
    assert np.abs(FUNCTIONS[function](*arrays)).max() <= bound < math.inf
