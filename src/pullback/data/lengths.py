"""Sequences of different lengths in batches: rows of similar length together, and no padding behind the longest.

A trainer does so with ``Trainer(bucket=50)``; in a loop of one's own the width is a static argument of the step:

    step = jit(step, static_argnums=3)                    # reads inputs[rows][:, :width], and lengths[rows]
    for rows in bucketed_order(lengths, 64, 50, seed, epoch)[: len(lengths) // 64 * 64].reshape(-1, 64):
        model, state = step(model, state, rows, trimmed_width(lengths[rows], 50, inputs.shape[1]))
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pullback.data.dataset import epoch_order
from pullback.errors import DataError

__all__ = ["bucketed_order", "trimmed_width"]


def trimmed_width(lengths: ArrayLike, multiple: int, most: int) -> int:
    r"""How many steps a batch of these lengths needs: the longest, rounded up to a multiple, ``most`` at most.

    .. math:: w = \min(m \lceil \max_k n_k / m \rceil, T), \quad w \ge \min(m, T)

    Few different widths are few different programs.

    >>> trimmed_width([3, 11, 8], multiple=5, most=100), trimmed_width([98], multiple=5, most=99)
    (15, 99)
    """
    longest = int(np.max(lengths, initial=1))
    return min(-(-max(longest, 1) // multiple) * multiple, most)


def bucketed_order(
    lengths: ArrayLike, batch_size: int, multiple: int, seed: int, epoch: int = 0, shuffle: bool = True
) -> NDArray[np.int64]:
    """The order in which ``epoch`` visits rows, such that each batch holds sequences of similar length.

    Batch ``k`` of size ``b`` is rows ``order[k * b : (k + 1) * b]``, as with ``epoch_order``. Rows are shuffled, then
    sorted by their length rounded up to a ``multiple``, cut into batches, and the batches are shuffled: which rows of
    one width meet, and when, differs from epoch to epoch. The rows that are left over, fewer than a batch, are drawn
    from all, and come last. Without ``shuffle`` rows go from the shortest to the longest.

    Raises ``DataError`` for no rows, and for a batch size or a multiple below 1.

    >>> lengths = np.array([9, 2, 4, 8, 1, 7, 6, 3])
    >>> order = bucketed_order(lengths, batch_size=2, multiple=5, seed=0)
    >>> sorted(trimmed_width(lengths[pair], 5, most=9) for pair in order.reshape(4, 2))
    [5, 5, 9, 9]
    >>> lengths[bucketed_order(lengths, 2, 5, seed=0, shuffle=False)]
    array([2, 4, 1, 3, 9, 8, 7, 6])
    """
    lengths = np.asarray(lengths).astype(np.int64)
    if batch_size < 1 or multiple < 1:
        raise DataError(
            f"[bucketed_order] batches of {batch_size} trimmed to multiples of {multiple}. Give 1 or more."
        )
    order = epoch_order(len(lengths), seed, epoch, shuffle)
    full = len(order) // batch_size
    rest = order[full * batch_size :] if shuffle else order[:0]
    kept = order[: len(order) - len(rest)]
    kept = kept[np.argsort(-(-lengths[kept] // multiple), kind="stable")]
    if not shuffle:
        return kept
    sequence = np.random.SeedSequence(seed, spawn_key=(epoch, 1))
    batches = kept.reshape(full, batch_size)
    return np.concatenate([np.random.Generator(np.random.PCG64(sequence)).permutation(batches).ravel(), rest])
