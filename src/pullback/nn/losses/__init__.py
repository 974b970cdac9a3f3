"""Losses: scalar functions of a model's outputs and what they should have been.

``reduction`` is ``"mean"`` over all that counts, ``"sum"``, or ``"none"`` for one loss for each example or element.
``where`` says what counts: bools that broadcast to the losses' shape. What does not count adds nothing and is not
looked at, NaN included, and the mean is over the rest; of nothing at all it is NaN, as everywhere. Unless said
otherwise outputs and targets have one shape, and values and gradients are those of PyTorch's function of that name.
"""

from pullback.nn.losses.classification import (
    kl_divergence,
    multi_margin,
    nll,
    softmax_cross_entropy,
    softmax_focal,
)
from pullback.nn.losses.distances import cosine_embedding, cosine_similarity, margin_ranking, triplet_margin
from pullback.nn.losses.elements import (
    absolute_error,
    absolute_percentage_error,
    binary_cross_entropy,
    binary_focal,
    gaussian_nll,
    hinge,
    huber,
    log_cosh,
    poisson_nll,
    smooth_l1,
    squared_error,
    squared_hinge,
    squared_logarithmic_error,
)
from pullback.nn.losses.sequences import ctc

__all__ = [
    "absolute_error",
    "absolute_percentage_error",
    "binary_cross_entropy",
    "binary_focal",
    "cosine_embedding",
    "cosine_similarity",
    "ctc",
    "gaussian_nll",
    "hinge",
    "huber",
    "kl_divergence",
    "log_cosh",
    "margin_ranking",
    "multi_margin",
    "nll",
    "poisson_nll",
    "smooth_l1",
    "softmax_cross_entropy",
    "softmax_focal",
    "squared_error",
    "squared_hinge",
    "squared_logarithmic_error",
    "triplet_margin",
]
