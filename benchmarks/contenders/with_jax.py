"""JAX: many steps in one compiled ``lax.scan`` (the default), or one compiled call a step (``step``)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from networks import Conv, Dense, Dropout, Embedding, Flatten, Gated, Network, Pool, Recurrent, Weights
from numpy.typing import NDArray
from workload import Array, Job

from contenders.calls_jax import CELLS, QUESTIONS, scanned
from contenders.ways import Way, described, fastest, reducible

_ACTIVATIONS = {"": lambda x: x, "relu": jax.nn.relu, "tanh": jnp.tanh}


class Contender:
    def __init__(self, job: Job, inputs: Array, labels: Array) -> None:
        self.network, self.initial, self.scan = job.network, job.initial_weights(), job.variant != "step"
        self.stored, self.seed = inputs, job.seed
        self.labels = jax.device_put(labels)
        questions = _questions(self.network)
        way = fastest(questions, self._trial, job.tuned)
        self._begin(way)
        calls = "lax.scan over steps" if self.scan else "jit, one call a step"
        self.choice = ", ".join(filter(None, [calls, described(way, questions)]))

    def _begin(self, way: Way) -> None:
        self.inputs, self.done = jax.device_put(_laid_out(self.network, way, self.stored)), 0
        trained = self.network.trained()
        weights = {name: jnp.array(value) for name, value in self.initial.items()}
        self.fixed = {name: value for name, value in weights.items() if name not in trained}
        parameters = {name: value for name, value in weights.items() if name in trained}
        adaptive = self.network.optimiser != "sgd"
        self.state = parameters, jax.tree.map(jnp.zeros_like, (parameters, parameters)) if adaptive else ()
        step = _step(self.network, way, jax.random.key(self.seed, impl=way.get("random")))

        def steps(state: Any, rows: Any, numbers: Any, *data: Any) -> Any:
            return lax.scan(lambda s, batch: step(s, *batch, *data), state, (rows, numbers))

        self.compiled = jax.jit(steps if self.scan else step, donate_argnums=0)

    def _trial(self, way: Way) -> Callable[[], Any]:
        """A contender beside this one, going that way."""
        other = copy.copy(self)
        other._begin(way)
        batch = self.network.batch
        rows = np.random.default_rng(0).integers(0, len(self.labels), (max(5, 300 // batch), batch))
        return lambda: other.run(rows)

    def run(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        numbers = np.arange(self.done, self.done + len(rows), dtype=np.int32)
        self.done += len(rows)
        data = self.fixed, self.inputs, self.labels
        if self.scan:
            self.state, losses = self.compiled(self.state, rows.astype(np.int32), numbers, *data)
            return np.asarray(losses)
        losses = []
        for batch, number in zip(rows.astype(np.int32), numbers):
            self.state, loss = self.compiled(self.state, batch, number, *data)
            losses.append(loss)
        return np.array(jax.device_get(losses), np.float32)

    def weights(self) -> Weights:
        return {name: np.asarray(value) for name, value in {**self.state[0], **self.fixed}.items()}


def _questions(network: Network) -> dict[str, Any]:
    questions: dict[str, Any] = {}
    if network.has(Conv):
        questions["convolution"] = ("convolution", "product of the windows")
        other = "first" if network.channels == "last" else "last"
        questions["channels"] = (f"channels {network.channels}", f"channels {other}")
    if reducible(network):
        questions["pooling"] = ("reduce_window", "pools as axes")
    if network.has(Gated):
        questions.update(QUESTIONS)
    if network.has(Dropout):
        questions["random"] = ("threefry2x32", "rbg")
    return questions


def _last(network: Network, way: Way) -> bool:
    """Whether channels are kept last."""
    return bool(way.get("channels", f"channels {network.channels}") == "channels last")


def _laid_out(network: Network, way: Way, inputs: Array) -> Array:
    """The inputs in the shape that the first layer takes, with channels where they are kept."""
    inputs = inputs.reshape(len(inputs), *network.input)
    if len(network.input) == 3 and _last(network, way) != (network.channels == "last"):
        inputs = np.ascontiguousarray(np.moveaxis(inputs, 1, -1))
    return inputs


def _step(network: Network, way: Way, key: Any) -> Any:
    def step(state: Any, rows: Any, number: Any, fixed: Any, inputs: Any, labels: Any) -> tuple[Any, Any]:
        parameters, means = state
        x, y = _taken(inputs, rows), _taken(labels, rows)
        if x.dtype == jnp.uint8:
            x = x.astype(jnp.float32) * (1 / 255)

        def loss_of(parameters: Any) -> Any:
            z = _logits(network, way, {**parameters, **fixed}, x, jax.random.fold_in(key, number))
            if network.binary:
                return jnp.mean(jax.nn.softplus(z) - z * y.astype(jnp.float32))
            scores = jax.nn.log_softmax(z)
            return -jnp.mean(jnp.take_along_axis(scores, y.astype(jnp.int32)[..., None], axis=-1))

        loss, gradients = jax.value_and_grad(loss_of)(parameters)
        return _updated(network, parameters, means, gradients, number), loss

    return step


def _updated(network: Network, parameters: Any, means: Any, gradients: Any, number: Any) -> Any:
    """Parameters and means after a step of the network's optimiser."""
    rate = network.learning_rate
    if network.optimiser == "sgd":
        return jax.tree.map(lambda p, g: p - rate * g, parameters, gradients), means
    kept = 1 - rate * 0.01 if network.optimiser == "adamw" else 1.0
    time = (number + 1).astype(jnp.float32)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, means[0], gradients)
    second = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, means[1], gradients)
    # -expm1(t log b) is 1 - b**t without the cancellation of float32.
    root = jnp.sqrt(-jnp.expm1(time * math.log(0.999)))
    size = rate * root / -jnp.expm1(time * math.log(0.9))
    moved = jax.tree.map(
        lambda p, m, s: kept * p - size * m / (jnp.sqrt(s) + 1e-8 * root), parameters, first, second
    )
    return moved, (first, second)


def _logits(network: Network, way: Way, p: Any, x: Any, key: Any) -> Any:
    last = _last(network, way)
    for k, layer in enumerate(network.layers):
        weight, bias = p.get(f"{k}.weight"), p.get(f"{k}.bias")
        spatial = range(1, x.ndim - 1) if last else range(2, x.ndim)
        match layer:
            case Embedding():
                x = _taken(weight, x)
                x = x if last else jnp.moveaxis(x, -1, 1)
            case Conv():
                x = _convolved(layer, way, x, weight, last)
                if bias is not None:
                    x = x + (bias if last else bias.reshape(-1, *[1] * len(spatial)))
                x = _ACTIVATIONS[layer.activation](x)
            case Pool(window=0):
                x = (jnp.mean if layer.mean else jnp.max)(x, tuple(spatial))
            case Pool():
                x = _pooled(layer, way, x, spatial)
            case Flatten():
                if x.ndim > 2 and last != (network.channels == "last"):
                    x = jnp.moveaxis(x, -1, 1) if last else jnp.moveaxis(x, 1, -1)
                x = x.reshape(len(x), -1)
            case Dropout():
                mask = jax.random.bernoulli(jax.random.fold_in(key, k), 1 - layer.rate, x.shape)
                x = jnp.where(mask, x * (1 / (1 - layer.rate)), 0)
            case Recurrent():
                states: list[Any] = []
                for t in range(x.shape[1]):
                    total = x[:, t] @ weight + bias
                    total = total + states[-1] @ p[f"{k}.recurrent"] if t else total
                    states.append(_ACTIVATIONS[layer.activation](total))
                x = jnp.stack(states, 1) if layer.sequence else states[-1]
            case Gated():
                names = {"w": "weight", "u": "recurrent", "b": "bias", "c": "recurrent_bias"}
                own = {short: p.get(f"{k}.{name}") for short, name in names.items()}
                start = (jnp.zeros((len(x), layer.units)),) * (2 if layer.cell == "lstm" else 1)
                state, x = scanned(CELLS[layer.cell], way, own, start, jnp.moveaxis(x, 1, 0))
                x = jnp.moveaxis(x, 0, 1) if layer.sequence else state[0]
            case Dense():
                x = x @ weight
                x = _ACTIVATIONS[layer.activation](x if bias is None else x + bias)
    return x


def _taken(table: Any, rows: Any) -> Any:
    """Rows of a table, without the check that they are inside."""
    return table.at[rows].get(mode="promise_in_bounds")


def _convolved(layer: Conv, way: Way, x: Any, weight: Any, last: bool) -> Any:
    rank, stride = x.ndim - 2, layer.stride
    axes = "HW"[:rank]
    data = f"N{axes}C" if last else f"NC{axes}"
    if way["convolution"] == "convolution":
        numbers = lax.conv_dimension_numbers(x.shape, weight.shape, (data, f"OI{axes}", data))
        return lax.conv_general_dilated(x, weight, (stride,) * rank, "VALID", dimension_numbers=numbers)
    lead = 1 if last else 2
    places = [(n - layer.window) // stride + 1 for n in x.shape[lead : lead + rank]]
    pieces = []
    for offset in np.ndindex(*(layer.window,) * rank):
        cut = [slice(o, o + (n - 1) * stride + 1, stride) for o, n in zip(offset, places)]
        pieces.append(x[(slice(None), *[slice(None)] * (not last), *cut)])
    weight = weight.reshape(*weight.shape[:2], -1)
    if last:
        windows = jnp.stack(pieces, -2)  # (batch, …, window, channels)
        return windows.reshape(*windows.shape[:-2], -1) @ weight.transpose(2, 1, 0).reshape(-1, len(weight))
    windows = jnp.stack(pieces, 2)  # (batch, channels, window, …)
    product = weight.reshape(len(weight), -1) @ windows.reshape(len(x), -1, math.prod(places))
    return product.reshape(len(x), len(weight), *places)


def _pooled(layer: Pool, way: Way, x: Any, spatial: range) -> Any:
    if way.get("pooling") == "pools as axes":
        shape: list[int] = []
        for axis, n in enumerate(x.shape):
            shape += [n // layer.window, layer.window] if axis in spatial else [n]
        axes = tuple(axis + 1 + k for k, axis in enumerate(spatial))
        return (jnp.mean if layer.mean else jnp.max)(x.reshape(shape), axes)
    window = tuple(layer.window if axis in spatial else 1 for axis in range(x.ndim))
    if layer.mean:
        return lax.reduce_window(x, 0.0, lax.add, window, window, "VALID") * (1 / math.prod(window))
    return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")
