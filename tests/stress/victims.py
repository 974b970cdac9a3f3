"""What is interrupted: each victim has work that never ends, and a check that all is well behind an interrupt.

Run as a process by ``interrupts``: ``python -m tests.stress.victims compile`` prints ``begin SECONDS`` (about how long
one turn of the work takes) and works until Ctrl-C comes; then it checks, prints ``right`` and begins again.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pullback as pb
from pullback import nn, optim
from pullback.io import write_history
from pullback.train import Trainer, load_checkpoint, save_checkpoint

__all__ = ["VICTIMS", "Victim"]


class Victim:
    """``work`` is interrupted anywhere; ``check`` raises ``AssertionError`` unless all is well behind that."""

    seconds = 1.0

    def work(self) -> None:
        raise NotImplementedError

    def check(self) -> None:
        raise NotImplementedError


class Compile(Victim):
    """A network's loss and gradient, another one each time."""

    def __init__(self) -> None:
        self.number = 0
        self.x = np.linspace(-1, 1, 64 * 20).reshape(64, 20)
        self.new()

    def new(self) -> None:
        number = self.number = self.number + 1

        def loss(w: Any, x: Any) -> Any:
            return np.sum(np.sin(x @ w + number)) / 64

        plain = pb.value_and_grad(loss)
        self.pair = plain, pb.jit(plain)  # at once: an interrupt between the two would leave two networks

    def work(self) -> None:
        self.new()
        self.compare()

    def compare(self) -> None:
        w = np.full((20, 10), 0.01 * (self.number % 7))
        plain, compiled = self.pair
        for found, expected in zip(compiled(w, self.x), plain(w, self.x)):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)

    def check(self) -> None:
        self.compare()  # what was interrupted
        self.new()
        self.compare()


class Call(Victim):
    """Calls of compiled programs: short, long, many steps in place."""

    seconds = 0.05

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(400, 400))
        self.long = pb.jit(lambda x: np.tanh(x @ x) @ x)
        self.short = pb.jit(lambda x: np.sum(x * x))
        self.count = pb.jit(lambda total, x: (total + 1, np.sum(x)), donate_argnums=0)
        self.expected = self.long(self.x), self.short(self.x[0])
        self.total = np.zeros(10_000)
        self.rows = rng.normal(size=(2000, 50))
        self.work()

    def work(self) -> None:
        self.long(self.x)
        for _ in range(100):
            self.short(self.x[0])
        self.total = self.count.run_steps((self.total, self.rows), len(self.rows), 1)[0][0]

    def check(self) -> None:
        np.testing.assert_array_equal(self.long(self.x), self.expected[0])
        np.testing.assert_array_equal(self.short(self.x[0]), self.expected[1])
        assert np.all(self.total == self.total[0]), "a step was left half done"
        before = self.total[0]
        self.total = self.count.run_steps((self.total, self.rows), len(self.rows), 1)[0][0]
        assert np.all(self.total == before + len(self.rows))


class _Counter(nn.Module):
    """Its weight counts the steps of a gradient of -1."""

    weight: Any

    def __call__(self, x: Any) -> Any:
        return self.weight + 0 * x.sum()


class _Network(nn.Module):
    first: Any
    second: Any

    def __call__(self, x: Any) -> Any:
        return self.second(np.tanh(self.first(x)))


class Fit(Victim):
    """A training that goes on where it was interrupted."""

    seconds = 0.3

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.data = rng.normal(size=(640, 8)).astype(np.float32), rng.integers(0, 3, 640)
        self.counted = np.zeros((1000, 1), np.float32), np.zeros((1000, 1), np.float32)
        self.new()

    def new(self) -> None:
        model = _Network(nn.Dense(8, 32, seed=0), nn.Dense(32, 3, seed=1))
        self.trainer = Trainer(model, nn.softmax_cross_entropy, optim.Adam(1e-3), batch_size=32)
        self.counter = Trainer(
            _Counter(np.zeros(())), lambda y, _: -y, optim.SGD(1.0), metrics=(), batch_size=10
        )

    def work(self) -> None:
        for trainer, data in ((self.trainer, self.data), (self.counter, self.counted)):
            trainer.fit(data, 20, validation=data)
            if trainer.history.interrupted:
                raise KeyboardInterrupt
        self.new()

    def check(self) -> None:
        assert float(self.counter.model.weight) == self.counter.steps, "steps are miscounted"
        for trainer, data in ((self.trainer, self.data), (self.counter, self.counted)):
            epochs, steps = trainer.history.epochs, trainer.steps
            trainer.fit(data, 1)
            assert trainer.history.epochs == epochs + 1
            assert trainer.steps == steps + -(-len(data[0]) // trainer.batch_size)
            assert not trainer.history.interrupted
        assert np.isfinite(self.trainer.evaluate(self.data)["loss"])
        if self.trainer.history.epochs > 100:
            self.new()


class Save(Victim):
    """Model, history and checkpoint written over and over."""

    seconds = 0.03

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pullback-stress-"))
        self.number = 0
        model = nn.Dense(100, 100, seed=0)
        self.trainer = Trainer(model, nn.squared_error, optim.SGD(0.1), metrics=(), batch_size=10)
        self.work()

    def work(self) -> None:
        self.number += 1
        self.trainer.model.weight[:] = self.number
        pb.save(self.trainer.model, self.folder / "model.safetensors")
        write_history(self.folder / "history.json", {"number": self.number})
        save_checkpoint(self.trainer, self.folder / "checkpoint.safetensors")

    def check(self) -> None:
        weight = pb.load(self.folder / "model.safetensors", like=self.trainer.model).weight
        assert np.all(weight == weight[0, 0]) and self.number - 1 <= weight[0, 0] <= self.number
        load_checkpoint(self.trainer, self.folder / "checkpoint.safetensors")
        weight = self.trainer.model.weight
        assert np.all(weight == weight[0, 0]) and self.number - 1 <= weight[0, 0] <= self.number
        self.work()
        names = sorted(path.name for path in self.folder.iterdir())
        assert names == ["checkpoint.safetensors", "history.json", "model.safetensors"], names


VICTIMS: dict[str, Callable[[], Victim]] = {"compile": Compile, "call": Call, "fit": Fit, "save": Save}


def main(what: str, rounds: int) -> None:
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    victim = VICTIMS[what]()
    for _ in range(rounds):
        start = time.perf_counter()
        try:
            print("begin", victim.seconds, flush=True)
            while True:
                victim.work()
        except KeyboardInterrupt:
            pass
        end = time.perf_counter()
        victim.check()
        print("right", end - start, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
