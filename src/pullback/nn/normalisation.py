"""Normalisation: batch, layer, group, instance and root mean square normalisation.

All but the last subtract a mean and divide by a deviation, as ``standardise`` does, and differ in what these are taken
over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from pullback.errors import DTypeError, ShapeError
from pullback.graph import dtype_kind, float_limits
from pullback.nn.initialisers import ones, zeros
from pullback.nn.layers import check_array, drawn, sizes
from pullback.nn.module import Module
from pullback.nn.training import Training, current_training
from pullback.numpy import astype, mean, sqrt, square, standardise, var
from pullback.tracing import buffer, static

__all__ = ["BatchNorm", "GroupNorm", "InstanceNorm", "LayerNorm", "RMSNorm"]


class BatchNorm(Module):
    r"""Batch normalisation: each feature of a batch with mean 0 and variance 1, then scaled and shifted.

    .. math:: y = w \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + b

    The input is (batch, features), or with positions (batch, features, …), or (batch, …, features) with
    ``channels="last"``; so one layer serves after dense layers and after convolutions in any number of
    dimensions. In training :math:`\mu` and :math:`\sigma^2` are those of the batch, over all axes but the
    features', and the layer keeps running ones: with momentum :math:`m`, :math:`n` elements for each feature
    and the unbiased variance :math:`s^2 = \sigma^2 n / (n - 1)`,

    .. math:: \mu_r = (1 - m) \mu_r + m \mu, \quad \sigma_r^2 = (1 - m) \sigma_r^2 + m s^2 .

    In evaluation, outside of ``nn.training``, the running ones take their place. ``weight`` (ones) and
    ``bias`` (zeros) have shape (features,), or are None with ``affine=False``; ``running_mean`` (zeros) and
    ``running_variance`` (ones) are buffers: no gradient reaches them and no optimiser changes them.

    Raises ``ShapeError`` for inputs of another size, and in training for a single element per feature, which
    has no variance.

    Source: Ioffe & Szegedy, *Batch normalization*, 2015; the running statistics as in PyTorch.

    >>> layer = BatchNorm(3)
    >>> layer
    BatchNorm(3)  # 6 parameters, 48 bytes with what is fixed
    >>> x = np.random.default_rng(0).normal(5.0, 2.0, (100, 3)).astype(np.float32)
    >>> from pullback import nn, random
    >>> with nn.training(random.key(0)) as mode:
    ...     y = layer(x)
    >>> bool(abs(y.mean(axis=0)).max() < 1e-5), bool(abs(y.std(axis=0) - 1).max() < 1e-4)
    (True, True)
    >>> np.allclose(mode.updated(layer).running_mean, 0.1 * x.mean(axis=0))
    True
    """

    weight: Any
    bias: Any
    running_mean: Any = buffer()
    running_variance: Any = buffer()
    momentum: float = static()
    epsilon: float = static()
    channels: Literal["first", "last"]

    def __init__(
        self,
        features: int,
        *,
        momentum: float = 0.1,
        epsilon: float = 1e-5,
        affine: bool = True,
        channels: Literal["first", "last"] = "first",
        dtype: DTypeLike = np.float32,
    ) -> None:
        if not 0 <= momentum <= 1:
            raise ValueError(f"[BatchNorm] momentum is {momentum}. Give a share from 0 to 1.")
        (features,) = sizes("BatchNorm", features=features)
        _check_channels("BatchNorm", channels)
        self.weight, self.bias = _affine("BatchNorm", (features,), affine, dtype)
        self.running_mean = np.zeros(features, dtype)
        self.running_variance = np.ones(features, dtype)
        self.momentum, self.epsilon, self.channels = momentum, _positive("BatchNorm", epsilon), channels

    def __call__(self, x: Any) -> Any:
        axis = _feature_axis(self, x, self.channels, self.running_mean.shape[0])
        along = [1] * x.ndim
        along[axis] = -1
        mode = current_training()
        if mode is None:
            scale = 1 / sqrt(self.running_variance + self.epsilon)
            normal = (x - self.running_mean.reshape(along)) * scale.reshape(along)
        else:
            axes = tuple(k for k in range(x.ndim) if k != axis)
            self._learn(mode, x, axes)
            normal = standardise(x, axes, epsilon=self.epsilon)
        return _scaled(self, normal, along)

    def _learn(self, mode: Training, x: Any, axes: tuple[int, ...]) -> None:
        """Move the running statistics towards those of the batch."""
        features, dtype = self.running_mean.shape[0], self.running_mean.dtype
        count = math.prod(x.shape) // features
        if count < 2:
            raise ShapeError(
                f"[{self.describe()}] a batch of shape {tuple(x.shape)} has one element per feature, and "
                "so no variance. Train on larger batches; drop_last=True leaves out a rest of one row."
            )
        found = mean(x, axes), var(x, axes, ddof=1)
        for running, new in zip((self.running_mean, self.running_variance), found):
            moved = (1 - self.momentum) * mode.value(running) + self.momentum * astype(new, dtype)
            mode.set(running, moved)

    def describe(self) -> str:
        options = ["not affine"] * (self.weight is None)
        options += ["channels last"] * (self.channels == "last")
        return f"BatchNorm({', '.join([str(self.running_mean.shape[0]), *options])})"


class LayerNorm(Module):
    r"""Layer normalisation: each example by itself with mean 0 and variance 1 over its last axes.

    .. math:: y = w \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + b

    (…, \*shape) → (…, \*shape); ``shape`` is a number for the last axis, or the extents of several.
    ``weight`` (ones) and ``bias`` (zeros) have that shape, or are None with ``affine=False``. It does the
    same in training and in evaluation.

    Raises ``ShapeError`` for inputs whose last axes are others.

    Source: Ba, Kiros & Hinton, *Layer normalization*, 2016.

    >>> layer = LayerNorm(4)
    >>> layer
    LayerNorm(4)  # 8 parameters, 32 bytes
    >>> print(layer(np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 5.0, 5.0, 5.0]], np.float32)).round(3))
    [[-1.342 -0.447  0.447  1.342]
     [ 0.     0.     0.     0.   ]]
    """

    weight: Any
    bias: Any
    shape: tuple[int, ...]
    epsilon: float = static()

    def __init__(
        self,
        shape: int | Sequence[int],
        *,
        epsilon: float = 1e-5,
        affine: bool = True,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.shape = _shape("LayerNorm", shape)
        self.weight, self.bias = _affine("LayerNorm", self.shape, affine, dtype)
        self.epsilon = _positive("LayerNorm", epsilon)

    def __call__(self, x: Any) -> Any:
        axes = _last_axes(self, x, self.shape)
        normal = standardise(x, axes, epsilon=self.epsilon)
        return _scaled(self, normal, self.shape)

    def describe(self) -> str:
        options = ["not affine"] * (self.weight is None)
        return f"LayerNorm({', '.join([' × '.join(map(str, self.shape)), *options])})"


class GroupNorm(Module):
    r"""Group normalisation: each group of an example's features with mean 0 and variance 1.

    .. math:: y = w \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + b

    where :math:`\mu` and :math:`\sigma^2` are taken over the features of a group and over all positions. Axes
    are those of ``BatchNorm``; ``weight`` and ``bias`` have shape (features,), or are None with
    ``affine=False``. One group is layer normalisation over features and positions, as many groups as features
    is instance normalisation, ``InstanceNorm``.

    Raises ``ShapeError`` when ``groups`` does not divide ``features``, and for inputs of another size.

    Source: Wu & He, *Group normalization*, 2018.

    >>> layer = GroupNorm(2, 4)
    >>> print(layer(np.array([[1.0, 3.0, 10.0, 30.0]], np.float32)).round(3))
    [[-1.  1. -1.  1.]]
    """

    weight: Any
    bias: Any
    groups: int
    features: int
    epsilon: float = static()
    channels: Literal["first", "last"]

    def __init__(
        self,
        groups: int,
        features: int,
        *,
        epsilon: float = 1e-5,
        affine: bool = True,
        channels: Literal["first", "last"] = "first",
        dtype: DTypeLike = np.float32,
    ) -> None:
        groups, features = sizes("GroupNorm", groups=groups, features=features)
        if features % groups:
            raise ShapeError(
                f"[GroupNorm] {features} features do not fall into {groups} groups. Choose a divisor of them."
            )
        _check_channels("GroupNorm", channels)
        self.weight, self.bias = _affine("GroupNorm", (features,), affine, dtype)
        self.groups, self.features = groups, features
        self.epsilon, self.channels = _positive("GroupNorm", epsilon), channels

    def __call__(self, x: Any) -> Any:
        axis = _feature_axis(self, x, self.channels, self.features)
        along = [1] * x.ndim
        along[axis] = -1
        shape = tuple(x.shape)
        split = (*shape[:axis], self.groups, self.features // self.groups, *shape[axis + 1 :])
        # The group's own axis stands where the features stood, so all others behind the batch's are summed.
        axes = tuple(k for k in range(1, len(split)) if k != axis)
        normal = standardise(x.reshape(split), axes, epsilon=self.epsilon).reshape(shape)
        return _scaled(self, normal, along)

    def describe(self) -> str:
        options = ["not affine"] * (self.weight is None)
        options += ["channels last"] * (self.channels == "last")
        return f"GroupNorm({', '.join([f'{self.features} in {self.groups} groups', *options])})"


class RMSNorm(Module):
    r"""Root mean square normalisation: each example by itself with mean square 1 over its last axes.

    .. math:: y = w \frac{x}{\sqrt{\frac1n \sum x^2 + \epsilon}}

    (…, \*shape) → (…, \*shape); ``shape`` is a number for the last axis, or the extents of several. No mean is
    subtracted, and there is no bias. ``weight`` (ones) has that shape, or is None with ``affine=False``.
    ``epsilon`` is by default, as in PyTorch, what lies between 1 and the next number of the input's dtype.

    Raises ``ShapeError`` for inputs whose last axes are others, ``DTypeError`` for a dtype that is no float.

    Source: Zhang & Sennrich, *Root mean square layer normalization*, 2019.

    >>> layer = RMSNorm(4)
    >>> layer
    RMSNorm(4)  # 4 parameters, 16 bytes
    >>> print(layer(np.array([[1.0, 1.0, -1.0, 1.0], [0.0, 6.0, 0.0, 8.0]], np.float32)))
    [[ 1.   1.  -1.   1. ]
     [ 0.   1.2  0.   1.6]]
    """

    weight: Any
    shape: tuple[int, ...]
    epsilon: float | None = static()

    def __init__(
        self,
        shape: int | Sequence[int],
        *,
        epsilon: float | None = None,
        affine: bool = True,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.shape = _shape("RMSNorm", shape)
        self.weight = _affine("RMSNorm", self.shape, affine, dtype)[0]
        self.epsilon = epsilon if epsilon is None else _positive("RMSNorm", epsilon)

    def __call__(self, x: Any) -> Any:
        axes = _last_axes(self, x, self.shape)
        if dtype_kind(x.dtype) != "f":
            raise DTypeError(f"[{self.describe()}] the input's dtype is {x.dtype}. Give floats.")
        epsilon = float(float_limits(x.dtype).eps) if self.epsilon is None else self.epsilon
        normal = x * (1 / sqrt(mean(square(x), axes, keepdims=True) + epsilon))
        return normal if self.weight is None else normal * self.weight

    def describe(self) -> str:
        options = ["not affine"] * (self.weight is None)
        return f"RMSNorm({', '.join([' × '.join(map(str, self.shape)), *options])})"


class InstanceNorm(Module):
    r"""Instance normalisation: each feature of each example by itself with mean 0 and variance 1 over its positions.

    .. math:: y = w \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + b

    The input is (batch, features, …) with one axis of positions or more, or (batch, …, features) with
    ``channels="last"``. It does the same in training and in evaluation. ``weight`` (ones) and ``bias`` (zeros) have
    shape (features,); by default, as in PyTorch, there are none of them.

    Raises ``ShapeError`` for inputs of another size, and for a single position, which has no variance.

    Source: Ulyanov, Vedaldi & Lempitsky, *Instance normalization*, 2016.

    >>> layer = InstanceNorm(2)
    >>> layer
    InstanceNorm(2, not affine)
    >>> print(layer(np.array([[[1.0, 3.0], [20.0, 10.0]]], np.float32)).round(3))
    [[[-1.  1.]
      [ 1. -1.]]]
    """

    weight: Any
    bias: Any
    features: int
    epsilon: float = static()
    channels: Literal["first", "last"]

    def __init__(
        self,
        features: int,
        *,
        epsilon: float = 1e-5,
        affine: bool = False,
        channels: Literal["first", "last"] = "first",
        dtype: DTypeLike = np.float32,
    ) -> None:
        _check_channels("InstanceNorm", channels)
        (features,) = sizes("InstanceNorm", features=features)
        self.weight, self.bias = _affine("InstanceNorm", (features,), affine, dtype)
        self.features, self.epsilon = features, _positive("InstanceNorm", epsilon)
        self.channels = channels

    def __call__(self, x: Any) -> Any:
        axis = _feature_axis(self, x, self.channels, self.features)
        axes = tuple(k for k in range(1, x.ndim) if k != axis)
        if math.prod(x.shape[k] for k in axes) == 1:
            raise ShapeError(
                f"[{self.describe()}] an input of shape {tuple(x.shape)} has one position for each feature, and so no "
                "variance. Give several positions; LayerNorm normalises over features."
            )
        along = [1] * x.ndim
        along[axis] = -1
        return _scaled(self, standardise(x, axes, epsilon=self.epsilon), along)

    def describe(self) -> str:
        options = ["not affine"] * (self.weight is None)
        options += ["channels last"] * (self.channels == "last")
        return f"InstanceNorm({', '.join([str(self.features), *options])})"


def _scaled(
    layer: BatchNorm | LayerNorm | GroupNorm | InstanceNorm, normal: Any, shape: Sequence[int]
) -> Any:
    """``normal`` times the layer's weight, plus its bias, both brought to ``shape``."""
    if layer.weight is None:
        return normal
    return normal * layer.weight.reshape(shape) + layer.bias.reshape(shape)


def _affine(layer: str, shape: tuple[int, ...], affine: bool, dtype: DTypeLike) -> tuple[Any, Any]:
    """The weight and the bias that a layer begins with."""
    random = np.random.default_rng(0)  # asked for by every initialiser; these two draw nothing
    weight, bias = (drawn(layer, begin, shape, random, dtype) for begin in (ones, zeros))
    return (weight, bias) if affine else (None, None)


def _shape(layer: str, shape: int | Sequence[int]) -> tuple[int, ...]:
    """The extents of the last axes, of one of them or of several."""
    extents = shape if isinstance(shape, Sequence) else (shape,)
    return sizes(layer, **{f"axis {k} of the shape": extent for k, extent in enumerate(extents)})


def _positive(layer: str, epsilon: float) -> float:
    if not epsilon > 0:
        raise ValueError(f"[{layer}] epsilon is {epsilon}. Give a positive number.")
    return epsilon


def _check_channels(layer: str, channels: str) -> None:
    if channels not in ("first", "last"):
        raise ValueError(f"[{layer}] channels={channels!r}. They are 'first' or 'last'.")


def _last_axes(layer: LayerNorm | RMSNorm, x: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The last axes of ``x``; raises ``ShapeError`` unless their extents are ``shape``."""
    check_array(layer, x)
    rank = len(shape)
    if x.ndim < rank or tuple(x.shape[x.ndim - rank :]) != shape:
        raise ShapeError(
            f"[{layer.describe()}] the input has shape {tuple(x.shape)}; its last axes must be "
            f"{shape}. Reshape the input, or make the layer for its size."
        )
    return tuple(range(x.ndim - rank, x.ndim))


def _feature_axis(layer: Module, x: Any, channels: str, features: int) -> int:
    """The axis of the features; raises ``ShapeError`` unless ``x`` has as many as the layer was made for."""
    check_array(layer, x)
    axis = 1 if channels == "first" else x.ndim - 1
    if x.ndim < 2 or x.shape[axis] != features:
        place = "axis 1" if channels == "first" else "the last axis"
        raise ShapeError(
            f"[{layer.describe()}] the input has shape {tuple(x.shape)}; {place} must have {features} "
            "elements, behind an axis for the batch. Reshape the input, or make the layer for its size."
        )
    return axis
