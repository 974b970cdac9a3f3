"""Recurrent networks: cells, layers that take them over sequences, and weights from and for other libraries."""

from pullback.nn.recurrent.cells import Cell, GRUCell, LSTMCell, MGUCell, RNNCell
from pullback.nn.recurrent.distributed import TimeDistributed
from pullback.nn.recurrent.exchange import from_keras, from_torch, to_keras, to_torch
from pullback.nn.recurrent.layers import GRU, LSTM, MGU, RNN, Recurrent

__all__ = [
    "GRU",
    "LSTM",
    "MGU",
    "RNN",
    "Cell",
    "GRUCell",
    "LSTMCell",
    "MGUCell",
    "RNNCell",
    "Recurrent",
    "TimeDistributed",
    "from_keras",
    "from_torch",
    "to_keras",
    "to_torch",
]
