"""Functions that are differentiated again are recorded without nodes: the same bits, and Python may still look."""

from __future__ import annotations

import threading
from itertools import pairwise

import numpy as np
import pytest

import pullback as pb
from pullback.numpy import tape as tapes
from pullback.transforms import api

X = np.array([0.5, -1.25, 2.0])
TABLE = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.0]])


def nothing(*given):
    raise AssertionError("asked for nodes")


def on_tape(monkeypatch, gradient, *arguments):
    """A gradient that has become known, as the tape gives it."""
    for _ in range(5):
        gradient(*arguments)
    with monkeypatch.context() as patched:
        patched.setattr(api, "known_cotangents", nothing)
        patched.setattr(api, "finish", nothing)
        patched.setattr(tapes.Tape, "_make_nodes", nothing)
        return gradient(*arguments)


def loop(x):
    y = x
    for _ in range(7):
        y = y * x + 0.5
    return y


def option(s):
    d = (np.log(s / 100.0) + 0.03 * 0.5) / (0.2 * 0.5**0.5)
    return s / (1 + np.exp(-1.702 * d)) - 95 * np.exp(-0.01)


def branches(x):
    y = x
    while y < 10:
        y = y * 1.5 + np.sin(x) ** 2
    return y if x > 0 and int(x) == 1 and f"{x:.1f}" == "1.2" and str(x) == "1.2" else -y


def slices(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def by_index(x):
    return sum(x[k] * x[-1 - k] for k in range(len(x))) + x.shape[0] * x.ndim


PROGRAMS = {
    "two functions": (lambda x: np.sin(np.cos(x)), 1.2),
    "float32": (lambda x: np.sin(x) / (x + 2) - x, np.float32(1.2)),
    "itself": (lambda x: x, 1.2),
    "loop": (loop, 1.2),
    "option": (option, 105.0),
    "branches": (branches, 1.2),
    "slices": (slices, X),
    "by index": (by_index, X),
    "methods": (lambda x: (x.T @ x.reshape(3)).sum() + x.mean() - abs(-x).max(), X),
    "table": (lambda x: np.sum(np.tanh(np.dot(TABLE, x)) - TABLE[:, 0]), X),
    "same beside": (lambda x: np.sum(np.zeros(3) + x * np.full(3, 2.0) - x**2), X),
    "mask": (lambda x: np.where(x > 0, np.sqrt(x), x * x).sum() + np.maximum(x, 0.0).sum(), X),
    "tree": (lambda p: np.sum(p["w"] * p["v"][0] + p["b"]), {"w": X, "v": (X * 2, X), "b": 0.5}),
    "unused": (lambda p: np.sum(p[0] ** 2), [X, X]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_bits_are_those_of_the_graph(name, monkeypatch):
    function, given = PROGRAMS[name]
    gradient = pb.value_and_grad(function)
    first = gradient(given)  # of nodes
    found = on_tape(monkeypatch, gradient, given)
    leaves, others = pb.flatten(first)[0], pb.flatten(found)[0]
    for one, other in zip(leaves, others):
        assert type(one) is type(other) and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def test_directional_derivatives_are_those_of_the_graph(monkeypatch):
    cases = [(function, given, given) for function, given in PROGRAMS.values()]
    for function, given, along in [
        *cases,
        (lambda x: np.sin(x) * x[::-1], X, X + 1),
        (lambda x: x * 0 + 1, X, X),
    ]:
        first = pb.jvp(function, (given,), (along,))
        found = on_tape(monkeypatch, lambda *given: pb.jvp(function, *given), (given,), (along,))  # noqa: B023
        for one, other in zip(first, found):
            assert type(one) is type(other) and one.dtype == other.dtype and one.tobytes() == other.tobytes()


NESTED = {
    "second": (pb.grad(lambda x: np.sin(np.cos(x))), 1.2),
    "third": (pb.grad(pb.grad(lambda x: np.sin(x) * x * x)), 1.2),
    "of several": (lambda x: pb.grad(lambda a, b: a * b * b, (0, 1))(x, x * 2)[1], 1.2),
    "with the value": (lambda x: np.sum(pb.value_and_grad(lambda y: y[0] * y[1])(x)[1] ** 2), X),
    "line": (lambda x: pb.grad(lambda y: 3 * y)(x) * x + pb.grad(lambda y: y)(x), 1.2),
}


@pytest.mark.parametrize("name", NESTED)
def test_nested_derivatives_are_recorded(name, monkeypatch):
    function, given = NESTED[name]
    gradient = pb.grad(function)
    first = gradient(given)
    for _ in range(8):
        gradient(given)
    found = on_tape(monkeypatch, gradient, given)
    assert type(found) is type(first) and found.tobytes() == first.tobytes()


def test_what_is_written_after_a_nested_derivative_does_not_change_it():
    def function(x):
        y = x * 1.0
        value, pull = pb.vjp(lambda z: z * z, y)
        slope = pb.grad(lambda z: np.sum(z * z))(y)
        y[0] = 7.0
        return np.sum(pull(value)[0]) + np.sum(slope)

    gradient = pb.grad(function)
    for _ in range(8):
        np.testing.assert_allclose(gradient(X), 6 * X**2 + 2, rtol=1e-14)


def test_values_may_change(monkeypatch):
    gradient = pb.grad(branches)
    for x in (1.2, 3.5, 1.3, 0.4):
        assert on_tape(monkeypatch, gradient, x) == pb.grad(branches)(x)


def test_arguments_and_numbers_of_other_kinds(monkeypatch):
    gradient = pb.grad(lambda x, n: np.sum(x * n))
    for n in (2, 2.0, True, 0.0, -0.0, np.float32(2), np.array([2.0, 3.0])):
        for x in (1.5, np.float32(1.5), X[:2], X[:2].astype(np.float32)):
            slope = on_tape if type(n) in (int, float) else lambda _, gradient, *given: gradient(*given)
            found = slope(monkeypatch, gradient, x, n)
            wanted = np.asarray(
                (np.sum(n) if np.ndim(n) else n) if np.ndim(x) == 0 else np.broadcast_to(n, (2,)),
                np.asarray(x).dtype,
            )
            assert (
                found.dtype == np.asarray(x).dtype
                and np.signbit(found).tolist() == np.signbit(wanted).tolist()
            )
            np.testing.assert_array_equal(found, wanted)


def test_gradients_are_the_callers_own():
    for function in (np.sum, np.mean, lambda x: np.sum(x * 3), lambda x: np.sum(x * X), lambda x: x[0]):
        gradient, found = pb.grad(function), []
        for _ in range(7):
            found.append(gradient(X))
        for one, other in pairwise(found):
            assert not np.shares_memory(one, other) and one.flags.writeable
            np.testing.assert_array_equal(one, other)


def test_what_is_written_into_is_not_what_was_read():
    def function(x):
        y = x * 2
        z = y[1:]
        before = z * z
        y[1] = 5.0
        z += 1.0
        return np.sum(before) + np.sum(z * x[1:]) + y[2]

    gradient = pb.grad(function)
    for _ in range(7):
        np.testing.assert_array_equal(gradient(X), [0.0, 8 * X[1] + 6, 8 * X[2] + 4 * X[2] + 1 + 2])


def test_what_was_kept_is_still_there():
    kept = []

    def function(x):
        kept.append(x * x)
        return np.sum(kept[-1])

    gradient = pb.grad(function)
    for _ in range(7):
        gradient(X)
    assert str(kept[-1]) == str(X * X) and kept[-1].shape == (3,)
    with pytest.raises(pb.errors.TracingError, match="a trace that is over"):
        pb.grad(lambda x: np.sum(x * kept[-1]))(X)


def test_nested_transformations_close_over_what_is_on_a_tape():
    gradient = pb.grad(lambda x: np.sin(x) * pb.grad(lambda y: y * y * np.sin(x))(x * 2))
    for _ in range(7):
        assert np.isclose(
            gradient(0.7), 4 * np.sin(0.7) ** 2 + 8 * 0.7 * np.sin(0.7) * np.cos(0.7), rtol=1e-14
        )


def test_errors_have_the_users_line():
    bad = []

    def function(x):
        y = x * 2
        return np.sum(np.dot(y, bad[0]) if bad else y)

    gradient = pb.grad(function)
    for _ in range(6):
        gradient(X)
    bad.append(np.ones(2))
    line = function.__code__.co_firstlineno + 2
    with pytest.raises(pb.errors.ShapeError, match=rf"test_tapes.py:{line} in function"):
        gradient(X)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_is_left_half_way_is_taken_back(error, monkeypatch):
    fails = []

    def function(x):
        y = np.sin(x)
        try:
            y = np.cos(y)
        except error:
            y = y * 3
        return y * 2

    gradient = pb.grad(function)
    for _ in range(6):
        gradient(1.2)

    class Lines(list):
        def append(self, line):
            if len(self) == 1 and fails:
                raise fails.pop()
            super().append(line)

    made = tapes.Tape.__init__

    def begun(self, variables):
        made(self, variables)
        self.lines = Lines()

    monkeypatch.setattr(tapes.Tape, "__init__", begun)
    for _ in range(6):
        fails[:] = [error]
        assert np.isclose(gradient(1.2), 6 * np.cos(1.2), rtol=1e-14)


def test_a_tape_has_an_end(monkeypatch):
    monkeypatch.setattr(tapes, "MOST_BYTES", 2000)
    gradient = pb.grad(lambda x: np.sum(loop(x)))
    wanted = gradient(X)
    for _ in range(20):
        np.testing.assert_array_equal(gradient(X), wanted)


def test_functions_that_are_never_the_same_are_not_recorded_each_time(monkeypatch):
    tries, made, random = [], api.Arguments.tape, np.random.default_rng(0)
    gradient = pb.grad(lambda x: x * random.random())
    monkeypatch.setattr(api.Arguments, "tape", lambda inside, outer: tries.append(1) or made(inside, outer))
    for _ in range(200):
        gradient(1.5)
    assert len(tries) < 20


def test_threads_have_tapes_of_their_own():
    gradient, found = pb.grad(loop), []

    def run(x):
        found.append({gradient(x) for _ in range(50)})

    threads = [threading.Thread(target=run, args=(x,)) for x in (1.2, 1.2, 0.3, 0.3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {frozenset(each) for each in found} == {frozenset({gradient(1.2)}), frozenset({gradient(0.3)})}
