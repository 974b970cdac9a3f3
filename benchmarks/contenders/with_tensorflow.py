"""TensorFlow: the loop over steps, with the gradient in it, compiled by XLA or as TensorFlow's own graph."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from networks import Conv, Dense, Dropout, Embedding, Flatten, Gated, Network, Pool, Recurrent, Weights
from numpy.typing import NDArray
from workload import Array, Job

from contenders.calls_tensorflow import CELLS, INPUTS, looped
from contenders.ways import Way, described, fastest, reducible

_ACTIVATIONS = {"": lambda x: x, "relu": tf.nn.relu, "tanh": tf.tanh}


class Contender:
    def __init__(self, job: Job, inputs: Array, labels: Array) -> None:
        tf.config.threading.set_intra_op_parallelism_threads(job.threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        self.network, self.initial = job.network, job.initial_weights()
        inputs = inputs.reshape(len(inputs), *self.network.input)
        if _turned(self.network):  # on this processor it convolves with channels last only
            inputs = np.ascontiguousarray(np.moveaxis(inputs, 1, -1))
        self.inputs, self.labels = tf.constant(inputs), tf.constant(labels)
        questions = _questions(self.network)
        way = fastest(questions, self._trial, job.tuned)
        self._begin(way)
        self.choice = f"while_loop over steps, {described(way, questions)}"

    def _begin(self, way: Way) -> None:
        trained = self.network.trained()
        weights = {name: tf.constant(value) for name, value in self.initial.items()}
        self.fixed = {name: value for name, value in weights.items() if name not in trained}
        self.parameters = {name: value for name, value in weights.items() if name in trained}
        zeros = {name: tf.zeros_like(value) for name, value in self.parameters.items()}
        self.means, self.done = () if self.network.optimiser == "sgd" else (zeros, zeros), 0
        self.steps = tf.function(_steps(self.network, way), jit_compile=way["compiler"] == "XLA")

    def _trial(self, way: Way) -> Callable[[], Any]:
        """A contender beside this one, going that way."""
        other = copy.copy(self)
        other._begin(way)
        batch = self.network.batch
        rows = np.random.default_rng(0).integers(0, len(self.labels), (max(5, 300 // batch), batch))
        return lambda: other.run(rows)

    def run(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        self.parameters, self.means, losses = self.steps(
            self.parameters, self.means, tf.constant(rows, tf.int32), tf.constant(self.done),
            self.fixed, self.inputs, self.labels,
        )  # fmt: skip
        self.done += len(rows)
        return losses.numpy()

    def weights(self) -> Weights:
        return {name: value.numpy() for name, value in {**self.parameters, **self.fixed}.items()}


def _questions(network: Network) -> dict[str, Any]:
    pooling = {"pooling": ("pool", "reduce_max of a view")} if reducible(network) else {}
    gated = {"inputs": INPUTS} if network.has(Gated) else {}
    return {"compiler": ("XLA", "TensorFlow's graph"), **pooling, **gated}


def _turned(network: Network) -> bool:
    """Whether channels, which come first in the network, are kept last."""
    return network.has(Conv) and network.channels == "first"


def _steps(network: Network, way: Way) -> Any:
    def step(
        parameters: Any, means: Any, rows: Any, number: Any, fixed: Any, inputs: Any, labels: Any
    ) -> Any:
        x, y = tf.gather(inputs, rows), tf.gather(labels, rows)
        if x.dtype == tf.uint8:
            x = tf.cast(x, tf.float32) * (1 / 255)
        with tf.GradientTape() as tape:
            tape.watch(parameters)
            z = _logits(network, way, {**parameters, **fixed}, x, number)
            if network.binary:
                losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(y, tf.float32), z)
            else:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(y, tf.int32), z)
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, parameters)
        gradients = {name: tf.convert_to_tensor(g) for name, g in gradients.items()}
        return *_updated(network, parameters, means, gradients, number), loss

    def steps(parameters: Any, means: Any, rows: Any, first: Any, *data: Any) -> Any:
        count = rows.shape[0]

        def body(place: Any, parameters: Any, means: Any, losses: Any) -> Any:
            parameters, means, loss = step(parameters, means, rows[place], first + place, *data)
            return place + 1, parameters, means, losses.write(place, loss)

        losses = tf.TensorArray(tf.float32, count, element_shape=())
        begin = (tf.constant(0), parameters, means, losses)
        _, parameters, means, losses = tf.while_loop(
            lambda place, *_: place < count, body, begin, maximum_iterations=count
        )
        return parameters, means, losses.stack()

    return steps


def _updated(network: Network, parameters: Any, means: Any, gradients: Any, number: Any) -> Any:
    """Parameters and means after a step of the network's optimiser."""
    rate = network.learning_rate
    if network.optimiser == "sgd":
        return {name: p - rate * gradients[name] for name, p in parameters.items()}, means
    kept = 1 - rate * 0.01 if network.optimiser == "adamw" else 1.0
    time = tf.cast(number + 1, tf.float32)
    first = {name: 0.9 * m + 0.1 * gradients[name] for name, m in means[0].items()}
    second = {name: 0.999 * s + 0.001 * gradients[name] ** 2 for name, s in means[1].items()}
    # -expm1(t log b) is 1 - b**t without the cancellation of float32.
    root = tf.sqrt(-tf.math.expm1(time * math.log(0.999)))
    size = rate * root / -tf.math.expm1(time * math.log(0.9))
    moved = {
        name: kept * p - size * first[name] / (tf.sqrt(second[name]) + 1e-8 * root)
        for name, p in parameters.items()
    }
    return moved, (first, second)


def _logits(network: Network, way: Way, p: Any, x: Any, number: Any) -> Any:
    for k, layer in enumerate(network.layers):
        weight, bias = p.get(f"{k}.weight"), p.get(f"{k}.bias")
        match layer:
            case Embedding():
                x = tf.gather(weight, x)
            case Conv():
                kernel = tf.transpose(weight, [*range(2, len(weight.shape)), 1, 0])
                x = tf.nn.convolution(x, kernel, layer.stride, "VALID")
                x = _ACTIVATIONS[layer.activation](x if bias is None else x + bias)
            case Pool(window=0):
                places = list(range(1, len(x.shape) - 1))
                x = (tf.reduce_mean if layer.mean else tf.reduce_max)(x, places)
            case Pool():
                x = _pooled(layer, way, x)
            case Flatten():
                turned = _turned(network) and len(x.shape) > 2
                x = tf.transpose(x, [0, len(x.shape) - 1, *range(1, len(x.shape) - 1)]) if turned else x
                x = tf.reshape(x, (network.batch, -1))
            case Dropout():
                x = tf.nn.experimental.stateless_dropout(x, layer.rate, seed=(k, number))
            case Recurrent():
                states: list[Any] = []
                for piece in tf.unstack(x, axis=1):
                    total = piece @ weight + bias
                    total = total + states[-1] @ p[f"{k}.recurrent"] if states else total
                    states.append(_ACTIVATIONS[layer.activation](total))
                x = tf.stack(states, 1) if layer.sequence else states[-1]
            case Gated():
                names = {"w": "weight", "u": "recurrent", "b": "bias", "c": "recurrent_bias"}
                own = {short: p.get(f"{k}.{name}") for short, name in names.items()}
                start = (tf.zeros((x.shape[0], layer.units)),) * (2 if layer.cell == "lstm" else 1)
                x, state = looped(CELLS[layer.cell], way["inputs"], own, start, tf.transpose(x, (1, 0, 2)))
                x = tf.transpose(x, (1, 0, 2)) if layer.sequence else state[0]
            case Dense():
                x = x @ weight
                x = _ACTIVATIONS[layer.activation](x if bias is None else x + bias)
    return x


def _pooled(layer: Pool, way: Way, x: Any) -> Any:
    if way.get("pooling") == "reduce_max of a view":
        shape = [x.shape[0]]
        for n in x.shape[1:-1]:
            shape += [n // layer.window, layer.window]
        axes = list(range(2, len(shape), 2))
        return (tf.reduce_mean if layer.mean else tf.reduce_max)(tf.reshape(x, [*shape, x.shape[-1]]), axes)
    kind = "AVG" if layer.mean else "MAX"
    return tf.nn.pool(
        x, [layer.window] * (len(x.shape) - 2), kind, [layer.window] * (len(x.shape) - 2), "VALID"
    )
