"""How a workload is trained: the optimiser, its learning rate's schedule, and when to stop."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pullback import optim
from pullback.cli.options import positive, rate
from pullback.cli.workloads import Job
from pullback.errors import DataError
from pullback.optim import schedules
from pullback.train import EarlyStopping, ReduceOnPlateau

__all__ = ["add_options", "recipe"]

_OPTIMISERS: dict[str, Callable[..., Any]] = {
    "sgd": optim.SGD,
    "momentum": lambda learning_rate, **options: optim.SGD(learning_rate, momentum=0.9, **options),
    "rmsprop": optim.RMSProp,
    "adagrad": optim.Adagrad,
    "adadelta": optim.Adadelta,
    "adam": optim.Adam,
    "adamw": optim.AdamW,
    "nadam": optim.NAdam,
    "lion": optim.Lion,
}
_SCHEDULES: dict[str, Callable[[Any, int], Any]] = {
    "cosine": schedules.Cosine,
    "warm-up": lambda rate, steps: schedules.WarmUpCosine(rate, warm_up=math.ceil(steps / 20), steps=steps),
    "one-cycle": schedules.OneCycle,
}
_PLATEAU = "plateau"


def add_options(parser: argparse.ArgumentParser, optimiser: str, learning_rate: str) -> None:
    """Enter the options that every network has; the last two are a workload's own optimiser and learning rate."""
    parser.add_argument(
        "--learning-rate",
        "--lr",
        type=rate,
        metavar="R",
        help=f"size of a step ({learning_rate}; with another optimiser its own)",
    )
    parser.add_argument(
        "--optimiser", "--optimizer", choices=_OPTIMISERS, help=f"rule of a step ({optimiser})"
    )
    parser.add_argument(
        "--weight-decay",
        type=rate,
        metavar="D",
        help="pull of the parameters to zero (the optimiser's own, mostly 0)",
    )
    parser.add_argument(
        "--schedule",
        choices=[*_SCHEDULES, _PLATEAU],
        help="course of the learning rate over all epochs; plateau halves it after two epochs without a "
        "lower validation loss (constant)",
    )
    parser.add_argument(
        "--accumulate", type=positive, default=1, metavar="K", help="batches of one update (1)"
    )
    parser.add_argument(
        "--patience",
        type=positive,
        metavar="N",
        help="end after N epochs without a lower validation loss, and keep the best epoch's model (all epochs, and the "
        "last one's model)",
    )


def recipe(options: argparse.Namespace, job: Job) -> tuple[Any, list[Any]]:
    """The job's optimiser as the options change it, and the callbacks for the end of an epoch.

    Raises ``DataError`` for a schedule that does not fit into the steps that there are.
    """
    optimiser: Any = job.optimiser
    if options.optimiser is not None:
        # Another rule has another learning rate: without an option that of its own, if it has one.
        given = options.learning_rate
        own = given is None and options.optimiser not in ("sgd", "momentum")
        rates = {} if own else {"learning_rate": job.optimiser.learning_rate if given is None else given}
        optimiser = _OPTIMISERS[options.optimiser](**rates)
    if options.weight_decay is not None:
        optimiser = replace(optimiser, weight_decay=options.weight_decay)
    callbacks: list[Any] = []
    if options.schedule == _PLATEAU:
        optimiser = optim.Adjustable(optimiser)
        callbacks.append(ReduceOnPlateau(factor=0.5, patience=2))
    elif options.schedule is not None:
        steps = job.epochs * math.ceil(len(job.train) / job.batch_size) // options.accumulate
        try:
            schedule = _SCHEDULES[options.schedule](optimiser.learning_rate, steps)
        except ValueError as error:
            raise DataError(
                f"[train] --schedule {options.schedule} does not fit into {steps} updates: {error}"
            ) from error
        optimiser = replace(optimiser, learning_rate=schedule)
    if options.accumulate > 1:
        optimiser = optim.Accumulate(optimiser, options.accumulate)
    if options.patience is not None:
        callbacks.append(EarlyStopping(patience=options.patience, restore_best=True))
    return optimiser, callbacks
