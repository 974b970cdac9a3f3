"""Right operands whose rows do not lie along the columns are copied into an order in which they do.

A product reads whole vectors of its right operand. Where a gradient needs ``wᵀ``, a small kernel writes the transposed
copy once, for all products that read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pullback.compiler.products import find_product
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


def pack(kernels: Iterable[Kernel]) -> list[Kernel]:
    """The kernels with transposed copies of operands put before their first users."""
    copies: dict[tuple[object, ...], Buffer] = {}
    program: list[Kernel] = []
    for kernel in kernels:
        product = find_product(kernel)
        if product is None:
            program.append(kernel)
            continue
        replaced: dict[Load, Expression] = {}
        for pair in product.pairs:
            load, columns = pair.right, product.columns
            if load.offset.coefficient(columns) == 1 or load in replaced:
                continue
            axes = [axis for axis in (*product.rows, *pair.depth) if axis in load.axes] + [columns]
            terms = tuple((axis.extent, load.offset.coefficient(axis)) for axis in axes)
            key = (load.buffer, load.offset.constant, terms)
            if key not in copies:
                copies[key] = Buffer(f"packed{len(copies)}", load.dtype, tuple(axis.extent for axis in axes))
                program.append(_copy(load, axes, copies[key]))
            strides = row_major(copies[key].shape)
            offset = Affine.total(Affine.of(axis) * stride for axis, stride in zip(axes, strides))
            replaced[load] = Load(copies[key], offset)
        if replaced:
            memo: dict[int, Expression] = {}
            stores = tuple(replace(s, value=rewrite(s.value, {}, replaced, memo)) for s in kernel.stores)
            kernel = kernel.with_stores(stores)
        program.append(kernel)
    return program


def _copy(load: Load, axes: list[Axis], target: Buffer) -> Kernel:
    """``target[axes] = load``, with axes of its own."""
    own = tuple(Axis(axis.name, axis.extent) for axis in axes)
    source = load.offset.replace({old: Affine.of(new) for old, new in zip(axes, own)})
    offset = Affine.total(Affine.of(axis) * stride for axis, stride in zip(own, row_major(target.shape)))
    return Kernel(own, (Store(target, offset, Load(load.buffer, source)),))
