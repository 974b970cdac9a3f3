"""The same losses from the same beginning: PyTorch's initial weights and one order of batches for all.

With ``--long`` also whole trainings: five epochs from three seeds, mean losses and test accuracy.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from contest import Result, Settings, Worker, started
from report import Table, relative_difference

from suite.mnist_rnn import MNIST_RNN

_STEPS = 100
_EPOCHS = 5
_SEEDS = (0, 1, 2)


def run(settings: Settings) -> list[Table]:
    torch = next((entrant for entrant in settings.entrants if entrant.library == "torch"), None)
    tables = []
    with tempfile.TemporaryDirectory() as folder:
        drawn = dict.fromkeys(_SEEDS, "")
        if torch is not None:
            for seed in _SEEDS:
                drawn[seed] = str(Path(folder, f"weights{seed}.npz"))
                with Worker(torch, settings) as worker:
                    job = settings.job(MNIST_RNN, torch, seed=seed).as_json()
                    worker("draw", library="torch", job=job, path=drawn[seed])
        origin = f"initial weights drawn by {'PyTorch' if torch is not None else 'NumPy'}"
        tables.append(_first_steps(settings, drawn[0], origin))
        if settings.long:
            tables.append(_whole_trainings(settings, drawn, origin))
    return tables


def _first_steps(settings: Settings, weights: str, origin: str) -> Table:
    with started(settings, MNIST_RNN, weights=weights, tuned=False) as running:
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
    notes = [f"{MNIST_RNN.name} from {origin}; relative to the losses of {expected.entrant}, over all steps."]
    data = {result.entrant: result.losses for result in results}
    return Table(f"loss curve, {_STEPS} steps", columns, rows, notes, data)


def _whole_trainings(settings: Settings, drawn: dict[int, str], origin: str) -> Table:
    found: dict[str, list[tuple[list[float], float]]] = {}
    for seed, weights in drawn.items():
        with started(settings, MNIST_RNN, weights=weights, seed=seed, tuned=False) as running:
            for worker, result in running:
                found.setdefault(result.entrant, []).append(_train(worker, result))
    rows = []
    for name, trainings in found.items():
        losses = [statistics.mean(losses[k] for losses, _ in trainings) for k in range(_EPOCHS)]
        accuracies = [100 * accuracy for _, accuracy in trainings]
        figures = [*(f"{loss:.4f}" for loss in losses), *(f"{accuracy:.2f}" for accuracy in accuracies)]
        rows.append([name, *figures, f"{statistics.mean(accuracies):.2f}"])
    columns = [
        "contender",
        *(f"loss {k + 1}" for k in range(_EPOCHS)),
        *(f"% seed {s}" for s in drawn),
        "mean",
    ]
    notes = [
        f"{MNIST_RNN.name} from {origin}, {_EPOCHS} epochs, {len(drawn)} seeds: the mean loss of each epoch "
        "over the seeds, and the test accuracy after the last, computed in NumPy from what each has learned.",
    ]
    return Table(f"loss curve, {_EPOCHS} epochs", columns, rows, notes, found)


def _train(worker: Worker, result: Result) -> tuple[list[float], float]:
    """The mean loss of each epoch and the accuracy after the last; the first step is done already."""
    per_epoch = 60_000 // MNIST_RNN.batch
    losses = result.losses + worker("run", steps=_EPOCHS * per_epoch - 1)["losses"]
    epochs = [statistics.mean(losses[k : k + per_epoch]) for k in range(0, len(losses), per_epoch)]
    return epochs, worker("accuracy")["accuracy"]


def _reference(results: list[Result]) -> Any:
    """PyTorch's result where there is one, else the first."""
    return next((result for result in results if result.entrant == "torch"), results[0])
