"""A data set is two arrays with the same first axis; nothing of it is copied before it is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pullback.errors import DataError, IndexRangeError
from pullback.graph import refuse_class

__all__ = ["Dataset", "LabelledImages", "epoch_order"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Examples in rows: ``inputs`` of shape (N, …) and ``labels`` of shape (N, …), N at least 1.

    The arrays stay what they are (uint8 pixels stay uint8); the training program converts the rows of a batch
    where it reads them.

    - ``dataset[3]`` is the pair of one input and its label,
    - ``dataset[10:20]`` is a data set that shares memory with this one,
    - ``dataset[rows]``, with an array of row numbers or booleans, is a data set of copies.

    Rows that are sequences of different lengths, padded behind, have ``lengths``, an integer for each: how many of
    their steps count. A trainer gives them to the model, ``model(x, lengths=n)``.

    Raises ``DataError`` for arrays that are empty, ragged or of different lengths, and for ``lengths`` beyond the
    rows, ``IndexRangeError`` for a row that is not there.

    >>> digits = Dataset(np.zeros((5, 28, 28), np.uint8), np.arange(5, dtype=np.uint8))
    >>> digits
    Dataset(5 rows: inputs uint8[28, 28], labels uint8)
    >>> digits[-1][1], len(digits[:2]), digits[[4, 0]].labels
    (np.uint8(4), 2, array([4, 0], dtype=uint8))
    """

    inputs: Array
    labels: Array
    lengths: Array | None = None

    def __post_init__(self) -> None:
        for name in ("inputs", "labels"):
            object.__setattr__(self, name, _rows(name, getattr(self, name)))
        if len(self.inputs) != len(self.labels):
            raise DataError(
                f"[Dataset] inputs {self.inputs.shape} have {len(self.inputs)} rows, "
                f"labels {self.labels.shape} have {len(self.labels)}. Give one label for each input."
            )
        if len(self.inputs) == 0:
            raise DataError(
                f"[Dataset] the data set is empty: inputs {self.inputs.shape}, labels {self.labels.shape}. "
                "Give at least one row."
            )
        if self.lengths is not None:
            object.__setattr__(self, "lengths", self._checked(_rows("lengths", self.lengths)))

    def _checked(self, lengths: Array) -> Array:
        """Lengths that fit the rows."""
        if lengths.dtype.kind not in "iu" or lengths.shape != (len(self.inputs),) or self.inputs.ndim < 2:
            raise DataError(
                f"[Dataset] lengths are {_kind(lengths)} for {len(lengths)} rows, inputs have shape "
                f"{self.inputs.shape}. Give an integer for each row of steps."
            )
        if lengths.min() < 0 or lengths.max() > self.inputs.shape[1]:
            row = int(np.argmax((lengths < 0) | (lengths > self.inputs.shape[1])))
            raise DataError(
                f"[Dataset] the length {lengths[row]} of row {row} is outside 0 to {self.inputs.shape[1]}, the steps "
                "of a row. Give how many of them count."
            )
        return lengths

    def __len__(self) -> int:
        return len(self.inputs)

    @overload
    def __getitem__(self, rows: int) -> tuple[Any, Any]: ...

    @overload
    def __getitem__(self, rows: slice | ArrayLike) -> Dataset: ...

    def __getitem__(self, rows: int | slice | ArrayLike) -> tuple[Any, Any] | Dataset:
        try:
            if isinstance(rows, int | np.integer):
                return self.inputs[rows], self.labels[rows]
            if not isinstance(rows, slice):
                rows = _row_numbers(rows)
            lengths = None if self.lengths is None else self.lengths[rows]
            return Dataset(self.inputs[rows], self.labels[rows], lengths)
        except IndexError as error:
            raise IndexRangeError(f"[Dataset] {error}; rows are 0 to {len(self) - 1}.") from error

    def __repr__(self) -> str:
        rows = "row" if len(self) == 1 else "rows"
        parts = (
            f"{name} {_kind(array)}" for name, array in (("inputs", self.inputs), ("labels", self.labels))
        )
        lengths = "" if self.lengths is None else f", lengths {self.lengths.min()} to {self.lengths.max()}"
        return f"Dataset({len(self):,} {rows}: {', '.join(parts)}{lengths})"

    def split(self, fraction: float, seed: int = 0) -> tuple[Dataset, Dataset]:
        """Two data sets: ``round(fraction · N)`` rows chosen at random by ``seed``, and the others.

        Both keep the order of the rows. Raises ``DataError`` when one of them would be empty.

        >>> first, second = Dataset(np.arange(10), np.arange(10)).split(0.8, seed=1)
        >>> len(first), len(second), sorted([*first.labels, *second.labels]) == list(range(10))
        (8, 2, True)
        """
        count = round(fraction * len(self)) if 0 < fraction < 1 else 0
        if not 0 < count < len(self):
            raise DataError(
                f"[Dataset.split] {fraction} of {len(self)} rows leaves an empty part. "
                "Give a fraction between 0 and 1 that leaves at least one row on each side."
            )
        chosen = np.zeros(len(self), dtype=bool)
        chosen[epoch_order(len(self), seed)[:count]] = True
        return self[chosen], self[~chosen]


@dataclass(frozen=True)
class LabelledImages:
    """Images with class labels, to train on and to test on, and what a program has to know about them.

    ``train`` and ``test`` hold images of shape (N, height, width), uint8, and labels of shape (N,),
    uint8, below ``classes``. ``scale`` takes a pixel as stored to the range 0 to 1: ``image * scale``.
    ``note`` is a line for the user that says which data these are and where they came from.
    """

    name: str
    train: Dataset
    test: Dataset
    scale: float
    classes: int
    note: str


def epoch_order(n: int, seed: int, epoch: int = 0, shuffle: bool = True) -> NDArray[np.int64]:
    """The order in which ``epoch`` visits ``n`` rows: an int64 permutation; the identity without ``shuffle``.

    It depends on ``n``, ``seed`` and ``epoch`` alone (PCG64 seeded by both), not on earlier epochs and not on
    the batch size: batch k of size b is rows ``order[k * b : (k + 1) * b]``, the last one possibly shorter.

    Raises ``DataError`` for ``n`` below 1 and for a negative seed or epoch.

    >>> epoch_order(5, seed=1, shuffle=False)
    array([0, 1, 2, 3, 4])
    >>> np.array_equal(epoch_order(100, seed=1, epoch=2), epoch_order(100, seed=1, epoch=2))
    True
    >>> np.array_equal(epoch_order(100, seed=1, epoch=2), epoch_order(100, seed=1, epoch=3))
    False
    """
    if n < 1:
        raise DataError(f"[epoch_order] {n} rows have no order. Give a data set of at least one row.")
    if seed < 0 or epoch < 0:
        raise DataError(f"[epoch_order] seed {seed} and epoch {epoch} must not be negative. Give 0 or more.")
    order = np.arange(n, dtype=np.int64)
    if shuffle:
        sequence = np.random.SeedSequence(seed, spawn_key=(epoch,))
        np.random.Generator(np.random.PCG64(sequence)).shuffle(order)
    return order


def _rows(name: str, value: ArrayLike) -> Array:
    """``value`` as an array with a first axis; an array is returned as it is."""
    refuse_class(value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DataError(f"[Dataset] {name} are ragged: {error}. Give rows of equal shape.") from error
    if (
        name == "labels"
        and array.ndim
        and array.dtype.kind in "OSTU"
        and all(isinstance(x, str) for x in array.flat)
    ):
        raise DataError(
            f"[Dataset] labels are texts, such as {str(array.flat[0])!r}. Number the classes: "
            "names, labels = np.unique(labels, return_inverse=True)."
        )
    if array.ndim == 0 or array.dtype.kind in "OSTUMm":
        raise DataError(
            f"[Dataset] {name} must be an array with one row per example, found {type(value).__name__} "
            f"(dtype {array.dtype}, shape {array.shape}). Give a NumPy array of numbers."
        )
    return array


def _row_numbers(rows: ArrayLike) -> Array:
    """An array that selects rows, by number or by a boolean each."""
    try:
        selection = np.asarray(rows)
    except ValueError:  # ragged, such as a slice beside a list
        selection = np.asarray(None)
    if selection.ndim != 1 or selection.dtype.kind not in "iub":
        raise DataError(
            f"[Dataset] {rows!r} selects no rows. "
            "Give a number, a slice, or a one-dimensional array of row numbers or booleans."
        )
    return selection


def _kind(array: Array) -> str:
    """``uint8[28, 28]``: the dtype and the shape of one row."""
    return f"{array.dtype}{list(array.shape[1:])}" if array.ndim > 1 else f"{array.dtype}"
