"""Networks that branch, normalise and go both ways, each written once for all libraries; and single layers of them.

A network is a function of a library's vocabulary (``contenders/nets_*.py``), from which it also takes its weights:

    def autoencoder(o, images, labels):
        hidden = o.relu(o.dense(images, o.weight(784, 512), o.weight(512)))
        …
        return o.mean_square(…)

Images are (batch, channels, height, width) as the vocabulary's functions see them; how they lie in memory is the
library's affair. A training step is loss, gradients of all weights, and their update by gradient descent. Only NumPy
is used here: the file is read by interpreters that have one library each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEARNING_RATE", "NETWORKS", "Net", "arrays_of", "from_json"]

Arrays = dict[str, NDArray[Any]]
Shape = tuple[int, ...]

LEARNING_RATE = 0.01


@dataclass(frozen=True)
class Net:
    """A network of ``NETWORKS``, its batch, and a size: blocks of a stage, or what its function says."""

    name: str
    network: str
    batch: int
    size: int = 0

    def describe(self) -> str:
        """Batch and weights on one line."""
        count = sum(math.prod(shape) for shape in _outline(self).shapes)
        return f"batch {self.batch}, {count:,} weights, gradient descent"

    what = "A call is a training step: forward, backward and update, on the same batch each time."

    @property
    def flops(self) -> int:
        """Multiplications and additions in the products of a step: forward, backward to weights and inputs."""
        return 2 * _outline(self).multiplications

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def from_json(values: dict[str, Any]) -> Net:
    """What ``as_json`` made."""
    return Net(**values)


def residual(o: Any, images: Any, labels: Any, blocks: int) -> Any:
    """He et al., 2015, for images of 32 × 32: three stages of as many blocks each."""

    def normal(x: Any, channels: int, inputs: int, window: int, stride: int) -> Any:
        x = o.conv(x, o.weight(channels, inputs, window, window), stride, window // 2)
        return o.batch_norm(x, o.ones(channels), o.weight(channels))

    x = o.relu(normal(images, 16, 3, 3, 1))
    inputs = 16
    for stage, channels in enumerate((16, 32, 64)):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = o.relu(normal(x, channels, inputs, 3, stride))
            y = normal(y, channels, channels, 3, 1)
            if stride > 1:
                x = normal(x, channels, inputs, 1, stride)
            x, inputs = o.relu(x + y), channels
    return o.cross_entropy(o.dense(o.mean_of_places(x), o.weight(64, 10), o.weight(10)), labels)


def separable(o: Any, images: Any, labels: Any, width: int) -> Any:
    """Howard et al., 2017: windows of each channel by itself, then all channels of each place; 32 × 32."""

    def normal(x: Any, channels: int) -> Any:
        return o.relu(o.batch_norm(x, o.ones(channels), o.weight(channels)))

    x = normal(o.conv(images, o.weight(width, 3, 3, 3), 1, 1), width)
    inputs = width
    for factor, stride in ((2, 1), (4, 2), (4, 1), (8, 2), (8, 1)):
        x = normal(o.conv(x, o.weight(inputs, 1, 3, 3), stride, 1, groups=inputs), inputs)
        x = normal(o.conv(x, o.weight(factor * width, inputs, 1, 1), 1, 0), factor * width)
        inputs = factor * width
    return o.cross_entropy(o.dense(o.mean_of_places(x), o.weight(inputs, 10), o.weight(10)), labels)


def u_net(o: Any, images: Any, masks: Any, width: int) -> Any:
    """Ronneberger et al., 2015: down three times, up three times, what was seen on the way down beside it; 64 × 64."""

    def twice(x: Any, inputs: int, channels: int) -> Any:
        for before in (inputs, channels):
            x = o.conv(x, o.weight(channels, before, 3, 3), 1, 1)
            x = o.relu(o.batch_norm(x, o.ones(channels), o.weight(channels)))
        return x

    seen, x, inputs = [], images, 1
    for channels in (width, 2 * width, 4 * width):
        x = twice(x, inputs, channels)
        seen.append(x)
        x, inputs = o.max_pool(x), channels
    x = twice(x, inputs, 2 * inputs)
    for beside in reversed(seen):
        x = o.conv_transpose(x, o.weight(2 * inputs, inputs, 2, 2), 2, 0)
        x = twice(o.joined(beside, x), 2 * inputs, inputs)
        inputs //= 2
    scores = o.conv(x, o.weight(1, width, 1, 1), 1, 0)
    return o.binary_cross_entropy(scores, masks)


def autoencoder(o: Any, rows: Any, _: Any, hidden: int) -> Any:
    """784 → hidden → 64 → hidden → 784."""
    x, inputs = rows, 784
    for units in (hidden, 64, hidden):
        x, inputs = o.relu(o.dense(x, o.weight(inputs, units), o.weight(units))), units
    return o.mean_square(o.dense(x, o.weight(inputs, 784), o.weight(784)), rows)


def variational(o: Any, rows: Any, noise: Any, hidden: int) -> Any:
    """Kingma & Welling, 2013: 784 → hidden → 20 means and log variances → hidden → 784; the noise is given."""
    x = o.relu(o.dense(rows, o.weight(784, hidden), o.weight(hidden)))
    mean = o.dense(x, o.weight(hidden, 20), o.weight(20))
    log_variance = o.dense(x, o.weight(hidden, 20), o.weight(20))
    z = mean + o.exp(0.5 * log_variance) * noise
    x = o.relu(o.dense(z, o.weight(20, hidden), o.weight(hidden)))
    scores = o.dense(x, o.weight(hidden, 784), o.weight(784))
    divergence = o.mean(mean * mean + o.exp(log_variance) - 1 - log_variance)
    return o.binary_cross_entropy(scores, rows) + (10 / 784) * divergence


def adversarial(o: Any, rows: Any, noise: Any, hidden: int) -> Any:
    """Goodfellow et al., 2014: 64 → hidden → hidden → 784 against 784 → hidden → hidden → 1; the noise is given.

    Both learn in one step: each sees the other as a constant, so the gradients of the two losses are added.
    """

    def layers(x: Any, weights: Any, last: Any) -> Any:
        for weight, bias in weights[:-1]:
            x = o.relu(o.dense(x, weight, bias))
        return last(o.dense(x, *weights[-1]))

    def weights(*units: int) -> Any:
        return [(o.weight(m, n), o.weight(n)) for m, n in itertools.pairwise(units)]

    def constant(pairs: Any) -> Any:
        return [(o.constant(weight), o.constant(bias)) for weight, bias in pairs]

    generator, critic = weights(64, hidden, hidden, 784), weights(784, hidden, hidden, 1)
    made = layers(noise, generator, o.tanh)
    real, false, fooled = (
        layers(x, network, lambda score: score)
        for x, network in ((rows, critic), (o.constant(made), critic), (made, constant(critic)))
    )
    wanted = o.softplus(-real), o.softplus(false), o.softplus(-fooled)
    return o.mean(wanted[0]) + o.mean(wanted[1]) + o.mean(wanted[2])


def mixer(o: Any, patches: Any, labels: Any, blocks: int) -> Any:
    """Tolstikhin et al., 2021: 64 patches of 48 values, 64 units; over patches, then over units."""

    def perceptron(x: Any, units: int, hidden: int, bias: bool) -> Any:
        x = o.gelu(o.dense(x, o.weight(units, hidden), o.weight(hidden)))
        return o.dense(x, o.weight(hidden, units), o.weight(units) if bias else None)

    x = o.dense(patches, o.weight(48, 64), o.weight(64))
    for _ in range(blocks):
        y = o.swapped(o.layer_norm(x, o.ones(64), o.weight(64)))
        x = x + o.swapped(perceptron(y, 64, 128, bias=False))  # it would be the same for all units of a patch
        x = x + perceptron(o.layer_norm(x, o.ones(64), o.weight(64)), 64, 256, bias=True)
    x = o.layer_norm(x, o.ones(64), o.weight(64))
    return o.cross_entropy(o.dense(o.mean_of_patches(x), o.weight(64, 10), o.weight(10)), labels)


def _layer(inputs: int, weight: Shape, stride: int, padding: int, **how: Any) -> Callable[..., Any]:
    """A layer by itself, its input a weight too: forward, and backward to both."""

    def layer(o: Any, _: Any, cotangent: Any, size: int) -> Any:
        x = o.images(inputs, size, size)
        kind = o.conv_transpose if how.get("transposed") else o.conv
        groups = {"groups": how["groups"]} if "groups" in how else {}
        return o.mean(kind(x, o.weight(*weight), stride, padding, **groups) * cotangent)

    return layer


@dataclass(frozen=True)
class _Network:
    loss: Callable[..., Any]
    inputs: Callable[[Net], Shape]
    others: Callable[[Net], Shape]
    """Labels where the shape is that of the batch, else numbers between 0 and 1."""


def _labelled(loss: Callable[..., Any], *shape: int) -> _Network:
    return _Network(loss, lambda net: (net.batch, *shape), lambda net: (net.batch,))


def _single(inputs: int, weight: Shape, stride: int, padding: int, **how: Any) -> _Network:
    window, channels = weight[2], weight[1 if how.get("transposed") else 0]

    def made(net: Net) -> Shape:
        if how.get("transposed"):
            extent = (net.size - 1) * stride - 2 * padding + window
        else:
            extent = (net.size + 2 * padding - window) // stride + 1
        return net.batch, channels, extent, extent

    return _Network(_layer(inputs, weight, stride, padding, **how), lambda net: (1, 1), made)


NETWORKS = {
    "residual": _labelled(residual, 3, 32, 32),
    "separable": _labelled(separable, 3, 32, 32),
    "u-net": _Network(u_net, lambda net: (net.batch, 1, 64, 64), lambda net: (net.batch, 1, 64, 64)),
    "autoencoder": _labelled(autoencoder, 784),
    "variational": _Network(variational, lambda net: (net.batch, 784), lambda net: (net.batch, 20)),
    "adversarial": _Network(adversarial, lambda net: (net.batch, 784), lambda net: (net.batch, 64)),
    "mixer": _labelled(mixer, 64, 48),
    "stride-2": _single(32, (64, 32, 3, 3), 2, 1),
    "transposed": _single(64, (64, 32, 4, 4), 2, 1, transposed=True),
    "transposed-2": _single(64, (64, 32, 2, 2), 2, 0, transposed=True),
    "grouped": _single(64, (64, 8, 3, 3), 1, 1, groups=8),
    "depthwise": _single(64, (64, 1, 3, 3), 1, 1, groups=64),
    "depthwise-stride-2": _single(64, (64, 1, 3, 3), 2, 1, groups=64),
    "depthwise-5": _single(64, (64, 1, 5, 5), 1, 2, groups=64),
    "small-images": _single(64, (128, 64, 3, 3), 2, 1),
}
"""By the name of a network."""


def arrays_of(net: Net, seed: int = 0) -> Arrays:
    """Weights ``w0``, ``w1``, … in the order in which the network takes them, ``inputs`` and ``others``."""
    random = np.random.default_rng(seed)
    network, outline = NETWORKS[net.network], _outline(net)
    arrays: Arrays = {
        "inputs": random.random(network.inputs(net), np.float32),
        "others": random.random(network.others(net), np.float32),
    }
    if network.others(net) == (net.batch,):
        arrays["others"] = random.integers(0, 10, net.batch).astype(np.int64)
    for k, (shape, one) in enumerate(zip(outline.shapes, outline.begins_with_one)):
        if len(shape) == 1:
            arrays[f"w{k}"] = np.full(shape, one, np.float32)
        else:
            fan = shape[0] if len(shape) == 2 else math.prod(shape[1:])
            arrays[f"w{k}"] = random.uniform(-1, 1, shape).astype(np.float32) * np.float32((3 / fan) ** 0.5)
    return arrays


def _outline(net: Net) -> _Outline:
    network, outline = NETWORKS[net.network], _Outline(net.batch)
    given = (np.broadcast_to(np.float32(0), shape) for shape in (network.inputs(net), network.others(net)))
    network.loss(outline, *given, net.size)
    return outline


class _Outline:
    """The vocabulary of shapes alone: which weights a network asks for, and how much its products multiply."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.shapes: list[Shape] = []
        self.begins_with_one: list[bool] = []
        self.multiplications = 0
        self.learned = False

    def weight(self, *shape: int) -> Any:
        self.shapes.append(shape)
        self.begins_with_one.append(False)
        return np.broadcast_to(np.float32(0), shape)

    def ones(self, *shape: int) -> Any:
        value = self.weight(*shape)
        self.begins_with_one[-1] = True
        return value

    def images(self, *shape: int) -> Any:
        """A layer's input, which is learned like a weight."""
        self.learned = True
        return self.weight(self.batch, *shape)

    def conv(self, x: Any, w: Any, stride: int, padding: int, groups: int = 1) -> Any:
        places = [(n + 2 * padding - k) // stride + 1 for n, k in zip(x.shape[2:], w.shape[2:])]
        return self._product((x.shape[0], w.shape[0], *places), math.prod(w.shape[1:]))

    def conv_transpose(self, x: Any, w: Any, stride: int, padding: int) -> Any:
        places = [(n - 1) * stride - 2 * padding + k for n, k in zip(x.shape[2:], w.shape[2:])]
        self._product(x.shape, math.prod(w.shape[1:]))
        return np.broadcast_to(np.float32(0), (x.shape[0], w.shape[1], *places))

    def dense(self, x: Any, w: Any, b: Any | None) -> Any:
        return self._product((*x.shape[:-1], w.shape[1]), w.shape[0])

    def _product(self, shape: Shape, depth: int) -> Any:
        first = (
            self.multiplications == 0 and not self.learned
        )  # nobody asks for the gradient of what is given
        self.multiplications += (2 if first else 3) * math.prod(shape) * depth
        return np.broadcast_to(np.float32(0), shape)

    def batch_norm(self, x: Any, scale: Any, shift: Any) -> Any:
        return x

    layer_norm = batch_norm

    def relu(self, x: Any) -> Any:
        return x

    gelu = exp = tanh = softplus = constant = relu

    def max_pool(self, x: Any) -> Any:
        return x[:, :, ::2, ::2]

    def mean_of_places(self, x: Any) -> Any:
        return x[:, :, 0, 0]

    def mean_of_patches(self, x: Any) -> Any:
        return x[:, 0]

    def swapped(self, x: Any) -> Any:
        return np.swapaxes(x, 1, 2)

    def joined(self, x: Any, y: Any) -> Any:
        return np.broadcast_to(np.float32(0), (x.shape[0], x.shape[1] + y.shape[1], *x.shape[2:]))

    def mean(self, x: Any) -> Any:
        return np.float32(0)

    def mean_square(self, x: Any, y: Any) -> Any:
        return np.float32(0)

    cross_entropy = binary_cross_entropy = mean_square
