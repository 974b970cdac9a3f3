"""PyTorch: eager in the fastest of its usual ways (the default), or through ``torch.compile`` (``compiled``).

A short trial at the start times each way to write the network and each way to update the parameters on this
machine, and the fastest pair goes on from the initial weights. A job that is not ``tuned`` takes the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional
from workload import CLASSES, Job, Network, Pixels, Weights

Step = Callable[[Any, Any], Any]

_TRIAL_SECONDS = 0.4


class Contender:
    def __init__(self, job: Job, images: Pixels, labels: Pixels) -> None:
        torch.set_num_threads(job.threads)
        self.images, self.labels = torch.from_numpy(images), torch.from_numpy(labels)
        self.network, self.initial = job.network, job.initial_weights()
        makers = _compiled(self.network) if job.variant == "compiled" else _eager(self.network)
        self.choice = next(iter(makers))
        if job.tuned:
            self.choice = min(makers, key=lambda name: self._trial(makers[name]))
        self._begin(makers[self.choice])

    def _begin(self, maker: Callable[[list[Any]], Step]) -> None:
        self.parameters = [torch.tensor(value, requires_grad=True) for value in self.initial.values()]
        self.step = maker(self.parameters)

    def _trial(self, maker: Callable[[list[Any]], Step]) -> float:
        """Seconds of a step, the smallest of a few."""
        self._begin(maker)
        rows = np.random.default_rng(0).integers(0, len(self.images), (1, self.network.batch))
        for _ in range(3):
            self.run(rows)
        best, end = float("inf"), time.perf_counter() + _TRIAL_SECONDS
        while time.perf_counter() < end:
            start = time.perf_counter()
            self.run(rows)
            best = min(best, time.perf_counter() - start)
        return best

    def run(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        network, losses = self.network, []
        for batch in torch.from_numpy(rows):
            x = self.images.index_select(0, batch).to(torch.float32).mul_(1 / 255)
            y = self.labels.index_select(0, batch).to(torch.int64)
            losses.append(self.step(x.view(network.batch, network.steps, -1) if network.steps else x, y))
        return torch.stack(losses).numpy()

    def weights(self) -> Weights:
        return {name: p.detach().numpy() for name, p in zip(self.initial, self.parameters)}


def draw(network: Network, seed: int) -> Weights:
    """Initial weights as PyTorch's own layers draw them; the two biases of a cell added up."""
    torch.manual_seed(seed)
    weights: Weights = {}
    inputs = network.inputs
    for k, hidden in enumerate(network.hidden):
        layer = torch.nn.RNNCell(inputs, hidden) if network.steps else torch.nn.Linear(inputs, hidden)
        named = {name: value.detach().numpy() for name, value in layer.named_parameters()}
        if network.steps:
            weights[f"{k}.weight"] = named["weight_ih"].T.copy()
            weights[f"{k}.recurrent"] = named["weight_hh"].T.copy()
            weights[f"{k}.bias"] = named["bias_ih"] + named["bias_hh"]
        else:
            weights[f"{k}.weight"], weights[f"{k}.bias"] = named["weight"].T.copy(), named["bias"]
        inputs = hidden
    last = torch.nn.Linear(inputs, CLASSES)
    weights[f"{len(network.hidden)}.weight"] = last.weight.detach().numpy().T.copy()
    weights[f"{len(network.hidden)}.bias"] = last.bias.detach().numpy()
    return weights


def _eager(network: Network) -> dict[str, Callable[[list[Any]], Step]]:
    """Every pair of a way to write the network and a way to update its parameters."""
    networks = {"own cell, inputs of all steps in one product": _joined_inputs, "own cell": _own_cell}
    networks = {**networks, "nn.RNN": _library_cell} if network.steps else {"dense layers": _perceptron}
    updates = {"foreach": _foreach, "fused SGD": _fused, "add_ by hand": _by_hand}

    def pair(forward: Any, update: Any) -> Callable[[list[Any]], Step]:
        def make(parameters: list[Any]) -> Step:
            logits, change = forward(network, parameters), update(parameters, network.learning_rate)

            def step(x: Any, y: Any) -> Any:
                loss = functional.cross_entropy(logits(x), y)
                change(torch.autograd.grad(loss, parameters))
                return loss.detach()

            return step

        return make

    return {f"{f}, {u}": pair(networks[f], updates[u]) for f in networks for u in updates}


def _compiled(network: Network) -> dict[str, Callable[[list[Any]], Step]]:
    """The forward and backward pass compiled around autograd, or the whole step as one graph."""
    forward = _own_cell if network.steps else _perceptron

    def around_autograd(parameters: list[Any]) -> Step:
        logits, change = forward(network, parameters), _foreach(parameters, network.learning_rate)
        loss_of = torch.compile(lambda x, y: functional.cross_entropy(logits(x), y))

        def step(x: Any, y: Any) -> Any:
            loss = loss_of(x, y)
            change(torch.autograd.grad(loss, parameters))
            return loss.detach()

        return step

    def whole_step(parameters: list[Any]) -> Step:
        plain = [p.detach() for p in parameters]

        def loss_of(values: list[Any], x: Any, y: Any) -> Any:
            return functional.cross_entropy(forward(network, values)(x), y)

        @torch.compile
        def step(x: Any, y: Any) -> Any:
            gradients, loss = torch.func.grad_and_value(loss_of)(plain, x, y)
            for p, g in zip(plain, gradients):
                p.sub_(g, alpha=network.learning_rate)
            return loss

        return step

    return {"compiled, whole step": whole_step, "compiled, around autograd": around_autograd}


def _activation(network: Network) -> Callable[[Any], Any]:
    return torch.tanh if network.activation == "tanh" else torch.relu


def _perceptron(network: Network, parameters: list[Any]) -> Callable[[Any], Any]:
    activation, layers = _activation(network), len(network.hidden)

    def logits(x: Any) -> Any:
        for k in range(layers):
            x = activation(torch.addmm(parameters[2 * k + 1], x, parameters[2 * k]))
        return torch.addmm(parameters[-1], x, parameters[-2])

    return logits


def _own_cell(network: Network, parameters: list[Any]) -> Callable[[Any], Any]:
    activation, layers = _activation(network), len(network.hidden)

    def logits(x: Any) -> Any:
        sequence = x.unbind(1)
        for k in range(layers):
            weight, recurrent, bias = parameters[3 * k : 3 * k + 3]
            state, states = None, []
            for piece in sequence:
                total = torch.addmm(bias, piece, weight)
                state = activation(total if state is None else torch.addmm(total, state, recurrent))
                states.append(state)
            sequence = states
        return torch.addmm(parameters[-1], sequence[-1], parameters[-2])

    return logits


def _joined_inputs(network: Network, parameters: list[Any]) -> Callable[[Any], Any]:
    activation, layers = _activation(network), len(network.hidden)

    def logits(x: Any) -> Any:
        for k in range(layers):
            weight, recurrent, bias = parameters[3 * k : 3 * k + 3]
            totals = torch.addmm(bias, x.reshape(-1, x.shape[-1]), weight)
            state, states = None, []
            for total in totals.view(*x.shape[:2], -1).unbind(1):
                state = activation(total if state is None else torch.addmm(total, state, recurrent))
                states.append(state)
            x = torch.stack(states, 1) if k < layers - 1 else states[-1]
        return torch.addmm(parameters[-1], x, parameters[-2])

    return logits


def _library_cell(network: Network, parameters: list[Any]) -> Callable[[Any], Any]:
    """``torch.rnn_tanh``, what ``nn.RNN`` calls; its second bias stays zero, as only the sum matters."""
    layers, recurrent = (
        len(network.hidden),
        torch.rnn_tanh if network.activation == "tanh" else torch.rnn_relu,
    )
    zeros = [torch.zeros(hidden) for hidden in network.hidden]
    starts = torch.zeros(layers, network.batch, network.hidden[0])

    def logits(x: Any) -> Any:
        weights = []
        for k in range(layers):
            weight, own, bias = parameters[3 * k : 3 * k + 3]
            weights += [weight.t(), own.t(), bias, zeros[k]]
        outputs, _ = recurrent(x, starts, weights, True, layers, 0.0, True, False, True)
        return torch.addmm(parameters[-1], outputs[:, -1], parameters[-2])

    return logits


def _fused(parameters: list[Any], rate: float) -> Callable[[Any], None]:
    optimiser = torch.optim.SGD(parameters, rate, fused=True)

    def change(gradients: Any) -> None:
        for p, g in zip(parameters, gradients):
            p.grad = g
        optimiser.step()

    return change


def _foreach(parameters: list[Any], rate: float) -> Callable[[Any], None]:
    def change(gradients: Any) -> None:
        with torch.no_grad():
            torch._foreach_add_(parameters, gradients, alpha=-rate)

    return change


def _by_hand(parameters: list[Any], rate: float) -> Callable[[Any], None]:
    def change(gradients: Any) -> None:
        with torch.no_grad():
            for p, g in zip(parameters, gradients):
                p.add_(g, alpha=-rate)

    return change
