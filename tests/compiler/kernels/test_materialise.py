"""The places of updates are stored before they are used."""

from __future__ import annotations

import numpy as np
import pytest

from pullback import nn
from pullback.compiler.build import build
from pullback.graph import OPERATORS
from pullback.loops.printer import format_kernel
from pullback.numpy.arrays import plain
from pullback.transforms.reverse import cotangents

gather, scatter_add = (OPERATORS[name] for name in ("gather", "scatter_add"))


def kernels_of(graph, processor) -> list[str]:
    """The kernels before they are scheduled, as text, those that store places first."""
    found = {}
    build(graph, {}, processor, watch=lambda stage: found.update({stage.name: stage.kernels}))
    texts = [format_kernel(kernel) for kernel in found["pack"]]
    return sorted(texts, key=lambda text: ("+=" in text, "place_" not in text))


@pytest.fixture
def arrays():
    random = np.random.default_rng(0)
    tokens = random.integers(0, 30, (9, 7)).astype(np.int16)
    chosen = random.integers(0, 9, 6)
    return [random.standard_normal((30, 5)), tokens, chosen, random.standard_normal((6, 7, 5))]


def added(table, tokens, chosen, updates):
    return scatter_add(table, updates, tokens[chosen].astype(np.int64), axes=(0,))


def test_computed_places_are_stored_and_positions_joined(arrays, traced, processor):
    places, _, scatter = kernels_of(traced(added, *arrays), processor)
    assert places.startswith("for i<6, j<7:")
    assert "place_result0[7*i + j] = uint16(bounded(" in places
    assert scatter.startswith("for j<42, k<5:")
    assert "result0[k + 5*bounded(int64(place_result0[j]), high=29, low=0)] +=" in scatter


def test_places_known_to_be_small_are_stored_in_little_memory(arrays, traced, processor):
    def checked(table, tokens, chosen, updates):
        index = OPERATORS["check_index"](tokens[chosen].astype(np.int64), extent=30, what="token", wrap=False)
        return scatter_add(table, updates, index, axes=(0,))

    kernels = kernels_of(traced(checked, *arrays), processor)
    assert any("place_result0[7*i + j] = uint16(check_index(" in kernel for kernel in kernels)
    assert "int64(place_result0[j])" in kernels[-1]
    assert "check_index" not in kernels[-1]


def test_places_that_are_there_are_not_stored_again(arrays, traced, processor):
    table, tokens, _, _ = arrays

    def plain(table, index, updates):
        return scatter_add(table, updates, index.astype(np.int64), axes=(0,))

    updates = np.zeros((9, 7, 5))
    assert not any(
        "place_" in kernel for kernel in kernels_of(traced(plain, table, tokens, updates), processor)
    )


def test_stored_places_are_right(arrays, compiler, traced, processor):
    compiler.assert_same(traced(added, *arrays), arrays, processor=processor)


@pytest.mark.parametrize("rows", [255, 65535, 65536, 65541])
def test_tables_of_any_length(rows, compiler, traced, processor):
    """Places as narrow as the table allows, its last rows among them."""

    def function(table, updates, tokens):
        index = OPERATORS["check_index"](tokens, extent=rows, what="token", wrap=False)
        return scatter_add(table, updates, index, axes=(0,)) * 2

    random = np.random.default_rng(0)
    tokens = np.concatenate([random.integers(0, rows, 300), [0, rows - 1, rows - 2, rows - 1]]).astype(
        np.int32
    )
    arrays = [
        random.integers(-9, 9, (rows, 3)).astype(np.float32),
        random.integers(-9, 9, (304, 3)).astype(np.float32),
        tokens,
    ]
    compiler.assert_same(traced(function, *arrays), arrays, processor=processor)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("samples", "channels", "window"), [(40, 5, 3), (3, 15, 2), (1, 3, 3)])
def test_positions_along_several_axes(samples, channels, window, dtype, compiler, traced, processor):
    """The gradient of a table behind a convolution and a pool: what a winner adds finds its rows of the table."""

    def function(table, w, tokens, bar):
        index = OPERATORS["check_index"](tokens, extent=30_000, what="token", wrap=False)
        x = gather(table, index, axes=(0,))
        y = nn.max_pool(nn.conv(x, w, channels="last"), 8, channels="last")
        (found,) = cotangents([plain(y)], [plain(bar)], [plain(table)])
        return table - found * found, y

    random = np.random.default_rng(0)
    length = 32 + window - 1
    arrays = [
        random.integers(-3, 4, (30_000, 18)).astype(dtype),
        random.integers(-3, 4, (channels, 18, window)).astype(dtype),
        random.integers(0, 30_000, (samples, length)),
        random.integers(-3, 4, (samples, 4, channels)).astype(dtype),
    ]
    graph = traced(function, *arrays)
    compiler.assert_same(graph, arrays, {0: 0}, processor=processor)
    kernels = kernels_of(graph, processor)
    # What winners add, and, where the weights are not finite, what all places do.
    assert ["place_" in kernel for kernel in kernels if "+=" in kernel] == [True, False]
