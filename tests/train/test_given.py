"""Losses, optimisers, metrics and callbacks of the wrong kind are refused with what was meant."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

import pullback as pb
from pullback import metrics, nn, optim
from pullback.errors import SettingError, TreeError
from pullback.tracing import map_tree
from pullback.train import EarlyStopping, ReduceOnPlateau
from pullback.train.given import as_metrics

DATA = np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)


def trainer(loss=nn.squared_error, optimiser=None):
    return pb.Trainer(nn.Dense(2, 1), loss, optim.SGD(0.1) if optimiser is None else optimiser, metrics=())


@pytest.mark.parametrize(
    ("loss", "meant"),
    [
        ("mse", r"'mse', a str.*nn\.squared_error"),
        ("CrossEntropy", r"nn\.softmax_cross_entropy"),
        ("binary_crossentropi", r"nn\.binary_cross_entropy"),
        (optim.SGD(0.1), "comes before"),
        (optim.SGD, "the class SGD.*comes before"),
        (3, r"3, a int.*nn\.squared_error"),
        (lambda outputs: outputs, "outputs and labels"),
    ],
)
def test_a_loss_that_is_none(loss, meant):
    with pytest.raises(SettingError, match=meant):
        trainer(loss=loss)


@pytest.mark.parametrize(
    ("optimiser", "meant"),
    [
        (optim.Adam, r"the class Adam.*optim\.Adam\(0\.01\)"),
        ("adam", r"optim\.Adam\(0\.01\)"),
        ("rmsprop", r"optim\.RMSProp\(0\.01\)"),
        (0.05, r"optim\.SGD\(0\.05\)"),
        (nn.squared_error, "squared_error.*comes before"),
        ({"rate": 0.1}, "learning_rate, init and update"),
    ],
)
def test_an_optimiser_that_is_none(optimiser, meant):
    with pytest.raises(SettingError, match=meant):
        trainer(optimiser=optimiser)


def test_losses_of_any_kind_are_taken():
    class Weighted:
        def __call__(self, outputs, labels):
            return np.mean((outputs - labels) ** 2)

    for loss in (Weighted(), functools.partial(nn.huber, delta=2.0), lambda *both: both[0].sum()):
        trainer(loss=loss)


@pytest.mark.parametrize("rate", ["0.1", None, [0.1], optim.schedules.Cosine])
@pytest.mark.parametrize("optimiser", [optim.SGD, optim.Adam, optim.LBFGS, optim.Lion])
def test_a_learning_rate_that_is_no_number(optimiser, rate):
    with pytest.raises(SettingError, match=rf"\[{optimiser.__name__}\] learning_rate is"):
        optimiser(rate)


def error(outputs, labels):
    return abs(outputs - labels)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (error, ["error"]),
        (metrics.auc, ["auc"]),
        ("accuracy", ["accuracy"]),
        ({"acc": "accuracy", "far": error}, ["acc", "far"]),
        ((functools.partial(error), functools.partial(error)), ["metric_0", "metric_1"]),
    ],
)
def test_metrics_and_their_names(given, names):
    assert list(as_metrics(given)) == names


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ([error, error], "two metrics are named 'error'"),
        ([lambda y, t: y.max(), lambda y, t: y.min()], "two metrics are named '<lambda>'.*dict"),
        ({"loss": error}, "'loss', as another figure"),
        ({"steps": error}, "'steps', as another figure"),
        ({"validation_error": error}, "'validation_error', as another figure"),
        ({"accuracy": "acc"}, "no metric is named 'acc'"),
        ({"accuracy": 3}, "a metric is 3, a int"),
        (metrics.top_k_accuracy, r"a metric is top_k_accuracy\(k.* cannot be called with outputs and labels"),
        ({"mean": lambda y: y.mean()}, "cannot be called with outputs and labels"),
        (3, "metrics is 3, a int"),
    ],
)
def test_metrics_of_which_one_would_be_lost(given, meant):
    with pytest.raises((ValueError, SettingError), match=meant):
        as_metrics(given)


@pytest.mark.parametrize(
    ("callback", "meant"),
    [(EarlyStopping, r"the class EarlyStopping.*EarlyStopping\(\)"), (None, "None"), ([3], "3, a int")],
)
def test_a_callback_that_is_none(callback, meant):
    with pytest.raises(SettingError, match=meant):
        trainer().fit((np.ones((4, 2)), np.ones((4, 1))), 1, on_epoch_end=callback)


@pytest.mark.parametrize("epochs", [-1, 1.5, "3", None, True])
def test_a_number_of_epochs_that_is_none(epochs):
    given = trainer()
    with pytest.raises((ValueError, SettingError), match=r"\[fit\] epochs is .* (or more|at least 0)"):
        given.fit(DATA, epochs)
    assert given.history.epochs == 0


def test_no_epochs_and_numpys_numbers_are_taken():
    given = trainer()
    assert given.fit(DATA, 0).epochs == 0
    assert given.fit(DATA, np.int64(2)).epochs == 2


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ({"batch_size": -3}, "batch_size is -3. Give 1 or more"),
        ({"batch_size": 2.5}, "batch_size is 2.5, a float"),
        ({"bucket": 1.5}, "bucket is 1.5, a float"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": None}, "seed is None"),
        ({"scale": 0}, "scale is 0"),
        ({"scale": math.nan}, "scale is nan"),
        ({"scale": "1/255"}, "scale is '1/255', a str"),
    ],
)
def test_settings_of_a_trainer_that_make_no_sense(options, meant):
    with pytest.raises((ValueError, SettingError), match=rf"\[Trainer\] {meant}"):
        pb.Trainer(nn.Dense(2, 1), nn.squared_error, optim.SGD(0.1), metrics=(), **options)


@pytest.mark.parametrize("rate", [-0.1, math.nan, math.inf])
def test_a_schedule_without_a_rate(rate):
    given = trainer(optimiser=optim.SGD(lambda step: rate))
    with pytest.raises(ValueError, match=rf"learning rate of step 0 is {rate}"):
        given.fit(DATA, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: EarlyStopping(patience=math.nan),
        lambda: EarlyStopping(patience=1.5),
        lambda: EarlyStopping(least=math.inf),
        lambda: ReduceOnPlateau(patience=0),
        lambda: ReduceOnPlateau(cooldown=1.5),
        lambda: ReduceOnPlateau(factor="a"),
        lambda: ReduceOnPlateau(lowest=math.nan),
    ],
)
def test_callbacks_that_would_never_act(make):
    with pytest.raises((ValueError, SettingError), match=r"^\[\w+\] \w+ is .* Give "):
        make()


class Forward(nn.Module):
    weight: np.ndarray

    def forward(self, x):
        return x @ self.weight


@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ([nn.Dense(2, 1)], "is a list, which cannot be called. Make a chain of it: nn.Chain"),
        (
            Forward(np.ones((2, 1))),
            "is a Forward, which cannot be called. Name its method __call__, not forward",
        ),
        ({"weight": np.ones(2)}, "is a dict, which cannot be called. Give a module"),
        (lambda x: x, "is a function, which holds no parameters. Give a module"),
        (pb.jit(lambda x: x), "is a Compiled, which holds no parameters. Give a module"),
        (nn.Dense, "is the class Dense. Make one"),
    ],
)
def test_a_model_that_is_none(model, meant):
    with pytest.raises(SettingError, match=rf"\[Trainer\] model {meant}"):
        pb.Trainer(model, nn.squared_error, optim.SGD(0.1))


def test_an_optimiser_that_changes_a_dtype_is_told_where():
    class Widening:
        learning_rate = 0.1

        def init(self, parameters):
            return ()

        def update(self, gradients, state, parameters):
            return map_tree(lambda p, g: p - 0.1 * g.astype(np.float64), parameters, gradients), state

    given = pb.Trainer(nn.Dense(2, 1), nn.squared_error, Widening(), metrics=())
    with pytest.raises(
        TreeError, match=r"argument 0 at weight is float32\[2, 1\], and comes back as float64"
    ):
        given.fit((np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)), 1)
