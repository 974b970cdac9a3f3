"""Running totals in a logarithm of rounds: the same as step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import DTypeError, ShapeError, TreeError
from pullback.testing import check_grads

Array = Any
RANDOM = np.random.default_rng(4)


def affine(first: Any, second: Any) -> Any:
    (a, b), (c, d) = first, second
    return a * c, b * c + d


def by_scan(function: Any, xs: Any, reverse: bool = False) -> Any:
    """What ``associative_scan`` means, along axis 0."""
    steps = range(pb.flatten(xs)[0][0].shape[0])
    total, kept = None, []
    for k in reversed(steps) if reverse else steps:
        x = pb.map_tree(lambda x, k=k: x[k : k + 1], xs)
        total = x if total is None else function(total, x)
        kept.append(total)
    return pb.map_tree(lambda *parts: np.concatenate(parts), *(kept[::-1] if reverse else kept))


def assert_close(found: Any, wanted: Any) -> None:
    for a, b in zip(pb.flatten(found)[0], pb.flatten(wanted)[0], strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_totals(count: int, reverse: bool) -> None:
    xs = RANDOM.uniform(0.5, 1, (count, 3)), RANDOM.normal(size=(count, 3))
    wanted = by_scan(affine, xs, reverse)
    assert_close(pb.associative_scan(affine, xs, reverse=reverse), wanted)
    assert_close(pb.jit(lambda *xs: pb.associative_scan(affine, xs, reverse=reverse))(*xs), wanted)
    matrices = RANDOM.normal(size=(count, 2, 2))
    assert_close(
        pb.associative_scan(lambda a, b: b @ a, matrices, reverse=reverse),
        by_scan(lambda a, b: b @ a, matrices, reverse),
    )


def test_derivatives_and_batches() -> None:
    xs = RANDOM.uniform(0.5, 1, (7, 3)), RANDOM.normal(size=(7, 3))

    def loss(scan: Any) -> Any:
        return lambda *xs: sum((total**2).sum() for total in scan(affine, xs))

    wanted = pb.grad(loss(by_scan), (0, 1))(*xs)
    assert_close(pb.grad(loss(pb.associative_scan), (0, 1))(*xs), wanted)
    assert_close(pb.jit(pb.grad(loss(pb.associative_scan), (0, 1)))(*xs), wanted)
    check_grads(loss(pb.associative_scan), list(xs))
    many = tuple(np.stack([x, x / 2]) for x in xs)
    assert_close(
        pb.vmap(loss(pb.associative_scan))(*many),
        np.stack([loss(by_scan)(*(x[k] for x in many)) for k in (0, 1)]),
    )


def test_another_axis_and_no_elements() -> None:
    x = RANDOM.normal(size=(2, 5))
    assert_close(pb.associative_scan(np.add, x, axis=1), np.cumsum(x, axis=1))
    assert_close(
        pb.associative_scan(np.add, x, axis=-1, reverse=True), np.cumsum(x[:, ::-1], axis=1)[:, ::-1]
    )
    assert pb.associative_scan(np.add, np.zeros((0, 2))).shape == (0, 2)
    assert pb.associative_scan(np.add, None) is None


def test_errors_tell_what_goes_in_and_what_comes_out() -> None:
    x = np.ones((4, 2))
    with pytest.raises(ShapeError, match=r"takes float64\[2, 2\] and returns float64\[2\].*test_associative"):
        pb.associative_scan(lambda a, b: (a + b).sum(axis=1), x)
    with pytest.raises(DTypeError, match=r"takes float64\[2, 2\] and returns float32\[2, 2\]"):
        pb.associative_scan(lambda a, b: (a + b).astype(np.float32), x)
    with pytest.raises(TreeError, match=r"takes .* and returns"):
        pb.associative_scan(lambda a, b: (a, b), x)
    with pytest.raises(ShapeError, match=r"xs at 0 is float64\[4, 2\], but .*xs at 1 is float64\[3\]"):
        pb.associative_scan(affine, (x, np.ones(3)))
    with pytest.raises(ShapeError, match="no axis 1"):
        pb.associative_scan(np.add, np.ones(3), axis=1)
