"""Rows of a table that are read many times: how many different ones there will be, and whether counting them pays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pullback.compiler.schedules.cost import (
    LOAD_AND_ADD,
    MULTIPLY_ADD,
    READ_AND_WRITTEN,
    SHARED_BY,
    STORE,
    WORTH_BY_ROWS,
)
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

    They make so many ``columns``. While one thread counts, the others wait.
    """
    rows = different_rows(places, extent)
    multiplied = width * -(-columns // lanes) * MULTIPLY_ADD
    looked_up = places * -(-columns // lanes) * (STORE + LOAD_AND_ADD)
    apart = places * multiplied
    whole = extent * multiplied + looked_up
    counting = SHARED_BY * ((2 * places + extent) * target.marking_cycles + 2 * target.exchange_cycles)
    counted = rows * (multiplied + STORE) + looked_up + counting
    best = min(whole, counted)
    if best > WORTH_BY_ROWS * apart:
        return ""
    return "whole" if whole <= counted else "counted"


@dataclass(frozen=True)
class RowSums:
    """Whether cotangents of rows that are read are added up for each row before they meet a matrix, or the rows.

    There are so many ``places`` and different ``rows`` of a ``width``, which are ``trained`` or not. Each part has so
    many ``columns`` of the matrix, and ``visits`` are the cycles of another way to do the same, that of a pool's
    winners.
    """

    lanes: int
    places: int
    rows: float
    width: int
    trained: bool

    def _vectors(self, count: int) -> int:
        return -(-count // self.lanes)

    def _at_places(self, columns: int) -> float:
        return self.places * self._vectors(columns) * (STORE + LOAD_AND_ADD)

    def pay(self, columns: int, visits: float = math.inf) -> tuple[bool, bool]:
        """For the gradient of the matrix, and for that of the rows: what is added up for one is there for the other."""
        product = self.width * self._vectors(columns) * MULTIPLY_ADD
        apart = min(self.places * product + self._at_places(self.width), visits)
        summed = self.rows * product
        if not self.trained:
            return self._at_places(columns) + summed <= WORTH_BY_ROWS * apart, False
        product = columns * self._vectors(self.width) * MULTIPLY_ADD
        added = self._at_places(self.width)
        rows_apart = min(self.places * product + added, READ_AND_WRITTEN * visits)
        rows_summed = self.rows * (product + added / self.places)
        ways = {
            (True, True): self._at_places(columns) + summed + rows_summed,
            (True, False): self._at_places(columns) + summed + rows_apart,
            (False, True): self._at_places(columns) + apart + rows_summed,
        }
        best = min(ways, key=lambda way: ways[way])
        return best if ways[best] <= WORTH_BY_ROWS * (apart + rows_apart) else (False, False)
