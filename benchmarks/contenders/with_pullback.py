"""Pullback: a model of layers, a step of plain functions, many steps in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from workload import CLASSES, Job, Network, Pixels, Weights

import pullback as pb
from pullback import nn, optim


class Contender:
    def __init__(self, job: Job, images: Pixels, labels: Pixels) -> None:
        pb.set_num_threads(job.threads)
        self.images, self.labels = images, labels
        self.model = build(job.network, job.initial_weights())
        optimiser = optim.SGD(job.network.learning_rate)

        def step(model: Any, rows: Any, images: Any, labels: Any) -> tuple[Any, Any]:
            x = images[rows].astype(np.float32) * (1 / 255)

            def loss_of(model: Any) -> Any:
                return nn.softmax_cross_entropy(model(x), labels[rows])

            loss, gradients = pb.value_and_grad(loss_of)(model)
            model, _ = optimiser.update(gradients, (), model)
            return model, loss

        self.step = pb.jit(step, donate_argnums=0)
        self.choice = "pb.jit, run_steps"

    def run(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        arguments = (self.model, rows, self.images, self.labels)
        results, _ = self.step.run_steps(arguments, len(rows), sliced_argnums=1)
        losses: NDArray[np.float32]
        self.model, losses = results
        return losses

    def weights(self) -> Weights:
        found = {}
        layers = [layer for layer in self.model.layers if isinstance(layer, (nn.RNN, nn.Dense))]
        for k, layer in enumerate(layers):
            if isinstance(layer, nn.RNN):
                found[f"{k}.weight"], found[f"{k}.recurrent"] = layer.input_weight, layer.recurrent_weight
            else:
                found[f"{k}.weight"] = layer.weight
            found[f"{k}.bias"] = layer.bias
        return found


def build(network: Network, weights: Weights) -> nn.Chain:
    """The network as a chain of layers that begin with these weights."""
    layers: list[Any] = [nn.Reshape(network.steps, -1)] if network.steps else []
    inputs, last = network.inputs, len(network.hidden)
    for k, hidden in enumerate(network.hidden):
        layer: Any
        if network.steps:
            layer = nn.RNN(inputs, hidden, network.activation, return_sequences=k < last - 1)
            layer.input_weight = weights[f"{k}.weight"].copy()
            layer.recurrent_weight = weights[f"{k}.recurrent"].copy()
        else:
            layer = nn.Dense(inputs, hidden, activation=getattr(nn, network.activation))
            layer.weight = weights[f"{k}.weight"].copy()
        layer.bias = weights[f"{k}.bias"].copy()
        layers.append(layer)
        inputs = hidden
    dense = nn.Dense(inputs, CLASSES)
    dense.weight, dense.bias = weights[f"{last}.weight"].copy(), weights[f"{last}.bias"].copy()
    return nn.Chain(*layers, dense)
