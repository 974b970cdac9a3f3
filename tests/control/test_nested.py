"""Random compositions of loops, choices and checkpoints: interpreted, in every stage, and compiled, the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.stages import check_stages
from pullback.compiler.target import Processor

Array = Any
Function = Callable[[Array, Array], Array]
SOME = Processor("generic", "+avx2,+fma", "x86_64", 32, 16)
MOST_TURNS = 4


def leaf(random: np.random.Generator) -> Function:
    """A function of an array and a matrix, in the shape of the array."""
    c = float(random.normal())
    found: list[Function] = [
        lambda x, w: np.tanh(x @ w),
        lambda x, w: np.sin(x * c),
        lambda x, w: x * w[0] + c,
        lambda x, w: np.tanh(x + x.sum(axis=0)),
        lambda x, w: x[::-1] * 0.9,
        lambda x, w: np.where(x > c, x, -x * 0.5),
        lambda x, w: pb.softmax(x @ w) + x * 0.5,
    ]
    return found[random.integers(len(found))]


def composed(random: np.random.Generator, depth: int, bounded: bool) -> Function:
    """Such a function with control flow inside control flow."""
    if depth == 0:
        first, second = leaf(random), leaf(random)
        return lambda x, w: first(second(x, w), w)
    a, b = (composed(random, depth - 1, bounded) for _ in range(2))
    c, turns, reverse = (
        float(random.normal()) * 0.3,
        int(random.integers(1, MOST_TURNS)),
        bool(random.integers(2)),
    )

    def chosen(x: Array, w: Array) -> Array:
        return pb.cond(x.sum() > c, a, b, x, w)

    def switched(x: Array, w: Array) -> Array:
        return pb.switch(np.floor(x[0, 1] * 3).astype(np.int64), [a, b, lambda x, w: x * 1.1], x, w)

    def scanned(x: Array, w: Array) -> Array:
        def step(h: Array, i: Array) -> Any:
            return np.tanh(a(h, w) + i * 0.1), h

        h, kept = pb.scan(step, x, np.arange(float(turns)), reverse=reverse)
        return h + kept.sum(axis=0) * 0.3

    def mapped(x: Array, w: Array) -> Array:
        return pb.map(lambda row: np.tanh(a(row[None] + 0 * x, w)).mean(axis=0), b(x, w))

    def repeated(x: Array, w: Array) -> Array:
        def goes_on(value: Any) -> Array:
            return (value[1] < turns) & ((value[0] ** 2).sum() < 100)

        steps = MOST_TURNS if bounded else None
        return pb.while_loop(goes_on, lambda v: (a(v[0], w), v[1] + 1), (b(x, w), 0), max_steps=steps)[0]

    def again(x: Array, w: Array) -> Array:
        return pb.checkpoint(lambda y: b(a(y, w), w), policy=("nothing", "products")[reverse])(x)

    def joined(x: Array, w: Array) -> Array:
        return a(b(x, w), w) + x

    found: list[Function] = [chosen, switched, scanned, mapped, repeated, again, joined]
    return found[random.integers(len(found))]


def transformed(function: Function, mode: int) -> Function:
    """Values and derivatives, of one or of several."""

    def tangent(x: Array, w: Array) -> Any:
        return pb.jvp(function, (x, w), (np.cos(x), np.sin(w)))

    def gradient(x: Array, w: Array) -> Any:
        return pb.value_and_grad(lambda x, w: (function(x, w) ** 2).sum(), (0, 1))(x, w)

    def batch(x: Array, w: Array) -> Any:
        return pb.vmap(gradient, (0, None))(np.stack([x, -x, x * 0.3]), w)

    return (tangent, gradient, batch)[mode]


@pytest.mark.parametrize("seed", range(8))
def test_random_compositions(seed: int) -> None:
    random = np.random.default_rng(seed)
    mode = seed % 3
    function = transformed(composed(random, int(random.integers(1, 3)), bounded=mode > 0), mode)
    shape = (3, 4) if seed % 2 else (40, 24)
    x, w = random.normal(size=shape), random.normal(size=(shape[1], shape[1])) / shape[1] ** 0.5
    check_stages(pb.trace(function, x, w).graph, [x, w], SOME)
    found, wanted = (pb.flatten(each(x, w))[0] for each in (pb.jit(function), function))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8 * (1 + np.abs(b).max()))
