"""What ``jit`` is told about its arguments: static and donated ones, by number; memory that arguments share."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import pullback as pb
from pullback.errors import DonationError, TreeError


def scaled(x, count, factor=2.0):
    return sum(x * factor for _ in range(int(count)))


def test_numbers_count_from_the_end():
    x = np.arange(3.0)
    assert pb.jit(scaled, static_argnums=-2)(x, 3).tolist() == [0.0, 6.0, 12.0]
    assert pb.jit(scaled, static_argnums=(-2, -1))(x, 3, 0.5).tolist() == [0.0, 1.5, 3.0]
    step = pb.jit(lambda y, x: (x + y, y), donate_argnums=-1)
    (total, _), given = step(np.ones(3), x), x
    assert total is given


def test_numbers_of_a_derivative_are_those_of_its_function():
    slope = pb.jit(pb.grad(lambda x, count: (x**count).sum()), static_argnums=-1)
    assert slope(np.arange(3.0), 2).tolist() == [0.0, 2.0, 4.0]


def test_a_decorator_may_take_other_arguments_than_it_says():
    @functools.wraps(scaled)
    def many(*arguments):
        return arguments[0] * arguments[4]

    assert pb.jit(many, static_argnums=4)(np.arange(3.0), 0.0, 0.0, 0.0, 2).tolist() == [0.0, 2.0, 4.0]


@pytest.mark.parametrize("what", ["static_argnums", "donate_argnums"])
@pytest.mark.parametrize("numbers", [3, -4, (0, 7), (0, 0), (1, -2), "0", True, 1.0, None, [0.5]])
def test_numbers_of_no_argument_are_refused(what, numbers):
    with pytest.raises(TreeError, match=f"^{what}="):
        pb.jit(scaled, **{what: numbers})


def test_a_function_of_any_number_of_arguments():
    with pytest.raises(TreeError, match="count from the start"):
        pb.jit(lambda *x: x[0], static_argnums=-1)
    assert pb.jit(lambda *x: x[0] * x[1], static_argnums=1)(np.ones(2), 3).tolist() == [3.0, 3.0]


@pytest.mark.parametrize("static", [0, -3, (1, 0)])
def test_an_argument_is_not_both_static_and_donated(static):
    with pytest.raises(DonationError, match="argument 0 is static and donated"):
        pb.jit(scaled, donate_argnums=0, static_argnums=static)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (1, 1.0), (0.0, -0.0), ((1,), (1.0,)), ((0.0, 1), (-0.0, 1)), (np.float32(1), np.float64(1))],
)
def test_static_values_that_are_equal_but_not_the_same(one, other):
    """Each has a program of its own: what is done with it may differ."""

    def function(x, value):
        return x + len(f"{type(value)} {value!r}")

    compiled = pb.jit(function, static_argnums=1)
    for value in (one, other, one):
        assert compiled(1.0, value) == function(1.0, value)


@pytest.mark.parametrize("value", ["mean", np.tanh, ("sum", 2), frozenset({1}), None])
def test_static_values_of_any_kind(value):
    def function(x, value, more):
        return x + len(repr(value)) + len(more)

    compiled = pb.jit(function, static_argnums=1)
    for _ in range(3):
        assert compiled(1.0, value, [2.0]) == function(1.0, value, [2.0])


SHARED = {
    "the same": lambda x: (x, x),
    "a view": lambda x: (x, x[:]),
    "an overlap": lambda x: (x[:5], x[1:]),
    "another type": lambda x: (x, np.frombuffer(memoryview(x))),
}


@pytest.mark.parametrize("donated", [0, 1, (0, 1)])
@pytest.mark.parametrize("shared", SHARED.values(), ids=SHARED)
def test_donated_memory_is_nobody_else_s(shared, donated):
    """Also where the program has run before: its entry looks again."""
    compiled = pb.jit(lambda a, b: (a + b, a - b), donate_argnums=donated)
    apart = [array.copy() for array in shared(np.arange(6.0))]
    compiled(*apart)
    for _ in range(2):
        with pytest.raises(DonationError, match="share memory"):
            compiled(*shared(np.arange(6.0)))


def test_a_method():
    class Scaled(pb.nn.Module):
        factor: np.ndarray

        @pb.jit
        def __call__(self, x):
            return x * self.factor

        @functools.partial(pb.jit, static_argnames="count")
        def repeated(self, x, count):
            return scaled(x, count, self.factor)

    module = Scaled(np.array(3.0))
    assert (
        module(2.0) == 6
        and module.repeated(2.0, count=2) == 12
        and Scaled.repeated(module, 2.0, count=1) == 6
    )
    assert pb.grad(lambda module: module(2.0))(module).factor == 2
    assert isinstance(Scaled.repeated, type(pb.jit(scaled)))


def test_a_run_of_steps_says_what_does_not_come_back():
    wrong = {
        r"argument 1 at w is float32\[2\], and comes back as float64": lambda a, b: (
            a,
            {"w": 1.0 * b["w"].astype(float)},
        ),
        r"argument 1 has another structure as result 1": lambda a, b: (a + 1.0, b["w"] * 2),
        r"2 are donated, and 1 come back": lambda a, b: a + 1.0,
    }
    for message, function in wrong.items():
        with pytest.raises(TreeError, match=message):
            pb.jit(function, donate_argnums=(0, 1)).run_steps(
                (np.zeros(2), {"w": np.zeros(2, np.float32)}), 3
            )
