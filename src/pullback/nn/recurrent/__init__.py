"""Recurrent networks: cells, and layers that take them over sequences."""

from pullback.nn.recurrent.cells import Cell, GRUCell, LSTMCell, MGUCell, RNNCell
from pullback.nn.recurrent.distributed import TimeDistributed
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
]
