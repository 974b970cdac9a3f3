"""Small functions that are called again and again: what a call costs beside its computation.

Each is a program by its name, written once in each library (``contenders/small_*.py``), and its arguments. ``scalar``
is the derivative of sin(cos x) at a Python float, ``numpy-scalar`` at what NumPy calls one; ``flat`` adds ten arrays;
``tree`` gives a network of five dense layers its arrays back, each with something added, ``momentum`` also a state of
the same structure. ``dqn`` and ``actor-critic`` are whole updates of reinforcement learning on 32 rows: temporal
differences against a target network, and policy gradient with value and entropy; two hidden layers, Adam.
``factorisation`` is a step of gradient descent on two tables of 100,000 rows, of which 2,048 are touched. Only NumPy is
used here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "BETA", "CALLS_A_TURN", "FIXED", "GAMMA", "LAYERS", "RATE", "ROWS", "RUN", "TABLE_RATE", "UPDATES", "inputs",
    "sizes", "weights",
]  # fmt: skip

FIXED = ("scalar", "numpy-scalar", "flat", "tree", "momentum")
UPDATES = ("dqn", "actor-critic", "factorisation")
CALLS_A_TURN = 200
"""Calls in one measured turn: what asks for the turn is spread over them."""
RUN = 100
"""Steps of a run that is one call."""

ROWS, OBSERVED, HIDDEN, ACTIONS, LAYERS = 32, 4, 32, 2, 5
GAMMA, RATE, BETA = 0.99, 1e-3, 0.01
TABLE, RANK, PICKED, TABLE_RATE = 100_000, 32, 2048, 0.1
"""Rows and columns of each table, pairs of rows in a batch, and the learning rate."""


def sizes(program: str) -> list[tuple[int, int]]:
    """Inputs and outputs of each dense layer; of an actor-critic the last two are both behind the second."""
    if program in FIXED:
        return [(4, 4)] * LAYERS
    heads = [(HIDDEN, ACTIONS)] if program == "dqn" else [(HIDDEN, ACTIONS), (HIDDEN, 1)]
    return [(OBSERVED, HIDDEN), (HIDDEN, HIDDEN), *heads]


def weights(program: str, seed: int = 0) -> list[dict[str, Any]]:
    """The layers' arrays, or the tables."""
    random = np.random.default_rng(seed)
    if program == "factorisation":
        return [{"w": 0.1 * random.standard_normal((TABLE, RANK), np.float32)} for _ in range(2)]
    return [
        {
            "w": (random.standard_normal((i, o)) / np.sqrt(i)).astype(np.float32),
            "b": np.zeros(o, np.float32),
        }
        for i, o in sizes(program)
    ]


def inputs(program: str, steps: int) -> dict[str, Any]:
    """The batches of an update, with an axis of steps; of the others one small array."""
    random = np.random.default_rng(1)
    if program in FIXED:
        return {"x": random.standard_normal((steps, 4)).astype(np.float32)}
    if program == "factorisation":
        return {
            "i": random.integers(0, TABLE, (steps, PICKED)),
            "j": random.integers(0, TABLE, (steps, PICKED)),
            "rating": random.standard_normal((steps, PICKED), np.float32),
        }
    seen = random.standard_normal((2, steps, ROWS, OBSERVED)).astype(np.float32)
    return {
        "seen": seen[0],
        "then": seen[1],
        "action": random.integers(0, ACTIONS, (steps, ROWS)).astype(np.int32),
        "reward": random.standard_normal((steps, ROWS)).astype(np.float32),
        "done": (random.random((steps, ROWS)) < 0.1).astype(np.float32),
    }
