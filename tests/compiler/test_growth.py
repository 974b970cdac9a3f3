"""What the compiler does grows in proportion to the program: four times the layers are four times the calls."""

from __future__ import annotations

import cProfile
import pstats
from typing import Any

import numpy as np

import pullback as pb
from pullback.compiler.plan import plan
from pullback.compiler.target import Processor


def calls_of_a_step(layers: int) -> int:
    """Calls of functions to plan a training step that updates so many weights in place, behind a loop."""

    def step(weights: Any, x: Any) -> Any:
        def loss(weights: Any) -> Any:
            y = pb.scan(lambda c, t: (np.sin(c + t), None), x, np.arange(3.0, dtype=np.float32))[0]
            for w in weights:
                y = np.tanh(y @ w)
            return (y**2).sum()

        return [w - 0.1 * g for w, g in zip(weights, pb.grad(loss)(weights))]

    weights = [np.full((k + 3, k + 4), 0.1, np.float32) for k in range(layers)]
    graph = pb.trace(step, weights, np.ones((4, 3), np.float32)).graph
    processor = Processor("znver3", "+avx2,+fma", "x86_64", vector_bytes=32, vector_registers=16)
    profile = cProfile.Profile()
    profile.runcall(plan, graph, {k: k for k in range(len(graph.outputs))}, processor)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def test_calls_grow_with_the_layers() -> None:
    few, many = calls_of_a_step(8), calls_of_a_step(32)
    assert many < 6 * few, (few, many)
