"""Keyword arguments that there are not are told by what they are called here."""

import inspect
import pickle

import numpy as np
import pytest

from pullback import Trainer, nn, optim
from pullback.errors import DataError, KeywordError, SettingError
from pullback.keywords import KEYWORDS, MISSING
from pullback.nn.elsewhere import ELSEWHERE
from pullback.nn.recurrent.cells import Cell
from pullback.nn.recurrent.layers import Stack


class Net(nn.Module):
    def __init__(self, hidden):
        self.layer = nn.Dense(2, hidden)


def trainer(**options):
    return Trainer(nn.Dense(1, 1), nn.squared_error, optim.SGD(0.1), **options)


DATA = np.zeros((4, 1), np.float32), np.zeros((4, 1), np.float32)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: nn.Dense(in_features=3, outputs=2),
            r"\[Dense\].*'in_features'. Here it is 'inputs'. It takes inputs",
        ),
        (lambda: nn.Dense(3, units=2), "Here it is 'outputs'"),
        (lambda: nn.Dense(3, 2, activaton=np.tanh), "Near it is 'activation'"),
        (lambda: nn.LSTM(3, units=2), r"\[LSTM\].*Here it is 'hidden'"),
        (
            lambda: nn.LSTM(3, 2, batch_first=True),
            r"\[LSTM\].*The batch comes first always. It takes inputs, hidden",
        ),
        (
            lambda: nn.LSTM(3, 2, num_layers=2),
            r"\[LSTM\].*Here it is 'layers'. It takes .*bidirectional.*layer_norm",
        ),
        (lambda: nn.GRU(3, 2, use_bias=False), r"\[GRU\].*Here it is 'bias'"),
        (lambda: nn.LSTMCell(3, hidden_size=2), r"\[LSTMCell\].*Here it is 'hidden'"),
        (lambda: nn.Conv2d(1, filters=3, kernel_size=3), "Here it is 'out_channels'"),
        (lambda: nn.MaxPool2d(pool_size=2), "Here it is 'kernel_size'"),
        (lambda: nn.Dropout(p=0.5), "Here it is 'rate'"),
        (lambda: nn.Embedding(num_embeddings=3, embedding_dim=2), "Here it is 'rows'"),
        (lambda: Net(hiden=3), r"\[Net\].*Near it is 'hidden'. It takes hidden."),
        (lambda: optim.Adam(lr=0.1), r"\[Adam\].*Here it is 'learning_rate'"),
        (lambda: optim.AdamW(betas=(0.9, 0.99)), r"\[AdamW\].*Here it is 'beta1' and 'beta2'"),
        (lambda: trainer(batchsize=2), r"\[Trainer\].*Near it is 'batch_size'"),
        (lambda: trainer().fit(DATA, 1, validation_data=DATA), r"\[fit\].*Here it is 'validation'"),
        (lambda: optim.Adam(wrong=0.1), r"argument 'wrong'. It takes learning_rate, beta1"),
    ],
)
def test_what_it_is_called_here(make, message):
    with pytest.raises(KeywordError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: trainer().fit(*DATA, 1),
            r"\[fit\] 3 arguments .* takes dataset, epochs; .*pair: \(inputs, labels\)",
        ),
        (lambda: trainer().fit(*DATA, epochs=1), r"\[fit\] 2 arguments .* by keyword validation"),
        (lambda: trainer().evaluate(*DATA), r"\[evaluate\] 2 arguments .* takes dataset\. .*a pair"),
        (
            lambda: nn.Dense(3, 2, True),
            r"\[Dense\] 3 arguments .* So it takes inputs, outputs; by keyword bias",
        ),
    ],
)
def test_what_is_not_given_by_position(make, message):
    with pytest.raises(SettingError, match=message + r".*test_keywords.py:\d+"):
        make()


def test_inputs_without_labels_are_no_data():
    with pytest.raises(DataError, match="Give a Dataset or a pair"):
        trainer().fit(*DATA)


def test_an_array_is_no_count():
    with pytest.raises(SettingError, match=r"\[fit\] epochs is array(?s:.*)Give an integer"):
        trainer().fit(DATA, DATA[0])


def test_what_is_missing_is_told_by_python():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'hidden'"):
        nn.LSTM(3, layer_norm=True)


def test_signatures_and_copies_are_as_they_were():
    assert [*inspect.signature(nn.Dense).parameters][:2] == ["inputs", "outputs"]
    assert pickle.loads(pickle.dumps(optim.Adam(0.1))) == optim.Adam(0.1)


def test_every_name_is_one_that_something_has():
    classes = [each for module in (nn, optim) for each in vars(module).values() if inspect.isclass(each)]
    functions = [*classes, Trainer, Trainer.fit, Cell, Stack]
    known = {name for each in functions for name in inspect.signature(each).parameters}
    assert {name for names in KEYWORDS.values() for name in names} <= known
    assert not MISSING.keys() & (known | KEYWORDS.keys())


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("Linear", "Dense"),
        ("ReLU", "relu"),
        ("Conv2D", "Conv2d"),
        ("AveragePooling2D", "AvgPool2d"),
        ("GlobalAveragePooling2D", "GlobalAvgPool"),
        ("CrossEntropyLoss", "softmax_cross_entropy"),
        ("SmoothL1Loss", "smooth_l1"),
        ("BatchNorm2d", "BatchNorm"),
        ("MultiheadAttention", "MultiHeadAttention"),
    ],
)
def test_layers_and_losses_by_their_names_elsewhere(name, here):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; here it is nn.{here}$"):
        getattr(nn, name)


def test_what_is_nowhere_has_no_other_name():
    assert not hasattr(nn, "Transformer")
    with pytest.raises(AttributeError, match=r"no attribute 'Transformer'$"):
        nn.Transformer  # noqa: B018
    assert all(hasattr(nn, here) for here in ELSEWHERE.values())
