"""Pullback: a model of layers, a step of plain functions, many steps in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
from networks import Conv, Dense, Dropout, Embedding, Flatten, Gated, Network, Pool, Recurrent, Weights
from numpy.typing import NDArray
from workload import Array, Job

import pullback as pb
from pullback import nn, optim

_OPTIMISERS = {"sgd": optim.SGD, "adam": optim.Adam, "adamw": optim.AdamW}
_ACTIVATIONS = {"": None, "relu": nn.relu, "tanh": nn.tanh}


class Contender:
    def __init__(self, job: Job, inputs: Array, labels: Array) -> None:
        pb.set_num_threads(job.threads)
        self.inputs, self.labels = inputs, labels
        self.model = build(job.network, job.initial_weights())
        self.key, self.done = pb.random.key(job.seed), 0
        optimiser: Any = _OPTIMISERS[job.network.optimiser](job.network.learning_rate)
        self.state = optimiser.init(self.model)

        def step(model: Any, state: Any, rows: Any, number: Any, key: Any, inputs: Any, labels: Any) -> Any:
            x = inputs[rows]
            if x.dtype == np.uint8:
                x = x.astype(np.float32) * (1 / 255)

            def loss_of(model: Any) -> Any:
                with nn.training(pb.random.fold_in(key, number)):
                    logits = model(x)
                if job.network.binary:
                    return nn.binary_cross_entropy(logits, labels[rows])
                return nn.softmax_cross_entropy(logits, labels[rows])

            loss, gradients = pb.value_and_grad(loss_of)(model)
            model, state = optimiser.update(gradients, state, model)
            return model, state, loss

        self.step = pb.jit(step, donate_argnums=(0, 1), flush_subnormals=True)
        self.choice = "pb.jit, run_steps"

    def run(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        numbers = np.arange(self.done, self.done + len(rows))
        arguments = (self.model, self.state, rows, numbers, self.key, self.inputs, self.labels)
        results, _ = self.step.run_steps(arguments, len(rows), sliced_argnums=(2, 3))
        losses: NDArray[np.float32]
        self.model, self.state, losses = results
        self.done += len(rows)
        return losses

    def weights(self) -> Weights:
        return {name: getattr(layer, field) for name, layer, field in _fields(self.model)}


def build(network: Network, weights: Weights) -> nn.Chain:
    """The network as a chain of layers that begin with these weights."""
    layers: list[Any] = []
    if not network.has(Embedding) and len(network.input) > 1:
        layers.append(nn.Reshape(*network.input))
    for layer, before, _ in network.with_shapes():
        rank = len(network.places(before))
        made: Any
        match layer:
            case Embedding():
                made = nn.Embedding(layer.rows, layer.columns, layer.trainable)
            case Conv():
                made = (nn.Conv1d if rank == 1 else nn.Conv2d)(
                    network.channel_count(before), layer.channels, layer.window, layer.stride,
                    bias=layer.bias, activation=_ACTIVATIONS[layer.activation], channels=network.channels,
                )  # fmt: skip
            case Pool(window=0):
                made = (nn.GlobalAvgPool if layer.mean else nn.GlobalMaxPool)(network.channels)
            case Pool():
                kind = getattr(nn, f"{'Avg' if layer.mean else 'Max'}Pool{rank}d")
                made = kind(layer.window, channels=network.channels)
            case Flatten():
                made = nn.flatten
            case Dropout():
                made = nn.Dropout(layer.rate)
            case Recurrent():
                made = nn.RNN(before[-1], layer.units, layer.activation, return_sequences=layer.sequence)
            case Gated():
                kind = nn.GRU if layer.cell == "gru" else nn.LSTM
                made = kind(before[-1], layer.units, return_sequences=layer.sequence)
            case Dense():
                made = nn.Dense(
                    before[-1], layer.units, bias=layer.bias, activation=_ACTIVATIONS[layer.activation]
                )
        layers.append(made)
    model = nn.Chain(*layers)
    for name, part, field in _fields(model):
        setattr(part, field, pb.aligned(weights[name].copy()))
    return model


def _fields(model: nn.Chain) -> list[tuple[str, Any, str]]:
    """The name of each weight, what has it and the field in which it stands."""
    layers = model.layers[1:] if isinstance(model.layers[0], nn.Reshape) else model.layers
    found = []
    for k, layer in enumerate(layers):
        names = {"bias": "bias", "weight": "weight"}
        owner = layer
        if isinstance(layer, nn.Recurrent):
            ((owner,),) = layer.layers()
            names = {"weight": "input_weight", "recurrent": "recurrent_weight", "bias": "bias"}
            names["recurrent_bias"] = "recurrent_bias"
        for name, field in names.items():
            if getattr(owner, field, None) is not None:
                found.append((f"{k}.{name}", owner, field))
    return found
