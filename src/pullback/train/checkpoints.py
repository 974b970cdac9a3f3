"""Checkpoints: all that a training is, in one file, to go on from there with the same bits."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from typing import Any

from pullback.errors import DataError
from pullback.io import load, load_metadata, save
from pullback.io.bounded import allowance, parse_json
from pullback.random import key
from pullback.train.best import Best
from pullback.train.history import History
from pullback.train.settings import check_names, described, differences
from pullback.train.snapshot import copy_arrays
from pullback.train.trainer import Trainer
from pullback.undisturbed import completed

__all__ = ["load_checkpoint", "save_checkpoint"]

_ENTRY = "pullback.checkpoint"


def save_checkpoint(trainer: Trainer, path: str | os.PathLike[str]) -> None:
    """Write model, optimiser state, counts, seed and history of ``trainer`` to the safetensors file ``path``.

    With ``EarlyStopping(restore_best=True)`` the best model so far is part of it; a callback that saves comes after
    it in ``on_epoch_end``. The file is replaced as a whole: when the disk is full, the one before stays.

    Raises ``OutputError`` when the file cannot be written.

    >>> import tempfile
    >>> import numpy as np
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
        "settings": _settings(trainer),
        "data": trainer._data,
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


def load_checkpoint(
    trainer: Trainer, path: str | os.PathLike[str], *, changed: str | Collection[str] = ()
) -> None:
    """Put ``trainer`` where the one that wrote ``path`` was; training on gives the bits that it would have given.

    The model's arrays are overwritten in place; the seed becomes that of the file. All else that decides a training
    has to be what it was: the model, the loss, the optimiser with all its settings, batch size, scale, clipping, and
    in the next ``fit`` the rows of the data. What is to be another on purpose is named by ``changed``, such as
    ``"learning_rate"``, ``("optimiser.weight_decay", "data")``. Functions are known by their names.

    Raises ``DataError``, with ``trainer`` left as it is, for a file that is missing, damaged or no checkpoint, and
    for one of another training, with every difference. Raises ``SettingError`` for a name in ``changed`` by which
    nothing is called.
    """
    entry, history = _read_entry(path)
    changed, settings = (changed,) if isinstance(changed, str) else changed, _settings(trainer)
    check_names("changed", changed, entry["settings"], settings, {"data": None})
    different = differences(entry["settings"], settings, changed)
    if different:
        raise DataError(
            f"[load_checkpoint] {path} does not fit: {'; '.join(different)}. Make the trainer as it was, or name what "
            "is to be another: changed='learning_rate'."
        )
    live = {"model": trainer.model, "state": trainer.state}
    stored = load(path, like=live if "best" not in entry else {**live, "best": trainer.model})
    best = stored.pop("best", None)

    def put() -> None:
        copy_arrays(live, stored)
        trainer.best = None if best is None else Best(**entry["best"], model=best)
        trainer.seed, trainer.steps = entry["seed"], entry["steps"]
        trainer._key = key(trainer.seed)
        trainer.history = history
        trainer._data, trainer._resumed = entry["data"], "data" not in changed

    completed(put)


def _read_entry(path: str | os.PathLike[str]) -> tuple[dict[str, Any], History]:
    """What a checkpoint says beside its arrays; raises ``DataError`` for a file that says nothing of the kind."""
    text = load_metadata(path).get(_ENTRY)
    if text is None:
        raise DataError(
            f"[load_checkpoint] {path} is no checkpoint. Give a file of save_checkpoint; load reads a model alone."
        )
    history = History()
    try:
        entry = parse_json(text)
        if "settings" not in entry:
            raise DataError(
                f"[load_checkpoint] {path} is of an earlier version, which did not keep a training's settings. Train "
                "anew; load reads the arrays alone."
            )
        if not isinstance(entry["settings"], dict) or not isinstance(entry["data"], dict | None):
            raise ValueError("no settings")
        if entry["epochs"] * (200 + 40 * len(entry["history"])) > allowance(len(text)):
            raise ValueError(f"{entry['epochs']} epochs")
        for epoch in range(entry["epochs"] if entry["history"] else 0):
            history.append({name: values[epoch] for name, values in entry["history"].items()})
        key(entry["seed"])
        if entry["steps"] < 0 or not isinstance(entry["steps"], int):
            raise ValueError(f"steps {entry['steps']}")
        if "best" in entry and not _is_best(entry["best"], history):
            raise ValueError(f"best {entry['best']!r:.80}")
    except DataError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise DataError(
            f"[load_checkpoint] {path} has an unusable entry ({error!r}). Restore it from a copy."
        ) from error
    return entry, history


def _is_best(best: Any, history: History) -> bool:
    """Whether an entry says which epoch was the best, by which figure."""
    return (
        isinstance(best, dict)
        and best.keys() == {"figure", "value", "epoch"}
        and isinstance(best["figure"], str)
        and isinstance(best["value"], int | float)
        and isinstance(best["epoch"], int)
        and 1 <= best["epoch"] <= history.epochs
    )


def _settings(trainer: Trainer) -> dict[str, Any]:
    """What decides the training, but for its data and its seed."""
    # Some may have been set since the trainer was made.
    settings = {name: getattr(trainer, name, value) for name, value in trainer._settings.items()}
    settings |= {"optimiser": trainer.optimiser, "model": trainer.model}
    description: dict[str, Any] = described(settings)
    return description
