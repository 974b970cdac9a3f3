"""PyTorch: eager, images contiguous or with channels last in memory, or the same through ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from nets import LEARNING_RATE, NETWORKS, Arrays, Net
from torch.nn import functional

from contenders.ways import Way, described, fastest

_LAST = "channels last"


class Contender:
    def __init__(self, net: Net, arrays: Arrays, variant: str, threads: int, tuned: bool) -> None:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(True)
        self.net, self.arrays, self.compiled = net, arrays, variant == "compiled"
        images = any(value.ndim == 4 for value in arrays.values())
        questions = {"memory": ("contiguous", _LAST)} if images else {}
        way = fastest(questions, self._made, tuned)
        self.step, self.weights = self._built(way)
        how = ["torch.compile around the loss"] if self.compiled else ["eager"]
        self.choice = ", ".join(filter(None, [*how, described(way, questions)]))

    def _made(self, way: Way) -> Callable[[], Any]:
        return self._built(way)[0]

    def _built(self, way: Way) -> tuple[Callable[[], Any], list[Any]]:
        last = way.get("memory") == _LAST
        given = {name: torch.tensor(value) for name, value in self.arrays.items()}
        if last:
            given = {
                k: v.contiguous(memory_format=torch.channels_last) if v.ndim == 4 else v
                for k, v in given.items()
            }
        weights = [value.requires_grad_() for name, value in given.items() if name.startswith("w")]
        loss_of = partial(_loss, self.net)
        if self.compiled:
            loss_of = torch.compile(loss_of)

        def step() -> Any:
            loss = loss_of(weights, given["inputs"], given["others"])
            gradients = torch.autograd.grad(loss, weights)
            with torch.no_grad():
                torch._foreach_add_(weights, gradients, alpha=-LEARNING_RATE)
            return loss.detach()

        return step, weights

    def run(self) -> None:
        self.loss = self.step()

    def numbers(self) -> Arrays:
        values = {f"w{k}": w.detach().contiguous().numpy().copy() for k, w in enumerate(self.weights)}
        return {"loss": self.loss.numpy(), **values}


def _loss(net: Net, weights: Any, inputs: Any, others: Any) -> Any:
    return NETWORKS[net.network].loss(_Vocabulary(net.batch, weights), inputs, others, net.size)


class _Vocabulary:
    def __init__(self, batch: int, weights: Any) -> None:
        self.batch, self._weights = batch, iter(weights)

    def weight(self, *shape: int) -> Any:
        return next(self._weights)

    ones = images = weight

    def conv(self, x: Any, w: Any, stride: int, padding: int, groups: int = 1) -> Any:
        return functional.conv2d(x, w, None, stride, padding, 1, groups)

    def conv_transpose(self, x: Any, w: Any, stride: int, padding: int) -> Any:
        return functional.conv_transpose2d(x, w, None, stride, padding)

    def dense(self, x: Any, w: Any, b: Any | None) -> Any:
        return functional.linear(x, w.t(), b)

    def batch_norm(self, x: Any, scale: Any, shift: Any) -> Any:
        return functional.batch_norm(x, None, None, scale, shift, True, 0.1, 1e-5)

    def layer_norm(self, x: Any, scale: Any, shift: Any) -> Any:
        return functional.layer_norm(x, x.shape[-1:], scale, shift, 1e-5)

    def relu(self, x: Any) -> Any:
        return torch.relu(x)

    def gelu(self, x: Any) -> Any:
        return functional.gelu(x)

    def exp(self, x: Any) -> Any:
        return torch.exp(x)

    def tanh(self, x: Any) -> Any:
        return torch.tanh(x)

    def softplus(self, x: Any) -> Any:
        return functional.softplus(x)

    def constant(self, x: Any) -> Any:
        return x.detach()

    def max_pool(self, x: Any) -> Any:
        return functional.max_pool2d(x, 2)

    def mean_of_places(self, x: Any) -> Any:
        return x.mean((2, 3))

    def mean_of_patches(self, x: Any) -> Any:
        return x.mean(1)

    def swapped(self, x: Any) -> Any:
        return x.transpose(1, 2)

    def joined(self, x: Any, y: Any) -> Any:
        return torch.cat([x, y], 1)

    def mean(self, x: Any) -> Any:
        return x.mean()

    def mean_square(self, x: Any, y: Any) -> Any:
        return functional.mse_loss(x, y)

    def cross_entropy(self, scores: Any, labels: Any) -> Any:
        return functional.cross_entropy(scores, labels)

    def binary_cross_entropy(self, scores: Any, wanted: Any) -> Any:
        return functional.binary_cross_entropy_with_logits(scores, wanted)
