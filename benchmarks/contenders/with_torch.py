"""PyTorch: eager in the fastest of its usual ways (the default), or through ``torch.compile`` (``compiled``).

A short trial at the start times the ways to write the network and to update the parameters on this machine,
and the best goes on from the initial weights. A job that is not ``tuned`` takes the first of each.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from networks import Conv, Dense, Dropout, Embedding, Flatten, Gated, Network, Pool, Recurrent, Weights
from numpy.typing import NDArray
from torch.nn import functional
from workload import Array, Job

from contenders.calls_torch import LIBRARY, LOOPS, layer_of
from contenders.ways import Way, described, fastest, reducible

Parameters = dict[str, Any]
Step = Callable[[Any], Any]
"""From the rows of a batch to its loss; it changes the parameters."""

_SHARED = 16
"""From this batch on there is enough work for all threads."""

_ACTIVATIONS = {"": lambda x: x, "relu": torch.relu, "tanh": torch.tanh}


class Contender:
    def __init__(self, job: Job, inputs: Array, labels: Array) -> None:
        torch.manual_seed(job.seed)
        self.network, self.initial = job.network, job.initial_weights()
        self.inputs = torch.from_numpy(inputs).reshape(len(inputs), *self.network.input)
        self.labels = torch.from_numpy(labels)
        self.compiled, self.all_threads = job.variant == "compiled", job.threads
        questions = _questions(self.network, job.threads, self.compiled)
        way = fastest(questions, self._trial, job.tuned)
        self._begin(way)
        self.choice = described(way, questions)

    def _begin(self, way: Way) -> None:
        self.threads = 1 if way.get("threads") == "1 thread" else self.all_threads
        self.parameters = {name: torch.tensor(value) for name, value in self.initial.items()}
        if _channels_last(way):
            self.parameters = {
                name: value.contiguous(memory_format=torch.channels_last) if value.ndim == 4 else value
                for name, value in self.parameters.items()
            }
        make = _whole_step if way.get("compiled") == "whole step" else _around_autograd
        self.step = make(self.network, way, self.parameters, self.inputs, self.labels, self.compiled)

    def _trial(self, way: Way) -> Callable[[], Any]:
        """A contender beside this one, going that way."""
        other = copy.copy(self)
        other._begin(way)
        rows = np.random.default_rng(0).integers(0, len(self.inputs), (5, self.network.batch))
        return lambda: other.run(rows)

    def run(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        torch.set_num_threads(self.threads)
        torch.set_flush_denormal(True)
        losses = [self.step(batch) for batch in torch.from_numpy(rows)]
        return torch.stack(losses).numpy()

    def weights(self) -> Weights:
        return {name: p.detach().contiguous().numpy() for name, p in self.parameters.items()}


def _questions(network: Network, threads: int, compiled: bool) -> dict[str, Any]:
    questions: dict[str, Any] = {}
    if compiled:
        questions["compiled"] = ("whole step", "around autograd")
    elif network.has(Recurrent):
        questions["cell"] = ("own cell, inputs of all steps in one product", "own cell", "nn.RNN")
    if network.has(Gated):
        questions["gated"] = (LIBRARY,) if compiled else (LIBRARY, *LOOPS)
    if network.has(Conv):
        questions["memory"] = ("contiguous", "channels last")
    if reducible(network):
        questions["pooling"] = ("pool", "amax of a view")
    if not compiled:
        by_hand = ("by hand",) if network.optimiser == "sgd" else ()
        questions["update"] = ("foreach", "fused", *by_hand)
        if threads > 1 and network.batch < _SHARED:
            questions["threads"] = (f"{threads} threads", "1 thread")
    return questions


def _channels_last(way: Way) -> bool:
    return way.get("memory") == "channels last"


def _around_autograd(
    network: Network, way: Way, parameters: Parameters, inputs: Any, labels: Any, compiled: bool
) -> Step:
    """Gradients by autograd, compiled or not, and an update outside."""
    trained = [parameters[name].requires_grad_() for name in parameters if name in network.trained()]
    change = _UPDATES[way.get("update", "foreach")](network, trained)

    def loss_of(x: Any, y: Any) -> Any:
        return _loss(network, way, parameters, x, y)

    if compiled:
        loss_of = torch.compile(loss_of)

    def step(rows: Any) -> Any:
        loss = loss_of(inputs.index_select(0, rows), labels.index_select(0, rows))
        change(torch.autograd.grad(loss, trained))
        return loss.detach()

    return step


def _whole_step(
    network: Network, way: Way, parameters: Parameters, inputs: Any, labels: Any, compiled: bool
) -> Step:
    """Gather, gradients and update in one compiled function."""
    trained = {name: value for name, value in parameters.items() if name in network.trained()}
    fixed = {name: value for name, value in parameters.items() if name not in trained}
    means = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in trained.items()}
    number = torch.zeros(())

    def loss_of(trained: Parameters, x: Any, y: Any) -> Any:
        return _loss(network, way, {**trained, **fixed}, x, y)

    @torch.compile
    def step(rows: Any) -> Any:
        x, y = inputs.index_select(0, rows), labels.index_select(0, rows)
        gradients, loss = torch.func.grad_and_value(loss_of)(trained, x, y)
        rate = network.learning_rate
        if network.optimiser == "sgd":
            for name, p in trained.items():
                p.sub_(gradients[name], alpha=rate)
            return loss
        number.add_(1)
        # -expm1(t log b) is 1 - b**t without the cancellation of float32.
        root = torch.sqrt(-torch.expm1(number * math.log(0.999)))
        size = rate * root / -torch.expm1(number * math.log(0.9))
        for name, p in trained.items():
            mean, square = means[name]
            mean.lerp_(gradients[name], 0.1)
            square.mul_(0.999).addcmul_(gradients[name], gradients[name], value=0.001)
            if network.optimiser == "adamw":
                p.mul_(1 - rate * 0.01)
            p.sub_(size * mean / (square.sqrt() + 1e-8 * root))
        return loss

    return step


def _loss(network: Network, way: Way, p: Parameters, x: Any, y: Any) -> Any:
    if x.dtype == torch.uint8:
        x = x.to(torch.float32) * (1 / 255)
    logits = _logits(network, way, p, x)
    if network.binary:
        return functional.binary_cross_entropy_with_logits(logits, y.to(torch.float32))
    return functional.cross_entropy(logits.flatten(0, -2), y.to(torch.int64).flatten())


def _logits(network: Network, way: Way, p: Parameters, x: Any) -> Any:
    """Channels are the second axis in here; ``channels last`` says how they lie in memory.

    A text is then an image of one row, as one-dimensional convolutions know no such layout.
    """
    lifted = _channels_last(way) and network.has(Embedding)
    for k, layer in enumerate(network.layers):
        weight, bias = p.get(f"{k}.weight"), p.get(f"{k}.bias")
        match layer:
            case Embedding():
                x = functional.embedding(x, weight)
                x = x.transpose(1, 2) if network.has(Conv) else x
                x = x.unsqueeze(2) if lifted else x
            case Conv():
                if x.ndim == 4:
                    if _channels_last(way):
                        x = x.contiguous(memory_format=torch.channels_last)
                    x = functional.conv2d(x, weight.unsqueeze(2) if lifted else weight, bias, layer.stride)
                else:
                    x = functional.conv1d(x, weight, bias, layer.stride)
                x = _ACTIVATIONS[layer.activation](x)
            case Pool(window=0):
                places = tuple(range(2, x.ndim))
                x = x.mean(places) if layer.mean else x.amax(places)
            case Pool():
                x = _pooled(layer, way, x, lifted)
            case Flatten():
                x = x.squeeze(2) if lifted else x
                x = x.transpose(1, 2) if x.ndim == 3 and network.channels == "last" else x
                x = x.flatten(1)
            case Dropout():
                x = functional.dropout(x, layer.rate, training=True)
            case Recurrent():
                cell = _CELLS[way.get("cell", "own cell")]
                states = cell(layer, x, weight, p[f"{k}.recurrent"], bias)
                x = states if layer.sequence else states[-1]
                x = torch.stack(x, 1) if layer.sequence else x
            case Gated():
                x = _gated(
                    layer, way["gated"], x, weight, p[f"{k}.recurrent"], bias, p.get(f"{k}.recurrent_bias")
                )
            case Dense():
                x = functional.linear(x, weight.t(), bias)
                x = _ACTIVATIONS[layer.activation](x)
    return x


def _gated(layer: Gated, way: str, x: Any, w: Any, u: Any, b: Any, c: Any) -> Any:
    p = {"w": w, "u": u, "b": b, "c": c}
    start = (x.new_zeros(len(x), layer.units),) * (2 if layer.cell == "lstm" else 1)
    states, _ = layer_of(layer.cell, way, p, start, x.transpose(0, 1))
    return states.transpose(0, 1) if layer.sequence else states[-1]


def _pooled(layer: Pool, way: Way, x: Any, lifted: bool) -> Any:
    if way.get("pooling") == "amax of a view":
        first = 3 if lifted else 2
        for axis in range(first, x.ndim):
            x = x.unflatten(2 * axis - first, (-1, layer.window))
        axes = tuple(range(first + 1, x.ndim, 2))
        return x.mean(axes) if layer.mean else x.amax(axes)
    window = (1, layer.window) if lifted else (layer.window,) * (x.ndim - 2)
    kind = f"{'avg' if layer.mean else 'max'}_pool{x.ndim - 2}d"
    return getattr(functional, kind)(x, window)


def _joined_inputs(layer: Recurrent, x: Any, weight: Any, recurrent: Any, bias: Any) -> list[Any]:
    totals = torch.addmm(bias, x.reshape(-1, x.shape[-1]), weight)
    states: list[Any] = []
    for total in totals.view(*x.shape[:2], -1).unbind(1):
        joined = torch.addmm(total, states[-1], recurrent) if states else total
        states.append(_ACTIVATIONS[layer.activation](joined))
    return states


def _own_cell(layer: Recurrent, x: Any, weight: Any, recurrent: Any, bias: Any) -> list[Any]:
    states: list[Any] = []
    for piece in x.unbind(1):
        total = torch.addmm(bias, piece, weight)
        total = torch.addmm(total, states[-1], recurrent) if states else total
        states.append(_ACTIVATIONS[layer.activation](total))
    return states


def _library_cell(layer: Recurrent, x: Any, weight: Any, recurrent: Any, bias: Any) -> Any:
    """``torch.rnn_tanh``, what ``nn.RNN`` calls; its second bias is zero, as only the sum matters."""
    weights = [weight.t(), recurrent.t(), bias, torch.zeros_like(bias)]
    start = x.new_zeros(1, len(x), layer.units)
    function = torch.rnn_tanh if layer.activation == "tanh" else torch.rnn_relu
    return function(x, start, weights, True, 1, 0.0, True, False, True)[0].unbind(1)


_CELLS = {
    "own cell, inputs of all steps in one product": _joined_inputs,
    "own cell": _own_cell,
    "nn.RNN": _library_cell,
}


def _fused(network: Network, trained: list[Any]) -> Callable[[Any], None]:
    return _optimiser(network, trained, fused=True)


def _foreach(network: Network, trained: list[Any]) -> Callable[[Any], None]:
    if network.optimiser != "sgd":
        return _optimiser(network, trained, foreach=True)

    def change(gradients: Any) -> None:
        with torch.no_grad():
            torch._foreach_add_(trained, gradients, alpha=-network.learning_rate)

    return change


def _by_hand(network: Network, trained: list[Any]) -> Callable[[Any], None]:
    def change(gradients: Any) -> None:
        with torch.no_grad():
            for p, g in zip(trained, gradients):
                p.add_(g, alpha=-network.learning_rate)

    return change


def _optimiser(network: Network, trained: list[Any], **how: bool) -> Callable[[Any], None]:
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[network.optimiser]
    optimiser = kind(trained, network.learning_rate, **how)

    def change(gradients: Any) -> None:
        for p, g in zip(trained, gradients):
            # The fused optimisers take for granted that both lie alike in memory.
            p.grad = g if g.stride() == p.stride() else torch.empty_like(p).copy_(g)
        optimiser.step()

    return change


_UPDATES = {"foreach": _foreach, "fused": _fused, "by hand": _by_hand}
