"""A recurrent network learns to write: of any text file it predicts each character from those before.

Each character is a vector of 64 numbers; two layers of GRU with 256 units read them, and a dense layer gives a logit
for every character that may follow. The text runs in 32 streams through batches of 64 characters each: the states are
carried from batch to batch, and gradients end where the batch began (truncated back-propagation through time).
Trained by Adam.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from copy import copy
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback import nn, optim, random
from pullback.cli.options import positive
from pullback.cli.workloads.workload import Defaults, Job, Report, Workload, size_of
from pullback.compiler.jit import Compiled, jit
from pullback.data import Alphabet, character_rows, character_streams, read_text
from pullback.errors import DataError
from pullback.numpy import argmax, log
from pullback.tracing import buffer, flatten, map_tree
from pullback.train import Trainer
from pullback.transforms import stop_gradient

__all__ = ["WORKLOAD", "Characters", "parameters", "prepare", "restore", "written"]

_DIMENSIONS = 64
_VALIDATION_SHARE, _LONGEST = 10, 1000
_BLOCK = 64  # characters that are written in one call
_DEFAULTS = {"text": Defaults(10, 32, 0.002)}


class Characters(nn.Module):
    """Logits of the next character after each one of a text: integers (…, steps) → (…, steps, characters).

    In training the states that a batch ends with are kept in ``states``, where the next one begins; as constants, so
    that gradients end there. Elsewhere, and with ``states`` None, every text begins with nothing before it.

    >>> Characters(90, 32, layers=1)(np.zeros((5, 7), np.int32)).shape
    (5, 7, 90)
    """

    embedding: nn.Embedding
    recurrent: nn.GRU
    dense: nn.Dense
    states: Any = buffer()

    def __init__(
        self, characters: int, hidden: int = 256, layers: int = 2, streams: int = 0, seed: nn.Seed = 0
    ) -> None:
        draws = np.random.default_rng(seed)
        self.embedding = nn.Embedding(characters, _DIMENSIONS, seed=draws)
        self.recurrent = nn.GRU(
            _DIMENSIONS, hidden, layers=layers, return_sequences=True, return_state=True, seed=draws
        )
        self.dense = nn.Dense(hidden, characters, seed=draws)
        self.states = self.beginning(streams) if streams else None

    def __call__(self, numbers: Any) -> Any:
        mode = nn.current_training()
        if mode is None or self.states is None:
            return self.continued(numbers, None)[0]
        before = map_tree(mode.value, self.states)
        logits, after = self.continued(numbers, stop_gradient(before))
        for kept, state in zip(flatten(self.states)[0], flatten(after)[0]):
            mode.set(kept, stop_gradient(state))
        return logits

    def continued(self, numbers: Any, states: Any) -> tuple[Any, Any]:
        """Logits after each character of texts that begin with these states, and the states at their ends."""
        outputs, states = self.recurrent(self.embedding(numbers), states)
        return self.dense(outputs), states

    def beginning(self, streams: int) -> Any:
        """The states of so many texts that nothing has been read of."""
        states = [cell.initial((streams,)) for (cell,) in self.recurrent.layers()]
        return states[0] if len(states) == 1 else tuple(states)

    def parts(self) -> dict[str, Any]:
        return {"embedding": self.embedding, "recurrent": self.recurrent, "dense": self.dense}


def prepare(options: argparse.Namespace, report: Report) -> Job:
    """The text in streams, the network and the settings that suit them."""
    epochs, streams, learning_rate = _DEFAULTS["text"]
    streams = options.batch or streams
    text = read_text(options.file)
    alphabet = Alphabet.of_text(text)
    if len(alphabet) < 2:
        raise DataError(
            f"[chars] {options.file} has no character but {alphabet[0]!r}. Give a text with two or more."
        )
    numbers = alphabet.encode(text).astype(np.min_scalar_type(len(alphabet) - 1))
    held_out = max(len(numbers) // _VALIDATION_SHARE, 2)
    least = streams * options.steps + 1
    if len(numbers) - held_out < least:
        raise DataError(
            f"[chars] {options.file} has {len(numbers):,} characters, of which the last {held_out:,} are kept to "
            f"validate; {streams} streams of {options.steps} steps need {least:,} to train on. Give a longer text, or "
            "less with --batch or --steps."
        )
    train = character_streams(numbers[:-held_out], streams, options.steps)
    settings = {
        "input": "characters",
        "characters": len(alphabet),
        "hidden": options.hidden,
        "layers": options.layers,
    }
    note = (
        f"{len(numbers):,} characters from {options.file}, {len(alphabet):,} different: "
        f"{train.inputs.size:,} to train on, {held_out:,} to validate"
    )
    return Job(
        note=note,
        model=Characters(len(alphabet), options.hidden, options.layers, streams, options.seed),
        loss=nn.softmax_cross_entropy,
        optimiser=optim.Adam(learning_rate if options.learning_rate is None else options.learning_rate),
        train=train,
        test=character_rows(numbers[-held_out:], _LONGEST),
        scale=None,
        batch_size=streams,
        epochs=options.epochs or epochs,
        settings=settings,
        examples="stretches of text",
        vocabulary=alphabet,
        metrics={"bits_per_character": bits_per_character},
        shuffle=False,
        clip_norm=1.0,
        callbacks=(_begin_again,),
        to_save=_without_states,
    )


def bits_per_character(logits: Any, labels: Any) -> Any:
    """What a character takes, coded by the predictions: the cross-entropy to the base 2."""
    return nn.softmax_cross_entropy(logits, labels) / math.log(2)


def _begin_again(trainer: Trainer) -> None:
    """The next epoch begins at the begin of every stream."""
    for state in flatten(trainer.model.states)[0]:
        state[...] = 0


def _without_states(model: Characters) -> Characters:
    """The model without what it was reading when the training ended."""
    kept = copy(model)
    kept.states = None
    return kept


def restore(settings: Mapping[str, Any], seed: nn.Seed = 0) -> Characters:
    """A network of the sizes of a job's settings."""
    return Characters(settings["characters"], settings["hidden"], settings["layers"], seed=seed)


def parameters(settings: Mapping[str, Any]) -> int:
    """How many numbers that network has."""
    characters, hidden, layers = (size_of(settings, name) for name in ("characters", "hidden", "layers"))
    read = _DIMENSIONS + (layers - 1) * hidden
    return _DIMENSIONS * characters + 3 * hidden * (read + layers * (hidden + 2)) + characters * (hidden + 1)


def written(
    model: Characters, begin: NDArray[np.integer], length: int, temperature: float, seed: int
) -> Iterator[NDArray[np.int32]]:
    """The numbers of ``length`` characters that the model writes after those of ``begin``, some at a time.

    Each is drawn with the probabilities softmax(logits / temperature); with temperature 0 it is the most likely one.
    The same seed gives the same text.
    """
    begin = np.asarray(begin, np.int32)
    state = model.beginning(1)
    if len(begin) > 1:
        _, state = model.continued(begin[None, :-1], state)
    state, number, key = map_tree(np.array, state), begin[-1:].copy(), random.key(seed)
    write = _writer(temperature)
    for first in range(0, length, _BLOCK):
        steps = np.arange(first, min(first + _BLOCK, length))
        arguments = (state, number, model, steps, key)
        (state, number, numbers), _ = write.run_steps(arguments, len(steps), sliced_argnums=(3,))
        yield numbers


@lru_cache(maxsize=1)
def _writer(temperature: float) -> Compiled[..., Any]:
    """One more character: from the states, the last one, the model, its place and a key."""

    def step(state: Any, number: Any, model: Characters, place: Any, key: Any) -> Any:
        logits, state = model.continued(number[None], state)
        scores = logits[:, 0]
        if temperature:
            # The largest of logits with Gumbel noise is a draw from their softmax.
            share = random.uniform(random.fold_in(key, place), scores.shape)
            scores = scores / temperature - log(-log(share + 2.0**-25))
        number = argmax(scores, axis=-1).astype(np.int32)
        return state, number, number[0]

    return jit(step, donate_argnums=(0, 1), flush_subnormals=True)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a text file in UTF-8")
    parser.add_argument(
        "--hidden", type=positive, default=256, metavar="N", help="units of a recurrent layer (256)"
    )
    parser.add_argument("--layers", type=positive, default=2, metavar="N", help="recurrent layers (2)")
    parser.add_argument(
        "--steps", type=positive, default=64, metavar="N", help="characters that gradients go back (64)"
    )


WORKLOAD = Workload(
    "chars",
    "a recurrent network that writes, on the characters of a text file",
    _add_options,
    prepare,
    restore,
    parameters,
    _DEFAULTS,
    "adam",
    looks_for_data=False,
)
