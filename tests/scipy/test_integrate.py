"""Differential equations against SciPy and differences."""

import numpy as np
import pytest

import pullback as pb
from pullback.errors import DerivativeError, DTypeError, ShapeError
from pullback.scipy.integrate import odeint

RANDOM = np.random.default_rng(6)


def pendulum(y, t, length, friction):
    return np.stack([y[1], -np.sin(y[0]) * 9.81 / length - friction["value"] * y[1] + 0.1 * np.cos(t)])


ARGUMENTS = np.array([0.5, 0.0]), np.array([0.0, 0.3, 0.7, 1.5]), np.float64(1.2), {"value": np.float64(0.2)}


def test_a_solution_is_scipys():
    integrate = pytest.importorskip("scipy.integrate")
    y0, t, length, friction = ARGUMENTS
    wanted = integrate.odeint(lambda y, t: pendulum(y, t, length, friction), y0, t, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(odeint(pendulum, *ARGUMENTS), wanted, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        pb.jit(lambda *a: odeint(pendulum, *a))(*ARGUMENTS), wanted, rtol=1e-6, atol=1e-7
    )


def test_gradients_are_those_of_differences():
    weights = RANDOM.normal(size=(4, 2))

    def loss(y0, t, length, friction):
        return np.sum(weights * odeint(pendulum, y0, t, length, friction, rtol=1e-11, atol=1e-11))

    gradient = pb.grad(loss, (0, 1, 2, 3))
    for found in (gradient(*ARGUMENTS), pb.jit(gradient)(*ARGUMENTS)):
        y0, t, length, friction = ARGUMENTS
        step = 1e-5
        for k in range(2):
            unit = np.eye(2)[k] * step
            slope = (loss(y0 + unit, t, length, friction) - loss(y0 - unit, t, length, friction)) / (2 * step)
            assert found[0][k] == pytest.approx(slope, rel=1e-5, abs=1e-6)
        for k in range(4):
            unit = np.eye(4)[k] * step
            slope = (loss(y0, t + unit, length, friction) - loss(y0, t - unit, length, friction)) / (2 * step)
            assert found[1][k] == pytest.approx(slope, rel=1e-5, abs=1e-6)
        slope = (loss(y0, t, length + step, friction) - loss(y0, t, length - step, friction)) / (2 * step)
        assert found[2] == pytest.approx(slope, rel=1e-5)
        more, less = ({"value": friction["value"] + s} for s in (step, -step))
        assert found[3]["value"] == pytest.approx(
            (loss(y0, t, length, more) - loss(y0, t, length, less)) / (2 * step), rel=1e-5
        )


TIMES = np.linspace(0.0, 1.0, 3)


def decayed(rate):
    return odeint(lambda y, t, rate: -rate * y, np.array([1.0]), TIMES, rate)[-1, 0]


def test_second_derivatives_and_batches():
    """Of exp(-r), which is its own second derivative."""
    second = pb.grad(pb.grad(decayed))
    for run in (lambda f: f, pb.jit):
        assert run(second)(2.0) == pytest.approx(np.exp(-2), rel=1e-6)
        rates = np.array([1.0, 2.0, 30.0])
        np.testing.assert_allclose(run(pb.vmap(decayed))(rates), np.exp(-rates), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(
            run(pb.vmap(pb.grad(decayed)))(rates), -np.exp(-rates), rtol=1e-6, atol=1e-8
        )


def test_forward_mode_is_reverse_mode():
    """By the state, times, a number, a tree and an array that an integer picks from; products with Hessians too."""

    def slope(y, t, length, friction, lengths, number):
        return pendulum(y, t, length * lengths[number], friction)

    def course(*arguments):
        return odeint(slope, *arguments, 1)

    arguments = *ARGUMENTS, np.array([2.0, 0.9])
    places = tuple(range(len(arguments)))
    forward, reverse = (pb.jacobian(course, places, mode=mode)(*arguments) for mode in ("forward", "reverse"))
    compiled = pb.jit(pb.jacobian(course, places, mode="forward"))(*arguments)
    for found, same, expected in zip(*(pb.flatten(tree)[0] for tree in (forward, compiled, reverse))):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(same, found, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(pb.jacobian(decayed)(2.0), -np.exp(-2), rtol=1e-6)
    assert pb.linearize(decayed, 2.0)[1](3.0) == pytest.approx(-3 * np.exp(-2), rel=1e-6)
    for run in (lambda f: f, pb.jit):
        gradient, product = run(lambda x: pb.hvp(decayed, (x,), (1.0,)))(2.0)
        assert (gradient[0], product[0]) == (
            pytest.approx(-np.exp(-2), rel=1e-6),
            pytest.approx(np.exp(-2), rel=1e-6),
        )
        by_mode = run(pb.grad(lambda x: pb.jvp(decayed, (x,), (1.0,))[1]))(2.0)
        assert by_mode == pytest.approx(np.exp(-2), rel=1e-6)


def test_times_may_fall():
    def grown(t, rate):
        return odeint(lambda y, t, rate: [rate * y[0] * t, y[0] * rate], [1.0, 0.0], t, rate)[:, 0]

    t = np.array([1.0, 0.5, 0.5, -1.0])
    for run in (lambda f: f, pb.jit):
        np.testing.assert_allclose(run(grown)(t, 1.5), np.exp(1.5 * (t * t - 1) / 2), rtol=1e-6)
        by_t, by_rate = run(pb.grad(lambda t, rate: grown(t, rate)[1], (0, 1)))(t, 1.5)
        value = np.exp(1.5 * (0.25 - 1) / 2)
        np.testing.assert_allclose(by_t, [-1.5 * value, 0.75 * value, 0.0, 0.0], rtol=1e-6, atol=1e-7)
        assert by_rate == pytest.approx((0.25 - 1) / 2 * value, rel=1e-6)


def test_solutions_that_end_are_nan():
    """What grows beyond all bounds at 1, and what has no slope beyond 2."""
    times = np.array([0.0, 0.5, 2.0, 3.0])
    for run in (lambda f: f, pb.jit):
        grown = run(lambda t: odeint(lambda y, t: y * y, [1.0], t)[:, 0])(times)
        np.testing.assert_allclose(grown, [1.0, 2.0, np.nan, np.nan], rtol=1e-6)
        fallen = run(lambda t: odeint(lambda y, t: -np.sqrt(y), 1.0, t))(times - np.eye(4)[2])
        np.testing.assert_allclose(fallen, [1.0, 0.75**2, 0.25, np.nan], rtol=1e-6)
        unsorted = run(lambda t: odeint(lambda y, t: -y, 1.0, t))
        if run is pb.jit:
            np.testing.assert_allclose(unsorted([0.0, 2.0, 1.0]), [1.0, np.exp(-2.0), np.nan], rtol=1e-6)
        else:
            with pytest.raises(ValueError, match=r"the times \[0. 2. 1.\] rise and fall"):
                unsorted([0.0, 2.0, 1.0])


def test_what_is_refused():
    with pytest.raises(ShapeError, match="times of shape"):
        odeint(pendulum, np.zeros(2), 1.0)
    with pytest.raises(ShapeError, match=r"the slope has shape \(\), the state \(2,\)"):
        odeint(lambda y, t: y[0], np.ones(2), TIMES)
    with pytest.raises(DTypeError, match="a state of complex128"):
        odeint(lambda y, t: y, np.ones(2) * 1j, TIMES)
    with pytest.raises(DerivativeError, match="closes over"):
        pb.grad(lambda rate: odeint(lambda y, t: -rate * y, 1.0, TIMES)[-1])(2.0)


def test_dtypes():
    for dtype in (np.float32, np.float64):
        found = odeint(lambda y, t: -np.float64(1.0) * y, np.ones(2, dtype), TIMES)
        assert found.dtype == dtype and found.shape == (3, 2)
        np.testing.assert_allclose(found[:, 0], np.exp(-TIMES), rtol=1e-5)
    assert odeint(lambda y, t: -y, 1, [0, 1]).dtype == np.float64
