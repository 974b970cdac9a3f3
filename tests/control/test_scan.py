"""Loops in the graph: the same as a loop in Python, in every derivative, batched, interpreted and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.passes import PASSES
from pullback.compiler.programs.executable import make_executable
from pullback.compiler.stages import check_stages
from pullback.compiler.target import Processor
from pullback.control.scan import scan as scan_operator
from pullback.errors import DTypeError, IndexRangeError, SettingError, ShapeError, TreeError
from pullback.graph import Graph, Operation, check
from pullback.interpreter import evaluate

STEPS, ROWS, INPUTS, HIDDEN = 5, 3, 4, 6
Array = Any


def unrolled(
    function: Any, init: Any, xs: Any = None, length: int | None = None, reverse: bool = False
) -> Any:
    """What ``scan`` means."""
    leaves = pb.flatten(xs)[0]
    steps = range(leaves[0].shape[0] if leaves else length or 0)
    carry, kept = init, []
    for step in reversed(steps) if reverse else steps:
        carry, y = function(carry, pb.map_tree(lambda x, step=step: x[step], xs))
        kept.append(y)
    kept = kept[::-1] if reverse else kept
    return carry, pb.map_tree(lambda *parts: np.stack(parts), *kept)


def gru(carry: Array, x: Array, weights: Any) -> tuple[Array, Array]:
    w, u, b = weights
    a, c = x @ w + b, carry @ u
    reset = pb.sigmoid(a[:, :HIDDEN] + c[:, :HIDDEN])
    update = pb.sigmoid(a[:, HIDDEN : 2 * HIDDEN] + c[:, HIDDEN : 2 * HIDDEN])
    new = np.tanh(a[:, 2 * HIDDEN :] + reset * c[:, 2 * HIDDEN :])
    state = (1 - update) * new + update * carry
    return state, state


def lstm(carry: Any, x: Array, weights: Any) -> tuple[Any, Array]:
    (h, c), (w, u, b) = carry, weights
    a = x @ w + h @ u + b
    c = pb.sigmoid(a[:, :HIDDEN]) * np.tanh(a[:, HIDDEN:]) + 0.5 * c
    h = pb.sigmoid(c) * np.tanh(c)
    return (h, c), {"state": h * 2, "cell": c}


def drawn(*shapes: tuple[int, ...], dtype: Any = np.float64) -> list[Array]:
    random = np.random.default_rng(7)
    return [(random.normal(size=shape) * 0.5).astype(dtype) for shape in shapes]


def gates(count: int, dtype: Any = np.float64) -> tuple[Any, Array]:
    *weights, xs = drawn(
        (INPUTS, count * HIDDEN),
        (HIDDEN, count * HIDDEN),
        (count * HIDDEN,),
        (STEPS, ROWS, INPUTS),
        dtype=dtype,
    )
    return tuple(weights), xs


def gru_loss(loop: Any, weights: Any, xs: Array, reverse: bool = False) -> Array:
    state = np.zeros_like(xs, shape=(ROWS, HIDDEN))
    last, states = loop(lambda h, x: gru(h, x, weights), state, xs, reverse=reverse)
    return (last**2).sum() + (states**3).sum()


def lstm_loss(loop: Any, weights: Any, xs: Array) -> Array:
    zeros = np.zeros_like(xs, shape=(ROWS, HIDDEN))
    (h, c), kept = loop(lambda carry, x: lstm(carry, x, weights), (zeros, zeros + 1), xs)
    return (h * c).sum() + (kept["state"] ** 2).sum() + kept["cell"].sum()


def fixed_point(loop: Any, weights: Any, xs: Array) -> Array:
    """Something of the same weights in every step, sums of products, and what needs no state."""
    w, u, _ = weights

    def step(carry: Any, x: Array) -> Any:
        h, total, moment = carry
        h = np.tanh(h @ (u[:, :HIDDEN] / 2) + np.exp(x) @ w[:, :HIDDEN])
        return (h, total + h.T @ h, moment + (h * x[:, :1]).sum()), (np.sin(x), h @ u, u)

    zeros = np.zeros_like(xs, shape=(ROWS, HIDDEN))
    square = np.zeros_like(xs, shape=(HIDDEN, HIDDEN))
    (h, total, moment), (sines, products, same) = loop(step, (zeros, square, 0.0), xs)
    return h.sum() + (total**2).sum() * moment + (sines.sum() * products).sum() + (same**2).sum()


def nested(loop: Any, weights: Any, xs: Array) -> Array:
    """A loop in a loop, which goes the other way."""
    w, u, _ = weights

    def outer(h: Array, x: Array) -> Any:
        def inner(k: Array, part: Array) -> Any:
            k = np.tanh(k @ u[:, :HIDDEN] + part * w[0, 0])
            return k, k.sum()

        h, sums = loop(inner, h, np.stack([x[:, :1], x[:, 1:2], x[:, 2:3]]), reverse=True)
        return h, sums.sum() * h[0]

    h, kept = loop(outer, np.ones_like(xs, shape=(ROWS, HIDDEN)), xs)
    return (h**2).sum() + kept.sum()


LOSSES: dict[str, tuple[Callable[..., Array], int]] = {
    "gru": (gru_loss, 3),
    "gru in reverse": (lambda loop, p, x: gru_loss(loop, p, x, reverse=True), 3),
    "lstm": (lstm_loss, 2),
    "fixed point": (fixed_point, 2),
    "nested": (nested, 2),
}


@pytest.fixture(params=LOSSES)
def case(request: pytest.FixtureRequest) -> Any:
    loss, count = LOSSES[request.param]
    return loss, *gates(count)


def assert_close(found: Any, wanted: Any, tolerance: float = 1e-11) -> None:
    for a, b in zip(pb.flatten(found)[0], pb.flatten(wanted)[0], strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * (1 + np.abs(b).max(initial=0)))


def test_value_and_gradient(case: Any) -> None:
    loss, weights, xs = case
    wanted = pb.value_and_grad(lambda p, x: loss(unrolled, p, x), (0, 1))(weights, xs)

    def function(p: Any, x: Any) -> Any:
        return pb.value_and_grad(lambda p, x: loss(pb.scan, p, x), (0, 1))(p, x)

    assert_close(function(weights, xs), wanted)
    assert_close(pb.jit(function)(weights, xs), wanted)


def test_second_derivative(case: Any) -> None:
    loss, weights, xs = case

    def slope(loop: Any) -> Any:
        gradient = pb.grad(lambda p: loss(loop, p, xs))
        return lambda p: sum((g * np.cos(g)).sum() for g in gradient(p))

    wanted = pb.grad(slope(unrolled))(weights)
    assert_close(pb.grad(slope(pb.scan))(weights), wanted)
    assert_close(pb.jit(pb.grad(slope(pb.scan)))(weights), wanted, 1e-10)


def test_forward_mode(case: Any) -> None:
    loss, weights, xs = case
    directions = pb.map_tree(lambda p: np.cos(np.arange(p.size, dtype=p.dtype)).reshape(p.shape), weights)
    wanted = pb.jvp(lambda p: loss(unrolled, p, xs), (weights,), (directions,))
    assert_close(pb.jvp(lambda p: loss(pb.scan, p, xs), (weights,), (directions,)), wanted)

    def along(p: Any) -> Any:
        return pb.jvp(lambda p: loss(pb.scan, p, xs), (p,), (directions,))

    assert_close(pb.jit(along)(weights), wanted)


@pytest.mark.parametrize("axes", [(None, 0), ((0, None, None), None), ((0, 0, 0), 0)])
def test_batches(case: Any, axes: Any) -> None:
    loss, weights, xs = case
    given = [
        p if axis is None else np.stack([p, -p])
        for p, axis in zip((*weights, xs), (*(axes[0] or (None,) * 3), axes[1]))
    ]
    arguments = tuple(given[:3]), given[3]

    def gradients(loop: Any) -> Any:
        return pb.vmap(pb.value_and_grad(lambda p, x: loss(loop, p, x), (0, 1)), axes)

    wanted = gradients(unrolled)(*arguments)
    assert_close(gradients(pb.scan)(*arguments), wanted)
    assert_close(pb.jit(gradients(pb.scan))(*arguments), wanted)


def test_every_pass_keeps_the_results(case: Any) -> None:
    loss, weights, xs = case
    graph = pb.trace(pb.value_and_grad(lambda p, x: loss(pb.scan, p, x), (0, 1)), weights, xs).graph
    arguments = [*weights, xs]
    wanted = evaluate(graph, arguments)
    for _ in range(3):
        for each in PASSES:
            graph = each(graph)
            check(graph)
            assert_close(evaluate(graph, arguments), wanted)


def test_every_stage_of_the_compiler(case: Any, described: Processor) -> None:
    loss, weights, xs = case
    graph = pb.trace(pb.value_and_grad(lambda p, x: loss(pb.scan, p, x), (0, 1)), weights, xs).graph
    check_stages(graph, [*weights, xs], described)


def scans_of(graph: Graph) -> list[Operation]:
    return [node for node in graph.nodes() if isinstance(node, Operation) and node.operator is scan_operator]


def products(graph: Graph) -> list[Operation]:
    return [
        node for node in graph.nodes() if isinstance(node, Operation) and node.operator.name == "contract"
    ]


def test_products_that_need_no_state_leave_the_loop() -> None:
    weights, xs = gates(3)
    graph = pb.trace(pb.grad(lambda p, x: gru_loss(pb.scan, p, x), (0, 1)), weights, xs).graph
    for _ in range(3):
        for each in PASSES:
            graph = each(graph)
    assert [len(products(node.attributes["body"])) for node in scans_of(graph)] == [1, 1]
    # The input's product and its two pullbacks, of the rows of all steps, and the recurrent weights' gradient.
    assert sorted(product.shape for product in products(graph)) == sorted(
        [(STEPS * ROWS, 3 * HIDDEN), (STEPS * ROWS, INPUTS), (INPUTS, 3 * HIDDEN), (HIDDEN, 3 * HIDDEN)]
    )


def test_one_bit_pattern_for_any_number_of_threads() -> None:
    weights, xs = gates(3, np.float32)
    function = pb.jit(pb.value_and_grad(lambda p, x: gru_loss(pb.scan, p, x), (0, 1)))
    before, found = pb.get_num_threads(), set()
    try:
        for threads in (1, 2, 3):
            pb.set_num_threads(threads)
            found.add(b"".join(np.asarray(leaf).tobytes() for leaf in pb.flatten(function(weights, xs))[0]))
    finally:
        pb.set_num_threads(before)
    assert len(found) == 1


@pytest.mark.parametrize("rows", [1, 2, 64, 100])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_rows_and_steps(rows: int, steps: int) -> None:
    w, u, xs = drawn((9, 40), (40, 40), (steps, rows, 9), dtype=np.float32)

    def run(loop: Any, w: Any, u: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = np.tanh(x @ w + h @ u)
            return h, (h.sum(axis=1), h)

        return loop(step, np.zeros_like(xs, shape=(rows, 40)), xs)

    assert_close(
        pb.jit(lambda *a: run(pb.scan, *a))(w, u, xs), pb.jit(lambda *a: run(unrolled, *a))(w, u, xs), 1e-5
    )


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_carries_that_change_places_and_meet_other_rows(steps: int) -> None:
    (a,) = drawn((4, 50))

    def run(loop: Any, a: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            p, q, r, n = carry
            return (q, p, r[::-1] + p.mean(axis=0), n + 1), (p, r, n)

        return loop(step, (a, a + 1, a * 2, 0), length=steps)

    assert_close(pb.jit(lambda a: run(pb.scan, a))(a), run(unrolled, a))


def test_a_first_state_that_is_wanted_afterwards() -> None:
    (a,) = drawn((4, 5))

    def run(loop: Any, a: Any) -> Any:
        first = np.exp(a)
        last, _ = loop(lambda c, _: (c * first + 1, None), first, length=4)
        return last, first, last + first

    assert_close(pb.jit(lambda a: run(pb.scan, a))(a), run(unrolled, a))


def test_donated_state() -> None:
    (a, xs) = drawn((4, 50), (6, 4, 50))
    step = pb.jit(lambda h, xs: pb.scan(lambda h, x: (np.tanh(h + x), None), h, xs)[0], donate_argnums=0)
    wanted = unrolled(lambda h, x: (np.tanh(h + x), x), a, xs)[0]
    assert_close(step(a.copy(), xs), wanted)


def test_nothing_is_overwritten_that_is_read_after_the_loop() -> None:
    """A result in an argument's memory, when the argument is a result as well, or a view of it is read later."""
    (a, xs) = drawn((3, 4), (2, 3, 4))

    def itself(a: Any, xs: Any) -> Any:
        last, _ = pb.scan(lambda c, x: (np.sin(c) + x, None), xs[0], xs)
        return a * 2 + last * 0, last, a

    def view(a: Any, xs: Any) -> Any:
        new = a * 2
        last, _ = pb.scan(lambda c, x: (np.sin(c) + x, None), xs[0] + new * 0, xs)
        again, _ = pb.scan(lambda c, x: (np.cos(c) * x.sum(), None), last, a.reshape(2, 6))
        return new, again, last * a.T.reshape(4, 3).T

    def row(a: Any, xs: Any) -> Any:
        last, _ = pb.scan(lambda c, x: (np.sin(c) + x, None), xs[0], xs)
        return np.cos(last), last + a[0]

    for function in (itself, view, row):
        wanted, given = function(a, xs), a.copy()
        found = make_executable(pb.trace(function, a, xs).graph, {0: 0}).program(given, xs)
        assert np.shares_memory(found[0], given)
        assert_close(found, wanted)


def test_trees_without_leaves_and_no_steps() -> None:
    xs = np.zeros((0, 3))
    carry, kept = pb.scan(lambda c, x: (c + x, {"twice": x * 2, "none": None}), np.ones(3), xs)
    assert carry.tolist() == [1, 1, 1]
    assert kept["twice"].shape == (0, 3) and kept["none"] is None
    assert_close(pb.jit(lambda x: pb.scan(lambda c, x: (c + x, x), 1.0, x))(np.zeros(0)), (1.0, np.zeros(0)))
    assert pb.scan(lambda c, x: (None, x), None, np.arange(3))[1].tolist() == [0, 1, 2]


def test_a_python_number_takes_the_dtype_of_the_carry() -> None:
    xs = np.arange(3, dtype=np.float32)
    total, kept = pb.scan(lambda c, x: (c + x, c), 0.0, xs)
    assert (total.dtype, kept.dtype) == (np.float32, np.float32)
    assert pb.fori_loop(0, 5, lambda i, c: c + i, 0) == 10


@pytest.mark.parametrize("bound", [5, 0, -2, np.int32(3), np.uint8(4)])
def test_bounds_may_be_traced(bound: Any) -> None:
    def loop(n: Any, x: Any) -> Any:
        return pb.fori_loop(1, n, lambda i, c: c * x + i, x)

    assert pb.jit(loop)(bound, 1.5) == loop(int(bound), 1.5)
    slope = pb.jit(lambda n, x: pb.jvp(lambda x: loop(n, x), (x,), (1.0,))[1])(bound, 1.5)
    assert slope == pytest.approx(pb.grad(lambda x: loop(int(bound), x))(1.5))


def test_a_bound_is_an_integer() -> None:
    for bound in (2.5, np.arange(3)):
        for run in (lambda f: f, pb.jit):
            with pytest.raises(
                DTypeError, match=r"fori_loop: a bound of type .*give one integer \(at .*test_scan.py"
            ):
                run(lambda n: pb.fori_loop(0, n, lambda i, c: c + i, 0))(bound)


def test_map() -> None:
    xs = np.arange(6.0).reshape(3, 2)
    assert pb.map(lambda x: x.sum(), xs).tolist() == [1, 5, 9]
    assert pb.jit(lambda x: pb.map(lambda x: np.outer(x, x), x))(xs).tolist() == [
        np.outer(x, x).tolist() for x in xs
    ]


def test_an_index_out_of_range_in_a_step() -> None:
    table, indices = np.arange(4.0), np.array([0, 3, 4, 1])

    def run(table: Any, indices: Any) -> Any:
        return pb.scan(lambda c, i: (c + pb.numpy.take(table, np.where(c > 100, 0, i), 0), c), 0.0, indices)[
            0
        ]

    with pytest.raises(IndexRangeError, match="4"):
        run(table, indices)
    with pytest.raises(IndexRangeError, match="4"):
        pb.jit(run)(table, indices)
    assert pb.jit(run)(table, indices[:2]) == 3.0


def test_errors_tell_what_enters_and_what_leaves() -> None:
    xs = np.ones((3, 2))
    with pytest.raises(
        ShapeError, match=r"enters a step as float64\[2\] and leaves it as float64\[1, 2\].*test_scan"
    ):
        pb.scan(lambda c, x: (c[None] + x, None), np.ones(2), xs)
    with pytest.raises(
        TreeError, match=r"enters a step as float32\[2\] and leaves it as float64\[2\].*float32"
    ):
        pb.scan(lambda c, x: (c + x, None), np.ones(2, np.float32), xs)
    with pytest.raises(TreeError, match="carry enters a step as"):
        pb.scan(lambda c, x: ((c, c), None), np.ones(2), xs)
    with pytest.raises(TreeError, match=r"returns \(carry, kept\)"):
        pb.scan(lambda c, x: c, np.ones(2), xs)
    with pytest.raises(ShapeError, match=r"float64\[2, 2\], but scan: xs at 1 is float64\[3, 2\]"):
        pb.scan(lambda c, x: (c, None), 0.0, (xs[:2], xs))
    with pytest.raises(ShapeError, match="give length="):
        pb.scan(lambda c, x: (c, None), 0.0)
    with pytest.raises(ShapeError, match="no axis of steps"):
        pb.scan(lambda c, x: (c, None), 0.0, np.float64(3))


def test_a_state_that_is_indexed_gets_new_zeros_to_scatter_into_in_every_step():
    state, xs = drawn((4,), (STEPS, 4))
    places = np.arange(STEPS) % 4

    def loss(state: Array, xs: Array, run: Any) -> Any:
        return run(lambda h, x: (np.tanh(h + x[0]) * h[x[1]], None), state, (xs, places))[0].sum()

    found = pb.jit(pb.grad(lambda state, xs: loss(state, xs, pb.scan), (0, 1)))(state, xs)
    for one, other in zip(found, pb.grad(lambda state, xs: loss(state, xs, unrolled), (0, 1))(state, xs)):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("rows", [1, 40])
def test_an_index_out_of_range_names_the_steps(compiled: bool, rows: int) -> None:
    """Of the turns that find one the first is told, whether the loop is one chunk or phases of many."""
    table, indices = np.arange(4.0), np.tile(np.array([[0, 1, 2], [3, 4, 1], [9, 1, 1]])[..., None], rows)

    def inner(c: Array, i: Array) -> Any:
        # The index depends on the state, lest it be looked up for all steps before the loop.
        return np.tanh(c @ np.eye(rows)) + pb.numpy.take(table, np.where(c > 100, 0, i), 0), None

    def run(indices: Array, **ways: Any) -> Array:
        start = np.zeros(rows)
        return pb.scan(lambda c, row: (pb.scan(inner, c, row, **ways)[0], None), start, indices)[0]

    for ways in ({}, {"reverse": True}):
        function = lambda indices, ways=ways: run(indices, **ways)  # noqa: E731
        with pytest.raises(IndexRangeError) as caught:
            (pb.jit(function) if compiled else function)(indices)
        assert caught.value.value == 4
        assert str(caught.value).count("in step 1 of 3") == 2
        assert caught.value.source is not None and caught.value.source.function == "inner"

    backwards = lambda indices: pb.scan(inner, np.zeros(rows), indices[:, 0], reverse=True)[0]  # noqa: E731
    with pytest.raises(IndexRangeError, match="in step 2 of 3"):
        (pb.jit(backwards) if compiled else backwards)(indices)


def test_the_function_comes_first():
    with pytest.raises(SettingError, match=r"scan: it is given .* where a function is needed"):
        pb.scan(np.zeros(2), lambda carry, x: (carry, x), np.ones((3, 2)))


def test_places_that_slices_name_are_known_in_the_loop():
    """So a row is written as a row, without an index that memory holds."""

    def step(x, _):
        return x.at[:1].set(x[1:2] * 2), None

    x = np.arange(40.0).reshape(10, 4)
    compiled = pb.jit(lambda x: pb.scan(step, x, None, length=3)[0])
    np.testing.assert_array_equal(compiled(x)[0], x[1] * 2)
    assert "bounded" not in str(compiled.inspect(x).loops)
