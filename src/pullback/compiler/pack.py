"""Right operands whose rows do not lie along the columns are copied into an order in which they do.

A product reads whole vectors of its right operand. Where a gradient needs ``wᵀ``, a small kernel writes the transposed
copy once, for all products that read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from pullback.compiler.form import Form
from pullback.compiler.products import Pair, Product
from pullback.compiler.tidy import joined_axes
from pullback.loops import (
    Affine,
    Axis,
    Buffer,
    Expression,
    Kernel,
    Load,
    Store,
    rewrite,
    row_major,
)

__all__ = ["pack"]


def pack(kernels: Iterable[Kernel], form_of: Callable[[Kernel], Form]) -> list[Kernel]:
    """The kernels with transposed copies of operands put before their first users.

    Large products pack their right operands by themselves, in whichever of two orders they lie; there it is the left
    operand that must lie along the summed axis.
    """
    copies: dict[tuple[object, ...], Buffer] = {}
    program: list[Kernel] = []
    for kernel in kernels:
        form = form_of(kernel)
        product, blocked = form.product, form.blocking is not None
        if product is None:
            program.append(kernel)
            continue
        replaced: dict[Load, Expression] = {}
        for pair in product.pairs:
            for load, axes in _turned(product, pair, blocked):
                if load not in replaced:
                    replaced[load] = _copied(load, axes, copies, program)
        if replaced:
            memo: dict[int, Expression] = {}
            stores = tuple(replace(s, value=rewrite(s.value, {}, replaced, memo)) for s in kernel.stores)
            program.append(kernel.with_stores(stores))
        else:
            program.append(kernel)
    return program


def _turned(product: Product, pair: Pair, blocked: bool) -> Iterator[tuple[Load, list[Axis]]]:
    """The operands of a pair to copy, each with its axes in the order in which they should lie."""
    along = pair.right.offset.coefficient
    if along(product.columns) != 1 and not (blocked and along(pair.depth[-1]) == 1):
        yield (
            pair.right,
            [a for a in (*product.rows, *pair.depth) if a in pair.right.axes] + [product.columns],
        )
    if blocked and pair.left.offset.coefficient(pair.depth[-1]) != 1:
        yield pair.left, [axis for axis in (*product.rows, *pair.depth) if axis in pair.left.axes]


def _copied(
    load: Load, axes: list[Axis], copies: dict[tuple[object, ...], Buffer], program: list[Kernel]
) -> Load:
    """The read of a copy of ``load`` in which ``axes`` lie in order; made on first use."""
    terms = tuple((axis.extent, load.offset.coefficient(axis)) for axis in axes)
    key = (load.buffer, load.offset.constant, terms)
    if key not in copies:
        *outer, row = (axis.extent for axis in axes)
        copies[key] = Buffer(f"packed{len(copies)}", load.dtype, (*outer, _pitch(row, load.dtype.itemsize)))
        program.append(_copy(load, axes, copies[key]))
    return Load(
        copies[key], Affine.total(Affine.of(a) * s for a, s in zip(axes, row_major(copies[key].shape)))
    )


LINE = 64
"""Bytes of a line of the cache."""


def _pitch(row: int, itemsize: int) -> int:
    """Elements from one row of a copy to the next: whole lines, an odd number of them if they are many.

    Vectors that lie across two lines are read twice, and rows a power of two apart would share few places of the cache.
    """
    lines = -(-row * itemsize // LINE)
    if lines < 8:
        return row
    return (lines | 1) * LINE // itemsize


def _copy(load: Load, axes: list[Axis], target: Buffer) -> Kernel:
    """``target[axes] = load``, with axes of its own."""
    own = tuple(Axis(axis.name, axis.extent) for axis in axes)
    source = load.offset.replace({old: Affine.of(new) for old, new in zip(axes, own)})
    offset = Affine.total(Affine.of(axis) * stride for axis, stride in zip(own, row_major(target.shape)))
    return joined_axes(Kernel(own, (Store(target, offset, Load(load.buffer, source)),)))
