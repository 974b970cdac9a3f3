"""Losses and optimisers of the wrong kind are refused when the trainer is made, with what was meant."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import pullback as pb
from pullback import nn, optim
from pullback.errors import SettingError


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
