"""Random numbers drawn while a function is traced would be the same in every call: refused."""

from __future__ import annotations

import functools
import random
import threading

import numpy as np
import pytest
from numpy.random import normal as imported

import pullback as pb
from pullback import nn
from pullback.errors import TracingError

shared = np.random.default_rng(0)
tables = {"noise": [np.random.RandomState(0)]}


class Noisy(nn.Module):
    scale: float

    def __init__(self):
        self.scale = 1.0
        self.random = np.random.default_rng(1)

    def __call__(self, x):
        return self.scale * x + self.random.normal()


class Plain:
    def __init__(self):
        self.generator = np.random.Generator(np.random.Philox(3))

    def noise(self, x):
        return x + self.generator.standard_normal(x.shape)


def helper(x):
    return x * shared.uniform()


def nested(x):
    own = np.random.default_rng(4)

    def inner(x):
        return x + own.normal()

    return pb.jit(inner)(x) if isinstance(x, float) else inner(x)


closed_over = np.random.PCG64(5)

DRAWS = {
    "global": lambda x: x + np.random.normal(),
    "imported": lambda x: x + imported(),
    "python": lambda x: x + random.gauss(0.0, 1.0),
    "a global generator": lambda x: x + shared.normal(),
    "through a function": lambda x: 1.0 * helper(x),
    "in containers": lambda x: x + tables["noise"][0].normal(),
    "partial": functools.partial(lambda r, x: x + r.normal(), np.random.default_rng(2)),
    "method": Plain().noise,
    "default": lambda x, r=shared: x + r.normal(),
    "bits": lambda x: x + np.random.Generator(closed_over).normal(),
    "made inside": lambda x: x + np.random.default_rng().normal(),
    "state made inside": lambda x: x + np.random.RandomState().normal(),
    "shuffled": lambda x: x[np.random.permutation(3)],
    "in grad": pb.grad(lambda x: (x * np.random.normal(size=3)).sum()),
    "module": Noisy(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_in_compiled_functions_are_refused(name):
    with pytest.raises(
        TracingError, match=r"draws random numbers .* pb\.random\.normal\(key.*test_draws\.py:\d+ in "
    ):
        pb.jit(DRAWS[name])(np.ones(3))


def test_a_generator_in_an_argument_is_found():
    with pytest.raises(
        TracingError, match=r"the generator that it was given draws .*test_draws\.py:\d+ in __call__"
    ):
        pb.jit(lambda model, x: model(x))(Noisy(), 1.0)


def test_the_line_is_that_of_the_draw():
    def function(x):
        y = x * 2.0
        noise = np.random.normal()
        return y + noise

    line = function.__code__.co_firstlineno + 2
    with pytest.raises(TracingError, match=rf"np\.random draws .*test_draws\.py:{line} in function"):
        pb.jit(function)(1.0)


def test_uncompiled_each_call_draws():
    gradient = pb.grad(lambda x: x * np.random.normal())
    assert gradient(1.0) != gradient(1.0)


def test_what_is_the_same_in_every_call_is_no_draw():
    seeded = pb.jit(lambda x: x + np.random.default_rng(7).normal())
    assert seeded(0.0) == np.random.default_rng(7).normal()
    pb.jit(lambda x: (np.random.seed(0), x + np.random.normal())[1])(0.0)
    key = pb.random.key(0)
    assert pb.jit(lambda x, key: x + pb.random.normal(key))(0.0, key) == pb.random.normal(key)


def test_numbers_that_are_drawn_once_and_kept():
    @functools.cache
    def weights():
        return np.random.normal(size=3)

    compiled = pb.jit(lambda x: x * weights())
    np.testing.assert_array_equal(compiled(np.ones(3)), weights())


def test_another_thread_may_draw():
    stop, compiling = threading.Event(), pb.jit(lambda x: np.sin(x) + np.cos(x))

    def draw():
        while not stop.is_set():
            np.random.normal()

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for size in range(1, 20):
            np.testing.assert_allclose(compiling(np.ones(size)), np.sin(1) + np.cos(1))
    finally:
        stop.set()
        thread.join()


def test_objects_that_hold_what_is_no_dict_are_passed_over():
    class Foreign:
        @property
        def __dict__(self):
            return self

        def __getattr__(self, name):
            raise AttributeError(name)

    foreign = Foreign()

    def function(x):
        return x * (foreign is not None)

    assert pb.jit(function)(2.0) == 2.0
