"""Random graphs through the whole compiler, at random subsets of the passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback.compiler.build import build
from pullback.compiler.passes import PASSES, Pass
from pullback.compiler.runtime.engine import load
from pullback.compiler.runtime.program import Program
from pullback.compiler.target import Processor
from pullback.graph import Graph, Node, constant
from pullback.interpreter import evaluate


def compiled(graph: Graph, passes: Sequence[Pass]) -> Program:
    processor = Processor.host()
    built = build(graph, {}, processor, passes)
    return Program(
        load(built.emitted.text, processor),
        arguments=[variable.type for variable in graph.inputs],
        results=[node.type for node in graph.outputs],
        regions=built.emitted.regions,
        arena_bytes=built.plan.arena_bytes,
        scratch_bytes=built.emitted.scratch_bytes,
        constants=built.constants,
        cost=built.nanoseconds,
    )


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), chosen=st.lists(st.sampled_from(PASSES), unique=True))
def test_random_graphs_and_passes(seed: int, chosen: list[Pass], random_graph: Callable) -> None:
    graph, arrays = random_graph(seed)
    with np.errstate(all="ignore"):
        wanted = evaluate(graph, arrays)
    for passes in ((), chosen, PASSES):
        for value, want in zip(compiled(graph, passes)(*arrays), wanted, strict=True):
            assert (value.dtype, value.shape) == (want.dtype, want.shape)
            np.testing.assert_array_equal(value, want)


def test_constants_that_passes_have_made() -> None:
    table = np.arange(6.0)

    def function(x: np.ndarray) -> np.ndarray:
        halves = constant(table) / 2 if isinstance(x, Node) else table / 2
        return x + halves

    x = np.ones(6)
    for _ in range(2):
        # The second program is not made from the graph but read from the code cache.
        np.testing.assert_array_equal(pb.jit(function)(x), function(x))
