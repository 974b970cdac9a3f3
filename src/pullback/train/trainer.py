"""The trainer: epochs of compiled steps, with what a person needs around them."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.compiler.jit import jit
from pullback.counts import count
from pullback.data import Dataset, bucketed_order, epoch_order, trimmed_width
from pullback.errors import (
    DataError,
    DonationError,
    IndexRangeError,
    NonFiniteLoss,
    SettingError,
    TreeError,
)
from pullback.keywords import tells_keywords
from pullback.metrics import EpochMetric, Metric, accuracy, binary_accuracy
from pullback.nn.losses import binary_cross_entropy, hinge, kl_divergence, softmax_cross_entropy
from pullback.optim import LineSearch, Optimiser, averaged, rate_at, rate_factor
from pullback.random import key
from pullback.tracing import flatten, map_tree
from pullback.tracing.tracebacks import shows_users_frames
from pullback.train.best import Best
from pullback.train.given import (
    Metrics,
    as_callbacks,
    as_metrics,
    check_loss,
    check_model,
    check_optimiser,
    check_penalty,
    check_scale,
)
from pullback.train.history import History
from pullback.train.interrupts import Interrupts
from pullback.train.orders import Orders
from pullback.train.pace import Pace
from pullback.train.progress import Display
from pullback.train.settings import differences
from pullback.train.snapshot import Snapshot
from pullback.train.steps import Steps, clipping
from pullback.train.totals import Totals
from pullback.undisturbed import completed

__all__ = ["Trainer"]

_COMPILED = ("loss", "optimiser", "metrics", "scale", "penalty", "clip_norm", "clip_value")

_PAIR = "Inputs and labels are one argument, a pair: (inputs, labels)."
"""What is told to who gives them one by one."""

Array = NDArray[Any]
Rows = NDArray[np.int64]


class Trainer:
    """Trains a model by a compiled program: gather, forward, backward, clip, update and metrics in one.

    ``loss(outputs, labels)`` gives a scalar, ``optimiser`` is one of ``pullback.optim`` or follows its
    protocol, ``metrics`` are names, functions ``(outputs, labels) -> scalar``, ``EpochMetric``, or a dict of these;
    no two may have one name, and none that of another figure of the history.
    Without them there is the ``accuracy`` that fits the loss: of the largest logit for ``softmax_cross_entropy`` and
    ``kl_divergence``, of the logit's sign for ``binary_cross_entropy`` and ``hinge``, and none for other losses.
    Batches of ``batch_size`` rows are gathered inside the program from the data set as it is stored; with
    ``scale``, inputs are multiplied by it there, integers as ``float32``. The last batch of an epoch may be
    smaller, or is left out with ``drop_last``. Of a data set with ``lengths`` the model is told those of its rows,
    ``model(x, lengths=n)``; with ``bucket=m`` each batch holds sequences of similar length
    (``data.bucketed_order``) and is trimmed to its longest, rounded up to a multiple of ``m`` steps, each width by a
    program of its own: padding behind it costs nothing, and outputs are what they are with it. Gradients are
    clipped by value, then by their global norm, where limits are given. ``penalty(model)``, a scalar, is added to the
    loss of each batch, in training and in evaluation: ``lambda model: 1e-4 * np.sum(np.abs(model[0].weight))``.
    ``seed`` decides the order of the rows in each epoch, and what dropout drops.
    ``optim.LBFGS`` compares losses: it needs batches of the whole data set.

    The arrays of ``model`` are updated in place: after ``fit`` the model itself is the trained one. With
    ``optim.Averaged`` validation, ``evaluate`` and ``predict`` take the averages of its parameters, and ``averaged``
    is the model that has them. ``fit``
    runs it in training mode (``nn.training``), ``evaluate`` and ``predict`` do not. All that a training does
    is the same bits from run to run, for any number of threads.

    >>> from pullback import nn, optim
    >>> inputs = np.linspace(-1, 1, 100, dtype=np.float32)[:, None]
    >>> data = Dataset(inputs, 3 * inputs + 1)
    >>> model = nn.Dense(1, 1, seed=0)
    >>> trainer = Trainer(model, nn.squared_error, optim.SGD(0.1), metrics=(), batch_size=10)
    >>> trainer.fit(data, epochs=30).epochs
    30
    >>> model.weight.round(2), model.bias.round(2)
    (array([[3.]], dtype=float32), array([1.], dtype=float32))
    """

    @tells_keywords
    def __init__(
        self,
        model: Any,
        loss: Callable[[Any, Any], Any],
        optimiser: Optimiser | LineSearch,
        *,
        metrics: Metrics | None = None,
        batch_size: int = 100,
        seed: int = 0,
        scale: float | None = None,
        penalty: Callable[[Any], Any] | None = None,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        drop_last: bool = False,
        bucket: int | None = None,
    ) -> None:
        batch_size = count("Trainer", "batch_size", batch_size)
        bucket = None if bucket is None else count("Trainer", "bucket", bucket)
        seed = count("Trainer", "seed", seed, least=0)
        check_scale(scale)
        check_model(model)
        check_loss(loss)
        check_optimiser(optimiser)
        check_penalty(penalty)
        _check_arrays(model)
        self.model = model
        self.optimiser = optimiser
        self.state = optimiser.init(model)
        self.batch_size = batch_size
        self.seed = seed
        self.drop_last = drop_last
        self.bucket = bucket
        self.history = History()
        self.best: Best | None = None
        """The model of the best epoch so far, where ``EarlyStopping(restore_best=True)`` keeps it."""
        self._next = np.array(0)
        """The number of the next step; programs count on in place, as they update the model."""
        self._settings = {
            "loss": loss,
            "batch_size": batch_size,
            "scale": scale,
            "penalty": penalty,
            "clip_norm": clip_norm,
            "clip_value": clip_value,
            "drop_last": drop_last,
            "bucket": bucket,
        }
        self._data: dict[str, Any] | None = None
        """What the data of this training are like, once it has begun."""
        self._resumed = False
        """Whether that is what a checkpoint says."""
        self._metrics = _fitting(loss) if metrics is None else as_metrics(metrics)
        steps = Steps(loss, clipping(optimiser, clip_value, clip_norm), self._metrics, scale, penalty)
        self._key = key(seed)
        self._train = jit(
            steps.train, donate_argnums=(0, 1, 2), static_argnums=8, watch=3, flush_subnormals=True
        )
        self._evaluate = jit(steps.evaluate, static_argnums=4, flush_subnormals=True)
        self._predict = jit(steps.predict, static_argnums=3, flush_subnormals=True)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set what is asked for when it is used, such as ``model`` or ``batch_size``; what is compiled is not."""
        if name in _COMPILED and "_train" in self.__dict__:
            raise SettingError(
                f"[Trainer] {name} is set, which is part of what is compiled. Make another trainer with it, "
                f"Trainer(trainer.model, …, {name}=…); for a learning rate that changes there are optim.schedules and "
                "optim.Adjustable."
            )
        super().__setattr__(name, value)

    @property
    def steps(self) -> int:
        """Steps done so far, over all epochs."""
        return int(self._next)

    @steps.setter
    def steps(self, number: int) -> None:
        self._next[...] = number

    @property
    def averaged(self) -> Any:
        """A copy of the model with its parameters' averages, where the optimiser is an ``optim.Averaged``.

        It is what ``evaluate``, ``predict`` and the validation in ``fit`` take. Else it is a copy of the model.
        """
        return map_tree(np.copy, averaged(self.state, self.model))

    @shows_users_frames
    @partial(tells_keywords, name="fit", hint=_PAIR)
    def fit(
        self,
        dataset: Dataset | tuple[Array, Array],
        epochs: int,
        *,
        validation: Dataset | tuple[Array, Array] | None = None,
        shuffle: bool = True,
        progress: bool | None = None,
        on_epoch_end: Callable[[Trainer], object] | Iterable[Callable[[Trainer], object]] = (),
    ) -> History:
        """Train for ``epochs`` more epochs and return the history of all epochs so far.

        ``validation`` is evaluated after each. ``progress`` shows a bar (on a terminal) and a line per epoch
        on standard error; None shows them where that is a terminal. Ctrl-C ends the training: the model is
        that of the last step, the history ends with the epoch begun and is marked ``interrupted``.

        ``on_epoch_end`` is one function of the trainer or several; all are called after each epoch, with its
        figures in the history, and may change model and state in place. The training ends when one returns True
        (Python's or NumPy's), as ``EarlyStopping`` does. One that has a method ``finish(trainer)`` is told when the
        training has ended.

        Raises ``ValueError`` for a negative number of epochs (0 of them train nothing) and for a schedule that begins
        with no rate, ``NonFiniteLoss`` when the loss becomes NaN or infinite, with the model of the last good step
        kept, ``IndexRangeError`` for labels that the loss does not take, ``DataError`` for an empty data set.
        """
        data = _as_dataset("fit", dataset)
        epochs = count("fit", "epochs", epochs, least=0)
        self._check_rate()
        self._check_search(data)
        self._check_data(data, shuffle)
        held_out = None if validation is None else _as_dataset("fit", validation)
        steps = self._steps_per_epoch(data)
        shown = sys.stderr.isatty() if progress is None else progress
        display = Display(epochs, steps) if shown else None
        callbacks = as_callbacks(on_epoch_end)
        self.history.interrupted = False
        try:
            with Interrupts() as interrupts:
                run = _Fit(self, data, display, interrupts)
                orders = Orders(self._order_of(data, shuffle))
                for number in range(epochs):
                    order = orders.take(self.history.epochs, more=number + 1 < epochs)
                    self._fit_epoch(run, number, order, held_out)
                    answers = [
                        callback(self) for callback in callbacks
                    ]  # each is called, whatever the others say
                    ended = any(isinstance(answer, (bool, np.bool_)) and answer for answer in answers)
                    if callbacks:
                        run.accept_changes()
                    interrupts.check()
                    if ended:
                        break
        except KeyboardInterrupt:
            self.history.interrupted = True
        except IndexRangeError as error:
            raise _with_culprit(error, label=data.labels, token=data.inputs) from error
        finally:
            if display is not None:
                display.close()
        for callback in callbacks:
            if hasattr(callback, "finish"):
                callback.finish(self)
        return self.history

    @shows_users_frames
    @partial(tells_keywords, name="evaluate", hint=_PAIR)
    def evaluate(self, dataset: Dataset | tuple[Array, Array]) -> dict[str, float]:
        """The loss and the metrics over all of ``dataset``: ``{"loss": …, "accuracy": …}``."""
        data = _as_dataset("evaluate", dataset)
        totals, model = Totals(self._metrics), averaged(self.state, self.model)
        try:
            for _, batch, width in self._parts(data.lengths, data.inputs, data.labels):
                (loss, figures), _ = self._evaluate.run_steps(
                    (model, *batch, width), len(batch[0]), sliced_argnums=(1, 2, 3)
                )
                totals.add(batch[0].shape[1], {"loss": loss, **figures})
        except IndexRangeError as error:
            raise _with_culprit(error, label=data.labels, token=data.inputs) from error
        return totals.figures()

    @shows_users_frames
    def predict(self, inputs: Array, lengths: Array | None = None) -> Any:
        """The model's outputs for ``inputs`` of shape (N, …), with the batch axis first.

        Of sequences, padded behind, ``lengths`` says how many of their steps count. Raises ``DataError`` for inputs
        without rows, and for a model whose outputs have no row for each of the inputs.
        """
        if np.ndim(inputs) == 0 or len(inputs) == 0:
            raise DataError(f"[predict] inputs of shape {np.shape(inputs)}. Give at least one row.")
        data = Dataset(inputs, inputs, lengths)
        rows, lengths = np.ascontiguousarray(data.inputs), data.lengths
        parts, places, model = [], [], averaged(self.state, self.model)
        try:
            for chosen, batch, width in self._parts(lengths, rows):
                outputs, _ = self._predict.run_steps(
                    (model, *batch, width), len(batch[0]), sliced_argnums=(1, 2)
                )
                for leaf in flatten(outputs)[0]:
                    _check_rows(batch[0], leaf)
                parts.append(map_tree(lambda y: y.reshape(-1, *y.shape[2:]), outputs))
                places.append(chosen)
        except IndexRangeError as error:
            raise _with_culprit(error, token=rows) from error
        back = np.argsort(np.concatenate(places))
        return map_tree(lambda *pieces: np.concatenate(pieces)[back], *parts)

    def _order_of(self, data: Dataset, shuffle: bool) -> Callable[[int], Rows]:
        """The order of each epoch."""
        if self.bucket is None:
            return partial(epoch_order, len(data), self.seed, shuffle=shuffle)
        if data.lengths is None:
            raise DataError(
                "[Trainer] batches of sequences of similar length (bucket) need to know them. Give the data set "
                "lengths, Dataset(inputs, labels, lengths)."
            )
        return partial(bucketed_order, data.lengths, self.batch_size, self.bucket, self.seed, shuffle=shuffle)

    def _width(self, lengths: Array | None, inputs: Array) -> int | None:
        """To how many steps a batch of these lengths is trimmed; None for all."""
        if lengths is None or self.bucket is None:
            return None
        return trimmed_width(lengths, self.bucket, inputs.shape[1])

    def _parts(
        self, lengths: Array | None, *arrays: Array
    ) -> Iterable[tuple[Rows, tuple[Any, ...], int | None]]:
        """Rows, batches of the arrays and of ``lengths`` with an axis of steps in front, and their width."""
        if lengths is None or self.bucket is None:
            given = arrays if lengths is None else (*arrays, lengths)
            places = np.arange(len(arrays[0]))
            for numbers, *batches in _batches(self.batch_size, places, *given):
                yield numbers.ravel(), (*batches, *([None] if lengths is None else [])), None
            return
        order = bucketed_order(lengths, self.batch_size, self.bucket, self.seed, shuffle=False)
        for first in range(0, len(order), self.batch_size):
            rows = order[first : first + self.batch_size]
            width = self._width(lengths[rows], arrays[0])
            yield rows, tuple(array[rows][None] for array in (*arrays, lengths)), width

    def _steps_per_epoch(self, data: Dataset) -> int:
        full, rest = divmod(len(data), self.batch_size)
        steps = full if self.drop_last or not rest else full + 1
        if not steps:
            raise DataError(
                f"[fit] {len(data)} rows give no batch of {self.batch_size}, and drop_last leaves out the "
                "rest. Choose a smaller batch_size."
            )
        return steps

    def _check_rate(self) -> None:
        """Raise where a schedule goes on with what is no learning rate; numbers are checked by optimisers."""
        schedule = self.optimiser.learning_rate
        rate = rate_at(schedule, self.steps)
        if callable(schedule) and not 0 <= rate < math.inf:
            raise ValueError(
                f"[fit] the learning rate of step {self.steps} is {rate}. Give a schedule whose rates are finite and "
                "not negative."
            )

    def _check_search(self, data: Dataset) -> None:
        """Raise for a line search on batches that are only a part of the data set."""
        if isinstance(self.optimiser, LineSearch) and len(data) > self.batch_size:
            name = type(self.optimiser).__name__
            raise DataError(
                f"[fit] {name} compares the losses of whole data sets, and {len(data)} rows are more than a batch "
                f"of {self.batch_size}. Make the trainer with batch_size={len(data)}."
            )

    def _check_data(self, data: Dataset, shuffle: bool) -> None:
        """Raise for data that are not like those of the training whose checkpoint was loaded."""
        found = {
            "rows": len(data),
            "inputs": _kind(data.inputs),
            "labels": _kind(data.labels),
            "shuffle": shuffle,
            "lengths": None if data.lengths is None else _kind(data.lengths),
        }
        different = differences(self._data, found) if self._resumed and self._data is not None else []
        if different:
            raise DataError(
                f"[fit] the checkpoint is of a training on other data: {'; '.join(different)}. Give the data that it "
                "was trained on, or load it with changed=('data',)."
            )
        self._data, self._resumed = found, False

    def _fit_epoch(self, run: _Fit, number: int, order: Rows, validation: Dataset | None) -> None:
        """One epoch, entered into the history even when it is cut short."""
        totals = Totals(self._metrics)
        validated: dict[str, float] = {}
        start, seconds = time.perf_counter(), None
        try:
            run.epoch(number, order, totals)
            seconds = time.perf_counter() - start
            if validation is not None:
                validated = self.evaluate(validation)
        finally:
            if totals.steps:
                seconds = time.perf_counter() - start if seconds is None else seconds
                figures = totals.figures() | {
                    f"validation_{name}": value for name, value in validated.items()
                }
                figures |= {"steps": totals.steps, "seconds": seconds}
                figures["steps_per_second"] = totals.steps / seconds
                figures["peak_memory"] = _peak_memory()
                factor = rate_factor(self.state)
                rate = rate_at(self.optimiser.learning_rate, self.steps - 1)
                figures["learning_rate"] = rate if factor is None else rate * float(factor)
                self.history.append(figures)
                if run.display is not None:
                    run.display.finish_epoch(number, figures)


class _Fit:
    """One call of ``fit``: blocks of steps, the way back from a bad one, and what is shown."""

    def __init__(
        self, trainer: Trainer, data: Dataset, display: Display | None, interrupts: Interrupts
    ) -> None:
        self.trainer, self.data, self.display, self._interrupts = trainer, data, display, interrupts
        self._pace = Pace()
        self._snapshot = Snapshot((trainer.model, trainer.state, trainer._next))

    def epoch(self, number: int, order: Rows, totals: Totals) -> None:
        """Train on the rows in this order; ``totals`` grows as blocks are done."""
        batch_size = self.trainer.batch_size
        full = len(order) // batch_size
        batches = order[: full * batch_size].reshape(full, batch_size)
        done = 0
        while done < full:
            block = batches[done : done + self._pace.steps]
            widths = [self._width(rows) for rows in block]
            block = block[: next((k for k, width in enumerate(widths) if width != widths[0]), len(block))]
            start = time.perf_counter()
            self._block(number, block, totals)
            self._pace.measured(len(block), time.perf_counter() - start)
            done += len(block)
            if self.display is not None:
                self.display.update(number, done, totals.means(), self._pace.rate)
        rest = order[full * batch_size :]
        if len(rest) and not self.trainer.drop_last:
            self._block(number, rest[None], totals)

    def accept_changes(self) -> None:
        """What a callback did to model, state or steps is where the training goes on, and a bad step back to."""
        self._snapshot.renew()

    def _block(self, number: int, rows: Rows, totals: Totals) -> None:
        losses, figures, done = self._run(rows)
        if not math.isfinite(losses[done - 1]):
            self._fail(number, rows, totals.steps, done - 1, float(losses[done - 1]))
        totals.add(rows.shape[1], {"loss": losses, **figures})
        self._snapshot.record(rows)
        self._interrupts.check()

    def _width(self, rows: Rows) -> int | None:
        """To how many steps these rows are trimmed."""
        lengths = self.data.lengths
        return self.trainer._width(None if lengths is None else lengths[rows], self.data.inputs)

    def _run(self, rows: Rows) -> tuple[Array, dict[str, Array], int]:
        """Steps on ``rows``, all of one width, in place."""
        trainer, data = self.trainer, self.data
        carried = (trainer.model, trainer.state, trainer._next)
        given = (trainer._key, data.inputs, data.labels, data.lengths, self._width(rows))
        (*_, losses, figures), done = trainer._train.run_steps(
            (*carried, rows, *given), len(rows), sliced_argnums=3
        )
        return losses, figures, done

    def _fail(self, number: int, rows: Rows, before: int, good: int, loss: float) -> None:
        """Go back to the last good step and raise."""
        step, found = self.trainer.steps, _not_finite(self.data, rows[good])
        repair = found or "Lower the learning rate, or clip the gradients (clip_norm=1.0)."
        completed(lambda: self._snapshot.go_back(rows, good, self._run))
        raise NonFiniteLoss(
            f"[fit] the loss became {loss} at step {step} (step {before + good + 1} of epoch {number + 1}). "
            f"The model of the last good step is kept. {repair}"
        )


def _not_finite(data: Dataset, rows: Rows) -> str:
    """A sentence on the first of these rows whose inputs or labels have NaN or infinities; empty if none has."""
    for name, array in (("inputs", data.inputs), ("labels", data.labels)):
        if array.dtype.kind != "f":
            continue
        finite = np.isfinite(array[rows])
        if name == "inputs" and data.lengths is not None:  # what stands behind the end is not looked at
            behind = np.arange(array.shape[1]) >= data.lengths[rows, None]
            finite |= behind.reshape(*behind.shape, *(1,) * (array.ndim - 2))
        bad = rows[~finite.reshape(len(rows), -1).all(axis=1)]
        if len(bad):
            row = array[bad.min()]
            value = row[~np.isfinite(row)].flat[0] if row.ndim else row
            return f"The {name} have {value} in row {bad.min()}: leave such rows out, or fill in a number."
    return ""


def _fitting(loss: Callable[[Any, Any], Any]) -> dict[str, Metric | EpochMetric]:
    """The accuracy that says something about answers trained with ``loss``, if there is one."""
    while isinstance(loss, partial):
        loss = loss.func
    if loss in (softmax_cross_entropy, kl_divergence):
        return {"accuracy": accuracy}
    return {"accuracy": binary_accuracy} if loss in (binary_cross_entropy, hinge) else {}


def _as_dataset(caller: str, data: Dataset | tuple[Array, Array]) -> Dataset:
    """``data`` with arrays as the program takes them; copied only where memory order or byte order differ."""
    if not isinstance(data, Dataset):
        if not isinstance(data, tuple) or len(data) != 2:
            raise DataError(
                f"[{caller}] found a {type(data).__name__}. Give a Dataset or a pair (inputs, labels)."
            )
        data = Dataset(*data)
    inputs, labels = (np.ascontiguousarray(a, a.dtype.newbyteorder("=")) for a in (data.inputs, data.labels))
    same = inputs is data.inputs and labels is data.labels
    return data if same else Dataset(inputs, labels, data.lengths)


def _check_rows(batch: Array, outputs: Array) -> None:
    """Raise ``DataError`` unless outputs of batches have a row for each of theirs; both have an axis of steps."""
    if outputs.shape[1:2] != batch.shape[1:2]:
        raise DataError(
            f"[predict] the model gives outputs of shape {outputs.shape[1:]} for a batch of shape {batch.shape[1:]}. "
            "Outputs must have a row for each input; a single input is inputs[None]."
        )


def _kind(array: Array) -> str:
    """The dtype and the shape of a row."""
    return f"{array.dtype}{list(array.shape[1:])}"


def _batches(size: int, *arrays: Array) -> Iterable[tuple[Array, ...]]:
    """Views of shape (batches, size, …) of the arrays, and, if rows are left, of (1, rest, …)."""
    count = len(arrays[0])
    full = count // size * size
    if full:
        yield tuple(array[:full].reshape(-1, size, *array.shape[1:]) for array in arrays)
    if full < count:
        yield tuple(array[None, full:] for array in arrays)


def _check_arrays(model: Any) -> None:
    """Raise unless the parameters are arrays that can be updated in place."""
    leaves, structure = flatten(model)
    if not leaves:
        raise TreeError("[Trainer] the model has no parameters. Give a module that has arrays in its fields.")
    owners: list[tuple[str, Array]] = []
    for path, leaf in zip(structure.paths, leaves):
        if not isinstance(leaf, np.ndarray):
            raise TreeError(
                f"[Trainer] {path or 'the model'} is a {type(leaf).__name__}, which cannot be updated in "
                "place. Make it an array, np.array(value, np.float32), or a field of pb.static()."
            )
        if not (leaf.flags.c_contiguous and leaf.flags.writeable and leaf.flags.aligned):
            raise DonationError(
                f"[Trainer] {path or 'the model'} is read-only or not contiguous, and cannot be updated in "
                "place. Replace it by its copy, np.array(…, order='C')."
            )
        for owner, other in owners:
            if np.may_share_memory(leaf, other):
                raise DonationError(
                    f"[Trainer] {owner} and {path} share memory, and both are updated in place. Give each an "
                    "array of its own; a parameter that serves twice is held once, by a module of your own."
                )
        owners.append((path, leaf))


def _with_culprit(error: IndexRangeError, **arrays: Array) -> IndexRangeError:
    """The error with the row of the data set that has the label or the token that it names, if one has."""
    array = arrays.get(error.what or "")
    if error.value is None or array is None:
        return error
    rows = np.flatnonzero((array == error.value).reshape(len(array), -1).any(axis=1))
    if not len(rows):  # it was computed from what the data set has
        return error
    others = f" and {len(rows) - 1:,} more" if len(rows) > 1 else ""
    note = f"the data set has {error.what} {error.value} in row {rows[0]}{others}"
    return error.extended(note, row=int(rows[0]))


def _peak_memory() -> float:
    """The largest resident memory of this process so far, in bytes; NaN where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return math.nan
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else peak * 1024)
