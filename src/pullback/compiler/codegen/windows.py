"""The largest of some neighbouring sums of products: a convolution and the pool that follows it, in one sweep.

    for b, c, p, q: y[b, c, p, q] = max[u, v](relu(add[k, l](w[c, k, l] * x[b, 2p + u + k, 2q + v + l])))

All sums of a window, for several channels, are kept in registers until the largest is known; nothing but the maxima,
and who they are, is written. What a window reads of the image is read once for all channels.
"""

from __future__ import annotations

import math

from pullback.compiler.codegen.maps import write_stores
from pullback.compiler.codegen.nest import ChunkTurns, TileTurns, each_place, emit_nest, sums_of_products
from pullback.compiler.codegen.reductions import emit_reduction
from pullback.compiler.codegen.values import Place, Values
from pullback.compiler.schedules.cost import MOST_TAPS
from pullback.compiler.schedules.window_maximum import WindowMaximum
from pullback.loops import Kernel, Reduce, row_major
from pullback.loops.nest import levels_over

__all__ = ["emit_window_maximum"]


def emit_window_maximum(values: Values, kernel: Kernel, pooled: WindowMaximum, ends: ChunkTurns) -> None:
    """Run the kernel between ``ends`` of its first axis."""
    window = {axis: axis.extent for axis in pooled.window}
    size, strides = math.prod(window.values()), row_major(tuple(window.values()))
    levels = levels_over(pooled.sums.over, MOST_TAPS)

    def sums(rows: TileTurns, _: list[str]) -> None:
        """The sums of products for every row and every place of the window, and what is made of the largest."""
        with values.standing(dict.fromkeys(window, Place(None, 0))):
            found = sums_of_products(values, levels, {**rows, **window}, pooled.left, pooled.right)
        for r in each_place(values, rows):

            def known(values: Values, reduce: Reduce, first: int = r * size) -> list[str]:
                """A sum where the axes of the window stand, and what is reduced of all of them."""
                if reduce is not pooled.sums:
                    return emit_reduction(values, reduce)
                places = (values.places[axis].constant * step for axis, step in zip(window, strides))
                return [found[first + sum(places)]]

            with values.reducing(known):
                write_stores(values, kernel.stores)

    emit_nest(values, pooled.nest.levels, sums, ends=ends)
