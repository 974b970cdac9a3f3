"""What PyTorch and Keras call layers, losses and activations that are here by another name."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["absent"]

ELSEWHERE = {
    "batchnorm1d": "BatchNorm",
    "batchnorm2d": "BatchNorm",
    "batchnorm3d": "BatchNorm",
    "batchnormalization": "BatchNorm",
    "bce": "binary_cross_entropy",
    "bcewithlogits": "binary_cross_entropy",
    "binarycrossentropy": "binary_cross_entropy",
    "categoricalcrossentropy": "softmax_cross_entropy",
    "crossentropy": "softmax_cross_entropy",
    "globalavgpool1d": "GlobalAvgPool",
    "globalavgpool2d": "GlobalAvgPool",
    "globalmaxpool1d": "GlobalMaxPool",
    "globalmaxpool2d": "GlobalMaxPool",
    "groupnormalization": "GroupNorm",
    "kldiv": "kl_divergence",
    "l1": "absolute_error",
    "layernormalization": "LayerNorm",
    "linear": "Dense",
    "meanabsoluteerror": "absolute_error",
    "meansquarederror": "squared_error",
    "mse": "squared_error",
    "sequential": "Chain",
    "simplernn": "RNN",
    "sparsecategoricalcrossentropy": "softmax_cross_entropy",
    "unflatten": "Reshape",
}
"""By a name of theirs, as ``_plain`` makes it, the name here."""


def absent(name: str, known: Iterable[str]) -> AttributeError:
    """The error for a ``name`` that ``pullback.nn`` does not have, with the one of ``known`` that means the same.

    >>> print(absent("Linear", ["Dense"]))
    module 'pullback.nn' has no attribute 'Linear'; here it is nn.Dense
    >>> print(absent("LeakyReLU", ["relu", "leaky_relu"]))
    module 'pullback.nn' has no attribute 'LeakyReLU'; here it is nn.leaky_relu
    """
    plain = _plain(name)
    found = ELSEWHERE.get(plain) or next((each for each in known if _plain(each) == plain), None)
    here = "" if found is None else f"; here it is nn.{found}"
    return AttributeError(f"module 'pullback.nn' has no attribute {name!r}{here}", name=name)


def _plain(name: str) -> str:
    """A name as it is compared: without the parts in which libraries differ."""
    plain = name.lower().replace("_", "").removesuffix("loss")
    return plain.replace("pooling", "pool").replace("average", "avg")
