"""Loops that run as long as their values say: values, tangents, batches, bounds, interpreted and compiled."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.passes import PASSES
from pullback.compiler.stages import check_stages
from pullback.compiler.target import Processor
from pullback.errors import DerivativeError, IndexRangeError, ShapeError, TreeError
from pullback.graph import check
from pullback.interpreter import evaluate

Array = Any
RANDOM = np.random.default_rng(3)
X, W = RANDOM.normal(size=4), RANDOM.normal(size=(4, 4)) * 0.5 + np.eye(4)
BOUND = 40


def python(condition: Any, body: Any, init: Any) -> Any:
    """What ``while_loop`` means, of concrete values."""
    value = init
    while condition(value):
        value = body(value)
    return value


def bounded(condition: Any, body: Any, init: Any) -> Any:
    return pb.while_loop(condition, body, init, max_steps=BOUND)


def growth(loop: Any, x: Array, w: Array) -> Array:
    """A state, a number of turns, and something that stays the same."""

    def body(value: Any) -> Any:
        h, k, same = value
        return np.sin(h @ w) + h * 1.2, k + 1, same

    h, k, same = loop(lambda value: (value[0] ** 2).sum() < 50, body, (x, 0, x * 2))
    return h * same + k


def nested(loop: Any, x: Array, w: Array) -> Array:
    """A loop of its own length in a loop, and a scan and a choice in it."""

    def body(value: Any) -> Any:
        h, total = value
        inner = loop(
            lambda c: c[1] < 3, lambda c: (np.tanh(c[0] @ w) + 0.1, c[1] + c[0][0] ** 2 + 0.5), (h, 0.0)
        )
        last, sums = pb.scan(lambda c, row: (c * 0.9 + row, c.sum()), inner[0], w)
        h = pb.cond(sums.sum() > 0, lambda: last + h, lambda: h * 1.5 + 0.2)
        return h, total + sums.sum() ** 2 + 1

    h, total = loop(lambda value: value[1] < 60, body, (x, 0.0))
    return h * total


def none(loop: Any, x: Array, w: Array) -> Array:
    """No turn at all."""
    return loop(lambda h: h.sum() > 1000, lambda h: h @ w, x) * w[0]


CASES = {"growth": growth, "nested": nested, "none": none}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Any:
    return CASES[request.param]


def assert_close(found: Any, wanted: Any, tolerance: float = 1e-10) -> None:
    for a, b in zip(pb.flatten(found)[0], pb.flatten(wanted)[0], strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * (1 + np.abs(b).max(initial=0)))


def test_values(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pb, "cond", lambda pred, yes, no: yes() if pred else no())
        wanted = case(python, X, W)
    for loop in (pb.while_loop, bounded):
        assert_close(case(loop, X, W), wanted)
        assert_close(pb.jit(lambda x, w, loop=loop: case(loop, x, w))(X, W), wanted)


def test_forward_mode_and_bounded_reverse_mode(case: Any) -> None:
    along = np.cos(X), np.sin(W)
    near = [case(pb.while_loop, X + s * along[0], W + s * along[1]) for s in (1e-6, -1e-6)]
    slope = (near[0] - near[1]) / 2e-6
    forward = pb.jvp(lambda x, w: case(pb.while_loop, x, w), (X, W), along)[1]
    assert_close(forward, slope, 1e-6)
    assert_close(
        pb.jit(lambda x, w: pb.jvp(lambda x, w: case(pb.while_loop, x, w), (x, w), along)[1])(X, W), forward
    )
    assert_close(pb.jvp(lambda x, w: case(bounded, x, w), (X, W), along)[1], forward)
    gradient = pb.grad(lambda x, w: case(bounded, x, w).sum(), (0, 1))
    dx, dw = gradient(X, W)
    assert_close((dx * along[0]).sum() + (dw * along[1]).sum(), forward.sum())
    assert_close(pb.jit(gradient)(X, W), (dx, dw))


def test_second_tangents(case: Any) -> None:
    def slope(x: Array) -> Array:
        return pb.jvp(lambda x: case(pb.while_loop, x, W), (x,), (np.cos(X),))[1]

    near = (slope(X + 1e-6 * X) - slope(X - 1e-6 * X)) / 2e-6
    assert_close(pb.jvp(slope, (X,), (X,))[1], near, 1e-5)


def test_a_loop_without_a_tangent_is_constant_to_what_reads_it() -> None:
    """Also where the loop is made of another operand that has a tangent."""

    def function(x: Any) -> Any:
        square = np.sum(x**2)
        doubled, _ = pb.while_loop(lambda s: s[0] < 3 * square, lambda s: (s[0] * 2, s[1] + 1), (1.0, 0))
        return square - doubled

    value, tangent = pb.jvp(function, (np.ones(2),), (np.ones(2),))
    assert (float(value), float(tangent)) == (2.0 - 8.0, 4.0)
    assert pb.jit(pb.jacobian(function, mode="forward"))(np.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_batches(case: Any, axes: Any) -> None:
    given = [p if axis is None else np.stack([p, p / 2, p * 3]) for p, axis in zip((X, W), axes)]
    each = [
        case(pb.while_loop, *(p if axis is None else p[k] for p, axis in zip(given, axes))) for k in range(3)
    ]
    function = pb.vmap(lambda x, w: case(pb.while_loop, x, w), axes)
    assert_close(function(*given), np.stack(each))
    assert_close(pb.jit(function)(*given), np.stack(each))


def test_every_pass_and_every_stage_keep_the_results(case: Any, described: Processor) -> None:
    along = np.cos(X), np.sin(W)
    graph = pb.trace(lambda x, w: pb.jvp(lambda x, w: case(pb.while_loop, x, w), (x, w), along), X, W).graph
    check_stages(graph, [X, W], described)
    wanted = evaluate(graph, [X, W])
    for each in PASSES:
        graph = each(graph)
        check(graph)
        assert_close(evaluate(graph, [X, W]), wanted)


def test_one_bit_pattern_for_any_number_of_threads() -> None:
    x, w = RANDOM.normal(size=(200, 150)), RANDOM.normal(size=(150, 150)) * 0.1
    compiled = pb.jit(
        lambda x, w: pb.while_loop(lambda h: (h[0] ** 2).sum() < 1e4, lambda h: np.tanh(h @ w) + h * 1.5, x)
    )
    before, found = pb.get_num_threads(), set()
    try:
        for threads in (1, 2, 3):
            pb.set_num_threads(threads)
            found.add(compiled(x, w).tobytes())
    finally:
        pb.set_num_threads(before)
    assert len(found) == 1


def test_an_index_out_of_range_ends_the_loop() -> None:
    table = np.arange(5.0)

    def run(table: Array, k: Array) -> Array:
        step = lambda value: (value[0] + 2, value[1] + pb.numpy.take(table, value[0], 0) * 0)  # noqa: E731
        return pb.while_loop(lambda value: value[1] < 1, step, (k, 0.0))[1]

    for function in (run, pb.jit(run)):
        with pytest.raises(IndexRangeError, match="5"):
            function(table, np.int64(1))


def test_donated_state() -> None:
    step = pb.jit(lambda x: pb.while_loop(lambda h: h.sum() < 10, lambda h: h * 2, x), donate_argnums=0)
    assert step(np.array([1.0, 2.0])).tolist() == [4.0, 8.0]


def test_python_numbers_and_flags_of_other_dtypes() -> None:
    x = np.float32(2)
    assert pb.while_loop(lambda h: h < 10, lambda h: h * x, 1).dtype == np.float32
    assert pb.while_loop(lambda h: h, lambda h: h - 1, 5) == 0
    assert pb.while_loop(lambda h: h < 10, lambda h: h * 2, 1, max_steps=2) == 4
    assert pb.while_loop(lambda h: h < 10, lambda h: h * 2, 1, max_steps=0) == 1


def test_errors_tell_what_is_wrong() -> None:
    one = np.ones(2)
    with pytest.raises(DerivativeError, match=r"while_loop: reverse mode.*give max_steps.*test_while"):
        pb.grad(lambda x: pb.while_loop(lambda h: h.sum() < 9, lambda h: h * 2, x).sum())(one)
    with pytest.raises(ShapeError, match=r"condition gives bool\[2\].*test_while"):
        pb.while_loop(lambda h: h < 3, lambda h: h + 1, one)
    with pytest.raises(
        ShapeError, match=r"while_loop: the carry enters a step as float64\[2\] and leaves it as"
    ):
        pb.while_loop(lambda h: h.sum() < 3, lambda h: h[None], one)
    with pytest.raises(TreeError, match=r"while_loop: the carry enters a step as"):
        pb.while_loop(lambda h: h.sum() < 3, lambda h: (h, h), one)


# An interrupt that comes while Python cleans up is ignored there, with this warning; the next one is not.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("way", ["alone", "donated", "nested", "after other work"])
def test_an_endless_loop_can_be_left(threads: int, way: str) -> None:
    def endless(c: Array, w: Array) -> Array:
        def turn(c: Array) -> Array:
            c = np.tanh(c @ w)
            return pb.while_loop(lambda c: c.sum() > 1e9, lambda c: c * 2, c) if way == "nested" else c

        start = c + np.tanh(w @ w).sum() if way == "after other work" else c
        return pb.while_loop(lambda c: c.sum() > -1, turn, start)

    def interrupt(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt

    c, w = np.ones((3, 4)), np.eye(4)
    program = pb.jit(endless, donate_argnums=0 if way == "donated" else ())
    before, old = pb.get_num_threads(), signal.signal(signal.SIGALRM, interrupt)
    try:
        pb.set_num_threads(threads)
        for _ in range(2):
            # Again and again: the first may come while the program is compiled.
            signal.setitimer(signal.ITIMER_REAL, 0.5, 0.5)
            with pytest.raises(KeyboardInterrupt):
                program(c, w)
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        pb.set_num_threads(before)
    assert (c == 1).all()
    # The next call of anything begins anew.
    assert pb.jit(lambda x: pb.while_loop(lambda c: c < 100, lambda c: c * 3, x))(1.0) == 243
