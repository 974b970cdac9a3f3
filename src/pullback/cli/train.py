"""``pullback train``: prepare a workload, train it, evaluate it, and write what came of it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pullback.cli.options import INTERRUPTED, positive, seed, threads, writable
from pullback.cli.recipe import add_options, recipe
from pullback.cli.workloads import WORKLOADS, Job, Workload, vectors
from pullback.errors import MissingExtra, NonFiniteLoss
from pullback.train import Trainer, load_checkpoint, save_checkpoint

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["add_command"]


def add_command(commands: Any) -> None:
    """Enter ``train``, with a command for each workload."""
    parser = commands.add_parser("train", help="train a network on a data set")
    workloads = parser.add_subparsers(required=True, metavar="workload")
    for workload in WORKLOADS.values():
        _add_workload(workloads.add_parser(workload.name, help=workload.summary), workload)
    vectors.add_command(workloads)


def _add_workload(parser: argparse.ArgumentParser, workload: Workload) -> None:
    parser.description = f"Train {workload.summary}."
    parser.add_argument("--data", metavar="DIR", help="folder of the data set (default: look, then download)")
    parser.add_argument("--epochs", type=positive, metavar="N", help="passes over the training set")
    parser.add_argument("--batch", type=positive, metavar="N", help="rows of a batch")
    add_options(parser)
    parser.add_argument("--seed", type=seed, default=0, metavar="S", help="of parameters and order (0)")
    parser.add_argument("--threads", type=threads, metavar="N", help="threads to compute on (all cores)")
    parser.add_argument(
        "--output", default=workload.name, metavar="DIR", help=f"for the results ({workload.name})"
    )
    parser.add_argument(
        "--checkpoint", metavar="FILE", help="written after each epoch; if it is there, go on from it"
    )
    workload.add_options(parser)
    parser.set_defaults(run=lambda options: _run(workload, options))


def _run(workload: Workload, options: argparse.Namespace) -> int:
    from rich.console import Console

    console = Console(highlight=False)
    folder = writable(Path(options.output))
    if options.threads:
        from pullback.compiler.runtime.threads import set_num_threads

        set_num_threads(options.threads)
    job = workload.prepare(options, lambda line: console.print(line, markup=False, soft_wrap=True))
    console.print(job.note, markup=False, soft_wrap=True)
    console.print(job.model, markup=False)
    optimiser, callbacks = recipe(options, job)
    trainer = Trainer(
        job.model,
        job.loss,
        optimiser,
        batch_size=job.batch_size,
        seed=options.seed,
        scale=job.scale,
    )
    settings = {
        "workload": workload.name,
        "data": job.note,
        "seed": options.seed,
        "batch_size": job.batch_size,
        "optimiser": str(optimiser),
    }
    epochs = job.epochs
    if options.checkpoint:
        file = Path(options.checkpoint)
        writable(file.absolute().parent, "--checkpoint")
        if file.exists():
            load_checkpoint(trainer, file)
            epochs = max(job.epochs - trainer.history.epochs, 0)
            console.print(f"{trainer.history.epochs} epochs from {file}, {epochs} to go", markup=False)
        callbacks.append(lambda trainer: save_checkpoint(trainer, file))
    start, before = time.perf_counter(), trainer.steps
    try:
        trainer.fit(job.train, epochs, validation=job.test, progress=True, on_epoch_end=callbacks)
    except NonFiniteLoss:
        _write(folder, settings, trainer, job, console)
        raise
    seconds = time.perf_counter() - start
    if not trainer.history.interrupted:
        console.print(_table(trainer, job))
        console.print(_speed(trainer, trainer.steps - before, seconds))
    _write(folder, settings, trainer, job, console)
    return INTERRUPTED if trainer.history.interrupted else 0


def _table(trainer: Trainer, job: Job) -> Any:
    """The figures of the model's epoch, the last or the best one, for training and for test data."""
    from rich.table import Table

    epoch = trainer.history.epochs if trainer.best is None else trainer.best.epoch
    table = Table(title=f"the model is that of epoch {epoch}" if trainer.best else None)
    table.add_column(job.examples)
    for heading in ("rows", "loss", "accuracy"):
        table.add_column(heading, justify="right")
    for name, prefix, data in (("training", "", job.train), ("test", "validation_", job.test)):
        loss, accuracy = (trainer.history[f"{prefix}{figure}"][epoch - 1] for figure in ("loss", "accuracy"))
        table.add_row(name, f"{len(data):,}", f"{loss:.4f}", f"{100 * accuracy:.2f} %")
    return table


def _speed(trainer: Trainer, steps: int, seconds: float) -> str:
    """How long it took, and what it took."""
    history = trainer.history
    rate = sum(history["steps"]) / sum(history["seconds"])
    memory = (
        f", {max(history['peak_memory']) / 1e6:,.0f} MB of memory at most" if sys.platform != "win32" else ""
    )
    return f"{steps:,} steps in {seconds:.1f} s, {rate:,.0f} steps/s in training{memory}"


def _write(folder: Path, settings: dict[str, Any], trainer: Trainer, job: Job, console: Console) -> None:
    """The history, the parameters and the curves; a missing matplotlib costs only the curves."""
    from pullback.io import plot_history, save, write_history

    entries = {**settings, "interrupted": trainer.history.interrupted, **trainer.history}
    write_history(folder / "history.json", entries)
    metadata = {"workload": settings["workload"], "settings": json.dumps(job.settings)}
    if job.vocabulary is not None:
        metadata["vocabulary"] = job.vocabulary.to_json()
    save(trainer.model, folder / "model.safetensors", metadata)
    written = ["history.json", "model.safetensors"]
    if trainer.history.epochs:
        try:
            plot_history(trainer.history, folder / "curves.png")
            written.append("curves.png")
        except MissingExtra:
            console.print(
                'no curves.png: matplotlib is not installed (pip install "pullback[plot]")', markup=False
            )
    console.print(f"{', '.join(written)} in {folder}", markup=False)
