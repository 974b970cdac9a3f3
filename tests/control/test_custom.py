"""A user's own derivative rules: traced, compiled, nested, batched, of second order, and what they must give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.key.graph import graph_key
from pullback.compiler.programs.executable import make_executable
from pullback.compiler.stages import check_stages
from pullback.compiler.target import Processor
from pullback.control.custom import without_rules
from pullback.errors import DerivativeError, DTypeError, ShapeError, TreeError
from pullback.graph import Operation, every_node
from pullback.testing import check_grads

Array = Any
RANDOM = np.random.default_rng(2)
X, Y = RANDOM.normal(size=(3, 4)), RANDOM.normal(size=4)


def plain(parts: Any, y: Array) -> Any:
    """What the rules below are the derivatives of."""
    a, b = parts["a"], parts["b"]
    return np.sin(a) * y, (a * b).sum()


@pb.custom_pullback
def pulled(parts: Any, y: Array) -> Any:
    return plain(parts, y)


def pulled_forward(parts: Any, y: Array) -> Any:
    return pulled(parts, y), (parts, y, np.cos(parts["a"]))


def pulled_backward(residuals: Any, bars: Any) -> Any:
    parts, y, cosine = residuals
    first, second = bars
    return (
        {"a": first * cosine * y + second * parts["b"], "b": second * parts["a"]},
        (first * np.sin(parts["a"])).sum(axis=0),
    )


pulled.define(pulled_forward, pulled_backward)


@pb.custom_pushforward
def pushed(parts: Any, y: Array) -> Any:
    return plain(parts, y)


@pushed.define
def pushed_rule(primals: Any, tangents: Any) -> Any:
    (parts, y), (along, dy) = primals, tangents
    a, b = parts["a"], parts["b"]
    return pushed(parts, y), (
        np.cos(a) * along["a"] * y + np.sin(a) * dy,
        (along["a"] * b + a * along["b"]).sum(),
    )


@pytest.fixture(params=[pulled, pushed], ids=["pullback", "pushforward"])
def rule(request: pytest.FixtureRequest) -> Any:
    return request.param


def loss(function: Any) -> Any:
    def of(x: Array, y: Array) -> Array:
        first, second = function({"a": np.tanh(x), "b": x * 2}, y)
        return (first**2).sum() * second

    return of


def assert_close(found: Any, wanted: Any, tolerance: float = 1e-11) -> None:
    for a, b in zip(pb.flatten(found)[0], pb.flatten(wanted)[0], strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * (1 + np.abs(b).max(initial=0)))


def test_derivatives_of_both_modes_and_orders(rule: Any) -> None:
    wanted = pb.value_and_grad(loss(plain), (0, 1))(X, Y)
    function = pb.value_and_grad(loss(rule), (0, 1))
    assert_close(function(X, Y), wanted)
    assert_close(pb.jit(function)(X, Y), wanted)
    along = np.cos(X), np.sin(Y)
    assert_close(pb.jvp(loss(rule), (X, Y), along), pb.jvp(loss(plain), (X, Y), along))

    def slope(each: Any) -> Any:
        return pb.grad(
            lambda x, y: sum((g * np.cos(g)).sum() for g in pb.grad(loss(each), (0, 1))(x, y)), (0, 1)
        )

    assert_close(slope(rule)(X, Y), slope(plain)(X, Y))
    assert_close(pb.jit(slope(rule))(X, Y), slope(plain)(X, Y), 1e-10)
    check_grads(loss(rule), [X, Y])


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_batches(rule: Any, axes: Any) -> None:
    given = [p if axis is None else np.stack([p, -p]) for p, axis in zip((X, Y), axes)]
    for each in (lambda f: pb.vmap(pb.grad(f, (0, 1)), axes), lambda f: pb.grad(total(f, axes), (0, 1))):
        wanted = each(loss(plain))(*given)
        assert_close(each(loss(rule))(*given), wanted)
        assert_close(pb.jit(each(loss(rule)))(*given), wanted)


def total(function: Any, axes: Any) -> Any:
    return lambda *given: pb.vmap(function, axes)(*given).sum()


def test_inside_loops_branches_and_checkpoints(rule: Any) -> None:
    def looped(function: Any) -> Any:
        def step(h: Array, row: Array) -> Any:
            a, b = pb.cond(
                row[0] > 0, lambda: function({"a": h, "b": h * row}, row), lambda: (h * 1.5, row.sum())
            )
            return np.tanh(a), b

        return lambda x: sum(part.sum() for part in pb.scan(pb.checkpoint(step), x[:1] * 0 + 1, x))

    wanted = pb.grad(looped(plain))(X)
    assert_close(pb.grad(looped(rule))(X), wanted)
    assert_close(pb.jit(pb.grad(looped(rule)))(X), wanted)


def test_stages_and_the_key(rule: Any, described: Processor) -> None:
    graph = pb.trace(lambda x, y: (loss(rule)(x, y), pb.grad(loss(rule))(x, y)), X, Y).graph
    check_stages(graph, [X, Y], described)
    bare = without_rules(graph)
    names = {node.operator.name for node in every_node(bare) if isinstance(node, Operation)}
    assert "sin" in names and names.isdisjoint({"custom", "no_derivative"})
    assert graph_key(bare, {}) is not None


def test_the_rule_is_what_counts() -> None:
    @pb.custom_pullback
    def reversed_gradient(x: Array) -> Array:
        return x

    reversed_gradient.define(lambda x: (x, None), lambda _, bar: (-bar,))
    assert pb.grad(lambda x: (reversed_gradient(x) ** 2).sum())(Y).tolist() == (-2 * Y).tolist()
    with pytest.raises(AssertionError, match="reverse mode"):
        check_grads(lambda x: reversed_gradient(x) ** 2, [Y])


def test_static_arguments_and_integers() -> None:
    def power(x: Array, name: str, k: Array) -> Array:
        assert name == "named"
        return x**2 * k

    squared = pb.custom_pullback(power, static_argnums=1)
    squared.define(
        lambda x, name, k: (power(x, name, k), (x, k)),
        lambda name, rest, bar: (bar * 2 * rest[0] * rest[1], None),
    )
    found = pb.grad(lambda x: squared(x, "named", np.int64(3)).sum())(Y)
    assert_close(found, 6 * Y)
    assert squared(2.0, "named", 3) == 12.0


def fixed_point(f: Any, a: Array, guess: Array) -> Array:
    def apart(pair: Any) -> Array:
        return np.abs(pair[0] - pair[1]).max() > 1e-13

    return pb.while_loop(apart, lambda pair: (f(a, pair[0]), pair[0]), (f(a, guess), guess))[0]


solve = pb.custom_pullback(fixed_point, static_argnums=0)


def solve_forward(f: Any, a: Array, guess: Array) -> Any:
    x = solve(f, a, guess)
    return x, (a, x)


def solve_backward(f: Any, residuals: Any, bar: Array) -> Any:
    a, x = residuals

    def transposed(arguments: Any, w: Array) -> Array:
        a, x, bar = arguments
        return bar + pb.vjp(lambda x: f(a, x), x)[1](w)[0]

    w = solve(transposed, (a, x, bar), bar)
    return pb.vjp(lambda a: f(a, x), a)[1](w)[0], None


solve.define(solve_forward, solve_backward)


def test_a_fixed_point_is_differentiated_implicitly() -> None:
    w = RANDOM.normal(size=(4, 4)) * 0.2

    def contraction(w: Array, x: Array) -> Array:
        return np.tanh(w @ x + Y)

    def implicit(w: Array) -> Array:
        return (solve(contraction, w, Y) ** 2).sum()

    def unrolled(w: Array) -> Array:
        return (pb.fori_loop(0, 100, lambda _, x: contraction(w, x), Y) ** 2).sum()

    for function in (implicit, pb.jit(implicit)):
        assert_close(function(w), unrolled(w), 1e-9)
    for transform in (pb.grad, lambda f: pb.grad(lambda w: (pb.grad(f)(w) ** 2).sum()), pb.hessian):
        wanted = transform(unrolled)(w)
        assert_close(transform(implicit)(w), wanted, 1e-8)
        assert_close(pb.jit(transform(implicit))(w), wanted, 1e-8)
    several = np.stack([w, w / 2])
    assert_close(
        pb.vmap(pb.grad(implicit))(several), np.stack([pb.grad(unrolled)(each) for each in several]), 1e-8
    )


def test_a_solver_is_compiled_once_for_value_and_gradient() -> None:
    graph = pb.trace(
        pb.value_and_grad(lambda a: solve(lambda a, x: (x + a / x) / 2, a, a)), np.float64(2)
    ).graph
    report = make_executable(graph, {}).report([np.float64(2)])
    assert report.optimised.count("= while(") == 2  # the root, and the transposed equation


def test_errors_tell_what_the_rule_must_give() -> None:
    def ruled(backward: Any, forward: Any = lambda x: (x * 2, None)) -> Any:
        return pb.custom_pullback(lambda x: x * 2).define(forward, backward)

    def gradient(function: Any) -> Any:
        return pb.grad(lambda x: function(x).sum())(Y)

    with pytest.raises(TreeError, match=r"a tuple with a cotangent for each of 1.*test_custom"):
        gradient(ruled(lambda _, bar: bar))
    with pytest.raises(ShapeError, match=r"cotangent of argument 0 is float64\[\]; it must be float64\[4\]"):
        gradient(ruled(lambda _, bar: (bar.sum(),)))
    with pytest.raises(DTypeError, match=r"argument 0 is float32\[4\]; it must be float64\[4\].*astype"):
        gradient(ruled(lambda _, bar: (bar.astype(np.float32),)))
    with pytest.raises(TreeError, match=r"another structure"):
        gradient(ruled(lambda _, bar: ({"x": bar},)))
    with pytest.raises(TreeError, match=r"forward returns \(value, residuals\)"):
        gradient(ruled(lambda _, bar: (bar,), lambda x: x))
    with pytest.raises(ShapeError, match=r"what forward gives is float64\[\]; it must be float64\[4\]"):
        gradient(ruled(lambda _, bar: (bar,), lambda x: (x.sum(), None)))
    with pytest.raises(DerivativeError, match=r"its rule is not given; give it with .define"):
        gradient(pb.custom_pullback(lambda x: x))
    square = pb.custom_pushforward(lambda x: x)
    square.define(lambda primals, tangents: (primals[0], tangents[0] ** 2))
    with pytest.raises(DerivativeError, match="not linear in the tangents"):
        gradient(square)
    clipped = ruled(lambda _, bar: (np.clip(bar, -1, 1),))
    x = np.ones(4)
    with pytest.raises(DerivativeError, match="not linear in its cotangent"):
        pb.jvp(clipped, (x,), (x,))
    with pytest.raises(DerivativeError, match="the rule of a custom_pullback is not linear"):
        pb.jvp(lambda x: pb.while_loop(lambda y: y.sum() < 9, lambda y: y * 2, clipped(x)), (x,), (x,))


def test_what_is_closed_over_has_no_derivative() -> None:
    def outer(x: Array) -> Array:
        inner = pb.custom_pullback(lambda y: y * x).define(lambda y: (y * x, None), lambda _, bar: (bar * x,))
        return inner(x * 2).sum()

    with pytest.raises(DerivativeError, match=r"closes over.*make it an argument.*test_custom"):
        pb.grad(outer)(Y)
    assert_close(pb.jit(outer)(Y), (2 * Y**2).sum())


def test_a_third_function_is_forward_mode():
    """Where the pullback is crooked: clipped cotangents, and tangents as they are."""

    @pb.custom_pullback
    def clipped(x, factor):
        return x * factor

    clipped.define(
        lambda x, factor: (x * factor, factor),
        lambda factor, bar: (np.clip(bar * factor, -1, 1), None),
        lambda primals, tangents: (primals[0] * primals[1], tangents[0] * primals[1]),
    )
    x, factor = np.array([1.0, 2.0]), np.array([0.5, 3.0])
    for run in (lambda f: f, pb.jit):
        np.testing.assert_array_equal(run(pb.grad(lambda x: clipped(x, factor).sum()))(x), [0.5, 1.0])
        np.testing.assert_array_equal(run(pb.jacobian(clipped, mode="forward"))(x, factor), np.diag(factor))
        np.testing.assert_array_equal(run(lambda x: pb.jvp(pb.vmap(clipped), (x, x), (x, x))[1])(x), x * x)
