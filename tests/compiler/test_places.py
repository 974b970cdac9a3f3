"""The places of updates are stored before they are used."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.compiler.build import build
from pullback.graph import OPERATORS
from pullback.loops.printer import format_kernel

gather, scatter_add = (OPERATORS[name] for name in ("gather", "scatter_add"))


def kernels_of(graph, processor) -> list[str]:
    """The kernels before they are scheduled, as text, those that store places first."""
    found = {}
    build(graph, {}, processor, watch=lambda stage, _, kernels: found.update({stage: list(kernels)}))
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
    assert "place_result0[7*i + j] = int64(argument1" in places
    assert scatter.startswith("for j<42, k<5:")
    assert "result0[k + 5*place_result0[j]] +=" in scatter


def test_places_known_to_be_small_are_stored_in_half_the_memory(arrays, traced, processor):
    def checked(table, tokens, chosen, updates):
        index = OPERATORS["check_index"](tokens[chosen].astype(np.int64), extent=30, what="token", wrap=False)
        return scatter_add(table, updates, index, axes=(0,))

    kernels = kernels_of(traced(checked, *arrays), processor)
    assert any("place_result0[7*i + j] = int32(check_index(" in kernel for kernel in kernels)
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
