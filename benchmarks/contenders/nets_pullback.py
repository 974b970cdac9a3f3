"""Pullback: the network as a plain function, a step compiled whole, weights updated in place."""

from __future__ import annotations

from typing import Any

import numpy as np
from nets import LEARNING_RATE, NETWORKS, Arrays, Net

import pullback as pb
from pullback import nn
from pullback.numpy import standardise
from pullback.numpy.convolution import conv, conv_transpose
from pullback.numpy.pooling import max_pool


class Contender:
    def __init__(self, net: Net, arrays: Arrays, variant: str, threads: int, tuned: bool) -> None:
        pb.set_num_threads(threads)
        arrays = pb.aligned({name: value.copy() for name, value in arrays.items()})
        self.weights = [value for name, value in arrays.items() if name.startswith("w")]
        self.given = arrays["inputs"], arrays["others"]
        self.compiled = pb.jit(step_of(net), donate_argnums=0, flush_subnormals=True)
        self.choice = "pb.jit, one call a step"

    def run(self) -> None:
        self.weights, self.loss = self.compiled(self.weights, *self.given)

    def numbers(self) -> Arrays:
        return {"loss": np.asarray(self.loss), **{f"w{k}": w.copy() for k, w in enumerate(self.weights)}}


def step_of(net: Net) -> Any:
    """From weights, inputs and what they are compared with to new weights and the loss."""

    def step(weights: Any, inputs: Any, others: Any) -> Any:
        def loss_of(weights: Any) -> Any:
            return NETWORKS[net.network].loss(_Vocabulary(net.batch, weights), inputs, others, net.size)

        loss, gradients = pb.value_and_grad(loss_of)(weights)
        return [w - np.float32(LEARNING_RATE) * g for w, g in zip(weights, gradients)], loss

    return step


class _Vocabulary:
    def __init__(self, batch: int, weights: Any) -> None:
        self.batch, self._weights = batch, iter(weights)

    def weight(self, *shape: int) -> Any:
        return next(self._weights)

    ones = images = weight

    def conv(self, x: Any, w: Any, stride: int, padding: int, groups: int = 1) -> Any:
        return conv(x, w, stride, padding, groups=groups)

    def conv_transpose(self, x: Any, w: Any, stride: int, padding: int) -> Any:
        return conv_transpose(x, w, stride, padding)

    def dense(self, x: Any, w: Any, b: Any | None) -> Any:
        return x @ w if b is None else x @ w + b

    def batch_norm(self, x: Any, scale: Any, shift: Any) -> Any:
        normal = standardise(x, (0, 2, 3), epsilon=1e-5)
        return normal * scale.reshape(-1, 1, 1) + shift.reshape(-1, 1, 1)

    def layer_norm(self, x: Any, scale: Any, shift: Any) -> Any:
        return standardise(x, (2,), epsilon=1e-5) * scale + shift

    def relu(self, x: Any) -> Any:
        return nn.relu(x)

    def gelu(self, x: Any) -> Any:
        return nn.gelu(x)

    def exp(self, x: Any) -> Any:
        return np.exp(x)

    def tanh(self, x: Any) -> Any:
        return np.tanh(x)

    def softplus(self, x: Any) -> Any:
        return nn.softplus(x)

    def constant(self, x: Any) -> Any:
        return pb.stop_gradient(x)

    def max_pool(self, x: Any) -> Any:
        return max_pool(x, 2)

    def mean_of_places(self, x: Any) -> Any:
        return np.mean(x, (2, 3))

    def mean_of_patches(self, x: Any) -> Any:
        return np.mean(x, 1)

    def swapped(self, x: Any) -> Any:
        return np.swapaxes(x, 1, 2)

    def joined(self, x: Any, y: Any) -> Any:
        return np.concatenate([x, y], 1)

    def mean(self, x: Any) -> Any:
        return np.mean(x)

    def mean_square(self, x: Any, y: Any) -> Any:
        return np.mean((x - y) ** 2)

    def cross_entropy(self, scores: Any, labels: Any) -> Any:
        return nn.softmax_cross_entropy(scores, labels)

    def binary_cross_entropy(self, scores: Any, wanted: Any) -> Any:
        return nn.binary_cross_entropy(scores, wanted)
