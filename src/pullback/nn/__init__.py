"""Networks: modules that are plain data, their initialisers, activations and losses.

>>> import numpy as np
>>> from pullback import nn
>>> model = nn.Chain(nn.Reshape(4, 196), nn.RNN(196, 64), nn.Dense(64, 10))
>>> model
Chain(
  Reshape(4, 196),
  RNN(196 → 64, tanh),  # 16,704 parameters, 66.8 kB
  Dense(64 → 10),  # 650 parameters, 2.6 kB
)  # 17,354 parameters, 69.4 kB
>>> model(np.zeros((100, 28, 28), np.float32)).shape
(100, 10)
"""

from pullback.nn import initialisers, losses
from pullback.nn.layers import Chain, Dense, Reshape, Seed, flatten
from pullback.nn.losses import absolute_error, binary_cross_entropy, softmax_cross_entropy, squared_error
from pullback.nn.module import Module, describe_parameters, parameter_bytes, parameter_count
from pullback.nn.recurrent import RNN
from pullback.numpy import (
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    relu,
    selu,
    sigmoid,
    silu,
    softmax,
    softplus,
    tanh,
)

__all__ = [
    "RNN",
    "Chain",
    "Dense",
    "Module",
    "Reshape",
    "Seed",
    "absolute_error",
    "binary_cross_entropy",
    "describe_parameters",
    "elu",
    "flatten",
    "gelu",
    "initialisers",
    "leaky_relu",
    "log_softmax",
    "losses",
    "parameter_bytes",
    "parameter_count",
    "relu",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softmax_cross_entropy",
    "softplus",
    "squared_error",
    "tanh",
]
