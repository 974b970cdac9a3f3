"""Choices in the graph: one branch runs, in every derivative, batched, interpreted and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.passes import PASSES
from pullback.compiler.stages import check_stages
from pullback.compiler.target import Processor
from pullback.errors import DTypeError, IndexRangeError, ShapeError, TreeError
from pullback.graph import check, every_node
from pullback.interpreter import evaluate

Array = Any
RANDOM = np.random.default_rng(5)
X, W = RANDOM.normal(size=(5, 4)) * 0.7, RANDOM.normal(size=(4, 4)) * 0.6


def both(pred: Any, true_function: Any, false_function: Any, *operands: Any) -> Any:
    """What ``cond`` means, where both branches are harmless."""
    return pb.map_tree(lambda a, b: np.where(pred, a, b), true_function(*operands), false_function(*operands))


def every(index: Any, branches: Any, *operands: Any) -> Any:
    """What ``switch`` means."""
    found = branches[-1](*operands)
    for k, branch in reversed(list(enumerate(branches[:-1]))):
        found = pb.map_tree(lambda a, b, k=k: np.where(index <= k, a, b), branch(*operands), found)
    return found


def products(cond: Any, switch: Any, x: Array, w: Array) -> Array:
    """Branches that close over values, and give several results."""
    a, b = cond(x.sum() > 0, lambda h: (np.tanh(h @ w), h.sum()), lambda h: (h * h[0], x[0, 0] * h.max()), x)
    return (a**2).sum() * b


def chain(cond: Any, switch: Any, x: Array, w: Array) -> Array:
    """A choice by what another one gives, in a branch and behind it."""
    y = switch(np.floor(x[0, 0] * 3).astype(np.int64), [np.sin, np.cos, lambda x: x @ w, np.exp], x)

    def inner(z: Array) -> Array:
        return cond(z[0, 1] > 0, lambda: z * w[0, 0], lambda: (z @ w) * y)

    return cond(y.sum() > 0.3, inner, lambda z: z**2, y + 1).sum() + y[0].sum()


def steps(cond: Any, switch: Any, x: Array, w: Array) -> Array:
    """Choices in the steps of a loop, by the state and by the step's input."""

    def step(h: Array, x: Array) -> Any:
        h = cond(h.sum() > 0, lambda h: np.tanh(h @ w), lambda h: h * x + 1, h)
        kinds = [lambda: -h.sum(), lambda: x.sum() + 1, lambda: 2 * (h @ w).sum()]
        return h, switch(np.floor(x[0] * 3).astype(np.int64), kinds)

    h, ys = pb.scan(step, np.ones_like(x, shape=(4,)), x)
    return (h * h).sum() + (ys**2).sum()


def loops(cond: Any, switch: Any, x: Array, w: Array) -> Array:
    """Loops in branches."""

    def looped(x: Array) -> Array:
        return pb.scan(lambda h, x: (np.tanh(h @ w + x), h), x[0], x)[1]

    return (cond(x[0, 0] > 0, looped, lambda x: x * 2, x) ** 2).sum()


CASES = {"products": products, "chain": chain, "steps": steps, "loops": loops}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Any:
    return CASES[request.param]


@pytest.fixture(params=[1.0, -1.0, 0.3], ids=["x", "-x", "small x"])
def x(request: pytest.FixtureRequest) -> Array:
    return X * request.param


def lazy(case: Any) -> Any:
    return lambda x, w: case(pb.cond, pb.switch, x, w)


def eager(case: Any) -> Any:
    return lambda x, w: case(both, every, x, w)


def assert_close(found: Any, wanted: Any, tolerance: float = 1e-11) -> None:
    for a, b in zip(pb.flatten(found)[0], pb.flatten(wanted)[0], strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * (1 + np.abs(b).max(initial=0)))


def test_value_and_gradient(case: Any, x: Array) -> None:
    function = pb.value_and_grad(lazy(case), (0, 1))
    wanted = pb.value_and_grad(eager(case), (0, 1))(x, W)
    assert_close(function(x, W), wanted)
    assert_close(pb.jit(function)(x, W), wanted)


def test_second_derivative(case: Any, x: Array) -> None:
    def slope(loss: Any) -> Any:
        gradient = pb.grad(loss, (0, 1))
        return pb.grad(lambda x, w: sum((g * np.cos(g)).sum() for g in gradient(x, w)), (0, 1))

    wanted = slope(eager(case))(x, W)
    assert_close(slope(lazy(case))(x, W), wanted)
    assert_close(pb.jit(slope(lazy(case)))(x, W), wanted, 1e-10)


def test_forward_mode(case: Any, x: Array) -> None:
    along = np.cos(x), np.sin(W)
    wanted = pb.jvp(eager(case), (x, W), along)
    assert_close(pb.jvp(lazy(case), (x, W), along), wanted)
    assert_close(pb.jit(lambda x, w: pb.jvp(lazy(case), (x, w), along))(x, W), wanted)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_batches(case: Any, axes: Any) -> None:
    given = [p if axis is None else np.stack([p, -p, p / 3]) for p, axis in zip((X, W), axes)]
    wanted = pb.vmap(pb.value_and_grad(eager(case), (0, 1)), axes)(*given)
    function = pb.vmap(pb.value_and_grad(lazy(case), (0, 1)), axes)
    assert_close(function(*given), wanted)
    assert_close(pb.jit(function)(*given), wanted)
    summed = pb.grad(lambda *given: pb.vmap(lazy(case), axes)(*given).sum(), (0, 1))
    assert_close(summed(*given), pb.grad(lambda *g: pb.vmap(eager(case), axes)(*g).sum(), (0, 1))(*given))


def test_every_pass_keeps_the_results(case: Any, x: Array) -> None:
    graph = pb.trace(pb.value_and_grad(lazy(case), (0, 1)), x, W).graph
    wanted = evaluate(graph, [x, W])
    for _ in range(3):
        for each in PASSES:
            graph = each(graph)
            check(graph)
            assert_close(evaluate(graph, [x, W]), wanted)


def test_every_stage_of_the_compiler(case: Any, described: Processor) -> None:
    graph = pb.trace(pb.value_and_grad(lazy(case), (0, 1)), X, W).graph
    check_stages(graph, [X, W], described)
    check_stages(graph, [-X, W], described)


def test_large_branches_are_shared_among_threads() -> None:
    x, w = RANDOM.normal(size=(200, 300)), RANDOM.normal(size=(300, 300))

    def function(x: Array, w: Array, p: Array) -> Any:
        return pb.value_and_grad(
            lambda x, w: pb.cond(p > 0, lambda: np.tanh(x @ w), lambda: np.sin(x) * w[0]).sum(), (0, 1)
        )(x, w)

    compiled = pb.jit(function)
    before, found = pb.get_num_threads(), set()
    try:
        for threads in (1, 2, 3):
            pb.set_num_threads(threads)
            results = compiled(x, w, 1.0), compiled(x, w, -1.0)
            found.add(b"".join(np.asarray(leaf).tobytes() for leaf in pb.flatten(results)[0]))
    finally:
        pb.set_num_threads(before)
    assert len(found) == 1
    assert_close(compiled(x, w, 1.0), function(x, w, 1.0))
    assert_close(compiled(x, w, -1.0), function(x, w, -1.0))


def test_an_index_beyond_the_branches_is_that_of_the_nearest() -> None:
    branches = [lambda: 1.0, lambda: 2.0, lambda: 3.0]
    compiled = pb.jit(lambda k: pb.switch(k, branches))
    for k, wanted in ((-5, 1.0), (0, 1.0), (1, 2.0), (2, 3.0), (9, 3.0)):
        assert float(pb.switch(k, branches)) == float(compiled(k)) == wanted
    assert pb.vmap(lambda k: pb.switch(k, branches))(np.arange(-1, 5)).tolist() == [1, 1, 2, 3, 3, 3]


def test_a_branch_that_is_not_taken_reports_and_divides_nothing() -> None:
    table = np.arange(4.0)

    def pick(k: Array) -> Array:
        return pb.cond(k < 4, lambda k: pb.numpy.take(table, k, 0), lambda k: -1.0, k)

    for function in (pick, pb.jit(pick)):
        assert (float(function(np.int64(2))), float(function(np.int64(7)))) == (2.0, -1.0)
        with pytest.raises(IndexRangeError, match="-9"):
            function(np.int64(-9))
    assert pb.vmap(pick)(np.array([1, 8, 3])).tolist() == [1.0, -1.0, 3.0]
    root = pb.vmap(pb.grad(lambda x: pb.cond(x > 0, lambda: np.sqrt(x), lambda: x)))
    assert root(np.array([4.0, 0.0, -1.0])).tolist() == [0.25, 1.0, 1.0]


def test_a_loop_does_not_compute_all_branches_before_it() -> None:
    def mapped(x: Array, w: Array) -> Array:
        return pb.map(lambda row: pb.cond(row[0] > 0, lambda: (row @ w).sum() + 1, lambda: 0.0), x)

    graph = pb.trace(mapped, X, W).graph
    for _ in range(2):
        for each in PASSES:
            graph = each(graph)
    outside = [getattr(node, "operator", None) for node in graph.nodes()]
    assert "contract" not in [operator.name for operator in outside if operator is not None]
    assert_close(pb.jit(mapped)(X, W), mapped(X, W))


def test_a_known_choice_is_the_branch() -> None:
    graph = pb.trace(lambda x: pb.cond(np.True_, np.sin, np.cos, x), X).graph
    for each in PASSES:
        graph = each(graph)
    assert [node.operator.name for node in every_node(graph) if hasattr(node, "operator")] == ["sin"]


def test_donated_state() -> None:
    step = pb.jit(lambda x, p: pb.cond(p, lambda: np.sin(x), lambda: x), donate_argnums=0)
    assert_close(step(X.copy(), np.True_), np.sin(X))
    assert_close(step(X.copy(), np.False_), X)


def test_python_numbers_take_the_dtype_of_the_other_branch() -> None:
    x = np.float32(2)
    for p in (True, False):
        assert pb.cond(p, lambda: x, lambda: 0).dtype == np.float32
    assert pb.cond(2.5, lambda: 1, lambda: 0.5) == 1.0
    assert pb.jit(lambda p: pb.cond(p, lambda: {"a": [1]}, lambda: {"a": [2]}))(False) == {"a": [2]}


def test_errors_tell_what_the_branches_give() -> None:
    one = np.ones(2)
    with pytest.raises(
        ShapeError,
        match=r"branch false returns float64\[2\], branch true returns float64\[1, 2\].*test_branches",
    ):
        pb.cond(True, lambda x: x[None], lambda x: x, one)
    with pytest.raises(
        DTypeError,
        match=r"at a.*branch 0 returns float64\[2\], branch 1 returns float32\[2\].*astype.*test_branches",
    ):
        pb.switch(0, [lambda x: {"a": x}, lambda x: {"a": x.astype(np.float32)}], one)
    with pytest.raises(DTypeError, match="branch"):
        pb.cond(True, lambda: np.arange(3), lambda: 1.5 * np.ones(3))
    with pytest.raises(DTypeError, match="branch"):
        pb.cond(True, lambda: np.int64(3), lambda: 1.5)
    with pytest.raises(TreeError, match=r"return the same structure.*test_branches"):
        pb.cond(True, lambda x: (x, x), lambda x: x, one)
    with pytest.raises(ShapeError, match=r"predicate is bool\[2\].*np.where.*test_branches"):
        pb.cond(one > 0, np.sin, np.cos, one)
    with pytest.raises(DTypeError, match=r"index is float64\[\].*test_branches"):
        pb.switch(np.float64(1), [np.sin, np.cos], one)
    with pytest.raises(TreeError, match="no branch"):
        pb.switch(0, [], one)


@pytest.mark.parametrize("inside", ["scan", "while", "checkpoint", "cond", "nested"])
def test_an_index_inside_the_branch_not_taken_is_no_error(inside: str) -> None:
    """Of many examples each computes all branches; what the index of another branch would be does not matter."""
    table = np.arange(4.0)

    def looked_up(i: Any) -> Any:
        return pb.numpy.take(table, np.where(i > 100, 0, i), 0)

    def taken(i: Any) -> Any:
        if inside == "scan":
            return pb.scan(lambda c, k: (c + looked_up(i + k * 0), None), 0.0, np.arange(3))[0]
        if inside == "while":
            return pb.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + looked_up(i)), (0, 0.0))[1]
        if inside == "checkpoint":
            return pb.checkpoint(lambda i: 3 * looked_up(i))(i)
        if inside == "cond":
            return pb.cond(i > -100, lambda i: 3 * looked_up(i), lambda i: 0.0, i)
        step = pb.checkpoint(lambda c: pb.scan(lambda c, k: (c + looked_up(i), None), c, np.arange(3))[0])
        return pb.map(step, np.zeros(1))[0]

    def chosen(i: Any) -> Any:
        return pb.cond(i < 4, taken, lambda i: i * 1.0, i)

    indices = np.array([0, 3, 9, 2])
    for function in (pb.vmap(chosen), pb.jit(pb.vmap(chosen))):
        assert function(indices).tolist() == [0.0, 9.0, 9.0, 6.0]
        with pytest.raises(IndexRangeError, match="-7"):
            function(np.array([0, -7]))


def test_dicts_may_be_written_in_any_order():
    """Of branches, carries, an associative function and a rule of one's own: keys tell what belongs together."""

    def step(carry, t):
        return {"b": carry["b"] + t, "a": carry["a"] * 2}, t

    def branch(x):
        return {"a": x, "b": 2 * x}

    @pb.custom_pullback
    def scaled(d):
        return {"p": d["x"] * 2, "q": d["y"] * 3}

    scaled.define(
        lambda d: ({"q": d["y"] * 3, "p": d["x"] * 2}, None),
        lambda _, bars: ({"y": bars["q"] * 3, "x": bars["p"] * 2},),
    )
    start = {"a": 1.0, "b": 2.0}
    pairs = {"m": np.arange(1.0, 4.0), "n": np.ones(3)}
    for run in (lambda f: f, pb.jit):
        assert run(lambda x: pb.cond(x > 0, branch, lambda x: {"b": -2 * x, "a": -x}, x))(-1.0) == {
            "a": 1.0,
            "b": 2.0,
        }
        assert run(lambda x: pb.switch(1, [branch, lambda x: {"b": 0.0 * x, "a": -x}], x))(1.0) == {
            "a": -1.0,
            "b": 0.0,
        }
        assert run(lambda start: pb.scan(step, start, np.ones(3))[0])(start) == {"a": 8.0, "b": 5.0}
        assert run(lambda s: pb.fori_loop(0, 3, lambda i, c: step(c, 1)[0], s))(start) == {"a": 8.0, "b": 5.0}
        assert (
            run(lambda s: pb.while_loop(lambda c: c["a"] < 8, lambda c: step(c, 1)[0], s))(start)["b"] == 5.0
        )
        joined = run(
            lambda x: pb.associative_scan(lambda a, b: {"n": a["n"] + b["n"], "m": a["m"] * b["m"]}, x)
        )(pairs)
        np.testing.assert_array_equal([joined["m"], joined["n"]], [[1, 2, 6], [1, 2, 3]])
        slope = run(pb.grad(lambda d: scaled(d)["p"] + 10 * scaled(d)["q"]))({"x": 1.0, "y": 1.0})
        assert slope == {"x": 2.0, "y": 30.0}
