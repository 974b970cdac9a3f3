"""Where the work of programs for any size ends: which chunks and sums may, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.compiler.plan import plan
from pullback.compiler.regions.steps import Region
from pullback.compiler.stages import Same, check_stages, within
from pullback.compiler.target import Processor
from pullback.graph import Graph
from pullback.testing.programs.processors import compiled_for
from pullback.testing.programs.program import Asked
from pullback.tracing.trace import leaf_type
from pullback.tracing.trees import flatten

SIZE, CAPACITY = 17, 24
PROCESSOR = Processor(
    "znver3", "+avx2,+fma", "x86_64", vector_bytes=32, vector_registers=16, chunk_cycles=1.0
)
"""Chunks have few rows."""
W = np.random.default_rng(1).uniform(-1, 1, (4, 3))
V = np.random.default_rng(2).uniform(-1, 1, (3, 4))


def rows(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2, 2, (SIZE, 4))


def labels() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 4, SIZE)


def for_any_size(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[Graph, list[np.ndarray]]:
    """The graph for up to ``CAPACITY`` rows, and its arguments for ``SIZE``."""
    axes = {
        name: ("batch", ...)
        for name, argument in zip("xy", arguments)
        if isinstance(argument, np.ndarray) and len(argument) == SIZE
    }
    jitted = pb.jit(function, shapes=axes)
    leaves, structure = flatten((tuple(arguments), {}))
    sized = jitted._any_size.sized(structure, tuple(map(leaf_type, leaves)))
    graph = sized.instance.requested.graph
    given = [np.zeros(x.shape, x.dtype) for x in graph.inputs]
    for made, leaf in zip(given, [*leaves, *map(np.array, sized.call.sizes)]):
        made[tuple(map(slice, np.shape(leaf)))] = leaf
    return graph, given


def ended(graph: Graph) -> tuple[int, int, int]:
    """How many row groups of several chunks end, how many do not, and how many products do."""
    groups = [g for step in plan(graph, {}, PROCESSOR).steps if isinstance(step, Region) for g in step.groups]
    several = [group for group in groups if group.chunks > 1 and group.rows % CAPACITY == 0]
    ends = sum(group.end is not None for group in several)
    return ends, len(several) - ends, sum(job.ended is not None for group in groups for job in group.jobs)


def assert_stages(graph: Graph, arguments: Sequence[np.ndarray]) -> None:
    """Every stage gives the same, but for the padding of results."""
    (limit,) = graph.limits
    cut = dict(limit.cut)

    def comparison(part: Graph, _: Sequence[np.ndarray]) -> Same:
        close = within()
        if part is not graph:
            return close

        def same(number: int, value: np.ndarray, wanted: np.ndarray) -> bool:
            own = (*[slice(None)] * cut[number], slice(SIZE)) if number in cut else ()
            return close(number, value[own], wanted[own])

        return same

    check_stages(graph, arguments, PROCESSOR, same=comparison)


def loss(w: Any, x: Any, y: Any) -> Any:
    return nn.softmax_cross_entropy(nn.relu(x @ w[0]) @ w[1], y)


def states(x: Any) -> Any:
    def step(h: Any, t: Any) -> Any:
        new = np.tanh(h @ W @ V + x * t)
        return new, new

    return pb.scan(step, np.zeros_like(x), np.arange(5.0))[1]


def twice(x: Any) -> Any:
    y = np.tanh(x @ W)
    return y, y[::-1] @ V


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "maps": lambda x: np.exp(x) * np.arange(4.0),
    "a result that others read": twice,
    "the other way round": lambda x: np.tanh(x @ W)[::-1],
    "order": lambda x: (np.sort(x @ W, axis=0), np.cumsum(x, axis=0)),
    "extremes": lambda x: np.exp(x - x.max(axis=0)) @ W,
    "standardised": lambda x: (x - x.mean(axis=0)) / (np.std(x, axis=0) + 1) @ W,
    "all with all": lambda x: (x @ x.T).sum(axis=1),
    "transposed": lambda x: (x @ W).T,
    "examples in turn": states,
    "gradients of loops": pb.grad(lambda x: (states(x) ** 2).mean()),
    "scan along the rows": lambda x: pb.scan(lambda c, r: (np.tanh(c + r), c), np.zeros(4), x),
    "complex": lambda x: np.abs(np.exp(1j * x) @ W) ** 2,
    "half": lambda x: (x.astype(np.float16) @ W.astype(np.float16)).sum(axis=1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_stage(name: str) -> None:
    assert_stages(*for_any_size(FUNCTIONS[name], [rows()]))


def test_a_network() -> None:
    """Forward and backward rows end, and the gradients of both weights are sums up to the size."""

    def slopes(x: Any, y: Any) -> Any:
        return pb.grad(loss)([W, V], x, y)

    graph, arguments = for_any_size(slopes, [rows(), labels()])
    found, left, products = ended(graph)
    assert found >= 1 and left == 0 and products == 2
    assert_stages(graph, arguments)


def test_rows_that_others_read_do_not_end() -> None:
    """What a result is read for from its last row on is computed to the capacity, though callers do not look there."""
    assert ended(for_any_size(lambda x: np.tanh(x @ W), [rows()])[0])[:2] == (1, 0)
    graph, _ = for_any_size(twice, [rows()])
    (limit,) = graph.limits
    assert limit.cut == ((0, 0), (1, 0))
    assert ended(graph)[:2] == (1, 1)


def test_zeros_are_what_callers_promise() -> None:
    """A donated argument may have anything in its padding: what is summed of it goes on to the capacity."""

    def moments(x: Any) -> Any:
        return x.T @ x

    kept, _ = for_any_size(moments, [rows()])
    assert ended(kept)[2] == 1
    (limit,) = kept.limits
    unknown = Graph(kept.inputs, kept.outputs, (limit._replace(zeros=()),))
    assert ended(unknown)[2] == 0


@pytest.mark.parametrize("size", [129, 200])
def test_a_sum_inside_of_what_is_masked_reads_zeros(size: int) -> None:
    """The mean of all rows is no value of the row whose mask stands around it: what it reads is cleared."""

    def deviation(x: Any, scale: Any) -> Any:
        return np.std(np.sort(x) / scale, axis=0, keepdims=True)

    with compiled_for(Asked(small=True, vectors=32).processor()):
        found = pb.jit(deviation, shapes={"x": ("rows",)})(np.ones(size, np.float32), np.float32([-18.4]))
    np.testing.assert_allclose(found, 0, atol=1e-6)


def over_rows(x: Any, y: Any) -> Any:
    return np.tanh(x).T @ np.sin(y) + 1, (np.tanh(x) + 1).T @ (np.sin(y) + x[:, :40] ** 2)


def along_rows(x: Any, y: Any) -> Any:
    return np.tanh(x) @ np.sin(y).T, 1


@pytest.mark.parametrize(("function", "axis"), [(over_rows, 0), (along_rows, 1)])
def test_panels_end_where_the_size_does(function: Callable[..., Any], axis: int) -> None:
    """Rounds of panels behind the size are left out, and the one that it lies in is cut."""
    random = np.random.default_rng(0)
    x, y = (np.moveaxis(random.uniform(-1, 1, (96, k)).astype(np.float32), 0, axis) for k in (48, 40))
    axes = ("size", None) if axis == 0 else (None, "size")
    processor = Asked(small=True, vectors=32).processor()
    with compiled_for(processor):
        named = pb.jit(function, shapes={"x": axes, "y": axes})
        for size in (96, 65, 81, 70):
            given = [np.ascontiguousarray(each.take(range(size), axis)) for each in (x, y)]
            np.testing.assert_allclose(named(*given)[0], function(*given)[0], rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(named(*given)[1], function(*given)[1], rtol=1e-4, atol=1e-4)
        lines = named.inspect(*given).loops.splitlines()
    assert any("panels" in line and "up to" in line for line in lines)


@pytest.mark.parametrize("vectors", [32, 64])
def test_rows_of_a_copy_do_not_end_where_a_sum_over_several_times_as_many_does(vectors: int) -> None:
    """The copy's rows are lines of an image and places in them as one; the width is any size, and sums end at it."""
    image, window = np.ones((1, 3, 3, 2)), np.ones((3, 2, 1, 1))

    def sums(image, window):
        def total(window):
            return nn.conv_transpose(image, window, 3).sum()

        return pb.grad(total)(window)

    with compiled_for(Asked(small=True, vectors=vectors, cores=2).processor()):
        found = pb.jit(sums, shapes={"image": (None, None, None, "n"), "window": (None, "n", None, None)})
        np.testing.assert_array_equal(found(image, window), 6.0)


@pytest.mark.parametrize("donated", [(), (0,)])
def test_kernels_without_axes_stand_among_chunks(donated: tuple[int, ...]) -> None:
    """A gradient of a median of all elements, whose number of rows is any size."""
    x = np.ones((2, 1))
    with compiled_for(Asked(small=True, vectors=64, cores=8).processor()):
        found = pb.jit(
            pb.grad(lambda x: np.nanmedian(x, axis=None)),
            shapes={"x": ("rows", None)},
            donate_argnums=donated,
        )
        np.testing.assert_array_equal(found(x.copy()), np.full((2, 1), 0.5))
