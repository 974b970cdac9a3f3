"""Maxima and minima of many floats: NaN and the signs of zeros wherever they stand, in loops, rows and chains."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import pullback as pb
from pullback.loops.functions import FUNCTIONS
from pullback.testing.programs.processors import compiled_for

KINDS = {"maximum": np.max, "minimum": np.min}
SHAPES = [(3,), (5,), (40,), (41,), (203,), (1000,), (7, 9), (33, 40), (20, 77), (40, 3), (3, 50, 4)]
DTYPES = [np.float32, np.float64]


def rare_places(shape: tuple[int, ...], dtype: type, seed: int) -> list[np.ndarray]:
    """Arrays whose extremum is a zero of either sign, with and without NaN of either sign at some place."""
    generator = np.random.default_rng(seed)
    arrays = []
    for low, high in ((-3.0, 0.0), (0.0, 3.0), (-np.inf, -0.0), (0.0, 0.0), (-0.0, -0.0)):
        for nans, turned in ((0, 0.0), (0, 0.1), (1, 0.0), (3, 0.1)):
            x = np.where(generator.random(shape) < 0.3, high, low).astype(dtype)
            x[generator.random(shape) < turned] *= -1
            flat = x.reshape(-1)
            flat[generator.integers(0, flat.size, nans)] = generator.choice([np.nan, -np.nan], nans)
            arrays.append(x)
    return arrays


def reference(kind: str, rows: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return functools.reduce(FUNCTIONS[kind], rows)


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    number = ~np.isnan(expected)
    return np.array_equal(found, expected, equal_nan=True) and np.array_equal(
        np.signbit(found)[number], np.signbit(expected)[number]
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(kind, shape, dtype, compiler):
    axes = [None, *range(len(shape))]
    for processor in compiler.processors:
        with compiled_for(processor):
            compiled = [pb.jit(functools.partial(KINDS[kind], axis=axis)) for axis in axes]
            for seed, x in enumerate(rare_places(shape, dtype, len(shape))):
                for axis, function in zip(axes, compiled):
                    rows = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
                    expected = reference(kind, rows)
                    assert same(np.asarray(function(x)), np.asarray(expected)), (axis, seed, processor)


@pytest.mark.parametrize("links", [2, 3, 4, 9, 30])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_chains(kind, links, dtype, compiler):
    function = {"maximum": np.maximum, "minimum": np.minimum}[kind]

    def chain(x):
        held = functools.reduce(function, x)
        half = functools.reduce(function, x[: links // 2 + 1])  # links with two users
        return held, function(held, 1.5), half, function(half, x[-1] + 1)

    for processor in compiler.processors:
        with compiled_for(processor):
            compiled = pb.jit(chain)
            for x in rare_places((links, 21), dtype, links):
                held = reference(kind, x)
                half = reference(kind, x[: links // 2 + 1])
                expected = [held, reference(kind, np.stack([held, np.full_like(held, 1.5)])), half]
                expected.append(reference(kind, np.stack([half, x[-1] + dtype(1)])))
                for a, b in zip(compiled(x), expected):
                    assert same(a, b)


def test_a_chain_longer_than_the_stack():
    x = np.random.default_rng(0).standard_normal((2000, 3))
    found = pb.jit(lambda x: functools.reduce(np.maximum, [x[k] for k in range(2000)]))(x)
    np.testing.assert_array_equal(found, x.max(axis=0))
