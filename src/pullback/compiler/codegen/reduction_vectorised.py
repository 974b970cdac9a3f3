"""Sums of products along memory: the lanes lie along the summed axis, and a tile of sums shares what is read.

The weight gradient of a convolution sums over whole images and leaves a handful of numbers: there is no axis of the
result worth a vector. Here each accumulator is a vector of partial sums of one result; ``left × right`` of them are
kept at once, so that every vector read serves several.
"""

from __future__ import annotations

import numpy as np

from pullback.compiler.codegen.maps import write_stores
from pullback.compiler.codegen.nest import ChunkTurns, TileTurns, each_place, emit_nest, sums_of_products
from pullback.compiler.codegen.reductions import across_rows
from pullback.compiler.codegen.types import scalar_type, vector_of
from pullback.compiler.codegen.values import Values
from pullback.compiler.schedules.reduction_vectorised import ReductionVectorised
from pullback.loops import Kernel
from pullback.loops.nest import levels_over, vectors_over

__all__ = ["emit_reduction_vectorised"]


def emit_reduction_vectorised(
    values: Values, kernel: Kernel, dots: ReductionVectorised, ends: ChunkTurns
) -> None:
    """Run the kernel between ``ends`` of its first axis."""
    *outer, along = dots.pair.depth
    levels = [*levels_over(outer), *vectors_over(along, values.lanes, most_unrolled=2)]

    def sums(tile: TileTurns, _: list[str]) -> None:
        """All sums of a tile, then their stores."""
        found = sums_of_products(values, levels, tile, dots.pair.left, dots.pair.right)
        totals = _totals(values, found, dots.reduce.dtype)
        for number in each_place(values, tile):
            values.bind(dots.reduce, [totals[number]])
            write_stores(values, kernel.stores)

    emit_nest(values, dots.nest.levels, sums, ends=ends)


def _totals(values: Values, sums: list[str], dtype: np.dtype) -> list[str]:
    """The sum over the lanes of each vector; as many vectors at once as there are lanes, or the next power of two.

    A single one is taken twice: how many there are depends on the rows of a chunk, and their bits do not.
    """
    lanes, kind, totals = values.lanes, scalar_type(dtype), list[str]()
    while len(totals) < len(sums):
        rest = sums[len(totals) :]
        count = min(lanes, 2 ** (len(rest).bit_length() - 1))
        rows = rest[:count] if count > 1 else rest * 2
        turned = across_rows(values, "add", rows, dtype, lanes)
        vector = vector_of(kind, len(rows))
        totals += [values.f.value(f"extractelement {vector} {turned}, i32 {k}") for k in range(count)]
    return totals
