"""Checkpoints: all that a training is, in one file, to go on from there with the same bits."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from pullback.errors import DataError
from pullback.io import load, load_metadata, save
from pullback.random import key
from pullback.tracing import flatten
from pullback.train.best import Best
from pullback.train.history import History
from pullback.train.trainer import Trainer

__all__ = ["load_checkpoint", "save_checkpoint"]

_ENTRY = "pullback.checkpoint"


def save_checkpoint(trainer: Trainer, path: str | os.PathLike[str]) -> None:
    """Write model, optimiser state, counts, seed and history of ``trainer`` to the safetensors file ``path``.

    With ``EarlyStopping(restore_best=True)`` the best model so far is part of it; a callback that saves comes after
    it in ``on_epoch_end``. The file is replaced as a whole: when the disk is full, the one before stays.

    Raises ``OutputError`` when the file cannot be written.

    >>> import tempfile
    >>> from pullback import nn, optim
    >>> inputs = np.linspace(-1, 1, 100, dtype=np.float32)[:, None]
    >>> def make():
    ...     return Trainer(nn.Dense(1, 1, seed=0), nn.squared_error, optim.Adam(0.1), metrics=(), batch_size=10)
    >>> whole, first, second = make(), make(), make()
    >>> history = whole.fit((inputs, 3 * inputs), epochs=4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     history = first.fit((inputs, 3 * inputs), epochs=2)
    ...     save_checkpoint(first, f"{folder}/checkpoint.safetensors")
    ...     load_checkpoint(second, f"{folder}/checkpoint.safetensors")
    >>> second.fit((inputs, 3 * inputs), epochs=2).epochs
    4
    >>> np.array_equal(second.model.weight, whole.model.weight)
    True
    """
    history, best = trainer.history, trainer.best
    entry: dict[str, Any] = {
        "optimiser": _name(trainer.optimiser),
        "seed": trainer.seed,
        "steps": trainer.steps,
        "epochs": history.epochs,
        "history": dict(history),
    }
    arrays = {"model": trainer.model, "state": trainer.state}
    if best is not None:
        entry["best"] = {"figure": best.figure, "value": best.value, "epoch": best.epoch}
        arrays["best"] = best.model
    save(arrays, path, {_ENTRY: json.dumps(entry)})


def load_checkpoint(trainer: Trainer, path: str | os.PathLike[str]) -> None:
    """Put ``trainer`` where the one that wrote ``path`` was; training on gives the bits that it would have given.

    The model's arrays are overwritten in place. Model, optimiser and batch size have to be those of the
    trainer that wrote the file; the learning rate may be another.

    Raises ``DataError``, with ``trainer`` left as it is, for a file that is missing, damaged or no checkpoint, and
    for one of another architecture or optimiser.
    """
    entry, history = _read_entry(path)
    optimiser = _name(trainer.optimiser)
    if entry.get("optimiser") != optimiser:
        raise DataError(
            f"[load_checkpoint] {path} is of a training by {entry.get('optimiser')}, and the trainer has {optimiser}. "
            "Make the trainer with the optimiser of the file."
        )
    live = {"model": trainer.model, "state": trainer.state}
    stored = load(path, like=live if "best" not in entry else {**live, "best": trainer.model})
    best = stored.pop("best", None)
    for array, value in zip(flatten(live)[0], flatten(stored)[0]):
        np.copyto(array, value)
    trainer.best = None if best is None else Best(**entry["best"], model=best)
    trainer.seed, trainer.steps = entry["seed"], entry["steps"]
    trainer._key = key(trainer.seed)
    trainer.history = history


def _read_entry(path: str | os.PathLike[str]) -> tuple[dict[str, Any], History]:
    """What a checkpoint says beside its arrays; raises ``DataError`` for a file that says nothing of the kind."""
    text = load_metadata(path).get(_ENTRY)
    if text is None:
        raise DataError(
            f"[load_checkpoint] {path} is no checkpoint. Give a file of save_checkpoint; load reads a model alone."
        )
    history = History()
    try:
        entry = json.loads(text)
        for epoch in range(entry["epochs"] if entry["history"] else 0):
            history.append({name: values[epoch] for name, values in entry["history"].items()})
        key(entry["seed"])
        if entry["steps"] < 0 or not isinstance(entry["steps"], int):
            raise ValueError(f"steps {entry['steps']}")
        if "best" in entry:
            Best(**entry["best"], model=None)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise DataError(
            f"[load_checkpoint] {path} has an unusable entry ({error!r}). Restore it from a copy."
        ) from error
    return entry, history


def _name(optimiser: Any) -> str:
    """The optimiser's class, with that of the one within it: their states may look alike."""
    inner = getattr(optimiser, "optimiser", None)
    return type(optimiser).__name__ + ("" if inner is None else f" of {_name(inner)}")
