"""Products that gather the rows that they read, a tile at a time."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.compiler import staging
from pullback.compiler.schedules.staged_gather import find_staged_gather
from pullback.compiler.target import Processor
from pullback.errors import IndexRangeError
from pullback.graph import OPERATORS

gather, check_index = OPERATORS["gather"], OPERATORS["check_index"]


@pytest.fixture
def gathers(monkeypatch):
    """The gathers found while programs are made."""
    found = []

    def watched(*arguments):
        staged = find_staged_gather(*arguments)
        found.extend([staged] if staged is not None else [])
        return staged

    monkeypatch.setattr(staging, "find_staged_gather", watched)
    return found


def embedded(table, tokens):
    index = check_index(tokens, extent=table.shape[0], what="token")
    return gather(table, index, axes=(0,))


def projected(table, tokens, w):
    return embedded(table, tokens) @ w


def given(dtype, tokens, width, outputs):
    random = np.random.default_rng(0)
    rows = -(-Processor.far_bytes // (width * np.dtype(dtype).itemsize)) + 1
    return [
        random.integers(-3, 4, (rows, width)).astype(dtype),
        random.integers(-rows, rows, tokens).astype(np.int32),
        random.integers(-3, 4, (width, outputs)).astype(dtype),
    ]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("tokens", "width", "outputs"),
    [
        ((64, 130), 50, 24),
        ((130, 7), 33, 20),
        ((9, 3, 31), 48, 17),
        ((300,), 50, 24),
        ((1, 40), 64, 9),
        ((3, 1), 40, 16),
    ],
)
def test_any_shape(tokens, width, outputs, dtype, compiler, traced, processor):
    arrays = given(dtype, tokens, width, outputs)
    compiler.assert_same(traced(projected, *arrays), arrays, processor=processor)


def test_rows_are_there_for_others(compiler, traced, processor, gathers):
    def function(table, tokens, chosen, w):
        x = embedded(table, tokens[chosen])
        return pb.numpy.tanh(x @ w) * 0 + x @ w, pb.numpy.sum(x, axis=1)

    table, tokens, w = given(np.float32, (500, 160), 50, 24)
    arrays = [table, tokens, np.arange(40)[::-1] * 12 - 40, w]
    compiler.assert_same(traced(function, *arrays), arrays, processor=processor)


def test_a_text_of_each_sample_is_staged(compiler, traced, gathers):
    arrays = given(np.float32, (64, 130), 50, 24)
    compiler.run(traced(lambda *a: pb.numpy.max(projected(*a), axis=1), *arrays), arrays)
    (staged,) = gathers
    assert [axis.extent for axis in staged.rows] == [64, 130]
    assert len(staged.gathered) == 1


def test_a_window_over_rows_is_not_staged(compiler, traced, gathers):
    arrays = given(np.float32, (64, 130), 50, 24)
    arrays[2] = np.zeros((24, 50, 3), np.float32)

    def function(table, tokens, w):
        return pb.numpy.max(pb.nn.conv(embedded(table, tokens), w, channels="last"), axis=1)

    compiler.run(traced(function, *arrays), arrays)
    assert not gathers


@pytest.mark.parametrize("wrong", [10**6, -(10**6), 2**31 - 1])
@pytest.mark.parametrize("place", [(0, 0), (1, 0), (3, 17), (7, 129)])
def test_a_wrong_index_is_reported(wrong, place, gathers):
    """Also one that is far away: it is asked for before it is checked."""
    table, tokens, w = given(np.float32, (8, 130), 50, 24)
    tokens[place] = wrong
    step = pb.jit(lambda *arrays: pb.numpy.max(projected(*arrays), axis=1))
    with pytest.raises(IndexRangeError, match=str(wrong)):
        step(table, tokens, w)
    assert gathers
