"""Penalties of the parameters: part of the loss, in training and in evaluation."""

import numpy as np
import pytest

from pullback import nn, optim
from pullback.errors import DataError, DerivativeError, SettingError
from pullback.tracing import flatten
from pullback.train import Trainer, load_checkpoint, save_checkpoint


def make_trainer(model, optimiser=None, **options):
    optimiser = optimiser or optim.SGD(0.1)
    return Trainer(model, nn.softmax_cross_entropy, optimiser, batch_size=20, scale=1 / 255, **options)


def halved_squares(model):
    return 0.05 * sum(np.sum(leaf**2) for leaf in flatten(model)[0])


@pytest.mark.parametrize("optimiser", [optim.SGD(0.1, 0.9), optim.Adam(0.01)], ids=["SGD", "Adam"])
def test_halved_squares_are_weight_decay(data, make_model, optimiser):
    """The gradient of λ/2 · |p|² is λp, with λ = 0.1."""
    from dataclasses import replace

    found = make_trainer(make_model(), optimiser, penalty=halved_squares)
    expected = make_trainer(make_model(), replace(optimiser, weight_decay=0.1))
    found.fit(data, 3, validation=data)
    expected.fit(data, 3)
    for ours, theirs in zip(flatten(found.model)[0], flatten(expected.model)[0]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    alone = make_trainer(found.model).evaluate(data)
    judged = found.evaluate(data)
    np.testing.assert_allclose(judged["loss"], alone["loss"] + halved_squares(found.model), rtol=1e-6)
    assert judged["accuracy"] == alone["accuracy"]
    assert found.history["validation_loss"][-1] == judged["loss"]


def test_absolute_values_make_weights_small(data, make_model):
    def size(penalty):
        trainer = make_trainer(make_model(), penalty=penalty)
        trainer.fit(data, 10)
        return np.abs(trainer.model[0].weight).sum()

    assert size(lambda model: 0.05 * np.sum(np.abs(model[0].weight))) < 0.5 * size(None)


def test_a_line_search_sees_the_penalty(data, make_model):
    trainer = Trainer(
        make_model(np.float64),
        nn.softmax_cross_entropy,
        optim.LBFGS(),
        batch_size=len(data),
        scale=1 / 255,
        penalty=halved_squares,
    )
    trainer.fit(data, 30)
    assert trainer.evaluate(data)["loss"] <= trainer.history["loss"][1]


def test_a_penalty_is_part_of_a_checkpoint(data, make_model, tmp_path):
    save_checkpoint(make_trainer(make_model(), penalty=halved_squares), tmp_path / "c")
    load_checkpoint(make_trainer(make_model(), penalty=halved_squares), tmp_path / "c")
    with pytest.raises(DataError, match="penalty was"):
        load_checkpoint(make_trainer(make_model()), tmp_path / "c")


@pytest.mark.parametrize("penalty", [1e-4, "l2", lambda: 0.0, lambda model, rate: 0.0])
def test_a_penalty_that_is_none(make_model, penalty):
    with pytest.raises(SettingError, match=r"\[Trainer\] penalty is .* and not a function of the model"):
        make_trainer(make_model(), penalty=penalty)


def test_a_penalty_that_is_no_scalar(data, make_model):
    with pytest.raises(DerivativeError, match=r"returned float32\[6, 8\]"):
        make_trainer(make_model(), penalty=lambda model: model[0].weight ** 2).fit(data, 1)
