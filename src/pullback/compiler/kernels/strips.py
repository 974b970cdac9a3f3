"""Products in strips of their columns: what threads share out where rows are few, and what panels are made of.

    for i<8, j<520: y[i, j] = add[k](x[i, k] * w[k, j])
    →
    for p<8, i<8, j<64: y[i, 64*p + j] = add[k](x[i, k] * w[k, 64*p + j])
    for i<8, j<8:       y[i, j + 512] = add[k](x[i, k] * w[k, j + 512])

Shapes alone decide, as they do of all that is shared out.
"""

from __future__ import annotations

from pullback.compiler.schedules.contraction import Contraction
from pullback.compiler.schedules.cost import ENOUGH_ROWS, LEAST_SPLIT_CYCLES, SHARED_BY
from pullback.compiler.schedules.tiles import choose_tile
from pullback.compiler.target import Processor
from pullback.loops import Affine, Axis, Kernel, in_strips

__all__ = ["in_column_strips", "shares_columns"]


def shares_columns(product: Contraction, lanes: int, target: Processor) -> bool:
    """Whether the rows of a product make a single tile, and it has work for several threads."""
    if len(product.rows) != 1 or product.rows[0].extent < ENOUGH_ROWS:
        return False
    (rows,), columns = product.rows, product.columns
    cycles = rows.extent * columns.extent * product.depth / lanes
    return (
        cycles >= SHARED_BY * LEAST_SPLIT_CYCLES and choose_tile(product, lanes, target).rows >= rows.extent
    )


def in_column_strips(kernel: Kernel, width: int, outermost: bool) -> list[Kernel]:
    """The kernel in strips of ``width`` turns of its last axis, and one of what they leave over.

    The axis of strips comes first if it is the ``outermost``, otherwise before the turns of a strip.
    """
    found = []
    for (*strips, inside), index in in_strips(kernel.axes[-1], width):
        own = [Axis(axis.name, axis.extent) for axis in kernel.axes[:-1]]
        new = {old: Affine.of(axis) for old, axis in zip(kernel.axes, own)} | {kernel.axes[-1]: index}
        axes = (*strips, *own, inside) if outermost else (*own, *strips, inside)
        found.append(kernel.over(axes, new))
    return found
