"""Layers that every network has: dense, chains of layers, and what only changes shapes."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pullback.counts import count
from pullback.errors import DTypeError, SettingError, ShapeError
from pullback.nn.initialisers import Initialiser, fan_in_uniform, uniform
from pullback.nn.module import Module
from pullback.tracing import aligned_array

__all__ = [
    "Chain",
    "Dense",
    "Reshape",
    "Seed",
    "check_activation",
    "check_array",
    "check_features",
    "drawn",
    "flatten",
    "function_name",
    "sizes",
]

Array = NDArray[Any]
Seed = int | np.random.Generator | None
"""What parameters are drawn by: a number, a generator that layers may share, or None for chance."""


class Dense(Module):
    r"""A dense layer, :math:`y = f(x W + b)`, over the last axis: (…, inputs) → (…, outputs).

    ``weight`` has shape (inputs, outputs), ``bias`` (outputs,) or is None with ``bias=False``; ``activation``
    is any function of an array, such as ``nn.relu`` or ``np.tanh``. By default both begin uniform in
    :math:`\pm 1 / \sqrt{\text{inputs}}`; an ``initialiser`` replaces the weight's rule and lets the bias
    begin at zero. ``seed`` is a number or a NumPy generator; several layers may share a generator.

    Raises ``ShapeError`` for inputs of another size, ``DTypeError`` for a dtype that is no float.

    >>> layer = Dense(3, 2, activation=np.tanh, seed=0)
    >>> layer
    Dense(3 → 2, tanh)  # 8 parameters, 32 bytes
    >>> layer(np.zeros((5, 3), np.float32)).shape
    (5, 2)
    """

    weight: Any
    bias: Any
    activation: Callable[[Any], Any] | None

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        bias: bool = True,
        activation: Callable[[Any], Any] | None = None,
        initialiser: Initialiser | None = None,
        seed: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        inputs, outputs = sizes("Dense", inputs=inputs, outputs=outputs)
        check_activation("Dense", activation)
        random = np.random.default_rng(seed)
        limit = 0.0 if initialiser is not None else 1 / math.sqrt(inputs)
        self.weight = drawn("Dense", initialiser or fan_in_uniform, (inputs, outputs), random, dtype)
        self.bias = drawn("Dense", uniform(limit), (outputs,), random, dtype) if bias else None
        self.activation = activation

    def __call__(self, x: Any) -> Any:
        check_features(self, x, self.weight.shape[0])
        y = x @ self.weight
        if self.bias is not None:
            y = y + self.bias
        return y if self.activation is None else self.activation(y)

    def describe(self) -> str:
        inputs, outputs = self.weight.shape
        options = ["no bias"] * (self.bias is None)
        if self.activation is not None:
            options.append(function_name(self.activation))
        return f"Dense({', '.join([f'{inputs} → {outputs}', *options])})"


class Chain(Module):
    """Layers one after the other: modules and plain functions of one array.

    ``chain(x, lengths=n)`` hands the lengths of sequences to the layers that take them, such as ``nn.LSTM``.

    ``chain[k]`` is layer k, ``len(chain)`` their number.

    >>> from pullback import nn
    >>> model = Chain(nn.flatten, nn.Dense(64, 32), nn.relu, nn.Dense(32, 10))
    >>> model
    Chain(
      flatten,
      Dense(64 → 32),  # 2,080 parameters, 8.3 kB
      relu,
      Dense(32 → 10),  # 330 parameters, 1.3 kB
    )  # 2,410 parameters, 9.6 kB
    >>> model(np.zeros((5, 8, 8), np.float32)).shape
    (5, 10)
    """

    layers: tuple[Callable[..., Any], ...]

    def __init__(self, *layers: Callable[..., Any]) -> None:
        for position, layer in enumerate(layers):
            if isinstance(layer, type):
                raise TypeError(
                    f"[Chain] layer {position} is the class {layer.__name__}. Make a layer of it: {layer.__name__}(…)."
                )
            if not callable(layer):
                raise TypeError(
                    f"[Chain] layer {position} is a {type(layer).__name__}, which cannot be called. "
                    "Give modules and functions."
                )
        self.layers = layers

    def __call__(self, x: Any, lengths: Any = None) -> Any:
        if lengths is not None and not _takes_lengths(self):
            raise TypeError(
                "[Chain] lengths are given, and no layer takes any. Give a recurrent layer, or leave the lengths out."
            )
        for layer in self.layers:
            x = layer(x) if lengths is None or not _takes_lengths(layer) else layer(x, lengths=lengths)
        return x

    def __getitem__(self, position: int) -> Any:
        return self.layers[position]

    def __len__(self) -> int:
        return len(self.layers)

    def parts(self) -> dict[str, Any]:
        return {str(position): layer for position, layer in enumerate(self.layers)}


def _takes_lengths(layer: Callable[..., Any]) -> bool:
    """Whether a layer, or one in it, takes ``lengths``."""
    if isinstance(layer, Chain):
        return any(map(_takes_lengths, layer.layers))
    try:
        return "lengths" in inspect.signature(layer).parameters
    except (TypeError, ValueError):  # some functions that are written in C
        return False


class Reshape(Module):
    """Each example in another shape: (batch, …) → (batch, \\*shape); one extent may be -1.

    Raises ``SettingError`` for extents that are no integers.

    >>> rows = Reshape(4, 196)
    >>> rows, rows(np.zeros((100, 28, 28), np.uint8)).shape
    (Reshape(4, 196), (100, 4, 196))
    """

    shape: tuple[int, ...]

    def __init__(self, *shape: int) -> None:
        self.shape = tuple(
            count("Reshape", f"extent {k}", size, -1, ShapeError) for k, size in enumerate(shape)
        )

    def __call__(self, x: Any) -> Any:
        return x.reshape(x.shape[0], *self.shape)

    def describe(self) -> str:
        return f"Reshape({', '.join(map(str, self.shape))})"


def flatten(x: Any) -> Any:
    """Each example as one vector: (batch, …) → (batch, features).

    >>> flatten(np.zeros((100, 28, 28))).shape
    (100, 784)
    """
    return x.reshape(x.shape[0], math.prod(x.shape[1:]))


def sizes(layer: str, **given: int) -> tuple[int, ...]:
    """Sizes as Python's integers: NumPy's would be leaves of the layer's tree.

    Raises ``ShapeError`` for sizes below 1, ``SettingError`` for what is no integer, each by its name.

    >>> sizes("Dense", inputs=784, outputs=0)
    Traceback (most recent call last):
    pullback.errors.ShapeError: [Dense] outputs is 0. Give 1 or more. ...
    """
    return tuple(count(layer, name, size, error=ShapeError) for name, size in given.items())


def drawn(
    layer: str,
    initialiser: Initialiser,
    shape: tuple[int, ...],
    random: np.random.Generator,
    dtype: DTypeLike,
) -> Array:
    """A parameter of this shape and dtype, with checks that name the layer."""
    if min(shape) < 1:
        raise ShapeError(f"[{layer}] a parameter of shape {shape}. Give sizes of at least 1.")
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise DTypeError(f"[{layer}] parameters of dtype {np.dtype(dtype)}. Use float32 or float64.")
    if not callable(initialiser) or isinstance(initialiser, type):
        raise SettingError(
            f"[{layer}] initialiser is {initialiser!r:.60}, a {type(initialiser).__name__}. Give a function of a shape "
            "and a generator, such as nn.initialisers.glorot_uniform."
        )
    values = np.asarray(initialiser(shape, random))
    if values.shape != shape:
        raise ShapeError(
            f"[{layer}] the initialiser made shape {values.shape}, not {shape}. "
            "Return an array of the shape asked for."
        )
    return aligned_array(np.ascontiguousarray(values, dtype))


def check_activation(layer: str, activation: Any) -> None:
    """Raise ``SettingError`` unless ``activation`` is None or a function.

    >>> check_activation("Dense", "relu")
    Traceback (most recent call last):
    pullback.errors.SettingError: [Dense] activation is 'relu', a str. Give a function itself, such as nn.relu...
    """
    if isinstance(activation, type):
        name = activation.__name__
        raise SettingError(f"[{layer}] activation is the class {name}. Make one of it: {name}(…).")
    if activation is not None and not callable(activation):
        kind = type(activation).__name__
        raise SettingError(
            f"[{layer}] activation is {activation!r:.60}, a {kind}. Give a function itself, such as nn.relu, or None."
        )


def check_array(layer: Module, x: Any) -> None:
    """Raise ``DTypeError`` unless ``x`` is an array or traced.

    >>> check_array(Dense(2, 1), [[1.0, 2.0]])
    Traceback (most recent call last):
    pullback.errors.DTypeError: [Dense(2 → 1)] the input is a list. Give an array, such as np.array(x, np.float32). ...
    """
    if not hasattr(x, "ndim"):
        raise DTypeError(
            f"[{layer.describe()}] the input is a {type(x).__name__}. Give an array, such as np.array(x, np.float32)."
        )


def check_features(layer: Module, x: Any, features: int) -> None:
    """Raise ``ShapeError`` unless the last axis of ``x``, an array, is what ``layer`` was made for."""
    check_array(layer, x)
    if x.ndim == 0 or x.shape[-1] != features:
        raise ShapeError(
            f"[{layer.describe()}] the input has shape {tuple(x.shape)}; its last axis must have {features} "
            "elements. Reshape the input, or make the layer for its size."
        )


def function_name(function: Callable[..., Any]) -> str:
    """What a function is called in the description of a layer."""
    return str(getattr(function, "__name__", function))
