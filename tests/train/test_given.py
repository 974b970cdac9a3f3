"""Losses, optimisers, metrics and callbacks of the wrong kind are refused with what was meant."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import pullback as pb
from pullback import metrics, nn, optim
from pullback.errors import SettingError
from pullback.train import EarlyStopping
from pullback.train.given import as_metrics


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
