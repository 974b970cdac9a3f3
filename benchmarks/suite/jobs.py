"""The networks that are raced: the jobs of the papers, and the same in other sizes, for which nothing was tuned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from networks import Conv, Dense, Dropout, Embedding, Flatten, Gated, Layer, Network, Pool, Recurrent

__all__ = [
    "CHARS", "IMDB_CNN", "IMDB_FROZEN", "IMDB_LSTM", "JOBS", "MNIST_CNN", "MNIST_CNN_1", "MNIST_RNN", "RACES", "Race",
]  # fmt: skip


@dataclass(frozen=True)
class Race:
    """Networks, and how many steps a turn has."""

    networks: tuple[Network, ...]
    steps: int


MNIST_RNN = Network("mnist-rnn", (4, 196), (Recurrent(64), Dense(10)), learning_rate=0.015)
PERCEPTRON = Network("mlp", (784,), (*[Dense(2048, "relu")] * 2, Dense(10)), batch=256, learning_rate=0.015)


def _cnn(name: str, *blocks: Layer, **more: Any) -> Network:
    head = (Dense(84, "relu", bias=False), Dense(10, bias=False))
    return Network(name, **{"input": (1, 28, 28), "layers": (*blocks, *head), **more})


_CONV = Conv(6, 3, bias=False)
_BLOCK = (_CONV, Pool(2), Flatten())
MNIST_CNN = _cnn("mnist-cnn", *_BLOCK)
MNIST_CNN_1 = replace(MNIST_CNN, name="mnist-cnn-1", batch=1)

_CNN_VARIATIONS = (
    _cnn("kernel-5", replace(_CONV, window=5), *_BLOCK[1:]),
    _cnn("colour", Conv(16, 3), Pool(2), Conv(32, 3), Pool(2), Flatten(), input=(3, 32, 32), data="colour"),
    _cnn("stride-2", replace(_CONV, stride=2), Flatten()),
    _cnn("average-pooling", _CONV, Pool(2, mean=True), Flatten()),
    _cnn("dropout", *_BLOCK, Dropout(0.5)),
    replace(MNIST_CNN, name="adamw", optimiser="adamw", learning_rate=0.001),
    *(replace(MNIST_CNN, name=f"batch-{size}", batch=size) for size in (16, 50, 200)),
)


def _text(name: str, *layers: Layer, trainable: bool = True, **more: Any) -> Network:
    settings = {"batch": 64, "optimiser": "adam", "learning_rate": 0.0003, **more}
    layers = (Embedding(12_000, 50, trainable), *layers, Dense(1))
    return Network(name, (130,), layers, data="imdb", channels="last", **settings)


_FILTERS = (Conv(8, 3), Pool(8), Flatten())
IMDB_CNN = _text("imdb-cnn", *_FILTERS)
IMDB_FROZEN = _text("imdb-frozen", *_FILTERS, trainable=False, learning_rate=0.002)

_TEXT_VARIATIONS = (
    _text("100-filters", Conv(100, 5), Pool()),
    _text("100-filters-frozen", Conv(100, 5), Pool(), trainable=False),
    _text("text-average-pooling", Conv(8, 3), Pool(8, mean=True), Flatten()),
    _text("text-dropout", *_FILTERS, Dropout(0.5)),
    replace(IMDB_CNN, name="text-adamw", optimiser="adamw"),
    *(replace(IMDB_CNN, name=f"text-batch-{size}", batch=size) for size in (16, 50, 200)),
)

_RNN_VARIATIONS = (
    *(
        replace(MNIST_RNN, name=f"hidden-{units}", layers=(Recurrent(units), Dense(10)))
        for units in (48, 100, 200)
    ),
    *(replace(MNIST_RNN, name=f"rnn-batch-{size}", batch=size) for size in (32, 37, 256)),
    replace(MNIST_RNN, name="7-steps", input=(7, 112)),
    replace(MNIST_RNN, name="relu-cell", layers=(Recurrent(64, "relu"), Dense(10))),
    replace(MNIST_RNN, name="two-layers", layers=(Recurrent(64, sequence=True), *MNIST_RNN.layers)),
)


def _lstm(name: str, units: int, batch: int) -> Network:
    layers = Embedding(20_000, 32), Gated("lstm", units), Dense(1)
    return Network(
        name, (500,), layers, data="imdb-long", channels="last",
        batch=batch, optimiser="adam", learning_rate=0.001,
    )  # fmt: skip


IMDB_LSTM = _lstm("imdb-lstm", 32, 32)
_LSTM_VARIATIONS = tuple(
    _lstm(f"imdb-lstm-{units}-{batch}", units, batch) for units, batch in ((32, 256), (128, 256), (128, 32))
)
CHARS = Network(
    "chars",
    (64,),
    (Embedding(96, 64), *[Gated("gru", 256, sequence=True)] * 2, Dense(96)),
    data="characters",
    channels="last",
    batch=32,
    optimiser="adam",
    learning_rate=0.002,
)

JOBS = (MNIST_RNN, MNIST_CNN, MNIST_CNN_1, IMDB_CNN, IMDB_FROZEN, IMDB_LSTM, CHARS)

RACES = {
    "mnist-rnn": Race((MNIST_RNN,), steps=300),
    "variations": Race(_RNN_VARIATIONS, steps=200),
    "mlp": Race((PERCEPTRON,), steps=8),
    "mnist-cnn": Race((MNIST_CNN,), steps=100),
    "mnist-cnn-1": Race((MNIST_CNN_1,), steps=2000),
    "cnn-variations": Race(_CNN_VARIATIONS, steps=50),
    "imdb-cnn": Race((IMDB_CNN,), steps=100),
    "imdb-frozen": Race((IMDB_FROZEN,), steps=100),
    "text-variations": Race(_TEXT_VARIATIONS, steps=50),
    "imdb-lstm": Race((IMDB_LSTM, *_LSTM_VARIATIONS), steps=4),
    "chars": Race((CHARS,), steps=4),
}
"""By the name of the benchmark."""
