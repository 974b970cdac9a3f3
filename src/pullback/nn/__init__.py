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

from typing import TYPE_CHECKING, Any

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
from pullback.nn.elsewhere import absent
from pullback.nn.embedding import Embedding
from pullback.nn.layers import Chain, Dense, Reshape, Seed, flatten
from pullback.nn.losses import (
    absolute_error,
    absolute_percentage_error,
    binary_cross_entropy,
    binary_focal,
    cosine_embedding,
    cosine_similarity,
    ctc,
    gaussian_nll,
    hinge,
    huber,
    kl_divergence,
    log_cosh,
    margin_ranking,
    multi_margin,
    nll,
    poisson_nll,
    smooth_l1,
    softmax_cross_entropy,
    softmax_focal,
    squared_error,
    squared_hinge,
    squared_logarithmic_error,
    triplet_margin,
)
from pullback.nn.module import Module, describe_parameters, parameter_bytes, parameter_count
from pullback.nn.normalisation import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm
from pullback.nn.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    GlobalAvgPool,
    GlobalMaxPool,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
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
from pullback.nn.resampling import PixelShuffle, PixelUnshuffle, Upsample
from pullback.nn.training import Training, current_training, training
from pullback.nn.weight_normalisation import SpectralNorm, WeightNorm
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
from pullback.numpy.adaptive import adaptive_avg_pool, adaptive_max_pool
from pullback.numpy.convolution import conv, conv_transpose
from pullback.numpy.pooling import avg_pool, global_avg_pool, global_max_pool, max_pool, max_unpool
from pullback.numpy.resampling import interpolate, pixel_shuffle, pixel_unshuffle

__all__ = [
    "GRU",
    "LSTM",
    "MGU",
    "RBF",
    "RNN",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
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
    "InstanceNorm",
    "LSTMCell",
    "LayerNorm",
    "MGUCell",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "Module",
    "MultiHeadAttention",
    "PReLU",
    "PixelShuffle",
    "PixelUnshuffle",
    "RMSNorm",
    "RNNCell",
    "Recurrent",
    "Reshape",
    "Seed",
    "SpectralNorm",
    "TimeDistributed",
    "Training",
    "Upsample",
    "WeightNorm",
    "absolute_error",
    "absolute_percentage_error",
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "avg_pool",
    "binary_cross_entropy",
    "binary_focal",
    "celu",
    "conv",
    "conv_transpose",
    "cosine_embedding",
    "cosine_similarity",
    "ctc",
    "current_training",
    "describe_parameters",
    "elu",
    "flatten",
    "from_keras",
    "from_torch",
    "gaussian_nll",
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
    "interpolate",
    "kl_divergence",
    "leaky_relu",
    "log_cosh",
    "log_sigmoid",
    "log_softmax",
    "losses",
    "margin_ranking",
    "max_pool",
    "max_unpool",
    "mish",
    "multi_margin",
    "nll",
    "parameter_bytes",
    "parameter_count",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1",
    "softmax",
    "softmax_cross_entropy",
    "softmax_focal",
    "softplus",
    "softsign",
    "squared_error",
    "squared_hinge",
    "squared_logarithmic_error",
    "tanh",
    "to_keras",
    "to_torch",
    "training",
    "triplet_margin",
]

if not TYPE_CHECKING:  # type checkers know what there is

    def __getattr__(name: str) -> Any:
        raise absent(name, __all__)
