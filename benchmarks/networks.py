"""The networks of the suite, as data that every library's contender is built from.

A network is a list of layer descriptions; what it computes is said once more in plain NumPy, for the accuracy of
what any contender has learned. Only NumPy is used here: the file is read by interpreters that have one
library each. Initial weights come from seeds, so that all contenders begin with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Conv", "Dense", "Dropout", "Embedding", "Flatten", "Gated", "Layer", "Network", "Pool", "Recurrent", "Weights",
    "accuracy", "flops_per_step", "initial_weights", "outputs",
]  # fmt: skip

Shape = tuple[int, ...]
Weights = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Embedding:
    """A row of a table for each token; ``weight`` (rows, columns)."""

    rows: int
    columns: int
    trainable: bool = True


@dataclass(frozen=True)
class Conv:
    """A convolution along all axes but the channels', no padding; ``weight`` (channels, inputs, *window)."""

    channels: int
    window: int
    stride: int = 1
    activation: str = "relu"
    bias: bool = True


@dataclass(frozen=True)
class Pool:
    """The largest or the mean of windows side by side; with ``window`` 0 of all places, which leaves channels."""

    window: int = 0
    mean: bool = False


@dataclass(frozen=True)
class Flatten:
    """Each example as one vector, in the network's order of axes."""


@dataclass(frozen=True)
class Dropout:
    """In training each value is zero with this probability, the others grow by 1 / (1 - rate)."""

    rate: float


@dataclass(frozen=True)
class Recurrent:
    """Vanilla cells ``h = f(x·Wx + h·Wh + b)`` from zero; all states with ``sequence``, else the last.

    ``weight`` (inputs, units), ``recurrent`` (units, units).
    """

    units: int
    activation: str = "tanh"
    sequence: bool = False


@dataclass(frozen=True)
class Gated:
    """Gated cells from zero, ``"gru"`` or ``"lstm"`` of ``calls.CELLS``; all states with ``sequence``, else the last.

    ``weight`` (inputs, gates · units), ``recurrent`` (units, gates · units), ``bias`` (gates · units,), and of a GRU
    ``recurrent_bias``, of the same shape.
    """

    cell: str
    units: int
    sequence: bool = False

    @property
    def gates(self) -> int:
        return {"gru": 3, "lstm": 4}[self.cell]


@dataclass(frozen=True)
class Dense:
    """``f(x·W + b)`` of each vector; ``weight`` (inputs, units)."""

    units: int
    activation: str = ""
    bias: bool = True


Layer = Embedding | Conv | Pool | Flatten | Dropout | Recurrent | Gated | Dense
_KINDS = {kind.__name__: kind for kind in (Embedding, Conv, Pool, Flatten, Dropout, Recurrent, Gated, Dense)}


@dataclass(frozen=True)
class Network:
    """Layers, the shape of an example as the first of them sees it, and how the network is trained.

    ``data`` is one of the sets of ``data.py``. Where channels are an axis, they come ``"first"`` or
    ``"last"``, behind an embedding last; this decides the order in which ``Flatten`` puts the values, and no
    more: a library may keep them otherwise. Bytes are pixels and are taken to the range 0 to 1. With one
    output the loss is binary cross-entropy from logits, else softmax cross-entropy, at each step where the last layer
    is given a sequence. ``optimiser`` is
    ``"sgd"``, ``"adam"`` or ``"adamw"``, the latter two with PyTorch's settings.
    """

    name: str
    input: Shape
    layers: tuple[Layer, ...]
    data: str = "mnist"
    channels: str = "first"
    batch: int = 100
    optimiser: str = "sgd"
    learning_rate: float = 0.01

    @property
    def binary(self) -> bool:
        """Whether the network answers yes or no."""
        return isinstance(self.layers[-1], Dense) and self.layers[-1].units == 1

    def has(self, kind: type) -> bool:
        """Whether one of the layers is of this kind."""
        return any(isinstance(layer, kind) for layer in self.layers)

    def with_shapes(self) -> Iterator[tuple[Layer, Shape, Shape]]:
        """Each layer with the shapes of an example before and after it."""
        shape = self.input
        for layer in self.layers:
            after = self._after(layer, shape)
            yield layer, shape, after
            shape = after

    def places(self, shape: Shape) -> Shape:
        """The axes of an example that are not its channels."""
        return shape[1:] if self.channels == "first" else shape[:-1]

    def channel_count(self, shape: Shape) -> int:
        """How many channels an example of this shape has."""
        return shape[0] if self.channels == "first" else shape[-1]

    def trained(self) -> set[str]:
        """The names of the weights that training changes."""
        fixed = {
            f"{k}.weight"
            for k, layer in enumerate(self.layers)
            if isinstance(layer, Embedding) and not layer.trainable
        }
        return set(parameters(self)) - fixed

    def describe(self) -> str:
        """Shapes and layers on one line."""
        return " → ".join(["×".join(map(str, self.input)), *map(_described, self.layers)])

    def as_json(self) -> dict[str, Any]:
        layers = [{"kind": type(layer).__name__, **vars(layer)} for layer in self.layers]
        return {**asdict(self), "layers": layers}

    @staticmethod
    def from_json(values: dict[str, Any]) -> Network:
        layers = tuple(
            _KINDS[layer["kind"]](**{name: value for name, value in layer.items() if name != "kind"})
            for layer in values["layers"]
        )
        return Network(**{**values, "layers": layers, "input": tuple(values["input"])})

    def _after(self, layer: Layer, shape: Shape) -> Shape:
        match layer:
            case Embedding():
                return (*shape, layer.columns)
            case Conv():
                places = tuple((n - layer.window) // layer.stride + 1 for n in self.places(shape))
                return self._with_channels(layer.channels, places)
            case Pool():
                places = tuple(n // layer.window for n in self.places(shape)) if layer.window else ()
                return self._with_channels(self.channel_count(shape), places)
            case Flatten():
                return (math.prod(shape),)
            case Recurrent() | Gated():
                return (shape[0], layer.units) if layer.sequence else (layer.units,)
            case Dense():
                return (*shape[:-1], layer.units)
        return shape

    def _with_channels(self, count: int, places: Shape) -> Shape:
        return (count, *places) if self.channels == "first" else (*places, count)


def _described(layer: Layer) -> str:
    match layer:
        case Embedding():
            text = f"embedding {layer.rows}×{layer.columns}{'' if layer.trainable else ' (fixed)'}"
        case Conv():
            stride = f" stride {layer.stride}" if layer.stride > 1 else ""
            text = f"conv {layer.window} to {layer.channels}{stride}"
        case Pool():
            text = f"{'mean' if layer.mean else 'max'} pool {layer.window or 'all'}"
        case Dropout():
            text = f"dropout {layer.rate}"
        case Recurrent():
            text = f"cell {layer.units}"
        case Gated():
            text = f"{layer.cell} {layer.units}"
        case Dense():
            text = f"dense {layer.units}"
        case _:
            text = "flat"
    activation = getattr(layer, "activation", "")
    return f"{text} {activation}" if activation else text


def parameters(network: Network) -> dict[str, tuple[Shape, float]]:
    """Of every weight the shape and the limit within which it begins, by PyTorch's rules for cells, dense
    layers and convolutions: 1/√units for a cell, 1/√(inputs of an output) for the others.

    An embedding begins near zero: the words' meaning is in what is learned.
    """
    found: dict[str, tuple[Shape, float]] = {}
    for k, (layer, shape, _) in enumerate(network.with_shapes()):
        match layer:
            case Embedding():
                found[f"{k}.weight"] = (layer.rows, layer.columns), 0.05
            case Conv():
                window = (layer.window,) * len(network.places(shape))
                inputs = network.channel_count(shape)
                limit = (inputs * math.prod(window)) ** -0.5
                found[f"{k}.weight"] = (layer.channels, inputs, *window), limit
                if layer.bias:
                    found[f"{k}.bias"] = (layer.channels,), limit
            case Recurrent():
                limit = layer.units**-0.5
                found[f"{k}.weight"] = (shape[-1], layer.units), limit
                found[f"{k}.recurrent"] = (layer.units, layer.units), limit
                found[f"{k}.bias"] = (layer.units,), limit
            case Gated():
                limit, width = layer.units**-0.5, layer.gates * layer.units
                found[f"{k}.weight"] = (shape[-1], width), limit
                found[f"{k}.recurrent"] = (layer.units, width), limit
                for name in ("bias", "recurrent_bias")[: 2 if layer.cell == "gru" else 1]:
                    found[f"{k}.{name}"] = (width,), limit
            case Dense():
                limit = shape[-1] ** -0.5
                found[f"{k}.weight"] = (shape[-1], layer.units), limit
                if layer.bias:
                    found[f"{k}.bias"] = (layer.units,), limit
    return found


def initial_weights(network: Network, seed: int) -> Weights:
    """Weights named ``k.weight``, ``k.recurrent``, ``k.bias`` for layer ``k``, uniform within their limits."""
    random = np.random.default_rng(seed)
    return {
        name: random.uniform(-limit, limit, shape).astype(np.float32)
        for name, (shape, limit) in parameters(network).items()
    }


def flops_per_step(network: Network) -> int:
    """Multiplications and additions in the products of one training step: forward and backward.

    The first state is zero and has no product; nothing below the first trained layer needs a gradient.
    Everything elementwise is left out. The backward pass of a convolution counts as if it met every place;
    behind a maximum those of the winners would do.
    """
    multiplications, trained, seen = 0, network.trained(), False
    for k, (layer, before, after) in enumerate(network.with_shapes()):
        passes = 3 if seen else 2  # forward and the weight's gradient, and from the second on the input's
        match layer:
            case Conv():
                window = layer.window ** len(network.places(before))
                multiplications += passes * math.prod(after) * window * network.channel_count(before)
            case Recurrent():
                multiplications += passes * math.prod(before) * layer.units
                multiplications += 3 * (before[0] - 1) * layer.units**2
            case Gated():
                multiplications += passes * math.prod(before) * layer.gates * layer.units
                multiplications += 3 * (before[0] - 1) * layer.gates * layer.units**2
            case Dense():
                multiplications += passes * math.prod(before) * layer.units
        seen = seen or f"{k}.weight" in trained
    return 2 * network.batch * multiplications


def outputs(network: Network, weights: Weights, inputs: NDArray[Any]) -> NDArray[np.float32]:
    """The network's logits in plain NumPy."""
    x: Any = inputs.reshape(len(inputs), *network.input)
    if x.dtype == np.uint8:
        x = x.astype(np.float32) * np.float32(1 / 255)
    for k, layer in enumerate(network.layers):
        weight, bias = weights.get(f"{k}.weight"), weights.get(f"{k}.bias", np.float32(0))
        match layer:
            case Embedding():
                x = weight[x]
            case Conv():
                windows = _windows(network, x, layer.window, layer.stride)
                axes = (1, *range(x.ndim, windows.ndim)), tuple(range(1, weight.ndim))
                x = _ACTIVATIONS[layer.activation](np.tensordot(windows, weight, axes) + bias)
                x = np.moveaxis(x, -1, 1) if network.channels == "first" else x
            case Pool():
                window = layer.window or max(network.places(x.shape[1:]))
                windows = _windows(network, x, window, window)
                x = (np.mean if layer.mean else np.max)(windows, axis=tuple(range(x.ndim, windows.ndim)))
                x = np.moveaxis(x, 1, -1) if network.channels == "last" else x
                x = x if layer.window else x.reshape(len(x), -1)
            case Flatten():
                x = x.reshape(len(x), -1)
            case Recurrent():
                function, states = _ACTIVATIONS[layer.activation], []
                for t in range(x.shape[1]):
                    total = x[:, t] @ weight + bias
                    states.append(function(total + states[-1] @ weights[f"{k}.recurrent"] if t else total))
                x = np.stack(states, 1) if layer.sequence else states[-1]
            case Gated():
                state = (np.zeros((len(x), layer.units), np.float32),) * 2
                recurrent, recurrent_bias = weights[f"{k}.recurrent"], weights.get(f"{k}.recurrent_bias", 0)
                states = []
                for t in range(x.shape[1]):
                    products = x[:, t] @ weight + bias, state[0] @ recurrent + recurrent_bias
                    state = (_gru if layer.cell == "gru" else _lstm)(*products, *state)
                    states.append(state[0])
                x = np.stack(states, 1) if layer.sequence else states[-1]
            case Dense():
                x = _ACTIVATIONS[layer.activation](x @ weight + bias)
    found: NDArray[np.float32] = x
    return found


def _gru(x: Any, y: Any, h: Any, _: Any) -> tuple[Any, Any]:
    """The next state of a gated recurrent unit from the products of its input and its state."""
    (xr, xz, xn), (yr, yz, yn) = np.split(x, 3, axis=-1), np.split(y, 3, axis=-1)
    z = _sigmoid(xz + yz)
    return (1 - z) * np.tanh(xn + _sigmoid(xr + yr) * yn) + z * h, h


def _lstm(x: Any, y: Any, h: Any, c: Any) -> tuple[Any, Any]:
    """The next output and contents of a long short-term memory."""
    i, f, g, o = np.split(x + y, 4, axis=-1)
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(c), c


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _windows(network: Network, x: Any, window: int, stride: int) -> Any:
    """The windows of ``x``, (batch, channels, *places, *window)."""
    x = np.moveaxis(x, -1, 1) if network.channels == "last" else x
    rank = x.ndim - 2
    found = np.lib.stride_tricks.sliding_window_view(x, (window,) * rank, tuple(range(2, x.ndim)))
    return found[(slice(None), slice(None), *[slice(None, None, stride)] * rank)]


_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
}


def accuracy(network: Network, weights: Weights, inputs: NDArray[Any], labels: NDArray[Any]) -> float:
    """The share of labels that have the largest output, or whose side the only output has."""
    right = 0
    for first in range(0, len(inputs), 1000):  # windows of all examples at once would fill the memory
        scores = outputs(network, weights, inputs[first : first + 1000])
        guesses = scores > 0 if network.binary else scores.argmax(axis=-1)
        right += int(np.sum(guesses.ravel() == labels[first : first + 1000].ravel()))
    return right / labels.size
