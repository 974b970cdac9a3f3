"""Convolutions that are computed where they are pooled.

Where nobody needs a convolution but the maxima of windows that do not overlap, each of its elements is used once, and
the kernel of the maxima computes it: ``codegen/windows.py`` does so in registers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pullback.compiler.passes.rewriting import inner
from pullback.compiler.passes.sparse_pooling import do_not_overlap
from pullback.compiler.schedules.cost import ENOUGH_WINDOW_ROWS, LEAST_FILLED, MOST_TAPS, MOST_WINDOW_SUMS
from pullback.compiler.schedules.lanes import filled
from pullback.compiler.schedules.window_maximum import rows_at_once
from pullback.compiler.target import Processor
from pullback.graph import Node, Operation

__all__ = ["pooled_convolutions"]


def pooled_convolutions(order: Sequence[Node], count: Mapping[int, int], target: Processor) -> set[int]:
    """The nodes, by ``id``, from convolutions up to what is pooled, that need no memory of their own.

    ``count`` says how often each is read.
    """
    pools: dict[int, list[Operation]] = {}
    for node in order:
        if isinstance(node, Operation) and node.operator.name in ("window_max", "window_argmax"):
            pools.setdefault(id(node.inputs[0]), []).append(node)
    found: set[int] = set()
    for readers in pools.values():
        if len({tuple(node.attributes.items()) for node in readers}) == 1 and _suits(readers[0]):
            chain = _chain(readers[0].inputs[0], len(readers), count)
            if chain is not None and _fills_lanes(chain[-1], readers[0], target):
                found.update(map(id, chain))
    return found


def _suits(pool: Operation) -> bool:
    """Whether the windows are few-sized, lie along the last axis, and do not overlap."""
    axes, few = pool.attributes["axes"], math.prod(pool.attributes["sizes"]) <= MOST_WINDOW_SUMS
    return bool(axes[-1:] == (pool.ndim - 1,) and pool.size and few and do_not_overlap(pool.attributes))


def _chain(node: Node, readers: int, count: Mapping[int, int]) -> list[Operation] | None:
    """Elementwise operations from what is pooled down to one convolution, needed by nobody else."""
    chain: list[Operation] = []
    while isinstance(node, Operation) and count[id(node)] == readers:
        chain.append(node)
        if node.operator.name == "convolve":
            return chain
        if not node.operator.elementwise:
            return None
        wide = [child for child in node.inputs if inner(child, "broadcast") is None]
        if len(wide) != 1:
            return None
        node, readers = wide[0], 1
    return None


def _fills_lanes(convolution: Operation, pool: Operation, target: Processor) -> bool:
    """Whether the lanes lie along the image, and windows leave them filled nearly as well."""
    layout, (_, w) = convolution.attributes["out_layout"], convolution.inputs
    outputs = convolution.attributes["w_layout"].index("o")
    if not layout[-1].isdigit() or w.shape[outputs] == 1:
        return False
    step = convolution.attributes["strides"][int(layout[-1])] * pool.attributes["strides"][-1]
    lanes = target.lanes(convolution.dtype.itemsize)
    pooled, plain = filled(pool.shape[-1], lanes), filled(convolution.shape[-1], lanes)
    if step > target.gather_vectors or pooled < LEAST_FILLED * plain:
        return False
    # What a window reads of the image is picked out of vectors: for few rows that pays only where sums are short.
    rows = rows_at_once(math.prod(pool.attributes["sizes"]), target)
    return rows >= ENOUGH_WINDOW_ROWS or w.size // w.shape[outputs] <= MOST_TAPS
