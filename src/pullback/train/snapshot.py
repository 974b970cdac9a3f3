"""A copy of the parameters, and what was done since: the way back to the last good step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.tracing import flatten

__all__ = ["Snapshot", "copy_arrays"]

Rows = NDArray[np.int64]

_SECONDS = 1.0  # between copies: what a copy costs is lost in them, and replaying them is soon done


def copy_arrays(live: Any, stored: Any) -> None:
    """Put what the arrays of one tree hold into those of another of its structure."""
    for array, value in zip(flatten(live)[0], flatten(stored)[0]):
        np.copyto(array, value)


class Snapshot:
    """Copies of the arrays of a tree that is updated in place, and the rows of the steps since then.

    Steps are deterministic, so running them again from the copy gives the state after any of them; no copy
    per step is needed.
    """

    def __init__(self, tree: Any) -> None:
        self._live: list[NDArray[Any]] = flatten(tree)[0]
        self._copies = [array.copy() for array in self._live]
        self._blocks: list[Rows] = []
        self._time = time.monotonic()

    def record(self, rows: Rows) -> None:
        """The steps on ``rows`` (one row of the array each) were done, all with a finite loss."""
        self._blocks.append(rows)
        if time.monotonic() - self._time > _SECONDS:
            self.renew()

    def renew(self) -> None:
        """Copy what there is now, if it is finite, and forget the steps before."""
        if self.finite():
            copy_arrays(self._copies, self._live)
            self._blocks.clear()
            self._time = time.monotonic()

    def go_back(self, failed: Rows, good: int, replay: Callable[[Rows], object]) -> None:
        """Undo the block ``failed`` but for its first ``good`` steps; one less if they left infinities.

        ``replay(rows)`` runs steps from the state as it is. A step whose loss was finite may still have made
        parameters that are not: then the state before it is the last good one.
        """
        blocks = [*self._blocks, failed[:good]]
        self._restore(blocks, replay)
        if not self.finite() and any(map(len, blocks)):
            while not len(blocks[-1]):
                blocks.pop()
            blocks[-1] = blocks[-1][:-1]
            self._restore(blocks, replay)

    def _restore(self, blocks: list[Rows], replay: Callable[[Rows], object]) -> None:
        copy_arrays(self._live, self._copies)
        for rows in blocks:
            if len(rows):
                replay(rows)

    def finite(self) -> bool:
        """Whether every number of the tree, as it is now, is finite."""
        return all(bool(np.isfinite(array).all()) for array in self._live)
