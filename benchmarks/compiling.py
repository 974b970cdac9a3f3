"""What compiling a program takes: ``python benchmarks/compiling.py resnet-20`` prints it as JSON.

CPU time of all threads from the traced function to the loaded program, the share of the threads that run LLVM, and the
largest memory that the process has had, above what it had with everything imported.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb
from pullback import nn, optim

__all__ = ["PROGRAMS", "Made", "measured"]

Made = tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]
"""A function, its arguments, and which of them are donated."""


def elementwise(operations: int) -> Made:
    """A chain of elementwise operations of six kinds."""
    kinds: list[Callable[[Any], Any]] = [
        np.tanh, lambda x: x + 0.5, lambda x: x * 1.1, np.abs, lambda x: np.maximum(x, 0.2), lambda x: 1.0 - x
    ]  # fmt: skip

    def chain(x: Any) -> Any:
        for number in range(operations):
            x = kinds[number % len(kinds)](x)
        return x

    return chain, (np.ones((64, 64), np.float32),), ()


def slopes(operations: int) -> Made:
    """The same chain with its derivative."""
    chain, arguments, _ = elementwise(operations)
    return pb.grad(lambda x: np.sum(chain(x))), arguments, ()


def reductions(operations: int) -> Made:
    """Means over rows and columns in turn, each taken off the array."""

    def chain(x: Any) -> Any:
        for number in range(operations // 2):
            x = x - np.mean(x, axis=number % 2, keepdims=True)
        return x

    return chain, (np.ones((64, 64), np.float32),), ()


def products(operations: int) -> Made:
    """Products with one matrix."""

    def chain(x: Any, w: Any) -> Any:
        for _ in range(operations):
            x = x @ w
        return x

    return chain, (np.ones((64, 64), np.float32), np.ones((64, 64), np.float32)), ()


def rolls(operations: int) -> Made:
    """An array rolled by one again and again, with a little added so that no two rolls become one."""

    def chain(x: Any) -> Any:
        for _ in range(operations):
            x = np.roll(x, 1)
        return x

    return chain, (np.ones(64, np.float32),), ()


def concatenations(operations: int) -> Made:
    """Each time two halves change places."""

    def chain(x: Any) -> Any:
        for _ in range(operations):
            x = np.concatenate([x[32:], x[:32]]) * np.float32(0.5)
        return x

    return chain, (np.ones((64, 8), np.float32),), ()


def parameters(count: int) -> Made:
    """One step of Adam for so many small parameters."""
    optimiser = optim.Adam(1e-3)
    model = [np.ones(8, np.float32) for _ in range(count)]

    def step(model: Any, state: Any) -> Any:
        gradient = pb.grad(lambda model: np.sum(sum(np.sum(p * p) for p in model)))(model)
        return optimiser.update(gradient, state, model)

    return step, (model, optimiser.init(model)), (0, 1)


class Block(nn.Module):
    """Two convolutions with batch normalisation, around which the input goes on, subsampled where it must be."""

    first: Any
    first_norm: Any
    second: Any
    second_norm: Any
    shortcut: Any

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm(outputs)
        plain = inputs == outputs and stride == 1
        self.shortcut = (
            None
            if plain
            else nn.Chain(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm(outputs))
        )

    def __call__(self, x: Any) -> Any:
        y = pb.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        return pb.relu(y + (x if self.shortcut is None else self.shortcut(x)))


def resnet(layers: int) -> Made:
    """A training step of the residual network of so many layers (8, 20, …) for images of 32 × 32, batch 32, SGD."""
    depth = (layers - 2) // 6
    blocks = [
        Block(inputs if k == 0 else width, width, stride if k == 0 else 1)
        for inputs, width, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2))
        for k in range(depth)
    ]
    stem = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm(16), pb.relu
    model = nn.Chain(*stem, *blocks, nn.GlobalAvgPool(), nn.Dense(64, 10))
    optimiser = optim.SGD(0.1, momentum=0.9)

    def step(model: Any, state: Any, key: Any, x: Any, labels: Any) -> Any:
        def objective(model: Any) -> Any:
            with nn.training(key) as mode:
                loss = nn.softmax_cross_entropy(model(x), labels)
            return loss, mode.updated(model)

        (loss, updated), gradient = pb.value_and_grad(objective, has_aux=True)(model)
        return *optimiser.update(gradient, state, updated), loss

    x, labels = np.ones((32, 3, 32, 32), np.float32), np.zeros(32, np.int64)
    return step, (model, optimiser.init(model), pb.random.key(0), x, labels), (0, 1)


def gru(layers: int) -> Made:
    """A training step of so many layers of 256 units: 32 steps, batch 64, SGD."""
    model = nn.GRU(256, 256, layers=layers)
    optimiser = optim.SGD(0.1)

    def step(model: Any, state: Any, x: Any) -> Any:
        loss, gradient = pb.value_and_grad(lambda m: np.mean(m(x) ** 2))(model)
        return *optimiser.update(gradient, state, model), loss

    x = np.ones((64, 32, 256), np.float32)
    return step, (model, optimiser.init(model), x), (0, 1)


def perceptron(layers: int) -> Made:
    """A training step of so many dense layers with layer normalisation, Adam."""
    parts = [part for _ in range(layers) for part in (nn.Dense(64, 64), nn.LayerNorm(64), np.tanh)]
    model, optimiser = nn.Chain(*parts), optim.Adam(1e-3)

    def step(model: Any, state: Any, x: Any) -> Any:
        loss, gradient = pb.value_and_grad(lambda m: np.mean(m(x) ** 2))(model)
        return *optimiser.update(gradient, state, model), loss

    return step, (model, optimiser.init(model), np.ones((64, 64), np.float32)), (0, 1)


PROGRAMS: dict[str, Callable[[int], Made]] = {
    made.__name__: made
    for made in (
        elementwise, slopes, reductions, products, rolls, concatenations, parameters, resnet, gru, perceptron
    )
}  # fmt: skip


def measured(program: str) -> dict[str, float]:
    """Seconds and megabytes of compiling a program, named like ``resnet-20``, in this process."""
    name, _, number = program.partition("-")
    function, arguments, donated = PROGRAMS[name](int(number))
    pb.jit(lambda x: x + 1)(np.zeros(1))  # imports, and LLVM's own beginning
    before = _peak()
    compiled = pb.jit(function, donate_argnums=donated)
    first = _of_call(compiled, arguments)
    peak = _peak()
    second = _of_call(compiled, arguments)
    cpu, python = (a - b for a, b in zip(first, second))
    return {"cpu": cpu, "python": python, "peak_mb": peak, "before_mb": before}


def _of_call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[float, float]:
    """Seconds of the processor that a call takes, in all threads and in this one."""
    whole, own = time.process_time(), time.thread_time()
    function(*arguments)
    return time.process_time() - whole, time.thread_time() - own


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help=f"{', '.join(PROGRAMS)}, each with its size: resnet-20")
    json.dump(measured(parser.parse_args().program), sys.stdout)
    print()
