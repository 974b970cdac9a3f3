"""Taylor coefficients against nested derivatives, and against series that are known."""

from math import factorial
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import DerivativeError, TreeError
from pullback.scipy import special

WEIGHTS = np.random.default_rng(0).normal(size=(3, 3))

NUMBERS = {
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "tan": np.tan,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "cube": lambda x: x**3,
    "power": lambda x: x**1.7,
    "quotient": lambda x: (1 + x**2) / (2 - np.sin(x)),
    "composed": lambda x: np.log1p(np.exp(-(x**2)) * np.cos(3 * x)),
    "inverse": np.arctan,
    "error": special.erf,
    "gamma": special.gammaln,
    "sigmoid": lambda x: pb.sigmoid(2 * x) * np.abs(x),
    "chosen": lambda x: np.where(x > 0.5, np.exp(x), x),
    "constant": lambda x: x * 0 + 2,
}


def nested(function: Any, x: Any, count: int) -> list[float]:
    found = []
    for k in range(1, count + 1):
        function = pb.grad(function)
        found.append(float(function(x)) / factorial(k))
    return found


@pytest.mark.parametrize("name", NUMBERS)
def test_of_numbers(name: str):
    function, line = NUMBERS[name], [1.0, 0.0, 0.0, 0.0]
    wanted = nested(function, 0.7, 4)
    for run in (lambda f: f, pb.jit):
        value, found = run(lambda x: pb.taylor(function, (x,), (line,)))(0.7)
        assert value == pytest.approx(float(function(0.7)))
        np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)


def test_known_series_of_high_order():
    count = 12
    line = [1.0] + [0.0] * (count - 1)
    _, found = pb.taylor(np.exp, (0.0,), (line,))
    np.testing.assert_allclose(found, [1 / factorial(k) for k in range(1, count + 1)], rtol=1e-12)
    _, found = pb.taylor(lambda x: -np.log(1 - x), (0.0,), (line,))
    np.testing.assert_allclose(found, [1 / k for k in range(1, count + 1)], rtol=1e-12)
    _, found = pb.taylor(np.arctan, (0.0,), (line,))
    np.testing.assert_allclose(
        found, [(k % 2) * (-1) ** (k // 2) / k for k in range(1, count + 1)], atol=1e-12
    )


@pytest.mark.parametrize("run", [lambda f: f, pb.jit])
def test_curves_of_trees(run: Any):
    """Against derivatives by ``t`` of the function on the curve."""
    random = np.random.default_rng(1)
    x, y = {"a": random.normal(size=3)}, 0.8
    xs = [{"a": random.normal(size=3)} for _ in range(3)]
    ys = [0.3, -0.2, 0.5]

    def function(x: Any, y: Any) -> Any:
        h = np.tanh(WEIGHTS @ x["a"] * y)
        sorted_h = np.sort(h)[::-1]
        return {
            "h": np.outer(h, sorted_h).sum(1),
            "max": np.max(h / y),
            "count": np.argmax(h),
            "free": np.ones(2),
        }

    def curve(t: Any) -> Any:
        moved = x["a"] + sum(c["a"] * t ** (k + 1) for k, c in enumerate(xs))
        return function({"a": moved}, y + sum(c * t ** (k + 1) for k, c in enumerate(ys)))

    value, found = run(lambda: pb.taylor(function, (x, y), (xs, ys)))()
    assert value["count"] == function(x, y)["count"] and found[1]["count"] == 0
    for key in ("h", "max"):
        along = lambda t, key=key: curve(t)[key]  # noqa: E731
        for k in range(3):
            along = pb.jacobian(along)
            np.testing.assert_allclose(found[k][key], along(0.0) / factorial(k + 1), rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(found[2]["free"], np.zeros(2))


def test_in_other_transformations():
    def third(x: Any) -> Any:
        return pb.taylor(np.sin, (x,), ([1.0, 0.0, 0.0],))[1][2] * 6

    x = np.array([0.3, 1.2])
    np.testing.assert_allclose(pb.vmap(third)(x), -np.cos(x))
    assert pb.grad(third)(0.3) == pytest.approx(np.sin(0.3))
    assert pb.jit(pb.grad(third))(0.3) == pytest.approx(np.sin(0.3))
    single = pb.taylor(np.exp, (np.float32(1),), ([np.float32(1), np.float32(0)],))[1]
    assert [c.dtype for c in single] == [np.float32] * 2
    assert pb.taylor(np.exp, (1.0,), ([],))[1] == []


def test_the_graph_grows_with_the_square_of_the_order():
    def size(count: int) -> int:
        line = [1.0] + [0.0] * (count - 1)
        function = lambda x: pb.taylor(lambda x: np.tanh(np.sin(x) * np.exp(x)), (x,), (line,))[1]  # noqa: E731
        return len(pb.trace(function, 0.5).graph.nodes())

    assert size(16) < 5 * size(8)


def test_what_is_refused():
    with pytest.raises(TreeError, match="taylor: 1 primals and 2 series"):
        pb.taylor(np.sin, (1.0,), ([1.0], [1.0]))
    with pytest.raises(TreeError, match=r"series of \[1, 2\] coefficients"):
        pb.taylor(np.add, (1.0, 1.0), ([1.0], [1.0, 2.0]))
    with pytest.raises(TreeError, match="tuples with an entry"):
        pb.taylor(np.sin, 1.0, [1.0])
    with pytest.raises(DerivativeError, match="coefficient 2 has shape"):
        pb.taylor(np.sin, (1.0,), ([1.0, np.ones(2)],))


LOOPS = {
    "scan": lambda x: pb.scan(lambda c, _: (np.sin(c) * x + c, None), x, length=3)[0],
    "steps": lambda x: np.sum(pb.scan(lambda c, v: (c * x + v, c * c), x, np.arange(3.0))[1]),
    "cond": lambda x: pb.cond(x > 0, lambda x: np.sin(x) * x, lambda x: x, x),
    "nested": lambda x: pb.scan(
        lambda c, _: (pb.scan(lambda d, _: (d * x + 0.1, None), c, length=2)[0], None), x, length=2
    )[0],
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_and_branches(name):
    slope, factor, wanted = LOOPS[name], 1, []
    for k in range(1, 4):
        factor *= k
        slope = lambda x, f=slope: pb.jvp(f, (x,), (1.0,))[1]  # noqa: E731
        wanted.append(float(slope(0.7)) / factor)
    for run in (lambda f: f, pb.jit):
        value, found = run(lambda x: pb.taylor(LOOPS[name], (x,), ([1.0, 0.0, 0.0],)))(0.7)
        assert value == pytest.approx(LOOPS[name](0.7))
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
