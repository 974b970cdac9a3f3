"""Compiled functions within transformations that are called from Python: the same values, by programs made once."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import pullback as pb
from pullback.compiler.jit import compiled, inside
from pullback.control.compiled import MOST_DERIVED
from pullback.errors import DerivativeError, IndexRangeError, NaNError, RetraceError, TracingError
from pullback.graph.node import forget_dead
from pullback.tracing.trees import flatten

P = {"w": np.linspace(-1, 1, 12).reshape(3, 4), "b": np.arange(4.0) / 4}
X = np.array([0.1, 0.2, -0.3])
XS = np.linspace(-1, 1, 15).reshape(5, 3)


def layer(p, x):
    hidden = np.tanh(x @ p["w"] + p["b"])
    return {"hidden": hidden, "square": (hidden**2).sum()}


def loss_of(f):
    return lambda p, x: f(p, x)["square"] * 2 + f(p, x)["hidden"].sum()


def pulled(f, *arguments):
    value, pull = pb.vjp(f, *arguments)
    return value, pull(value)


def pushed(f, *arguments):
    value, push = pb.linearize(f, *arguments)
    return value, push(*arguments)


USES = {
    "vmap": lambda f: pb.vmap(f, (None, 0))(P, XS),
    "vmap of vmap": lambda f: pb.vmap(pb.vmap(f, (None, 0)), (None, 0))(P, np.stack([XS, 2 * XS])),
    "vmap of more": lambda f: pb.vmap(lambda x: f(P, x)["hidden"] * x[0])(XS),
    "grad": lambda f: pb.grad(loss_of(f))(P, X),
    "value_and_grad": lambda f: pb.value_and_grad(loss_of(f), (0, 1))(P, X),
    "grad with more": lambda f: pb.grad(lambda p: (f(p, X)["square"], f(p, X)), has_aux=True)(P),
    "vjp": lambda f: pulled(f, P, X),
    "jvp": lambda f: pb.jvp(f, (P, X), (P, X)),
    "jvp of more": lambda f: pb.jvp(lambda x: f(P, x)["square"] * x, (X,), (X,)),
    "linearize": lambda f: pushed(f, P, X),
    "jacobian": lambda f: pb.jacobian(f, 1)(P, X),
    "jacobian of more": lambda f: pb.jacobian(lambda x: f(P, x)["hidden"] * x[0], mode="reverse", chunk=2)(X),
    "columns": lambda f: pb.jacobian(lambda x: f(P, x)["hidden"] * x[0], mode="forward")(X),
    "hessian": lambda f: pb.hessian(loss_of(f), 1)(P, X),
    "hvp": lambda f: pb.hvp(loss_of(f), (P, X), (P, X)),
    "grad of grad": lambda f: pb.grad(lambda p: (pb.grad(loss_of(f), 1)(p, X) ** 2).sum())(P),
    "vmap of grad": lambda f: pb.vmap(pb.value_and_grad(loss_of(f)), (None, 0))(P, XS),
    "vmap of hessian": lambda f: pb.vmap(pb.hessian(loss_of(f), 1), (None, 0))(P, XS),
    "grad of vmap": lambda f: pb.value_and_grad(lambda p: pb.vmap(f, (None, 0))(p, XS)["square"].sum())(P),
    "jvp of vjp": lambda f: pb.jvp(lambda x: pulled(f, P, x)[1][1], (X,), (X,)),
    "taylor": lambda f: pb.taylor(lambda x: f(P, x), (X,), ([X, X, X],)),
    "taylor of it": lambda f: pb.taylor(lambda x: f(P, x), (X,), ([X, X, X],)),
    "scan": lambda f: pb.grad(lambda p: pb.scan(lambda c, x: (c + f(p, x)["square"], x), 0.0, XS)[0])(P),
    "checkpoint": lambda f: pb.grad(lambda p: pb.checkpoint(f)(p, X)["square"])(P),
    "jit of a pushforward": lambda f: pb.jit(pb.linearize(f, P, X)[1])(P, X),
    "a choice outside": lambda f: pb.grad(lambda p: f(p, X)["square"] if f(p, X)["square"] > 0 else 0.0)(P),
}


@pytest.fixture
def programs(monkeypatch):
    """The graphs that have been compiled."""
    found = []
    for module in (inside, compiled):
        original = module.make_executable

        def counting(graph, *arguments, original=original, **named):
            found.append(graph)
            return original(graph, *arguments, **named)

        monkeypatch.setattr(module, "make_executable", counting)
    return found


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_values_are_equal_and_programs_are_made_once(use, programs):
    calls = []

    def seen(p, x):
        calls.append(p)
        return layer(p, x)

    compiled = pb.jit(seen)
    wanted, structure = flatten(use(layer))
    made = []
    for _ in range(2):
        found, own = flatten(use(compiled))
        assert own == structure
        for one, other in zip(found, wanted):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)
            assert np.asarray(one).dtype == np.asarray(other).dtype
        if not {"jit", "taylor"} & {*use.__code__.co_names}:  # these trace it as a part of what they make
            made.append(len(programs))
            assert len(calls) == 1 and made[0] and made[-1] == made[0]


def test_a_transformation_of_a_compiled_function_is_a_compiled_function(programs):
    """One program for ``vmap(grad(jit(f)))``, and the same one for whoever writes it again."""
    loss = pb.jit(lambda w, x: np.sum(np.tanh(x @ w)))
    for _ in range(2):
        found = pb.vmap(pb.grad(loss), (None, 0))(np.ones(3), XS)
    np.testing.assert_allclose(found, pb.vmap(pb.grad(loss.function), (None, 0))(np.ones(3), XS))
    assert len(programs) == 1
    assert pb.grad(loss) is pb.grad(loss) and pb.grad(loss) is not pb.grad(loss, 1)
    assert pb.grad(loss).__name__ == loss.__name__
    by_list = [pb.vmap(loss, [None, 0])(np.ones(3), XS) for _ in range(2)]
    np.testing.assert_array_equal(*by_list)
    assert len(programs) == 2


def test_static_arguments():
    power = pb.jit(lambda x, n, *, times=1: (x**n).sum() * times, static_argnums=1, static_argnames="times")
    assert pb.grad(power)(XS, 3).tolist() == pytest.approx(3 * XS**2)
    for n in (2, 3, 2):
        assert pb.grad(lambda x, n=n: power(x, n, times=2))(XS) == pytest.approx(2 * n * XS ** (n - 1))
        assert pb.vmap(lambda x, n=n: power(x, n))(XS) == pytest.approx((XS**n).sum(1))
        assert pb.vmap(power, (0, None))(XS, n) == pytest.approx((XS**n).sum(1))
        assert pb.jvp(lambda x, n=n: power(x, n), (XS,), (XS,))[1] == pytest.approx(n * (XS**n).sum())
    assert power.traces == 6


def test_nothing_is_donated():
    step = pb.jit(lambda w, x: w - 0.1 * x, donate_argnums=0)
    w, x = np.ones(3), XS.copy()
    pb.vmap(step, (None, 0))(w, x)
    pb.vmap(step)(x, x)
    pb.grad(lambda w: step(w, X).sum())(w)
    np.testing.assert_array_equal(w, 1.0)
    np.testing.assert_array_equal(x, XS)


def test_a_function_that_closes_over_traced_values():
    assert pb.grad(lambda a: pb.jit(lambda x: a * x)(a))(3.0) == 6.0
    assert pb.grad(lambda a: pb.jit(lambda x: a * x)(2.0))(3.0) == 2.0
    assert pb.jit(pb.grad(lambda a: pb.jit(lambda x: a * x)(2.0)))(3.0) == 2.0
    found = pb.vmap(lambda a: pb.jit(lambda x: a * x)(X))(np.arange(2.0))
    np.testing.assert_array_equal(found, np.outer(np.arange(2.0), X))


def test_examples_that_know_of_each_other():
    centred = pb.jit(lambda x: x - pb.pmean(x, "rows") + pb.axis_index("rows"))
    for size in (5, 3):
        found = pb.vmap(lambda x: centred(x) * 1.0, axis_name="rows")(XS[:size])
        np.testing.assert_allclose(found, XS[:size] - XS[:size].mean(0) + np.arange(size)[:, None])
        np.testing.assert_allclose(pb.vmap(centred, axis_name="rows")(XS[:size]), found)


def test_forward_mode_alone():
    halved = pb.jit(lambda x: pb.while_loop(lambda x: x > 1, lambda x: x / 2, x))
    for f in (lambda x: halved(x) * 1.0, halved):
        value, tangent = pb.jvp(f, (12.0,), (1.0,))
        assert (float(value), float(tangent)) == (0.75, 0.0625)
        with pytest.raises(DerivativeError, match="while"):
            pb.grad(f)(12.0)
    assert pb.jacobian(lambda x: halved(x) * 1.0, mode="forward")(12.0) == 0.0625


def test_rules_and_calls_of_the_users():
    calls = []

    def looked_up(x):
        calls.append(x)
        return np.sin(x)

    @pb.custom_pullback
    def sine(x):
        return pb.pure_callback(looked_up, np.empty(3), x)

    sine.define(lambda x: (sine(x), x), lambda x, g: (g * np.cos(x),))
    compiled = pb.jit(lambda x: (sine(x) ** 2).sum())
    slope = pb.value_and_grad(lambda x: compiled(x) * 1.0)(X)[1]
    assert len(calls) == 1
    np.testing.assert_allclose(slope, np.sin(2 * X))
    np.testing.assert_allclose(pb.vmap(lambda x: compiled(x) * 1.0)(XS), (np.sin(XS) ** 2).sum(1))


def test_errors_name_the_lines():
    @pb.jit
    def picked(x, k):
        return x[k] * 2

    first = picked.function.__code__.co_firstlineno
    for f in (lambda x: picked(x, 7), lambda x: pb.vmap(lambda k: picked(x, k))(np.array([0, 7]))[0]):
        with pytest.raises(
            IndexRangeError, match=rf"7 (at position .*)?is outside -3 to 2.*\n.*:{first + 2} in picked"
        ):
            pb.grad(f)(X)
    with pytest.raises(TracingError, match="stands for every value"):
        pb.grad(lambda x: pb.jit(lambda x: x if x > 0 else -x)(x) * 1.0)(1.0)


def test_within_disable_jit_values_are_known():
    seen = []

    @pb.jit
    def looking(x):
        seen.append(float(x) > 0)
        return x * x

    with pb.disable_jit():
        assert pb.grad(lambda x: looking(x) * 2)(3.0) == 12.0
        assert pb.grad(looking)(3.0) == 6.0
    assert seen == [True, True]


def test_checks_of_jit_hold():
    root = pb.jit(np.sqrt, check_nan=True)
    with pytest.raises(NaNError, match="sqrt gives NaN"):
        pb.vmap(lambda x: root(x) * 1.0)(np.array([1.0, -1.0]))
    once = pb.jit(lambda x: x * 2, max_traces=1)
    assert pb.vmap(lambda x: once(x) + 1)(X) == pytest.approx(2 * X + 1)
    assert once(1.0 * X[0]) == 2 * X[0]
    with pytest.raises(RetraceError):
        pb.grad(lambda x: once(x).sum())(X)
    small = np.float32(1e-20)
    flushed = pb.jit(lambda x: x * x, flush_subnormals=True)
    assert pb.vmap(lambda x: flushed(x) * 1)(np.array([small]))[0] == flushed(small)


def test_what_is_remembered_is_bounded_and_goes_with_the_function():
    compiled = pb.jit(lambda x: x + 1)
    for use in (lambda f: pb.vmap(lambda x: f(x) * 1.0)(X), lambda f: pb.value_and_grad(f)(1.0)):
        use(compiled)
    body = next(iter(compiled._inside.known.values()))[0]
    for size in range(MOST_DERIVED + 5):
        body.remembered(("test", size), lambda size=size: size)
        pb.vmap(compiled, axis_size=size)
    assert len(body._derived) == len(compiled._transformed) == MOST_DERIVED
    watched = weakref.ref(body)
    del compiled, body
    forget_dead()  # as the next program that is made does
    gc.collect()
    assert watched() is None


@pytest.mark.parametrize("number", [2, 3])
def test_masks_hide_infinite_slopes_from_higher_derivatives(number):
    """What a pullback reads is computed anew where it is differentiated itself: a saved value has lost its mask."""

    def program(x):
        root = np.cbrt(x)
        return np.where(root > 1, np.arccosh(root), 0.0)

    def derivative(function, number):
        if not number:
            return lambda x: function(x) ** 3
        before = derivative(function, number - 1)
        return pb.grad(lambda x: np.sum(before(x)))

    inside, x = pb.jit(program), np.array([-2.0, 0.0, 4.0, 8.0])
    plain = derivative(program, number)(x)
    assert np.isfinite(plain).all()
    assert derivative(lambda x: inside(x) * 1.0, number)(x) == pytest.approx(plain)
