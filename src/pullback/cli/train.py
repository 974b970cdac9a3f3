"""``pullback train``: prepare a workload, train it, evaluate it, and write what came of it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pullback.cli.options import INTERRUPTED, add_overwrite, check_free, positive, seed, threads, writable
from pullback.cli.output import Output, tell
from pullback.cli.recipe import add_options, recipe
from pullback.cli.workloads import WORKLOADS, Job, Workload, vectors
from pullback.cli.workloads.workload import Defaults
from pullback.errors import DataError, MissingExtra, NonFiniteLoss, OutputError
from pullback.train import History, Trainer, load_checkpoint, save_checkpoint
from pullback.train.progress import value_text

__all__ = ["add_command"]

_RESULTS = ("model.safetensors", "history.json", "curves.png")
"""In the order in which they are written: what took the training comes first."""


def add_command(commands: Any) -> None:
    """Enter ``train``, with a command for each workload."""
    parser = commands.add_parser("train", help="train a network on a data set")
    workloads = parser.add_subparsers(required=True, metavar="workload")
    for workload in WORKLOADS.values():
        _add_workload(workloads.add_parser(workload.name, help=workload.summary), workload)
    vectors.add_command(workloads)


def _add_workload(parser: argparse.ArgumentParser, workload: Workload) -> None:
    parser.description = f"Train {workload.summary}."
    if workload.looks_for_data:
        parser.add_argument(
            "--data",
            metavar="PATH",
            help=f"folder of the data set{workload.own_data} (look for it, then download it)",
        )
    epochs, batch, rate = (_default(workload, name) for name in Defaults._fields)
    parser.add_argument(
        "--epochs", type=positive, metavar="N", help=f"passes over the training set ({epochs})"
    )
    parser.add_argument("--batch", type=positive, metavar="N", help=f"rows of a batch ({batch})")
    add_options(parser, workload.optimiser, rate)
    parser.add_argument("--seed", type=seed, default=0, metavar="S", help="of parameters and order (0)")
    parser.add_argument("--threads", type=threads, metavar="N", help="threads to compute on (all cores)")
    parser.add_argument(
        "--output",
        default=workload.name,
        metavar="DIR",
        help=f"for the results, {', '.join(_RESULTS)} ({workload.name}); those of another training are not replaced",
    )
    add_overwrite(parser)
    parser.add_argument(
        "--checkpoint", metavar="FILE", help="written after each epoch; if it is there, go on from it (none)"
    )
    workload.add_options(parser)
    parser.set_defaults(run=lambda options: _run(workload, options))


def _run(workload: Workload, options: argparse.Namespace) -> int:
    output = Output()
    folder = writable(Path(options.output))
    results = [folder / name for name in _RESULTS]
    checkpoint = Path(options.checkpoint) if options.checkpoint else None
    going_on = checkpoint is not None and checkpoint.exists()
    if not options.overwrite and not going_on:
        check_free(results)
    if options.threads:
        from pullback.compiler.runtime.threads import set_num_threads

        set_num_threads(options.threads)
    job = workload.prepare(options, output.line)
    output.line(job.note)
    output.print(job.model)
    optimiser, callbacks = recipe(options, job)
    callbacks += job.callbacks
    trainer = Trainer(
        job.model,
        job.loss,
        optimiser,
        metrics=job.metrics,
        batch_size=job.batch_size,
        seed=options.seed,
        scale=job.scale,
        clip_norm=job.clip_norm,
        bucket=job.bucket,
    )
    settings = {
        "workload": workload.name,
        "data": job.note,
        "seed": options.seed,
        "batch_size": job.batch_size,
        "optimiser": str(optimiser),
    }
    epochs = job.epochs
    if checkpoint is not None:
        writable(checkpoint.absolute().parent, "--checkpoint")
        if going_on:
            # A learning rate that is asked for may be another one; all else has to be what it was.
            changed = () if options.learning_rate is None else ("learning_rate",)
            load_checkpoint(trainer, checkpoint, changed=changed)
            if not options.overwrite and not _earlier(folder, trainer.history):
                check_free(results)
            epochs = max(job.epochs - trainer.history.epochs, 0)
            output.print(f"{trainer.history.epochs} epochs from {checkpoint}, {epochs} to go")
        callbacks.append(lambda trainer: save_checkpoint(trainer, checkpoint))
    start, before = time.perf_counter(), trainer.steps
    try:
        trainer.fit(
            job.train,
            epochs,
            validation=job.test,
            shuffle=job.shuffle,
            progress=True,
            on_epoch_end=callbacks,
        )
    except NonFiniteLoss:
        output.print(_write(folder, settings, trainer, job))
        raise
    seconds = time.perf_counter() - start
    written = _write(folder, settings, trainer, job)  # before anything is printed that may not arrive
    if not trainer.history.interrupted:
        output.print(_table(trainer, job))
        output.print(_speed(trainer, trainer.steps - before, seconds))
    output.print(written)
    if output.lost:
        tell(f"standard output was closed; {written}")
    return INTERRUPTED if trainer.history.interrupted else 0


def _table(trainer: Trainer, job: Job) -> Any:
    """The figures of the model's epoch, the last or the best one, for training and for test data."""
    from rich.table import Table

    epoch = trainer.history.epochs if trainer.best is None else trainer.best.epoch
    table = Table(title=f"the model is that of epoch {epoch}" if trainer.best else None)
    table.add_column(job.examples)
    figures = ["loss", *(["accuracy"] if job.metrics is None else job.metrics)]
    for heading in ("rows", *(figure.replace("_", " ") for figure in figures)):
        table.add_column(heading, justify="right")
    for name, prefix, data in (("training", "", job.train), ("test", "validation_", job.test)):
        values = {figure: trainer.history[f"{prefix}{figure}"][epoch - 1] for figure in figures}
        table.add_row(name, f"{len(data):,}", *(value_text(*pair) for pair in values.items()))
    return table


def _speed(trainer: Trainer, steps: int, seconds: float) -> str:
    """How long it took, and what it took."""
    history = trainer.history
    rate = sum(history["steps"]) / sum(history["seconds"])
    memory = (
        f", {max(history['peak_memory']) / 1e6:,.0f} MB of memory at most" if sys.platform != "win32" else ""
    )
    return f"{steps:,} steps in {seconds:.1f} s, {rate:,.0f} steps/s in training{memory}"


def _write(folder: Path, settings: dict[str, Any], trainer: Trainer, job: Job) -> str:
    """Write the parameters, the history and the curves; a line that says so.

    What cannot be written costs nothing else, a missing matplotlib only the curves.
    """
    from pullback.io import plot_history, save, write_history

    entries = {**settings, "interrupted": trainer.history.interrupted, **trainer.history}
    metadata = {"workload": settings["workload"], "settings": json.dumps(job.settings)}
    if job.vocabulary is not None:
        metadata["vocabulary"] = job.vocabulary.to_json()
    writers: dict[str, Callable[[Path], None]] = {
        "model.safetensors": lambda path: save(job.to_save(trainer.model), path, metadata),
        "history.json": lambda path: write_history(path, entries),
        "curves.png": lambda path: plot_history(trainer.history, path),
    }
    written, note, failed = [], "", None
    for name in _RESULTS if trainer.history.epochs else _RESULTS[:2]:
        try:
            writers[name](folder / name)
            written.append(name)
        except MissingExtra:
            note = f'; no {name}: matplotlib is not installed (pip install "pullback[plot]")'
        except OutputError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return f"{', '.join(written)} in {folder}{note}"


def _earlier(folder: Path, history: History) -> bool:
    """Whether the results in the folder are of the training that has this history, perhaps cut short."""
    from pullback.io import read_history

    try:
        found = read_history(folder / "history.json")
    except DataError:
        return False
    losses = found.get("loss")
    if not isinstance(losses, list):
        return False
    whole = len(losses) - 1 if found.get("interrupted") else len(losses)
    shared = min(whole, history.epochs)
    return bool(shared) and losses[:shared] == history["loss"][:shared]


def _default(workload: Workload, name: str) -> str:
    """What a workload has where the options have nothing, for each of its data sets if they differ."""
    values = {data: getattr(defaults, name) for data, defaults in workload.defaults.items()}
    if len(set(values.values())) == 1:
        return str(*set(values.values()))
    return ", ".join(f"{value} for {data}" for data, value in values.items())
