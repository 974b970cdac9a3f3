"""Rows of a table that are read many times are multiplied once each, and so are their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler.passes import optimise, passes_for
from pullback.compiler.passes.repeated_rows import RowSums, different_rows, way_to_rows
from pullback.compiler.plan import plan
from pullback.compiler.regions.steps import Region
from pullback.compiler.stages import check_stages, within
from pullback.compiler.target import Processor
from pullback.graph import Graph, Operation
from pullback.interpreter import evaluate
from pullback.operators.distinct import distinct

EXTENT, WIDTH, TEXTS, LENGTH = 100, 24, 3, 20
TARGET = Processor(
    "znver3",
    "+avx2,+fma",
    "x86_64",
    vector_bytes=32,
    vector_registers=16,
    chunk_cycles=1.0,
    exchange_cycles=1.0,
    marking_cycles=0.0,
)
"""Counting rows costs nothing."""
RANDOM = np.random.default_rng(0)
TABLE = RANDOM.uniform(-1, 1, (EXTENT, WIDTH)).astype(np.float32)
WORDS = RANDOM.integers(0, 7, (TEXTS, LENGTH)) * 13
MATRIX = RANDOM.uniform(-1, 1, (WIDTH, 5)).astype(np.float32)
WINDOW = RANDOM.uniform(-1, 1, (5, WIDTH, 3)).astype(np.float32)
ROUNDED = within(4096)
CELL = RANDOM.uniform(-1, 1, (5, 5)).astype(np.float32)


def dense(table: Any, weights: Any, words: Any) -> Any:
    return np.tanh(table[words] @ weights)


def in_columns(table: Any, weights: Any, words: Any) -> Any:
    return np.einsum("kc,tlk->ctl", weights, table[words]) ** 2


def in_turn(table: Any, weights: Any, words: Any) -> Any:
    """The product is taken out of the loop, and so is that of its pullback."""
    x = table[words].transpose(1, 0, 2)
    return pb.scan(lambda h, x: (np.tanh(x @ weights + h @ CELL),) * 2, np.zeros((TEXTS, 5), np.float32), x)[
        1
    ]


def windows(table: Any, weights: Any, words: Any) -> Any:
    return np.tanh(nn.conv(table[words], weights, channels="last"))


def apart(table: Any, weights: Any, words: Any) -> Any:
    return np.tanh(nn.conv(table[words], weights, channels="last", dilation=2))


def pooled(table: Any, weights: Any, words: Any) -> Any:
    return nn.max_pool(nn.relu(nn.conv(table[words], weights, channels="last")), 3, channels="last")


FUNCTIONS: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
    "dense": (dense, MATRIX),
    "in columns": (in_columns, MATRIX),
    "in turn": (in_turn, MATRIX),
    "windows": (windows, WINDOW),
    "windows of elements apart": (apart, WINDOW),
    "pooled": (pooled, WINDOW),
}


def slopes(function: Callable[..., Any]) -> Callable[..., Any]:
    def total(table: Any, weights: Any, words: Any) -> Any:
        y = function(table, weights, words)
        return np.sum(y * np.cos(np.arange(y.size, dtype=np.float32)).reshape(y.shape))

    return pb.value_and_grad(total, (0, 1))


def optimised(graph: Graph, target: Processor = TARGET) -> Graph:
    return optimise(graph, passes_for(target))


def names(graph: Graph) -> list[str]:
    return [
        str(node.attributes.get("function", node.operator.name))
        for node in graph.nodes()
        if isinstance(node, Operation)
    ]


def traced(name: str, **other: np.ndarray) -> tuple[Graph, list[np.ndarray]]:
    function, weights = FUNCTIONS[name]
    arrays = [other.get("table", TABLE), other.get("weights", weights), other.get("words", WORDS)]
    return pb.trace(slopes(function), *arrays).graph, arrays


def shapes(graph: Graph, operator: str) -> set[tuple[int, ...]]:
    return {n.shape for n in graph.nodes() if isinstance(n, Operation) and n.operator.name == operator}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("extent", [EXTENT, 11])
def test_values_and_derivatives(name: str, extent: int) -> None:
    """Of a table with more rows than are read, and of one that is multiplied as it is."""
    graph, arrays = traced(name, table=TABLE[:extent], words=WORDS % extent)
    after = optimised(graph)
    assert ("distinct" in names(after)) == (extent == EXTENT)
    if extent != EXTENT:
        columns = FUNCTIONS[name][1].size // WIDTH
        assert (extent, columns) in shapes(after, "contract")
    for wanted, found in zip(evaluate(graph, arrays), evaluate(after, arrays)):
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_row_is_multiplied_once(name: str) -> None:
    """Three products of two matrices: forward, and of both derivatives."""
    after = optimised(traced(name)[0])
    products = [n for n in after.nodes() if isinstance(n, Operation) and n.operator.name == "contract"]
    assert [tuple(x.ndim for x in n.inputs) for n in products] == [(2, 2)] * 3
    assert "convolve" not in names(after)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_stage(name: str) -> None:
    graph, arrays = traced(name)
    check_stages(graph, arrays, TARGET, same=lambda *_: ROUNDED)


@pytest.mark.parametrize("where", ["table", "weights"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_infinite_numbers_are_where_they_were(name: str, where: str) -> None:
    """Infinity meets cotangents of both signs, and zeros where nothing was read."""
    weights = FUNCTIONS[name][1]
    for value in (np.inf, np.nan):
        arrays = {"table": TABLE.copy(), "weights": weights.copy()}
        arrays[where][(13, 2) if where == "table" else (2,) * weights.ndim] = value
        graph, given = traced(name, **arrays)
        with np.errstate(all="ignore"):
            check_stages(graph, given, TARGET, same=lambda *_: ROUNDED)
            for wanted, found in zip(evaluate(graph, given), evaluate(optimised(graph), given)):
                np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)


def test_rows_behind_the_last_one_are_not_computed() -> None:
    """Products of rows and the updates of the table end where the rows that are read do."""
    steps = plan(traced("pooled")[0], {}, TARGET).steps
    groups = [group for step in steps if isinstance(step, Region) for group in step.groups]
    assert sum(group.end is not None for group in groups) >= 2
    ended = [job.schedule.name for group in groups for job in group.jobs if job.ended is not None]
    assert sorted(ended) == ["product", "scatter"]


@pytest.mark.parametrize("value", [1.0, np.inf, np.nan])
def test_winners_look_their_rows_up(value: float) -> None:
    """Where the table is not trained, nothing has a row for each place; a text with what is not finite is as it was."""

    def total(weights: Any, table: Any, words: Any) -> Any:
        y = nn.relu(nn.conv(table[words], weights, channels="last"))
        y = nn.max_pool(y, 6, channels="last")
        return np.sum(y * np.cos(np.arange(y.size, dtype=np.float32)).reshape(y.shape))

    table = TABLE.copy()
    table[WORDS[1, 2], 3] *= value
    arrays = [WINDOW, table, WORDS]
    graph = pb.trace(pb.value_and_grad(total), *arrays).graph
    after = optimised(graph)
    assert "distinct" in names(after) and "convolve_max_unpooled" in names(after)
    steps = plan(graph, {}, TARGET).steps
    jobs = [job for s in steps if isinstance(s, Region) for group in s.groups for job in group.jobs]
    assert (*WORDS.shape, WIDTH) not in {store.buffer.shape for job in jobs for store in job.given.stores}
    with np.errstate(all="ignore"):
        check_stages(graph, arrays, TARGET, same=lambda *_: ROUNDED)
        for wanted, found in zip(evaluate(graph, arrays), evaluate(after, arrays)):
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("words", [np.zeros((TEXTS, LENGTH), np.int64), np.arange(60).reshape(TEXTS, LENGTH)])
def test_one_row_and_all_different_ones(words: np.ndarray) -> None:
    for name in FUNCTIONS:
        graph, arrays = traced(name, words=words)
        check_stages(graph, arrays, TARGET, same=lambda *_: ROUNDED)


def test_a_word_that_there_is_not() -> None:
    words = WORDS.copy()
    words[1, 2] = EXTENT
    function, weights = FUNCTIONS["pooled"]
    with pytest.raises(pb.errors.IndexRangeError, match=f"{EXTENT} at position"):
        pb.jit(slopes(function))(TABLE, weights, words)


# ---------------------------------------------------------------------- costs


WIDE = Processor("generic", "", "x86_64", vector_bytes=64, vector_registers=32)


@pytest.mark.parametrize(
    ("places", "extent", "width", "columns", "way"),
    [
        (8320, 12_000, 50, 24, "counted"),
        (16_000, 20_000, 32, 128, "counted"),
        (2048, 96, 64, 768, "whole"),
        (64, 12_000, 50, 24, ""),  # few words: most are different ones
        (8320, 12_000, 4, 8, ""),  # looking a product up takes as long as computing it
        (100, 10, 4, 4, ""),
    ],
)
def test_where_it_pays(places: int, extent: int, width: int, columns: int, way: str) -> None:
    assert way_to_rows(WIDE, 16, places, extent, width, columns) == way


def test_winners_of_a_pool_over_a_whole_text_are_visited() -> None:
    """There are so few of them that adding up rows of all columns takes longer."""
    sums = RowSums(16, 8320, different_rows(8320, 12_000), 50, trained=True)
    assert sums.pay(24, 147_000) == (True, True)
    assert sums.pay(500, 150_000) == (False, False)
    assert sums.pay(500) == (True, True)


def test_winners_are_visited_where_only_the_matrix_is_trained() -> None:
    """Sums that the rows need as well cost nothing more; for the matrix alone they take longer than winners do."""
    sums = RowSums(16, 8320, different_rows(8320, 12_000), 50, trained=False)
    assert sums.pay(24, 147_000) == (False, False)
    assert sums.pay(24) == (True, False)


# ---------------------------------------------------------------------- the routine


@pytest.mark.parametrize(
    ("count", "extent"), [(0, 5), (1, 1), (5, 7), (9, 9), (64, 64), (300, 70), (70, 300), (1000, 1000)]
)
def test_rows_are_counted(count: int, extent: int) -> None:
    places = np.random.default_rng(count).integers(0, extent, count)
    found = pb.jit(lambda places: distinct(places.node, extent=extent))(places)
    np.testing.assert_array_equal(found, distinct.reference(places, extent))
    capacity, rows = min(count, extent), found[1:]
    assert found[0] == len(np.unique(places))
    assert set(rows[: found[0]]) == set(places)
    np.testing.assert_array_equal(rows[:capacity][rows[capacity:]], places)
