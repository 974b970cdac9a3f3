"""Loops of Python that are rolled up: the same values and derivatives as written out, and what is left as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.control.rolling import rolling
from pullback.control.rolling.periods import Run, runs
from pullback.errors import IndexRangeError
from pullback.graph import Graph, Operation, Type, Variable, check, every_node, format_graph, mark

STEPS = 12
Array = Any


def drawn(*shape: int) -> Array:
    random = np.random.default_rng(shape)
    return random.normal(size=shape) * 0.5


W, U, X = drawn(5, 4), drawn(4, 4), drawn(STEPS, 3, 5)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops of few operations are rolled up as well."""
    monkeypatch.setattr(rolling, "WORTHWHILE", 12)


def scans(graph: Graph) -> list[tuple[int, bool, int]]:
    """The loops of a graph: steps, whether backwards, and carries."""
    names = "trips", "reverse", "carries"
    return [
        tuple(node.attributes[name] for name in names)
        for node in every_node(graph)
        if isinstance(node, Operation) and node.operator.name == "scan"
    ]


def loop(trips: int = STEPS, carries: int = 1, reverse: bool = False) -> tuple[int, bool, int]:
    return trips, reverse, carries


Case = tuple[Callable[..., Any], tuple[Any, ...], list[tuple[int, bool, int]]]
CASES: dict[str, Case] = {}


def case(arguments: tuple[Any, ...], *found: tuple[int, bool, int]) -> Callable[[Any], Any]:
    def enter(function: Any) -> Any:
        CASES[function.__name__] = function, arguments, list(found)
        return function

    return enter


# -- what steps read, and what is read of them


@case((W, U, X), loop())
def all_states_of_a_batch(w: Array, u: Array, x: Array) -> Array:
    x = np.swapaxes(x, 0, 1)
    h, states = np.zeros((3, 4)), []
    for t in range(STEPS):
        h = np.tanh(x[:, t] @ w + h @ u)
        states.append(h)
    return np.stack(states, 1).sum() + states[-1].mean()


@case((W, U, X), loop(reverse=True))
def from_the_end(w: Array, u: Array, x: Array) -> Array:
    h, states = np.zeros((3, 4)), []
    for t in reversed(range(STEPS)):
        h = np.tanh(x[t] @ w + h @ u)
        states.append(h)
    return (np.stack(states[::-1]) * np.arange(STEPS)[:, None, None]).sum()


@case((W, U, X), loop(STEPS - 1), loop(STEPS - 1, reverse=True))
def both_directions(w: Array, u: Array, x: Array) -> Array:
    h, g, v, there, back = w[:3], u[:3], 2 * w, [], []
    for t in range(1, STEPS):
        h = np.tanh(x[t] @ w + h @ u)
        there.append(h)
    for t in reversed(range(STEPS - 1)):
        g = np.sin(x[t] @ v + g @ u)
        back.append(g)
    return (np.concatenate([np.stack(there), np.stack(back[::-1])], -1) ** 2).sum()


@case((W, U, X), loop(carries=2))
def both_directions_at_once(w: Array, u: Array, x: Array) -> Array:
    h, g, back = np.zeros((3, 4)), np.zeros((3, 4)), []
    v = 2 * w
    for t in range(STEPS):
        h = np.tanh(x[t] @ w + h @ u)
        g = np.sin(x[STEPS - 1 - t] @ v + g @ u)
        back.append(g)
    return (np.stack(back[::-1]) ** 2).sum() + h.sum()


@case((W, U, X), loop(STEPS - 1))
def a_first_step_of_its_own(w: Array, u: Array, x: Array) -> Array:
    h = None
    for t in range(STEPS):
        h = np.tanh(x[t] @ w if h is None else x[t] @ w + h @ u)
    return h.sum()


@case((W, U, drawn(2 * STEPS, 3, 5)), loop())
def several_places_a_step(w: Array, u: Array, x: Array) -> Array:
    h = np.zeros((3, 4))
    for t in range(STEPS):
        h = np.tanh(x[2 * t : 2 * t + 2].sum(0) @ w + h @ u)
    return h.sum()


@case((W, U, drawn(3 * STEPS, 3, 5)), loop(reverse=True))
def every_third_place(w: Array, u: Array, x: Array) -> Array:
    h = np.zeros((3, 4))
    for t in reversed(range(STEPS)):
        h = np.tanh(x[3 * t + 1] @ w + h @ u)
    return h.sum()


@case((W, U, X), loop(STEPS - 1))
def windows(w: Array, u: Array, x: Array) -> Array:
    h = np.zeros((3, 4))
    for t in range(STEPS - 1):
        h = np.tanh(x[t : t + 2].sum(0) @ w + h @ u)
    return h.sum()


@case((drawn(3), drawn(STEPS, 3)), loop(STEPS - 1))
def differences(a: Array, x: Array) -> Array:
    for t in range(STEPS - 1):
        a = np.tanh(a) * (x[t + 1] - x[t]) + x[t]
    return a.sum()


@case(([drawn(3, 4) for _ in range(STEPS)], U), loop())
def a_list_of_arrays(xs: list[Array], u: Array) -> Array:
    h = np.zeros((3, 4))
    for x in xs:
        h = np.tanh(x + h @ u)
    return h.sum()


@case((drawn(30),), loop())
def constants_some_of_them_equal(x: Array) -> Array:
    y = np.zeros_like(x)
    for c in (1.0, 2.0, 2.0, 0.0, 0.5, 0.5, 0.5, 3.0, 1.0, 1.0, 1.0, 0.25):
        y = y * x + c
    return (y * y).sum()


@case((drawn(4), drawn(STEPS, 4)), loop())
def step_sizes(y: Array, x: Array) -> Array:
    for t in range(STEPS):
        y = y + np.sin(y * (0.1 * t)) / (t + 1) + x[t]
    return (y * y).sum()


@case((drawn(4), drawn(STEPS, 4), np.arange(STEPS) % 4), loop())
def computed_places(h: Array, x: Array, places: Array) -> Array:
    for t in range(STEPS):
        h = np.tanh(h + x[t]) * h[places[t]]
    return h.sum()


@case((drawn(4),), loop())
def keys(h: Array) -> Array:
    key = pb.random.key(3)
    for t in range(STEPS):
        h = np.tanh(h + pb.random.normal(pb.random.fold_in(key, t), (4,), np.float64))
    return h.sum()


# -- states


@case((drawn(3), drawn(STEPS, 3)), loop(STEPS - 2, 2))
def leapfrog(a: Array, x: Array) -> Array:
    p, q, out = x[0], x[1], []
    for t in range(2, STEPS):
        p, q = q, 2 * np.sin(q) - p * a + x[t]
        out.append(q)
    return np.stack(out).sum()


@case((drawn(3), drawn(STEPS, 3)), loop(STEPS - 3, 3))
def three_steps_back(a: Array, x: Array) -> Array:
    states = [x[0], x[1], x[2]]
    for t in range(3, STEPS):
        states.append(np.tanh(states[-1] * a + states[-3] * 0.5 + x[t]))
    return sum(h.sum() for h in states[-2:])


@case((drawn(4, 4), drawn(4)), loop())
def powers(a: Array, v: Array) -> Array:
    for _ in range(STEPS):
        v = np.tanh(a @ v) / np.sqrt((v * v).sum() + 1)
    return v.sum()


@case((W, U, X), loop(STEPS - 1))
def the_first_state_in_every_step(w: Array, u: Array, x: Array) -> Array:
    h, first = np.zeros((3, 4)), None
    for t in range(STEPS):
        h = np.tanh(x[t] @ w + h @ u)
        if first is None:
            first = np.exp(h)
        else:
            h = h * first
    return h.sum()


@case((drawn(4), drawn(STEPS, 4)), loop(STEPS - 1, 2))
def the_largest_state(h: Array, x: Array) -> Array:
    best = None
    for t in range(STEPS):
        h = np.tanh(h + x[t])
        best = h if best is None else np.maximum(best, h)
    return best.sum()


@case((W, U, X), loop(carries=2))
def losses_added_up(w: Array, u: Array, x: Array) -> Array:
    h, loss = np.zeros((3, 4)), 0.0
    for t in range(STEPS):
        h = np.tanh(x[t] @ w + h @ u)
        loss = loss + np.mean((h - x[t, :, :4]) ** 2)
    return loss / STEPS


@case((W, U, X), loop(), loop())
def losses_added_up_later(w: Array, u: Array, x: Array) -> Array:
    h, losses = np.zeros((3, 4)), []
    for t in range(STEPS):
        h = np.tanh(x[t] @ w + h @ u)
        losses.append(np.mean((h - x[t, :, :4]) ** 2))
    return sum(losses) / STEPS


@case((W, U, X), loop())
def some_states(w: Array, u: Array, x: Array) -> Array:
    h, states = np.zeros((3, 4)), []
    for t in range(STEPS):
        h = np.tanh(x[t] @ w + h @ u)
        states.append(h)
    return sum((states[t] @ u).sum() for t in (3, 7, 11)) + np.concatenate(states[2:9], 1).mean()


# -- loops beside, in and around others


@case((W, U, X), loop(carries=2))
def layers_in_one_loop(w: Array, u: Array, x: Array) -> Array:
    h = k = np.zeros((3, 4))
    for t in range(STEPS):
        h = np.tanh(x[t] @ w + h @ u)
        k = np.tanh(h @ u + k @ u.T)
    return k.sum()


@case((W, U, X), loop(), loop(STEPS - 1))
def layers_one_after_the_other(w: Array, u: Array, x: Array) -> Array:
    h, k, v, states = np.zeros((3, 4)), np.ones((3, 4)), 2 * u, []
    for t in range(STEPS):
        h = np.tanh(x[t] @ w + h @ u)
        states.append(h)
    for t in range(1, STEPS):
        k = np.tanh(states[t] @ v + k @ u.T)
    return k.sum()


@case((drawn(4), drawn(STEPS, 4)), loop(10), loop())
def a_loop_in_a_loop(h: Array, x: Array) -> Array:
    for t in range(STEPS):
        for _ in range(10):
            h = h + 0.1 * np.sin(h)
        h = h * x[t]
    return h.sum()


@case((drawn(4), drawn(STEPS, 6, 4)), loop(6), loop())
def a_scan_in_a_loop(h: Array, x: Array) -> Array:
    for t in range(STEPS):
        h, y = pb.scan(lambda h, x: (np.tanh(h + x), h * x), h, x[t])
        h = h + y.sum(0) * 0.1
    return h.sum()


@case((drawn(4), drawn(3, STEPS, 4)), loop(), loop(3))
def a_loop_in_a_scan(h: Array, x: Array) -> Array:
    def step(h: Array, x: Array) -> tuple[Array, Array]:
        for t in range(STEPS):
            h = np.tanh(h + x[t])
        return h, h * 2

    h, kept = pb.scan(step, h, x)
    return h.sum() + kept.mean()


@case((drawn(4), drawn(STEPS, 6, 4)), loop(6), loop(6), loop(STEPS - 1))
def a_scan_of_which_the_last_step_gives_more(h: Array, x: Array) -> Array:
    for t in range(STEPS):
        h, y = pb.scan(lambda h, x: (np.tanh(h + x), h * x), h * 0.9, x[t])
    return h.sum() + y.sum()


@case((W, U, X), loop())
def checkpoints(w: Array, u: Array, x: Array) -> Array:
    cell = pb.checkpoint(lambda h, x: np.tanh(x @ w + np.sin(h @ u)))
    h = np.zeros((3, 4))
    for t in range(STEPS):
        h = cell(h, x[t])
    return h.sum()


@case((W, U, X), loop())
def a_loop_in_a_checkpoint(w: Array, u: Array, x: Array) -> Array:
    @pb.checkpoint
    def run(x: Array) -> Array:
        h = np.zeros((3, 4))
        for t in range(STEPS):
            h = np.tanh(x[t] @ w + h @ u)
        return h

    return run(x).sum()


@case((W, U, X), loop(STEPS - 1))
def choices(w: Array, u: Array, x: Array) -> Array:
    h = np.zeros((3, 4))
    for t in range(STEPS):
        h = pb.cond(h.sum() > 0, lambda h: np.tanh(h @ u), lambda h: h * 0.5, h) + x[t] @ w
    return h.sum()


@case((drawn(4), drawn(STEPS, 4)), loop())
def descent(w: Array, x: Array) -> Array:
    for t in range(STEPS):
        w = w - 0.01 * pb.grad(lambda w: ((np.sin(w) * x[t]).sum() - 1) ** 2)(w)  # noqa: B023
    return w.sum()


@case((W, U, X), loop())
def a_batch_of_loops(w: Array, u: Array, x: Array) -> Array:
    def one(x: Array) -> Array:
        h = np.zeros(4)
        for t in range(STEPS):
            h = np.tanh(x[t] @ w + h @ u)
        return h.sum()

    return pb.vmap(one, 1)(x).sum()


# -- what is no loop


@case((W, U, X))
def a_growing_history(w: Array, u: Array, x: Array) -> Array:
    h, states = np.zeros((3, 4)), []
    for t in range(STEPS):
        h = np.tanh(x[t] @ w + h @ u)
        states.append(h)
        h = np.stack(states).mean(0)
    return h.sum()


@case((W, U, X))
def places_without_an_order(w: Array, u: Array, x: Array) -> Array:
    h = np.zeros((3, 4))
    x = np.concatenate([x] * 1000, 1)
    for t in (3, 1, 4, 0, 5, 9, 2, 6, 8, 7, 10, 11):
        h = np.tanh(x[t, :3] @ w + x[t].sum() + h @ u)
    return h.sum()


@case(({name: [drawn(3, 4) for _ in range(STEPS)] for name in ("weights", "slopes")},))
def updates_of_many_arrays(state: dict[str, list[Array]]) -> Array:
    new = [w - 0.1 * g / (np.sqrt(g * g) + 1e-3) for w, g in zip(state["weights"], state["slopes"])]
    return sum(w[0, 0] for w in new[:3])


@case((W, U, X))
def too_few_steps(w: Array, u: Array, x: Array) -> Array:
    h = np.zeros((3, 4))
    for t in range(rolling.FEWEST_STEPS - 1):
        h = np.tanh(x[t] @ w + h @ u)
    return h.sum()


def floats_of(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(k for k, a in enumerate(arguments) if not isinstance(a, np.ndarray) or a.dtype.kind == "f")


def gradients(
    function: Any, arguments: tuple[Any, ...], floats: tuple[int, ...] | None = None
) -> list[Array]:
    value, slopes = pb.value_and_grad(function, floats or floats_of(arguments))(*arguments)
    return [value, *pb.flatten(slopes)[0]]


@pytest.fixture
def written_out(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Computes something with nothing rolled up."""

    def compute(run: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(rolling, "WORTHWHILE", 10**9)
            return run()

    return compute


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", CASES)
def test_rolled_loops_are_what_they_were_written_out(name: str, written_out: Any) -> None:
    function, arguments, found = CASES[name]
    graph = pb.trace(function, *arguments).graph
    check(graph)
    assert sorted(scans(graph)) == sorted(found)
    value = pb.trace(function, *arguments).evaluate(pb.flatten(arguments)[0])
    np.testing.assert_allclose(value, function(*arguments))
    wanted = written_out(lambda: gradients(function, arguments))
    for one, other in zip(gradients(function, arguments), wanted):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "name", ["both_directions_at_once", "computed_places", "three_steps_back", "some_states"]
)
def test_compiled_loops_have_the_same_bits_for_any_number_of_threads(name: str) -> None:
    function, arguments, _ = CASES[name]
    wanted, before = gradients(function, arguments), pb.get_num_threads()
    floats = floats_of(arguments)
    compiled = pb.jit(lambda *given: gradients(function, given, floats))
    try:
        results = []
        for threads in (1, 2, 3):
            pb.set_num_threads(threads)
            results.append(compiled(*arguments))
    finally:
        pb.set_num_threads(before)
    for one, other, *several in zip(wanted, *results):
        np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-13)
        assert {np.asarray(each).tobytes() for each in several} == {np.asarray(other).tobytes()}


@pytest.mark.usefixtures("small")
def test_forward_mode_and_second_derivatives_go_through_rolled_loops(written_out: Any) -> None:
    function, (a, x), _ = CASES["leapfrog"]

    def both() -> Any:
        return pb.jvp(function, (a, x), (a + 1, x))[1], pb.hessian(function)(a, x)

    for one, other in zip(both(), written_out(both)):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def gru(steps: int, hidden: int = 8) -> tuple[Callable[..., Any], tuple[Array, ...]]:
    def loss(w: Array, u: Array, x: Array) -> Any:
        h = np.zeros((2, hidden))
        for t in range(steps):
            (r, z, n), (s, y, m) = np.split(x[:, t] @ w, 3, -1), np.split(h @ u, 3, -1)
            update = pb.sigmoid(z + y)
            h = (1 - update) * np.tanh(n + pb.sigmoid(r + s) * m) + update * h
        return (h * h).sum()

    return loss, (drawn(3, 3 * hidden), drawn(hidden, 3 * hidden), drawn(2, steps, 3))


def test_the_graph_of_a_derivative_does_not_grow_with_the_number_of_steps() -> None:
    sizes = {
        len(every_node(pb.trace(pb.grad(function, (0, 1, 2)), *arguments).graph))
        for function, arguments in (gru(24), gru(48), gru(96))
    }
    assert len(sizes) == 1


def test_short_programs_stay_written_out() -> None:
    def network(w: Array, u: Array, b: Array, x: Array) -> Any:
        h = np.tanh(x[:, 0] @ w + b)
        for t in range(1, 28):
            h = np.tanh(x[:, t] @ w + b + h @ u)
        return h.sum()

    graph = pb.trace(network, drawn(5, 4), U, drawn(4), drawn(3, 28, 5)).graph
    assert not scans(graph)
    assert not scans(pb.trace(gru(4)[0], *gru(4)[1]).graph)


def test_what_is_not_rolled_up_stays_the_very_nodes() -> None:
    since, h, x = (
        mark(),
        Variable(Type(np.dtype(float), (3,)), "h"),
        Variable(Type(np.dtype(float), (400, 3)), "x"),
    )
    states = [h]
    for t in range(100):
        states.append(np.tanh(np.stack(states).sum(0) * x[t]) + 1)
    assert rolling.rolled(states[-1:], since)[0] is states[-1]


@pytest.mark.usefixtures("small")
def test_a_program_is_rolled_up_in_the_same_way_whatever_else_is_alive(written_out: Any) -> None:
    function, arguments = gru(STEPS)

    def traced() -> Graph:
        return pb.trace(pb.grad(function, (0, 1, 2)), *arguments).graph

    first = format_graph(traced())
    alive = written_out(traced)
    assert format_graph(traced()) == first
    assert not scans(alive)


@pytest.mark.usefixtures("small")
def test_a_loop_of_a_trace_around_is_left_to_that_trace() -> None:
    sizes = []

    def outer(h: Array, x: Array) -> Any:
        for t in range(STEPS):
            h = np.tanh(h + x[t]) * 0.5
        inner = pb.trace(lambda y: y * h.sum(), 1.0).graph
        sizes.append(scans(inner))
        return pb.grad(lambda y: y * h.sum())(2.0) + h.mean()

    graph = pb.trace(outer, drawn(4), drawn(STEPS, 4)).graph
    assert sizes == [[]]
    assert scans(graph) == [loop()]


@pytest.mark.usefixtures("small")
def test_errors_name_the_users_line_in_the_loop() -> None:
    function, (h, x, places), _ = CASES["computed_places"]
    places = places.copy()
    places[5] = 7
    line = function.__code__.co_firstlineno + 3
    for run in (pb.jit(function), pb.grad(function)):
        with pytest.raises(IndexRangeError, match=rf"7 .*outside[\s\S]*test_rolling.py:{line}"):
            run(h, x, places)


@pytest.mark.usefixtures("small")
def test_zeros_do_not_meet_slopes_that_were_never_asked_for() -> None:
    """An error that only steers the loop has no cotangent in any step but the last."""

    def steered(a: Array, x: Array) -> Any:
        for t in range(STEPS):
            error = np.sqrt(((a - x[t]) ** 2).sum()) * 2
            a = np.where(error > 2, a * 0.5, a + 2 * x[t + 1])
        return a.sum() + error

    x = np.zeros((STEPS + 1, 5))
    x[-2] = 1.0
    assert scans(pb.trace(steered, np.zeros(5), x).graph) == [loop(STEPS - 1)]
    assert all(np.isfinite(slope).all() for slope in gradients(steered, (np.zeros(5), x)))


def test_runs_are_found_whatever_stands_around_and_inside_them() -> None:
    inner = [5, 6, 5, 6, 5, 6, 7]
    labels = np.array([1, 2, 3, *inner * 6, 9, 8, *[4] * 9], np.uint64)
    assert runs(labels, 6) == [Run(7, 3, 45), Run(1, 47, 56)]
    assert runs(np.arange(50, dtype=np.uint64), 4) == []


@pytest.mark.parametrize(("size", "found"), [(1000, 1), (100_000, 0)])
def test_elementwise_steps_on_large_arrays_stay_written_out(size: int, found: int) -> None:
    """They would go through memory in each step."""

    def polynomial(x: Array) -> Array:
        y = x
        for k in range(150):
            y = y * x + k
        return y

    assert len(scans(pb.trace(polynomial, np.zeros(size)).graph)) == found
