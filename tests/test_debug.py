"""Prints and breakpoints in traced functions, and the origin of NaN."""

import sys
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import debug
from pullback.errors import NaNError

X = np.array([1.0, 2.0])


def told(capsys: Any) -> list[str]:
    return capsys.readouterr().out.splitlines()


def watched(x: Any) -> Any:
    y = x * 2
    debug.print("x {}", x)
    debug.print("y {y}", y=y)
    return np.sum(y * x)


def test_plainly(capsys: Any):
    watched(X)
    debug.print("{0} {1:.2f} {kind}", "text", 1.5, kind={"a": 1})
    assert told(capsys) == ["x [1. 2.]", "y [2. 4.]", "text 1.50 {'a': 1}"]


@pytest.mark.parametrize("run", [lambda f: f, pb.jit])
def test_in_order_in_every_transformation(run: Any, capsys: Any):
    wanted = ["x [1. 2.]", "y [2. 4.]"]
    for function in (
        pb.grad(watched),
        pb.value_and_grad(watched),
        lambda x: pb.jvp(watched, (x,), (x,)),
        lambda x: pb.vjp(watched, x)[0],
        lambda x: pb.linearize(watched, x)[0],
        pb.checkpoint(watched),
    ):
        run(function)(X)
        assert told(capsys) == wanted
    compiled = run(watched)
    for _ in range(3):
        compiled(X)
    assert told(capsys) == wanted * 3
    np.testing.assert_array_equal(run(pb.grad(watched))(X), pb.grad(lambda x: np.sum(x * 2 * x))(X))
    np.testing.assert_array_equal(run(pb.hessian(watched))(X), 4 * np.eye(2))


@pytest.mark.parametrize("run", [lambda f: f, pb.jit])
def test_of_many(run: Any, capsys: Any):
    many = np.stack([X, 2 * X])
    np.testing.assert_array_equal(run(pb.vmap(watched))(many), [10.0, 40.0])
    assert sorted(told(capsys)) == ["x [1. 2.]", "x [2. 4.]", "y [2. 4.]", "y [4. 8.]"]
    np.testing.assert_array_equal(run(pb.vmap(pb.grad(watched)))(many), 4 * many)
    assert sorted(told(capsys)) == ["x [1. 2.]", "x [2. 4.]", "y [2. 4.]", "y [4. 8.]"]


@pytest.mark.parametrize("run", [lambda f: f, pb.jit])
def test_in_loops_and_branches(run: Any, capsys: Any):
    def step(total: Any, x: Any) -> Any:
        debug.print("step {}", total)
        debug.print("always")
        return total + x, x

    run(lambda x: pb.scan(step, 0.0, x)[0])(X)
    assert told(capsys) == ["step 0.0", "always", "step 1.0", "always"]
    run(pb.grad(lambda x: pb.scan(step, 0.0, x)[0]))(X)
    assert told(capsys)[:4] == ["step 0.0", "always", "step 1.0", "always"]

    def double(x: Any) -> Any:
        debug.print("at {}", x)
        return x * 2

    run(lambda x: pb.while_loop(lambda x: x < 5, double, x))(1.0)
    assert told(capsys) == ["at 1.0", "at 2.0", "at 4.0"]

    def chosen(x: Any) -> Any:
        return pb.cond(x > 0, double, lambda x: (debug.print("below"), x)[1], x)

    for x in (3.0, -3.0):
        run(chosen)(x)
    assert told(capsys) == ["at 3.0", "below"]


def test_in_loops_of_python(capsys: Any):
    def long(x: Any) -> Any:
        for _ in range(60):
            x = np.sin(x) + 0.5
            debug.print("{:.3f}", x)
        return x

    found = pb.jit(long)(1.0)
    lines = told(capsys)
    assert found == pytest.approx(float(long(1.0)), rel=1e-12)
    assert told(capsys) == lines and len(lines) == 60 and lines[:2] == ["1.341", "1.474"]


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_])
def test_results_stay_what_they_are(dtype: Any, capsys: Any):
    def function(x: Any, weak: Any) -> Any:
        debug.print("{} {}", x, weak)
        return {"same": x, "turned": x[::-1], "weak": weak, "sum": x.sum(), "mixed": x * weak}

    def quiet(x: Any, weak: Any) -> Any:
        return {"same": x, "turned": x[::-1], "weak": weak, "sum": x.sum(), "mixed": x * weak}

    x = np.array([0, 1, 1]).astype(dtype)
    found, wanted = pb.jit(function)(x, 2), pb.jit(quiet)(x, 2)
    for key, value in wanted.items():
        np.testing.assert_array_equal(found[key], value)
        assert found[key].dtype == value.dtype
    special = np.array([-0.0, np.nan, np.inf])
    kept = pb.jit(lambda x: (debug.print("{}", x), x + 0)[1] * 1)(special)
    np.testing.assert_array_equal(kept, special)
    assert told(capsys)[-1] == "[-0. nan inf]"


def test_what_an_abandoned_trace_printed_is_forgotten(capsys: Any):
    def failing(x: Any) -> Any:
        debug.print("lost {}", x)
        raise ValueError("stop")

    def function(x: Any) -> Any:
        with pytest.raises(ValueError, match="stop"):
            pb.grad(failing)(x)
        debug.print("kept {}", x)
        return x

    pb.jit(function)(1.0)
    assert told(capsys) == ["kept 1.0"]
    widened = pb.jit(lambda x: pb.scan(lambda c, x: (debug.print("{}", x), (c + x, None))[1], 0, x)[0])
    assert widened(X) == 3.0
    assert told(capsys) == ["1.0", "2.0"]


def test_a_template_that_does_not_fit():
    with pytest.raises(IndexError):
        debug.print("{} {}", 1.0)
    with pytest.raises(IndexError):
        pb.jit(watched_wrongly)(1.0)


def watched_wrongly(x: Any) -> Any:
    debug.print("{} {}", x)
    return x


def test_breakpoints(monkeypatch: Any):
    seen: list[Any] = []

    def hook(*_: Any) -> None:
        values = sys._getframe(1).f_locals
        seen.append((values["arguments"], values["keywords"]))

    monkeypatch.setattr(sys, "breakpointhook", hook)

    @pb.jit
    def function(x: Any) -> Any:
        debug.breakpoint(x, name="here", y=x * 2)
        return x

    function(3.0)
    assert seen == [((3.0,), {"name": "here", "y": 6.0})]


def test_the_origin_of_nan():
    def loss(x: Any) -> Any:
        return np.sum(np.sqrt(x) * x)

    safe = np.array([1.0, 4.0])
    assert debug.nan(loss)(safe) == 9.0
    with pytest.raises(NaNError, match=r"sqrt gives NaN at \(1,\) for -4\.0\n.*test_debug") as caught:
        debug.nan(loss)(np.array([1.0, -4.0]))
    assert caught.value.source is not None

    def backwards(x: Any) -> Any:
        return np.sum(x / x * 0 + np.arctan2(x, x * 0) ** 0.5 * 0)

    with pytest.raises(NaNError, match="gives NaN"):
        debug.nan(pb.grad(backwards))(np.zeros(2))
    with pytest.raises(NaNError, match=r"in step 2 of 3"):
        debug.nan(lambda x: pb.scan(lambda c, x: (np.log(c - x), None), 5.0, x)[0])(np.array([1.0, 0.0, 9.0]))
    with pytest.raises(
        NaNError, match=r"contract gives NaN.* of float64\[2\] from 0\.0 to inf, float64\[2\] of 0\.0"
    ):
        debug.nan(lambda x: x @ np.zeros(2))(np.array([0.0, np.inf]))
    with pytest.raises(NaNError, match="the argument arg0 has NaN"):
        debug.nan(np.sum)(np.array([np.nan]))
    assert pb.jit(debug.nan(loss))(safe) == 9.0
