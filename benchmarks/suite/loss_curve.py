"""The same losses from the same beginning: initial weights by PyTorch's rules, one order of batches for all.

With ``--long`` also whole trainings from three seeds: mean losses and test accuracy.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from contest import Result, Settings, Worker, started
from data import word_vectors
from networks import Network, initial_weights
from report import Table, relative_difference
from workload import Job

from suite.jobs import CHARS, IMDB_CNN, IMDB_FROZEN, IMDB_LSTM, JOBS, MNIST_CNN, MNIST_CNN_1, MNIST_RNN

_STEPS = 100
_EPOCHS = {MNIST_RNN.name: 5, MNIST_CNN.name: 3, MNIST_CNN_1.name: 3, IMDB_CNN.name: 5, IMDB_FROZEN.name: 5}
_EPOCHS |= {IMDB_LSTM.name: 3, CHARS.name: 3}
_SEEDS = (0, 1, 2)


def run(settings: Settings) -> list[Table]:
    tables = [_first_steps(settings, network) for network in JOBS]
    return tables + [_trainings(settings, network) for network in JOBS] if settings.long else tables


def _first_steps(settings: Settings, network: Network) -> Table:
    with started(settings, network, tuned=False) as running:
        for worker, result in running:
            result.losses += worker("run", steps=_STEPS)["losses"]
    results = [result for _, result in running]
    expected = _reference(results)
    rows = []
    for result in results:
        difference = relative_difference(result.losses, expected.losses)
        ends = [f"{result.losses[k]:.6f}" for k in (0, -1)]
        rows.append([result.entrant, *ends, f"{difference:.1e}"])
    columns = ("contender", "loss, step 1", f"step {_STEPS + 1}", "largest difference")
    notes = [f"{network.name}; relative to the losses of {expected.entrant}, over all steps."]
    data = {result.entrant: result.losses for result in results}
    return Table(f"loss curve, {network.name}, {_STEPS} steps", columns, rows, notes, data)


def _trainings(settings: Settings, network: Network) -> Table:
    settings.say(f"whole trainings of {network.name}")
    per_epoch = len(Job(network, settings.folder_of(network)).arrays()[0]) // network.batch
    epochs = _EPOCHS[network.name]
    found: dict[str, list[tuple[list[float], float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in _SEEDS:
            weights = _with_vectors(settings, network, seed, folder) if network is IMDB_FROZEN else ""
            with started(settings, network, weights=weights, seed=seed, tuned=False) as running:
                for worker, result in running:
                    found.setdefault(result.entrant, []).append(_train(worker, result, per_epoch, epochs))
    rows = []
    for name, trainings in found.items():
        losses = [statistics.mean(losses[k] for losses, _ in trainings) for k in range(epochs)]
        accuracies = [100 * accuracy for _, accuracy in trainings]
        figures = [*(f"{loss:.4f}" for loss in losses), *(f"{accuracy:.2f}" for accuracy in accuracies)]
        rows.append([name, *figures, f"{statistics.mean(accuracies):.2f}"])
    columns = [
        "contender",
        *(f"loss {k + 1}" for k in range(epochs)),
        *(f"% seed {seed}" for seed in _SEEDS),
        "mean",
    ]
    notes = [
        f"{network.name}, {epochs} epochs, {len(_SEEDS)} seeds: the mean loss of each epoch over the seeds, and "
        "the test accuracy after the last, computed in NumPy from what each has learned.",
    ]
    return Table(f"training, {network.name}, {epochs} epochs", columns, rows, notes, found)


def _with_vectors(settings: Settings, network: Network, seed: int, folder: str) -> str:
    """A file of initial weights whose embedding has vectors made from the reviews."""
    weights = initial_weights(network, seed)
    weights["0.weight"] = word_vectors(len(weights["0.weight"]), settings.say)
    file = str(Path(folder, f"{seed}.npz"))
    np.savez(file, **weights)
    return file


def _train(worker: Worker, result: Result, per_epoch: int, epochs: int) -> tuple[list[float], float]:
    """The mean loss of each epoch and the accuracy after the last; the first step is done already."""
    losses = list(result.losses)
    for _ in range(epochs):  # in pieces: PyTorch keeps the loss of every step
        losses += worker("run", steps=min(per_epoch, epochs * per_epoch - len(losses)))["losses"]
    means = [statistics.mean(losses[k : k + per_epoch]) for k in range(0, len(losses), per_epoch)]
    return means, worker("accuracy")["accuracy"]


def _reference(results: list[Result]) -> Any:
    """PyTorch's result where there is one, else the first."""
    return next((result for result in results if result.entrant == "torch"), results[0])
