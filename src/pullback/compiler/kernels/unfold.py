"""Short rows of a convolution's image are put side by side (*im2col*), so that lanes lie along several of them.

A convolution has its lanes along rows of its result. Of an image of six columns these fill six lanes of sixteen. What
windows see is then copied, one element of the sum after another for all places of an image: so places of several rows
lie side by side, and are one axis. Where they do not in the result, as those of a transposed convolution with a stride
lie among others, the sums are stored by themselves first. Whether that pays the cost model says: every copy must be
read by many rows of the other operand.

    for i<32, j<256, k<6, l<6:        y[i, j, 6*k + l] = add[c<20, r<3, s<3](x[i, c, 3*k + r, 3*l + s] * w[j, c, r, s])
    →
    for i<32, c<20, r<3, s<3, k<6, l<6: unfolded[i, c, r, s, 6*k + l] = x[i, c, 3*k + r, 3*l + s]
    for i<32, j<256, l<36:            y[i, j, l] = add[c<20, r<3, s<3](unfolded[i, c, r, s, l] * w[j, c, r, s])
"""

from __future__ import annotations

from pullback.compiler.kernels.canonicalise import coalesced_axes, columns_alone, indices_of, lie_side_by_side
from pullback.compiler.schedules.choose import Schedules
from pullback.compiler.schedules.contraction import contractions, find_contraction
from pullback.compiler.schedules.contraction_schedules import ContractionSchedule
from pullback.compiler.schedules.cost import WORTH_REORDERING
from pullback.compiler.schedules.lanes import filled
from pullback.compiler.schedules.reduction_vectorised import ReductionVectorised
from pullback.loops import Kernel, staged, turns_of

__all__ = ["unfold_short_rows"]


def unfold_short_rows(kernel: Kernel, schedules: Schedules) -> list[Kernel]:
    """The kernel, a product as it takes less time, with copies before it and behind it."""
    product, lanes = find_contraction(kernel), schedules.lanes(kernel)
    if product is None or not isinstance(schedules.of(kernel), ContractionSchedule | ReductionVectorised):
        return [kernel]
    pair, *others = product.pairs
    joined = () if others else columns_alone(kernel.axes, pair.left, pair.right)
    if len(joined) < 2 or filled(joined[-1].extent, lanes) >= filled(turns_of(joined), lanes):
        return [kernel]
    (reduce,) = contractions(kernel)
    before, made, behind = [kernel], [kernel], list[Kernel]()
    if not lie_side_by_side(joined, (i for i in indices_of(kernel) if i is not pair.right.offset)):
        sums, read = staged("sums", reduce, kernel.axes)
        made, behind = [sums], [kernel.with_replaced({reduce: read})]
    if not lie_side_by_side(joined, [pair.right.offset]):
        rows = [axis for axis in product.rows if axis in pair.right.axes and axis not in joined]
        copy, read = staged("unfolded", pair.right, (*rows, *pair.depth, *joined))
        made = [coalesced_axes(copy), made[0].with_replaced({pair.right: read})]
        if pair.right.offset.coefficient(product.columns) != 1:
            before = [copy, kernel]  # it is copied in any case
    made = [*made[:-1], coalesced_axes(made[-1]), *behind]
    cycles, cycles_before = (
        sum(schedules.of(each).cycles(each, schedules.target) for each in some) for some in (made, before)
    )
    return made if cycles < WORTH_REORDERING * cycles_before else [kernel]
