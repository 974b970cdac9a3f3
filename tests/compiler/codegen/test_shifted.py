"""What neighbours have in common is computed once and moved along the lanes, and has the same bits."""

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.codegen import interior
from pullback.compiler.codegen.shifted import shifts
from pullback.loops import Affine, Apply, Axis, Buffer, Load, fused

DOUBLE = np.dtype(np.float64)
LENGTHS = (3, 8, 9, 17, 32, 33, 64, 65, 127, 250, 1000, 4097, 40_000)


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def bending(x):
    return np.sum((x[2:] - 2 * x[1:-1] + x[:-2]) ** 2)


def two_distances(x):
    return np.sum((x[3:] * x[:-3] - 1) ** 2) + np.sum((x[1:] - x[:-1]) ** 2 * x[1:])


def image(x):
    rows = np.reshape(x[: len(x) // 3 * 3], (3, -1))
    across, down = rows[:, 1:] - rows[:, :-1], rows[1:] - rows[:-1]
    return np.sum(across**2) + np.sum(down**2)


def weighted_by_place(x):
    places = np.arange(len(x), dtype=x.dtype) / len(x)
    return np.sum((x[1:] * places[1:] - x[:-1]) ** 2 * x[:-1])


STENCILS = [rosenbrock, bending, two_distances, image, weighted_by_place]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stencil", STENCILS)
def test_bits_are_those_of_values_that_are_computed_again(stencil, dtype, monkeypatch):
    monkeypatch.setenv("PULLBACK_CACHE", "off")
    slope, met = pb.grad(stencil), []

    def spied(*arguments):
        met.extend(shifts(*arguments))
        return shifts(*arguments)

    for length in LENGTHS[1:] if stencil is two_distances else LENGTHS:
        x = np.random.default_rng(length).uniform(-0.9, 1.1, length).astype(dtype)
        monkeypatch.setattr(interior, "shifts", spied)
        moved = pb.jit(slope)(x)
        monkeypatch.setattr(interior, "shifts", lambda *_: [])
        np.testing.assert_array_equal(moved, pb.jit(slope)(x))
        close = {"rtol": 1e-3, "atol": 1e-3} if dtype == "float32" else {"rtol": 1e-11, "atol": 1e-11}
        np.testing.assert_allclose(moved, slope(x), **close)
    assert met, "no value of this stencil was moved"


@pytest.mark.parametrize("last", [2, 3])
@pytest.mark.parametrize("at", [0, 70, 79])
def test_sums_along_the_axis_go_through_all_turns(at, last):
    """What is known of a place between the ends of a slice is not known of the turns of a sum along the same axis."""
    x = np.random.default_rng(0).normal(size=(3, 80)).astype(np.float32)
    slope = pb.grad(lambda x: np.sum(pb.log_softmax(x, axis=1)[:last, at]))
    np.testing.assert_allclose(pb.jit(slope)(x), slope(x), rtol=1e-5, atol=1e-6)


def test_what_lies_behind_another_of_its_kind():
    axis, row = Axis("i", 100), Axis("j", 10)
    x, made = Buffer("x", DOUBLE, (1000,)), Buffer("made", DOUBLE, (1000,))

    def at(place, buffer=x):
        return Load(buffer, Affine.of(axis) + Affine.of(row) * 100 + place)

    def of(function, *operands):
        return Apply(function, operands, DOUBLE)

    def costly(place, buffer=x):
        return of("tanh", of("subtract", at(place + 1, buffer), at(place, buffer)))

    def found(*roots):
        return [(s.value, s.front, s.lanes) for s in shifts(axis, roots, 8, {made})]

    assert found(of("add", costly(2), costly(-1))) == [(costly(-1), costly(2), 3)]
    assert found(costly(0), costly(-8), costly(-9)) == [(costly(-8), costly(0), 8)]
    assert found(costly(0), costly(-9), costly(-10)) == [(costly(-10), costly(-9), 1)]
    assert found(of("tanh", at(0)), of("tanh", at(-1))) == [], "one operation costs no more than a shift"
    assert found(costly(1, made), costly(0, made)) == [], "the loop writes there"
    product = of("multiply", of("tanh", at(0)), at(0))
    before = of("multiply", of("tanh", at(-1)), at(-1))
    assert found(product, before) == [(before, product, 1)]
    assert found(product, fused(of("add", before, at(0)))) == [], "a product is one instruction with its sum"
    twice = of("exp", costly(0)), of("exp", costly(-1))
    assert found(*twice) == [(twice[1], twice[0], 1)], "the largest parts"
