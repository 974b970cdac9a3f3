"""Compiled functions, and trainers that hold them, are pickled and copied."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest

import pullback as pb
from pullback import Trainer, nn, optim


def scaled(x, factor=2.0, power=1):
    return factor * x**power


@pb.jit
def decorated(x):
    return x + 1


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def times(self, x):
        return self.factor * x

    @pb.jit
    def compiled(x):
        return x - 1


WAYS = {"pickle": lambda x: pickle.loads(pickle.dumps(x)), "copy": copy.copy, "deepcopy": copy.deepcopy}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("called", [False, True], ids=["new", "called"])
def test_functions_and_their_settings(way, called):
    for function in (scaled, Scale(2.0).times, partial(scaled, factor=2.0)):
        compiled = pb.jit(function)
        if called:
            compiled(np.ones(3)), pb.vmap(lambda x, f=compiled: f(x) + 1)(np.ones(3))
        again = way(compiled)
        assert again is not compiled and again.traces == 0
        np.testing.assert_array_equal(again(np.ones(3)), np.full(3, 2.0))
    settings = way(pb.jit(scaled, donate_argnums=0, static_argnames="power", max_traces=1, memory="1MB"))
    x = np.ones(3)
    assert settings(x, power=2) is not None
    with pytest.raises(pb.errors.RetraceError):
        settings(x, power=3)
    assert settings.settings.memory == 1_000_000
    sized = way(pb.jit(scaled, shapes={"x": ("batch",)}))
    assert [sized(np.ones(n)).sum() for n in (5, 6)] == [10, 12] and sized.traces == 1


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_what_a_decorated_function_is_called_names_it(way):
    assert way(decorated) is decorated
    assert way(Scale.compiled) is Scale.compiled


def test_what_has_no_name_is_refused_by_it():
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(pb.jit(lambda x: x))
    again = copy.deepcopy(pb.jit(lambda x: 2 * x))
    assert again(2.0) == 4


@pytest.mark.parametrize("way", [WAYS["pickle"], WAYS["deepcopy"]], ids=["pickle", "deepcopy"])
def test_a_trainer_goes_on_where_it_was(way):
    random = np.random.default_rng(0)
    data = random.normal(size=(48, 3)).astype(np.float32), random.integers(0, 2, 48)
    model = nn.Chain(
        nn.Dense(3, 8, seed=0), nn.BatchNorm(8), nn.relu, nn.Dropout(0.2), nn.Dense(8, 2, seed=1)
    )
    trainer = Trainer(model, nn.softmax_cross_entropy, optim.Adam(0.01), batch_size=16)
    trainer.fit(data, 1)
    again = way(trainer)
    for each in (trainer, again):
        each.fit(data, 1)
    for one, other in zip(pb.flatten(trainer.model)[0], pb.flatten(again.model)[0]):
        assert one is not other
        np.testing.assert_array_equal(one, other)
    assert again.history["loss"] == trainer.history["loss"]
