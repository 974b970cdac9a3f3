"""JAX: a compiled step with donated weights; images with channels first or last inside of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from nets import LEARNING_RATE, NETWORKS, Arrays, Net

from contenders.ways import Way, described, fastest

_FIRST, _LAST = "channels first", "channels last"


class Contender:
    def __init__(self, net: Net, arrays: Arrays, variant: str, threads: int, tuned: bool) -> None:
        self.net, self.arrays = net, arrays
        images = any(value.ndim == 4 for value in arrays.values())
        questions = {"channels": (_FIRST, _LAST)} if images else {}
        way = fastest(questions, partial(self._trial, net, arrays), tuned)
        self._begin(net, arrays, way)
        self.choice = ", ".join(filter(None, ["jit, one call a step", described(way, questions)]))

    def _begin(self, net: Net, arrays: Arrays, way: Way) -> None:
        self.last = way.get("channels") == _LAST
        given = {
            name: jnp.array(
                _turned(value) if self.last and value.ndim == 4 and not name.startswith("w") else value
            )
            for name, value in arrays.items()
        }
        self.weights = [value for name, value in given.items() if name.startswith("w")]
        self.given = given["inputs"], given["others"]
        self.compiled = jax.jit(_step(net, self.last), donate_argnums=0)

    def _trial(self, net: Net, arrays: Arrays, way: Way) -> Callable[[], object]:
        other = object.__new__(Contender)
        other._begin(net, arrays, way)
        return other.run

    def run(self) -> None:
        self.weights, self.loss = jax.block_until_ready(self.compiled(self.weights, *self.given))

    def numbers(self) -> Arrays:
        return {"loss": np.asarray(self.loss), **{f"w{k}": np.asarray(w) for k, w in enumerate(self.weights)}}


def _turned(x: Any) -> Any:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def _step(net: Net, last: bool) -> Any:
    def step(weights: Any, inputs: Any, others: Any) -> Any:
        def loss_of(weights: Any) -> Any:
            return NETWORKS[net.network].loss(_Vocabulary(net.batch, weights, last), inputs, others, net.size)

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        return [w - LEARNING_RATE * g for w, g in zip(weights, gradients)], loss

    return step


class _Vocabulary:
    def __init__(self, batch: int, weights: Any, last: bool) -> None:
        self.batch, self._weights, self.last = batch, iter(weights), last
        self._places = (1, 2) if last else (2, 3)

    def weight(self, *shape: int) -> Any:
        return next(self._weights)

    ones = weight

    def images(self, *shape: int) -> Any:
        return jnp.moveaxis(next(self._weights), 1, -1) if self.last else next(self._weights)

    def conv(self, x: Any, w: Any, stride: int, padding: int, groups: int = 1) -> Any:
        layout = "NHWC" if self.last else "NCHW"
        return lax.conv_general_dilated(
            x, w, (stride, stride), [(padding, padding)] * 2,
            dimension_numbers=(layout, "OIHW", layout), feature_group_count=groups,
        )  # fmt: skip

    def conv_transpose(self, x: Any, w: Any, stride: int, padding: int) -> Any:
        layout = "NHWC" if self.last else "NCHW"
        reach = [(size - 1 - padding,) * 2 for size in w.shape[2:]]
        return lax.conv_general_dilated(
            x, w[:, :, ::-1, ::-1], (1, 1), reach, lhs_dilation=(stride, stride),
            dimension_numbers=(layout, "IOHW", layout),
        )  # fmt: skip

    def dense(self, x: Any, w: Any, b: Any | None) -> Any:
        return x @ w if b is None else x @ w + b

    def batch_norm(self, x: Any, scale: Any, shift: Any) -> Any:
        axes, along = (0, *self._places), (-1,) if self.last else (-1, 1, 1)
        centred = x - jnp.mean(x, axes, keepdims=True)
        normal = centred * lax.rsqrt(jnp.mean(centred**2, axes, keepdims=True) + 1e-5)
        return normal * scale.reshape(along) + shift.reshape(along)

    def layer_norm(self, x: Any, scale: Any, shift: Any) -> Any:
        centred = x - jnp.mean(x, -1, keepdims=True)
        return centred * lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5) * scale + shift

    def relu(self, x: Any) -> Any:
        return jax.nn.relu(x)

    def gelu(self, x: Any) -> Any:
        return jax.nn.gelu(x, approximate=False)

    def exp(self, x: Any) -> Any:
        return jnp.exp(x)

    def tanh(self, x: Any) -> Any:
        return jnp.tanh(x)

    def softplus(self, x: Any) -> Any:
        return jax.nn.softplus(x)

    def constant(self, x: Any) -> Any:
        return lax.stop_gradient(x)

    def max_pool(self, x: Any) -> Any:
        window = (1, 2, 2, 1) if self.last else (1, 1, 2, 2)
        return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")

    def mean_of_places(self, x: Any) -> Any:
        return jnp.mean(x, self._places)

    def mean_of_patches(self, x: Any) -> Any:
        return jnp.mean(x, 1)

    def swapped(self, x: Any) -> Any:
        return jnp.swapaxes(x, 1, 2)

    def joined(self, x: Any, y: Any) -> Any:
        return jnp.concatenate([x, y], -1 if self.last else 1)

    def mean(self, x: Any) -> Any:
        return jnp.mean(x)

    def mean_square(self, x: Any, y: Any) -> Any:
        return jnp.mean((x - y) ** 2)

    def cross_entropy(self, scores: Any, labels: Any) -> Any:
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=-1))

    def binary_cross_entropy(self, scores: Any, wanted: Any) -> Any:
        return jnp.mean(jax.nn.softplus(scores) - scores * wanted)
