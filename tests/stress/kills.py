"""Processes killed at random moments of training, saving and caching: nothing is lost, nothing is left behind.

``python -m tests.stress.kills --count 1000 --seed 1`` kills so many processes. Each goes on with what the one before
left: a training with a checkpoint after every epoch, a model that is saved again and again, entries of the code
cache. What was said to be saved must be there or something newer, whole, and with the bits that an undisturbed
training has; after the next save no file is there that is not a result. Runs where processes can fork.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from pullback import nn, optim
from pullback.compiler.runtime.cache import Cache
from pullback.compiler.target import Processor
from pullback.io import load_tensors, save
from pullback.tracing import flatten
from pullback.train import Trainer, load_checkpoint, save_checkpoint

__all__ = ["main"]

_EPOCHS = 10**6  # no process gets that far
_ANEW = 300  # epochs after which a training begins anew: the undisturbed one has to do them all
_INPUTS = np.linspace(-1, 1, 60, dtype=np.float32).reshape(20, 3)
_LABELS = np.arange(20, dtype=np.uint8) % 4
_LONGEST = 0.5
"""Seconds that a process lives at most once it works."""

Tell = Callable[[int], None]


def _trainer() -> Trainer:
    model = nn.Chain(nn.Dense(3, 64, activation=np.tanh, seed=0), nn.Dense(64, 4, seed=1))
    return Trainer(model, nn.softmax_cross_entropy, optim.Adam(0.001), batch_size=10)


def _bits(trainer: Trainer) -> list[bytes]:
    return [array.tobytes() for array in flatten((trainer.model, trainer.state))[0]]


class _Training:
    """A training that is gone on with by each process, from the checkpoint of the one before."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "checkpoint.safetensors"
        self._undisturbed: Trainer | None = None
        self._states: list[list[bytes]] = []

    def work(self, told: Tell) -> None:
        trainer = _trainer()
        if self._file.exists():
            load_checkpoint(trainer, self._file)

        def keep(trainer: Trainer) -> None:
            save_checkpoint(trainer, self._file)
            told(trainer.history.epochs)

        trainer.fit((_INPUTS, _LABELS), _EPOCHS, progress=False, on_epoch_end=keep)

    def check(self, told: int) -> int:
        """How many epochs the checkpoint has."""
        if not self._file.exists():
            assert told == 0, f"epoch {told} was saved, and there is no file"
            save_checkpoint(_trainer(), self._file)  # removes what a first save left behind
            self._file.unlink()
            return 0
        trainer = _trainer()
        load_checkpoint(trainer, self._file)
        epochs = trainer.history.epochs
        assert epochs >= told, f"epoch {told} was saved, and the file has {epochs}"
        assert _bits(trainer) == self._state(epochs), f"epoch {epochs} has other bits"
        save_checkpoint(trainer, self._file)
        return epochs

    def _state(self, epochs: int) -> list[bytes]:
        if self._undisturbed is None:
            self._undisturbed = _trainer()
        missing = epochs - len(self._states)
        if missing > 0:
            self._undisturbed.fit(
                (_INPUTS, _LABELS),
                missing,
                progress=False,
                on_epoch_end=lambda trainer: self._states.append(_bits(trainer)),
            )
        return self._states[epochs - 1]


class _Saving:
    """An array whose elements all are the number of the save."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "model.safetensors"

    def work(self, told: Tell) -> None:
        number = self._number()
        while True:
            number += 1
            save({"a": np.full(50_000, number)}, self._file)
            told(number)

    def check(self, told: int) -> int:
        number = self._number()
        assert number >= told, f"save {told} was done, and the file has {number}"
        save({"a": np.full(50_000, number)}, self._file)
        return number

    def _number(self) -> int:
        if not self._file.exists():
            return 0
        array = load_tensors(self._file)["a"]
        assert array.shape == (50_000,) and (array == array[0]).all(), "parts of two saves"
        return int(array[0])


class _Caching:
    """Entries that say what they are; each process writes all of them anew."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processor = Processor.host()

    def work(self, told: Tell) -> None:
        cache, number = Cache(self._folder), 0
        while True:
            number += 1
            key = f"key {number % 20}"
            cache.store(key, self._processor, (key.encode() * 2000, {"key": key}))
            told(number)

    def check(self, told: int) -> int:
        cache = Cache(self._folder)
        for number in range(1, 21):
            key = f"key {number % 20}"
            entry = cache.load(key, self._processor)
            assert entry is not None or number > told, f"entry {number} is lost"
            if entry is not None:
                assert entry == (key.encode() * 2000, {"key": key})
        cache.store("key 0", self._processor, (b"key 0" * 2000, {"key": "key 0"}))
        return 0  # entries are overwritten: what counts is this process's own


def _killed(work: Callable[[Tell], None], seconds: float, late: bool) -> int:
    """The last number that a process told before it was killed.

    That happens so many seconds after it began or, if ``late``, after it had told the first number.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            os.write(writer, b"begun\n")
            work(lambda number: os.write(writer, b"%d\n" % number))
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = [pipe.readline() for _ in range(1 + late)]
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        told += pipe.read().splitlines()
    assert os.WIFSIGNALED(status), f"the process ended by itself with {os.waitstatus_to_exitcode(status)}"
    return int(told[-1]) if len(told) > 1 else 0


def _warm(folder: Path) -> int:
    """Have the program of the training in the code cache: most processes would be killed while they compile it."""
    trainer = _trainer()
    trainer.fit((_INPUTS, _LABELS), 1)
    save_checkpoint(trainer, folder / "warm")
    (folder / "warm").unlink()
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Kill so many processes; the exit status says whether all was right."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress.kills", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="processes to kill (100)")
    parser.add_argument("--seed", type=int, help="what their moments are from (a fresh one, printed)")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    print(f"{options.count:,} kills of seed {seed}", flush=True)
    source, wrong, most, done = random.Random(seed), 0, 0, {}
    with tempfile.TemporaryDirectory() as name:
        kinds = {}
        for kind in (_Training, _Saving, _Caching):
            folder = Path(name, kind.__name__)
            folder.mkdir()
            kinds[kind] = kind(folder), folder
        reached = dict.fromkeys(kinds, 0)
        _apart(partial(_warm, Path(name)))
        for number in range(options.count):
            kind = source.choice(list(kinds))
            task, folder = kinds[kind]
            told = _killed(task.work, source.random() ** 2 * _LONGEST, source.random() < 0.5)
            least = max(told, reached[kind])
            # A process of its own computes: others are still to be forked from this one.
            problem, reached[kind] = _apart(partial(task.check, least))
            left = [f.name for f in folder.iterdir() if f.suffix not in (".safetensors", ".code")]
            if problem or left:
                wrong += 1
                print(f"{kind.__name__} ({number}): {problem or f'left behind: {left}'}", flush=True)
            if kind is _Training:
                most = max(most, reached[kind])
                if reached[kind] > _ANEW:
                    reached[kind] = 0
                    for file in folder.iterdir():
                        file.unlink()
            done[kind.__name__] = done.get(kind.__name__, 0) + 1
    print(f"{wrong} of {options.count:,} are wrong ({done}); {most} epochs at most")
    return 1 if wrong else 0


def _apart(check: Callable[[], int]) -> tuple[str, int]:
    """What a check says in a process of its own: a problem, and the number that was reached."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            message = f"{check()}\n"
        except BaseException as error:
            message = f"-1\n{type(error).__name__}: {error}"
        os.write(writer, message.encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        number, _, problem = pipe.read().decode().partition("\n")
    os.waitpid(child, 0)
    return problem if number else "the check died", max(int(number or 0), 0)


if __name__ == "__main__":
    sys.exit(main())
