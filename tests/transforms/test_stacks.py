"""Transformations, ``jit`` and control flow in any order, against NumPy and differences: as a user stacks them."""

from __future__ import annotations

import collections
import dataclasses
import functools
from types import SimpleNamespace

import numpy as np
import pytest

import pullback as pb
from pullback import nn

random = np.random.default_rng(0)
W = random.normal(size=(4, 4)) / 2
X = random.normal(size=4)
XS = random.normal(size=(6, 4))


def slopes(f, x, step=1e-5):
    """The derivatives of ``f`` by differences, the axes of ``x`` last."""
    x = np.asarray(x, float)
    columns = []
    for place in np.ndindex(x.shape):
        moved = np.zeros_like(x)
        moved[place] = step
        columns.append((np.asarray(f(x + moved)) - np.asarray(f(x - moved))) / (2 * step))
    return np.moveaxis(np.array(columns), 0, -1).reshape(np.shape(f(x)) + x.shape)


def close(found, wanted, tolerance=1e-6):
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def step(w, h, x):
    return np.tanh(w @ h + x)


def recurrent(w, xs):
    return (pb.scan(lambda h, x: (step(w, h, x), None), np.zeros(4), xs)[0] ** 2).sum()


def recurrent_by_numpy(w, xs):
    h = np.zeros(4)
    for x in xs:
        h = np.tanh(w @ h + x)
    return (h**2).sum()


def energy(x):
    return (np.tanh(W @ x) ** 2).sum()


def layer(x):
    return np.tanh(W @ x)


SLOPE = slopes(lambda w: recurrent_by_numpy(w, XS), W)
BENT = slopes(lambda x: slopes(energy, x, 1e-4), X, 1e-4) @ XS[0]
J = slopes(layer, X)
STACKS = {
    "grad of a scan of a step": (
        lambda f: pb.grad(
            lambda w: (pb.scan(lambda h, x: (f.step(w, h, x), None), np.zeros(4), XS)[0] ** 2).sum()
        )(W),
        SLOPE,
    ),
    "vmap of grad of scan": (
        lambda f: pb.vmap(pb.grad(f.recurrent), (None, 0))(W, np.stack([XS, XS]))[1],
        SLOPE,
    ),
    "jit of vmap of grad of scan": (
        lambda f: pb.jit(pb.vmap(pb.grad(f.recurrent), (None, 0)))(W, XS[None])[0],
        SLOPE,
    ),
    "jvp of vjp": (
        lambda f: pb.jvp(lambda x: pb.vjp(f.energy, x)[1](1.0)[0], (X,), (XS[0],))[1],
        BENT,
    ),
    "vjp of jvp": (
        lambda f: pb.vjp(lambda x: pb.jvp(f.energy, (x,), (XS[0],))[1] * 1.0, X)[1](1.0)[0],
        BENT,
    ),
    "jit of jvp of vjp": (
        lambda f: pb.jit(lambda x: pb.jvp(lambda x: pb.vjp(f.energy, x)[1](1.0)[0], (x,), (XS[0],))[1])(X),
        BENT,
    ),
    "hessian of more": (lambda f: pb.hessian(lambda x: f.energy(x) * 1.0)(X) @ XS[0], BENT),
    "vmap of a pushforward": (lambda f: pb.vmap(pb.linearize(f.layer, X)[1])(np.eye(4)).T, J),
    "jacobian of a pushforward": (lambda f: pb.jacobian(pb.linearize(f.layer, X)[1])(X), J),
    "vmap of a pullback": (lambda f: pb.vmap(pb.vjp(f.layer, X)[1])(np.eye(4))[0], J),
    "jit of vmap of a pullback": (lambda f: pb.jit(pb.vmap(pb.vjp(f.layer, X)[1]))(np.eye(4))[0], J),
    "linearize inside": (lambda f: pb.vmap(lambda v: pb.linearize(f.layer, X)[1](v) * 1.0)(np.eye(4)).T, J),
    "third derivatives": (
        lambda f: pb.grad(lambda x: pb.grad(lambda y: pb.grad(f.sine)(y) * 1.0)(x) * 1.0)(0.3),
        -np.cos(0.3),
    ),
}
FUNCTIONS = {"step": step, "recurrent": recurrent, "energy": energy, "layer": layer, "sine": np.sin}


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize(("stack", "wanted"), STACKS.values(), ids=STACKS)
def test_stacks(stack, wanted, compiled):
    functions = {name: pb.jit(f) if compiled else f for name, f in FUNCTIONS.items()}
    close(stack(SimpleNamespace(**functions)), wanted, 1e-4)


def test_training_through_steps_of_gradients():
    """Meta-learning: the gradient through steps that take gradients of a compiled loss."""
    targets = np.ones(6)
    loss = pb.jit(lambda w, x, t: np.mean((np.tanh(x @ w) - t) ** 2))

    def outer(w):
        for _ in range(3):
            w = w - 0.1 * pb.grad(loss)(w, XS, targets)
        return loss(w, XS, targets)

    def by_numpy(w):
        for _ in range(3):
            h = np.tanh(XS @ w)
            w = w - 0.1 * (2 / 6 * ((h - targets) * (1 - h**2)) @ XS)
        return np.mean((np.tanh(XS @ w) - targets) ** 2)

    close(pb.grad(outer)(X), slopes(by_numpy, X))
    close(pb.vmap(pb.grad(outer))(XS[:2]), [slopes(by_numpy, x) for x in XS[:2]])


def test_a_long_loop_of_python_calls_a_compiled_step():
    step = pb.jit(lambda h, x: np.tanh(W @ h + x))

    def run(step, scale):
        h = np.zeros(4)
        for k in range(100):
            h = step(h * scale, XS[k % 6])
        return (h**2).sum()

    by_numpy = functools.partial(run, step.function)
    scales = np.array([1.0, 1.1])
    close(pb.grad(lambda s: run(step, s))(1.1), slopes(by_numpy, 1.1))
    close(pb.vmap(lambda s: run(step, s))(scales), [by_numpy(s) for s in scales])
    close(pb.vmap(pb.grad(lambda s: run(step, s)))(scales), [slopes(by_numpy, s) for s in scales])
    assert step.traces == 1


def test_python_looks_at_what_a_compiled_function_gives():
    square = pb.jit(lambda x: (x**2).sum())

    def halved(square, x):
        total = 0.0
        while square(x) > 1:
            x = x / 2
            total = total + square(x)
        return total

    close(pb.grad(lambda x: halved(square, x))(3 * X), slopes(lambda x: halved(square.function, x), 3 * X))
    assert pb.grad(lambda x: square(x) * float(square(x)))(X) == pytest.approx(2 * X * (X**2).sum())
    seen = []
    pb.grad(lambda x: (seen.append(f"{square(x)}"), square(x))[1])(X)
    assert float(seen[0]) == pytest.approx((X**2).sum())


def test_rules_of_the_users():
    @pb.custom_pullback
    def scaled(x, y):
        return np.sin(x) * y

    scaled.define(
        lambda x, y: (scaled(x, y), (x, y)),
        lambda kept, bar: (2 * bar * np.cos(kept[0]) * kept[1], bar * np.sin(kept[0])),
    )
    wanted = 2 * np.cos(X) * 3.0  # twice the derivative, so that nobody mistakes whose it is
    for f in (scaled, pb.jit(scaled)):
        close(pb.vmap(pb.grad(f), (0, None))(X, 3.0), wanted)
        close(pb.grad(lambda x, f=f: pb.vmap(f, (0, None))(x, 3.0).sum())(X), wanted)
        close(pb.jit(pb.vmap(pb.grad(f), (0, None)))(X, 3.0), wanted)
        close(pb.linearize(lambda x, f=f: f(x, 3.0), 0.7)[1](1.0), 6 * np.cos(0.7))
        close(pb.vmap(pb.vmap(f, (0, None)), (None, 0))(X, X), np.outer(X, np.sin(X)))

    @pb.custom_pushforward
    def softplus(x):
        return np.log1p(np.exp(x))

    softplus.define(lambda x, t: (softplus(x[0]), t[0] / (1 + np.exp(-x[0]))))
    s = 1 / (1 + np.exp(-X))
    for f in (softplus, pb.jit(softplus)):
        close(pb.vmap(pb.grad(pb.grad(f)))(X), s * (1 - s))
        close(pb.jacobian(lambda x, f=f: f(x) * 1.0)(X), np.diag(s))
        close(pb.hvp(lambda x, f=f: f(x).sum(), (X,), (X,))[1][0], s * (1 - s) * X)


def test_checkpoints():
    f = pb.checkpoint(layer)
    loss = lambda x: (f(f(f(x))) ** 2).sum()  # noqa: E731
    wanted = slopes(lambda x: (layer(layer(layer(x))) ** 2).sum(), X)
    compiled = pb.jit(loss)
    for g in (pb.grad(loss), pb.jit(pb.grad(loss)), pb.grad(compiled), pb.grad(lambda x: compiled(x) * 1.0)):
        close(g(X), wanted)
    close(pb.grad(pb.checkpoint(compiled))(X), wanted)


@pytest.mark.parametrize("jit", [lambda f: f, pb.jit], ids=["plain", "compiled"])
def test_choices_and_loops(jit):
    split = jit(lambda x: pb.cond(x > 0, lambda x: x**2, lambda x: -x, x))
    close(pb.vmap(pb.grad(split))(X), np.where(X > 0, 2 * X, -1))
    close(pb.vmap(pb.grad(lambda y: split(y) * 1.0))(X), np.where(X > 0, 2 * X, -1))
    chosen = jit(lambda k, x: pb.switch(k, [np.sin, np.cos, lambda x: x * 2], x))
    close(pb.vmap(pb.grad(chosen, 1))(np.arange(3), X[:3]), [np.cos(X[0]), -np.sin(X[1]), 2])
    doubled = jit(lambda x: pb.while_loop(lambda c: c[0] < 10, lambda c: (c[0] * 2, c[1] + 1), (x, 0.0))[1])
    close(pb.vmap(lambda x: doubled(x) * 1.0)(np.array([1.0, 3.0, 20.0])), [4, 2, 0])


@pytest.mark.parametrize("jit", [lambda f: f, pb.jit], ids=["plain", "compiled"])
def test_extra_results_everywhere(jit):
    loss = jit(lambda x: ((x**2).sum(), {"double": x * 2, "more": (None, 3.5)}))
    value = jit(lambda x: (x**2, {"double": x * 2}))
    extras = [
        pb.grad(loss, has_aux=True)(X)[1],
        pb.value_and_grad(loss, has_aux=True)(X)[0][1],
        pb.vjp(value, X, has_aux=True)[2],
        pb.jvp(value, (X,), (X,), has_aux=True)[2],
        pb.linearize(value, X, has_aux=True)[2],
        pb.jacobian(value, has_aux=True)(X)[1],
        pb.hessian(loss, has_aux=True)(X)[1],
        pb.hvp(loss, (X,), (X,), has_aux=True)[2],
    ]
    for extra in extras:
        close(extra["double"], 2 * X)
    found, extra = pb.vmap(pb.grad(loss, has_aux=True))(XS)
    close(found, 2 * XS)
    close(extra["double"], 2 * XS)
    assert extra["more"][0] is None


Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Point:
    x: object
    y: object


@pytest.mark.parametrize("jit", [lambda f: f, pb.jit], ids=["plain", "compiled"])
def test_trees(jit):
    pair = Pair(X, [XS[0], {"k": (2.0,), "none": None}])
    found = pb.grad(jit(lambda t: (t.a * t.b[0]).sum() * t.b[1]["k"][0]))(pair)
    assert type(found) is Pair and found.b[1]["none"] is None
    close(found.a, 2 * XS[0])
    close(found.b[1]["k"][0], (X * XS[0]).sum())
    f = jit(lambda p: (p.x * p.y**2).sum())
    assert type(pb.grad(f)(Point(X, X))) is Point
    close(pb.vmap(f, in_axes=(Point(0, None),))(Point(XS, X)), (XS * X**2).sum(1))
    close(pb.vmap(lambda p: f(p) * 1.0, in_axes=(Point(0, None),))(Point(XS, X)), (XS * X**2).sum(1))
    by_name = jit(lambda a, b, c: (a["x"] * b).sum() * c)
    of_a, of_c = pb.grad(by_name, ("a", "c"))({"x": X, "n": None}, XS[0], c=3.0)
    assert of_a["n"] is None
    close(of_a["x"], 3 * XS[0])
    close(of_c, (X * XS[0]).sum())
    rows, (sums, tables) = pb.vmap(jit(lambda x: (x, (x.sum(), np.outer(x, x)))), out_axes=(1, (0, 2)))(XS)
    close(rows, XS.T)
    close(sums, XS.sum(1))
    close(tables, np.einsum("ni,nj->ijn", XS, XS))
    axes = ({"w": 0, "s": None}, 0)
    p = {"w": random.normal(size=(6, 3, 4)), "s": 2.0}
    jacobian = pb.jacobian(jit(lambda p, x: {"y": np.tanh(p["w"] @ x) * p["s"]}), 1)
    wanted = [slopes(lambda x, w=w: np.tanh(w @ x) * 2.0, x) for w, x in zip(p["w"], XS)]
    for g in (pb.vmap(jacobian, in_axes=axes), pb.jit(pb.vmap(jacobian, in_axes=axes))):
        close(g(p, XS)["y"], wanted)


@pytest.mark.parametrize("jit", [lambda f: f, pb.jit], ids=["plain", "compiled"])
def test_results_that_are_arguments_or_constants(jit):
    """What comes back is the caller's own: nothing else changes when it is written."""
    same = jit(lambda x: (x, x, x * 2))
    one, other, _ = pb.vmap(lambda x: same(x))(XS)  # noqa: PLW0108
    one[:] = 9
    close(other, XS)
    (first, _, _), pull = pb.vjp(same, X)
    first[:] = 99
    close(pull((np.ones(4),) * 3)[0], 4 * np.ones(4))
    growing = jit(np.exp)
    value, pull = pb.vjp(lambda x: growing(x), X)  # noqa: PLW0108
    value[:] = 0
    for _ in range(2):
        close(pull(np.ones(4))[0], np.exp(X))
    three = jit(lambda x: 3.0)
    close(pb.grad(lambda x: three(x) + x.sum())(X), np.ones(4))
    close(pb.vmap(lambda x: three(x) * 2)(XS), np.full(6, 6.0))
    unused = jit(lambda x, y: (x**2).sum())
    close(pb.grad(lambda x, y: unused(x, y) * 1.0, 1)(X, XS), np.zeros((6, 4)))
    counted = jit(lambda x: (x.sum(), np.argmax(x)))
    (_, place), (tangent, zero) = pb.jvp(lambda x: counted(x), (X,), (X,))  # noqa: PLW0108
    assert (place, zero) == (X.argmax(), 0)
    close(tangent, X.sum())


def test_writes_into_what_a_compiled_function_gives():
    double = pb.jit(lambda x: x * 2)

    def f(double, x):
        y = double(x)
        y[0] = y[1] * 3
        y *= 2
        return (y**2).sum()

    close(pb.grad(lambda x: f(double, x))(X), slopes(lambda x: f(double.function, x), X))
    close(pb.vmap(lambda x: f(double, x))(XS), [f(double.function, x) for x in XS])


def test_a_model_is_an_argument():
    model = nn.Chain(nn.Dense(4, 8), np.tanh, nn.Dense(8, 1))
    x, y = XS.astype(np.float32), np.ones((6, 1), np.float32)
    loss = pb.jit(lambda model, x, y: np.mean((model(x) - y) ** 2))
    wanted = pb.flatten(pb.grad(loss.function)(model, x, y))[0]
    found = pb.flatten(pb.grad(lambda model: loss(model, x, y))(model))[0]
    each = pb.flatten(pb.vmap(pb.grad(loss), (None, 0, 0))(model, x[:, None], y[:, None]))[0]
    for one, other, rows in zip(wanted, found, each):
        assert one.dtype == other.dtype == rows.dtype == np.float32
        close(other, one, 1e-5)
        close(rows.mean(0), one, 1e-5)


def test_a_compiled_function_is_a_method():
    @dataclasses.dataclass
    class Scale:
        by: object

        @pb.jit
        def loss(self, x):
            return (self.by * x**2).sum()

        @pb.grad
        @pb.jit
        def slope(self, x):
            return (self.by * x**2).sum()

    scale = Scale(XS[0])
    close(scale.loss(X), (XS[0] * X**2).sum())
    close(scale.slope(X).by, X**2)
    close(pb.grad(scale.loss)(X), 2 * XS[0] * X)
    close(pb.vmap(scale.loss)(XS), (XS[0] * XS**2).sum(1))
