"""Sums over a pool's winners that find what these meet in registers."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.compiler import split
from pullback.compiler.schedules import indexed_contraction
from pullback.compiler.schedules.permute import find_permute
from pullback.operators.pooling import convolve_max_unpooled


@pytest.fixture
def lookups(monkeypatch):
    """The lookups found while programs are made."""
    found = []

    def watched(*arguments):
        lookup = find_permute(*arguments)
        found.extend([lookup] if lookup is not None else [])
        return lookup

    monkeypatch.setattr(indexed_contraction, "find_permute", watched)
    for limit in (
        "LEAST_SPLIT_CYCLES",
        "LEAST_PART_CYCLES",
    ):  # the sums of each sample come first, however short
        monkeypatch.setattr(split, limit, 0.0)
    return found


def gradient(before, size):
    """Of the weights of a convolution that gives ``before``, behind a pool of windows of ``size``."""
    spatial = "012"[: len(size)]

    def function(x, y, winner):
        return 1 - convolve_max_unpooled(
            x,
            y,
            winner,
            shape=before,
            pool=(tuple(range(2, 2 + len(size))), size, size, (1,) * len(size)),
            x_layout="cb" + spatial,
            w_layout="co" + spatial,
            out_layout="ob" + spatial,
            strides=(1,) * len(size),
            dilations=(1,) * len(size),
        )

    return function


def given(x, before, size, dtype=np.float32):
    random = np.random.default_rng(0)
    counts = (*before[:2], *(extent // windows for extent, windows in zip(before[2:], size)))
    return [
        *(random.integers(-3, 4, shape).astype(dtype) for shape in (x, counts)),
        random.integers(0, np.prod(size), counts).astype(np.int32),
    ]


SHAPES = [
    # x, before pooling, window of the pool, columns that the vectors serve
    ((9, 1, 28, 28), (9, 6, 26, 26), (2, 2), 3),
    ((9, 1, 20, 20), (9, 5, 18, 18), (2, 2), 3),
    ((9, 1, 34), (9, 3, 32), (2,), 1),
    ((9, 1, 33), (9, 4, 32), (2,), 1),
    ((9, 1, 9, 25), (9, 4, 8, 24), (2, 3), 2),
    ((9, 1, 9, 11), (9, 2, 8, 10), (2, 2), 2),
    ((9, 1, 8, 17), (9, 7, 6, 16), (2, 1), 2),
    ((9, 1, 6, 5, 17), (9, 2, 4, 4, 16), (2, 1, 2), 1),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("x", "before", "size", "shared"), SHAPES)
def test_any_shape(x, before, size, shared, dtype, compiler, traced, processor, lookups):
    arrays = given(x, before, size, dtype)
    compiler.assert_same(traced(gradient(before, size), *arrays), arrays, processor=processor)
    if processor.lanes(4) == 16 and dtype is np.float32:
        assert [lookup.shared for lookup in lookups] == [shared]
    else:
        assert not lookups


@pytest.mark.parametrize(
    ("x", "before", "size"),
    [
        ((9, 1, 28, 28), (9, 1, 26, 26), (2, 2)),
        ((9, 1, 28, 28), (9, 6, 24, 24), (2, 2)),
        ((9, 1, 28, 28), (9, 6, 24, 24), (3, 3)),
        ((9, 1, 66), (9, 6, 64), (32,)),
    ],
    ids=["a single row", "many columns", "three lines", "long windows"],
)
def test_what_would_take_longer_is_done_otherwise(x, before, size, compiler, traced, lookups):
    arrays = given(x, before, size)
    compiler.assert_same(traced(gradient(before, size), *arrays), arrays)
    assert not lookups


def test_not_a_number_reaches_what_meets_it_alone(compiler, traced, processor, lookups):
    shape, before, size = (9, 1, 28, 28), (9, 6, 26, 26), (2, 2)
    x, y, winner = given(shape, before, size)
    y[2, 4, 12, 12], y[3, 1, 0, 5] = np.nan, np.inf
    x = np.abs(x) + 1
    graph = traced(gradient(before, size), x, y, winner)
    compiler.assert_same(graph, [x, y, winner], processor=processor)
    x[1, 0, 27, 27] = np.nan  # met by the last window alone, if at its last place
    winner[1, :, 12, 12], y[1, :, 12, 12] = [0, 1, 2, 3, 3, 0], 1
    (found,) = compiler.run(graph, [x, y, winner], processor=processor)
    assert np.isnan(found[3, 0, 2, 2])
    assert np.isfinite(found[[0, 2, 5]]).all()
    assert np.isfinite(found[3].reshape(-1)[:-1]).all()
