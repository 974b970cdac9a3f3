"""Where operations stand between the loops and calls of a program."""

from __future__ import annotations

from typing import Any

import numpy as np

import pullback as pb
from pullback.compiler.plan import plan
from pullback.compiler.target import Processor

RANDOM = np.random.default_rng(0)


def test_what_is_made_of_arguments_alone_waits_for_its_user() -> None:
    """A moment's part of an update is not stored before the loop, or the call, that its gradient waits for."""

    def turn(h: Any, row: Any) -> tuple[Any, Any]:
        return np.tanh(h + row), None

    def behind_a_loop(moment: Any, x: Any) -> Any:
        return moment * 0.9 + pb.scan(turn, x[0] * 0, x)[0][1] * 0.1

    def behind_a_call(moment: Any, x: Any) -> Any:
        return (moment * 0.9) ** 2 + np.sort(x[0])[0] * 0.1

    moment, x = np.ones(50_000), RANDOM.standard_normal((40, 7))
    for step in (behind_a_loop, behind_a_call):
        made = plan(pb.trace(step, moment, x).graph, {}, Processor.host())
        assert made.memory.arena_bytes < moment.nbytes
        np.testing.assert_allclose(pb.jit(step)(moment, x), step(moment, x))


def test_what_several_blocks_read_is_there_for_the_first() -> None:
    def step(x: Any, y: Any) -> Any:
        made = np.exp(x) + 1
        first = np.sort(y)[0] + made
        return first, np.sort(y + first[0])[0] * made

    x, y = RANDOM.standard_normal(9), RANDOM.standard_normal(5)
    for found, wanted in zip(pb.jit(step)(x, y), step(x, y)):
        np.testing.assert_allclose(found, wanted)
