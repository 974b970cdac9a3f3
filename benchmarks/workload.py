"""The networks of the suite, as data that every library's contender is built from.

Only NumPy is used here: the file is read by interpreters that have one library each. Weights and batch
order come from seeds, so that all contenders begin with the same bits and see the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Job",
    "Network",
    "Pixels",
    "Weights",
    "accuracy",
    "batch_rows",
    "flops_per_step",
    "initial_weights",
    "logits",
]

PIXELS, CLASSES = 784, 10

Pixels = NDArray[np.uint8]
Weights = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Network:
    """A network on the 784 pixels of an image and the size of its batches.

    With ``steps`` it is recurrent: the pixels in ``steps`` pieces, one layer of vanilla cells
    ``h = f(x·Wx + h·Wh + b)`` for each entry of ``hidden``, the last state to a dense layer. Without, it is
    a perceptron: a dense layer with ``f`` for each entry of ``hidden``, then a dense layer.
    ``activation`` is ``"tanh"`` or ``"relu"``.
    """

    name: str
    hidden: tuple[int, ...]
    steps: int = 0
    activation: str = "tanh"
    batch: int = 100
    learning_rate: float = 0.015

    @property
    def inputs(self) -> int:
        """What the first layer sees at once."""
        return PIXELS // self.steps if self.steps else PIXELS


@dataclass(frozen=True)
class Job:
    """What a contender is told: the network, where data and weights lie, how many threads.

    ``variant`` chooses between ways to use one library; a job that is ``tuned`` lets the contender try
    several ways to write the step first. ``data`` is a folder with ``images.npy``, uint8 (N, 784), and
    ``labels.npy``, uint8 (N,). ``seed`` gives the initial weights, unless ``weights`` names a file that has
    them, and the order of the rows.
    """

    network: Network
    data: str
    threads: int = 2
    variant: str = ""
    seed: int = 0
    weights: str = ""
    tuned: bool = True

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(values: dict[str, Any]) -> Job:
        network = Network(**{**values["network"], "hidden": tuple(values["network"]["hidden"])})
        return Job(**{**values, "network": network})

    def arrays(self) -> tuple[Pixels, Pixels]:
        """Images (N, 784) and labels (N,)."""
        return np.load(Path(self.data, "images.npy")), np.load(Path(self.data, "labels.npy"))

    def initial_weights(self) -> Weights:
        if self.weights:
            with np.load(self.weights) as stored:
                return {name: stored[name] for name in stored.files}
        return initial_weights(self.network, self.seed)


def initial_weights(network: Network, seed: int) -> Weights:
    """Weights by PyTorch's rules: uniform in ±1/√hidden for cells, ±1/√inputs for dense layers.

    A layer ``k`` has ``k.weight`` (inputs, outputs), ``k.bias`` (outputs,) and, if recurrent, ``k.recurrent``
    (hidden, hidden); the last is the dense layer to the classes.
    """
    random = np.random.default_rng(seed)

    def uniform(limit: float, *shape: int) -> NDArray[np.float32]:
        return random.uniform(-limit, limit, shape).astype(np.float32)

    weights, inputs = {}, network.inputs
    for layer, hidden in enumerate(network.hidden):
        limit = (hidden if network.steps else inputs) ** -0.5
        weights[f"{layer}.weight"] = uniform(limit, inputs, hidden)
        if network.steps:
            weights[f"{layer}.recurrent"] = uniform(limit, hidden, hidden)
        weights[f"{layer}.bias"] = uniform(limit, hidden)
        inputs = hidden
    last = len(network.hidden)
    weights[f"{last}.weight"] = uniform(inputs**-0.5, inputs, CLASSES)
    weights[f"{last}.bias"] = uniform(inputs**-0.5, CLASSES)
    return weights


def batch_rows(count: int, batch: int, first: int, steps: int, seed: int = 0) -> NDArray[np.int64]:
    """Rows of the batches ``first`` to ``first + steps``, (steps, batch): epoch after epoch, each shuffled.

    An epoch ends with its last full batch.
    """
    per_epoch = count // batch
    rows = np.empty((steps, batch), np.int64)
    done = 0
    while done < steps:
        epoch, place = divmod(first + done, per_epoch)
        order = np.random.default_rng([seed, epoch]).permutation(count)[: per_epoch * batch]
        piece = order.reshape(per_epoch, batch)[place : place + steps - done]
        rows[done : done + len(piece)] = piece
        done += len(piece)
    return rows


def flops_per_step(network: Network) -> int:
    """Multiplications and additions in the products of one training step, at least: forward and backward.

    The first state is zero and has no product; the gradient of the pixels is not needed. Everything
    elementwise is left out.
    """
    multiplications, inputs = 0, network.inputs
    times = max(network.steps, 1)
    for layer, hidden in enumerate(network.hidden):
        multiplications += (3 if layer else 2) * times * inputs * hidden
        if network.steps:
            multiplications += 3 * (times - 1) * hidden * hidden
        inputs = hidden
    multiplications += 3 * inputs * CLASSES
    return 2 * network.batch * multiplications


def logits(network: Network, weights: Weights, images: Pixels) -> NDArray[np.float32]:
    """The network's outputs in plain NumPy, for the accuracy of what any contender has learned."""
    activation: Callable[[Any], Any] = np.tanh if network.activation == "tanh" else _relu
    x: Any = images.astype(np.float32) / np.float32(255)
    layers = range(len(network.hidden))
    if network.steps:
        sequence = list(np.moveaxis(x.reshape(len(x), network.steps, -1), 1, 0))
        for k in layers:
            state, states = None, []
            for piece in sequence:
                total = piece @ weights[f"{k}.weight"] + weights[f"{k}.bias"]
                if state is not None:
                    total += state @ weights[f"{k}.recurrent"]
                state = activation(total)
                states.append(state)
            sequence = states
        x = sequence[-1]
    else:
        for k in layers:
            x = activation(x @ weights[f"{k}.weight"] + weights[f"{k}.bias"])
    last = len(network.hidden)
    outputs: NDArray[np.float32] = x @ weights[f"{last}.weight"] + weights[f"{last}.bias"]
    return outputs


def _relu(x: Any) -> Any:
    return np.maximum(x, 0)


def accuracy(network: Network, weights: Weights, images: Pixels, labels: Pixels) -> float:
    """The share of images whose largest output is their label's."""
    return float(np.mean(logits(network, weights, images).argmax(axis=1) == labels))
