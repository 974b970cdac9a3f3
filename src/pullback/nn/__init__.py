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
from pullback.nn.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from pullback.nn.layers import Chain, Dense, Reshape, Seed, flatten
from pullback.nn.losses import absolute_error, binary_cross_entropy, softmax_cross_entropy, squared_error
from pullback.nn.module import Module, describe_parameters, parameter_bytes, parameter_count
from pullback.nn.pooling import (
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    GlobalAvgPool,
    GlobalMaxPool,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
)
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
from pullback.numpy.convolution import conv, conv_transpose
from pullback.numpy.pooling import avg_pool, global_avg_pool, global_max_pool, max_pool

__all__ = [
    "RNN",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "Chain",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Dense",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Module",
    "Reshape",
    "Seed",
    "absolute_error",
    "avg_pool",
    "binary_cross_entropy",
    "conv",
    "conv_transpose",
    "describe_parameters",
    "elu",
    "flatten",
    "gelu",
    "global_avg_pool",
    "global_max_pool",
    "initialisers",
    "leaky_relu",
    "log_softmax",
    "losses",
    "max_pool",
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
