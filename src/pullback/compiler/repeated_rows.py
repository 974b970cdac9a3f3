"""Rows of a table that are read many times: how many different ones there will be, and whether counting them pays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pullback.compiler.cost import LOAD_AND_ADD, MULTIPLY_ADD, STORE, WORTH_PROJECTING
from pullback.compiler.target import Processor

__all__ = ["RowSums", "different_rows", "way_to_rows"]


def different_rows(places: int, extent: int) -> float:
    """How many rows of a table so many places are expected to name, if the ``k``-th is named ``1 / k`` as often.

    So it is with words. What is named evenly has more different rows, but never more than there are places.

    >>> round(different_rows(8320, 12_000)), round(different_rows(2048, 96)), round(different_rows(10, 1_000_000))
    (2606, 96, 10)
    """
    rank = np.arange(1, extent + 1)
    share = 1 / rank / np.sum(1 / rank)
    return float(np.sum(-np.expm1(places * np.log1p(-share))) if extent > 1 else 1.0)


@lru_cache(maxsize=256)
def way_to_rows(target: Processor, lanes: int, places: int, extent: int, width: int, columns: int) -> str:
    """Whether rows that are read at ``places`` are multiplied once each: ``counted``, the ``whole`` table, or not.

    They make so many ``columns``. While one thread counts, another waits.
    """
    rows = different_rows(places, extent)
    multiplied = width * -(-columns // lanes) * MULTIPLY_ADD
    looked_up = places * -(-columns // lanes) * (STORE + LOAD_AND_ADD)
    apart = places * multiplied
    whole = extent * multiplied + looked_up
    counting = 2 * ((2 * places + extent) * target.marking_cycles + 2 * target.exchange_cycles)
    counted = rows * (multiplied + STORE) + looked_up + counting
    best = min(whole, counted)
    if best > WORTH_PROJECTING * apart:
        return ""
    return "whole" if whole <= counted else "counted"


@dataclass(frozen=True)
class RowSums:
    """Whether cotangents of rows that are read are added up for each row before they meet a matrix, or the rows.

    There are so many ``places`` and different ``rows`` of a ``width``; the matrix has ``columns``. ``visits`` are the
    cycles of another way to do the same, that of a pool's winners.
    """

    lanes: int
    places: int
    rows: float
    width: int

    def _vectors(self, count: int) -> int:
        return -(-count // self.lanes)

    def _apart(self, columns: int) -> float:
        return self.places * self._vectors(columns) * (STORE + LOAD_AND_ADD)

    def pay_matrix(self, columns: int, visits: float = math.inf) -> bool:
        """For the gradient of the matrix: else each place needs its row beside it."""
        product = self.width * self._vectors(columns) * MULTIPLY_ADD
        read = self._apart(self.width)
        summed = self._apart(columns) + self.rows * product
        return summed <= WORTH_PROJECTING * (min(self.places * product, visits) + read)

    def pay_rows(self, columns: int, visits: float = math.inf) -> bool:
        """For the gradient of the rows, for which the sums are there if they pay for the matrix."""
        product = columns * self._vectors(self.width) * MULTIPLY_ADD
        added = self._apart(self.width)
        summed = self.rows * (product + added / self.places)
        summed += 0 if self.pay_matrix(columns, visits) else self._apart(columns)
        return summed <= WORTH_PROJECTING * min(self.places * product + added, 2 * visits)
