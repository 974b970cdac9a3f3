"""Without metrics a trainer reports the accuracy that fits its loss, or none."""

from functools import partial

import numpy as np
import pytest

from pullback import metrics, nn, optim
from pullback.data import Dataset
from pullback.errors import ShapeError
from pullback.train import Trainer


def one_output(loss, **options):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(40, 3)).astype(np.float32)
    labels = (inputs[:, :1] > 0).astype(np.float32)
    trainer = Trainer(nn.Dense(3, 1, seed=0), loss, optim.SGD(0.01), batch_size=20, **options)
    return trainer, Dataset(inputs, labels)


@pytest.mark.parametrize(
    "loss", [nn.binary_cross_entropy, nn.hinge, partial(nn.binary_cross_entropy, reduction="mean")]
)
def test_the_default_accuracy_of_one_logit_is_that_of_its_sign(loss):
    trainer, data = one_output(loss)
    history = trainer.fit(data, 1)
    right = np.mean((trainer.predict(data.inputs) > 0) == (data.labels > 0.5))
    assert trainer.evaluate(data)["accuracy"] == pytest.approx(right)
    assert 0 < right < 1 and 0 < history["accuracy"][0] < 1


@pytest.mark.parametrize(
    "loss", [nn.squared_error, nn.absolute_error, nn.huber, lambda y, t: ((y - t) ** 2).mean()]
)
def test_a_regression_has_no_default_accuracy(loss):
    trainer, data = one_output(loss)
    assert "accuracy" not in trainer.fit(data, 1, validation=data)
    assert list(trainer.evaluate(data)) == ["loss"]


def test_accuracy_of_one_class_is_refused():
    for shape in ((), (1,)):
        with pytest.raises(ShapeError, match=r"every answer is right\. Use binary_accuracy"):
            metrics.accuracy(np.ones((4, *shape)), np.zeros((4, *shape)))
    trainer, data = one_output(nn.squared_error, metrics="accuracy")
    with pytest.raises(ShapeError, match="of one class every answer is right"):
        trainer.fit(data, 1)
