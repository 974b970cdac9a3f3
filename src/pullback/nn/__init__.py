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
from pullback.nn.activations import PReLU
from pullback.nn.attention import MultiHeadAttention
from pullback.nn.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from pullback.nn.dropout import Dropout
from pullback.nn.embedding import Embedding
from pullback.nn.layers import Chain, Dense, Reshape, Seed, flatten
from pullback.nn.losses import (
    absolute_error,
    binary_cross_entropy,
    hinge,
    huber,
    kl_divergence,
    softmax_cross_entropy,
    squared_error,
)
from pullback.nn.module import Module, describe_parameters, parameter_bytes, parameter_count
from pullback.nn.normalisation import BatchNorm, GroupNorm, LayerNorm
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
from pullback.nn.radial import RBF
from pullback.nn.recurrent import (
    GRU,
    LSTM,
    MGU,
    RNN,
    GRUCell,
    LSTMCell,
    MGUCell,
    Recurrent,
    RNNCell,
    TimeDistributed,
    from_keras,
    from_torch,
    to_keras,
    to_torch,
)
from pullback.nn.training import Training, current_training, training
from pullback.numpy import (
    celu,
    elu,
    gelu,
    glu,
    hard_sigmoid,
    hard_swish,
    hard_tanh,
    leaky_relu,
    log_sigmoid,
    log_softmax,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    softmax,
    softplus,
    softsign,
    tanh,
)
from pullback.numpy.convolution import conv, conv_transpose
from pullback.numpy.pooling import avg_pool, global_avg_pool, global_max_pool, max_pool

__all__ = [
    "GRU",
    "LSTM",
    "MGU",
    "RBF",
    "RNN",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BatchNorm",
    "Chain",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Dense",
    "Dropout",
    "Embedding",
    "GRUCell",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "GroupNorm",
    "LSTMCell",
    "LayerNorm",
    "MGUCell",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Module",
    "MultiHeadAttention",
    "PReLU",
    "RNNCell",
    "Recurrent",
    "Reshape",
    "Seed",
    "TimeDistributed",
    "Training",
    "absolute_error",
    "avg_pool",
    "binary_cross_entropy",
    "celu",
    "conv",
    "conv_transpose",
    "current_training",
    "describe_parameters",
    "elu",
    "flatten",
    "from_keras",
    "from_torch",
    "gelu",
    "global_avg_pool",
    "global_max_pool",
    "glu",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "hinge",
    "huber",
    "initialisers",
    "kl_divergence",
    "leaky_relu",
    "log_sigmoid",
    "log_softmax",
    "losses",
    "max_pool",
    "mish",
    "parameter_bytes",
    "parameter_count",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softmax_cross_entropy",
    "softplus",
    "softsign",
    "squared_error",
    "tanh",
    "to_keras",
    "to_torch",
    "training",
]
