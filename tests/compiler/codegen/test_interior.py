"""Elements away from the ends of slices, shifts and padding need no question where they are; those at the ends do."""

import re

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.codegen.interior import _interior
from pullback.loops import Affine, Apply, Axis, Literal, Position

WHOLE = np.dtype(np.int64)
LENGTHS = (1, 2, 7, 31, 32, 33, 64, 65, 127, 250, 1000, 4097)


def differences(x):
    inner = 3.0 * (x[1:] - x[:-1] ** 2)
    return np.pad(inner * inner, (1, 0)) + np.pad(inner + inner, (0, 1)) * x


def bordered(x):
    return np.pad(x[2:] * 2.0, (5, 3)) - np.pad(x, (3, 3))


def backwards(x):
    return np.pad(x[::-1] * x, (2, 0)) + np.pad(np.exp(-x * x), (0, 2))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", [differences, bordered, backwards])
def test_all_lengths(function, dtype):
    compiled, slope = pb.jit(function), pb.jit(pb.grad(lambda x: np.sum(np.sin(function(x)))))
    plain = pb.grad(lambda x: np.sum(np.sin(function(x))))
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-12, "atol": 1e-12}
    for length in LENGTHS[2 if function is bordered else 1 :]:
        x = np.random.default_rng(length).uniform(-0.5, 0.5, length).astype(dtype)
        np.testing.assert_allclose(compiled(x), function(x), **close)
        np.testing.assert_allclose(slope(x), plain(x), **close)


def test_places_where_all_conditions_are_what_they_are_in_the_middle():
    axis, other = Axis("i", 100), Axis("j", 10)

    def asked(name, place, bound):
        return Apply(name, (Position(place), Literal(bound, WHOLE)), np.dtype(bool))

    i = Affine.of(axis)
    early, late = asked("less", i, 97), asked("greater_equal", i + -3, 0)
    known, low, high = _interior(axis, [early, late, asked("less", Affine.of(other), 5)])
    assert (known, low, high) == ({early: True, late: True}, 3, 97)
    few, back = asked("less_equal", i, 9), asked("greater", i * -1 + 90, 0)
    assert _interior(axis, [few, back]) == ({few: False, back: True}, 10, 90)
    always = asked("less", i, 100)
    assert _interior(axis, [always]) == ({always: True}, 0, 100)
    assert _interior(axis, []) == ({}, 0, 100)


def test_rows_that_nobody_reads_have_an_address_that_is_there():
    """A processor takes hundreds of cycles to leave out lanes of memory that does not exist."""

    def spread(x):
        return np.roll(x, 1, 0) + np.roll(x, -1, 0)

    text = pb.jit(spread).inspect(np.zeros((64, 64))).llvm
    masked = [line for line in text.split("\n") if "call" in line and "@llvm.masked.load" in line]
    # On the stack: the first element of an array in scratch memory, of which a chunk has a part, may not be there.
    chosen = set(re.findall(r"(%\w+) = select i1 %\w+, ptr %\w+, ptr %s\w+$", text, re.MULTILINE))
    assert masked
    for line in masked:
        assert line.split("ptr ")[1].split(",")[0].split(" ")[0] in chosen
