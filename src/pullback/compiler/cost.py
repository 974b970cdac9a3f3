"""Estimates of how long a kernel takes, in cycles of one core: good enough to share work out evenly."""

from __future__ import annotations

import math

from pullback.compiler.schedules.contraction import Contraction
from pullback.graph import OPERATORS
from pullback.loops import Apply, Axis, Expression, Kernel, Load, Reduce, walk

__all__ = ["contraction_flops", "kernel_cycles"]

MULTIPLY_ADDS_PER_CYCLE = 2
BYTES_PER_CYCLE = 16
ROW_OVERHEAD = 6


def contraction_flops(product: Contraction) -> int:
    """Multiplications and additions of a product."""
    size = math.prod(axis.extent for axis in product.rows) * product.columns.extent
    return 2 * size * sum(math.prod(axis.extent for axis in pair.depth) for pair in product.pairs)


def kernel_cycles(kernel: Kernel, product: Contraction | None, lanes: int) -> float:
    """Cycles for the whole kernel."""
    outer = math.prod(axis.extent for axis in kernel.axes)
    if product is not None:
        vectors = math.prod(a.extent for a in product.rows) * -(-product.columns.extent // lanes)
        depth = sum(math.prod(axis.extent for axis in pair.depth) for pair in product.pairs)
        read = sum(_bytes_read(pair.right) for pair in product.pairs) / BYTES_PER_CYCLE
        epilogue = sum(_own_cycles(e, lanes) for e in walk(*(s.value for s in product.stores)))
        # A few rows are done as soon as the right operand has arrived.
        return max(vectors * depth / MULTIPLY_ADDS_PER_CYCLE, read) + epilogue * vectors * lanes
    cycles = ROW_OVERHEAD * outer / max(1, kernel.axes[-1].extent if kernel.axes else 1)
    for store in kernel.stores:
        inner = outer * math.prod(axis.extent for axis in store.inner)
        cycles += inner * store.buffer.dtype.itemsize / BYTES_PER_CYCLE
        cycles += sum(outer * _turns(root, store.inner, lanes) for root in store.roots())
    return cycles


def _bytes_read(load: Load) -> int:
    """Bytes of the part of a buffer that a read goes over."""
    turns = math.prod(axis.extent for axis in load.axes)
    return min(turns, load.buffer.size) * load.dtype.itemsize


def _turns(root: Expression, inner: tuple[Axis, ...], lanes: int) -> float:
    """Cycles of everything below ``root``, each expression as often as those loops turn that it depends on."""
    total = 0.0
    seen: set[int] = set()
    stack: list[tuple[Expression, frozenset[Axis]]] = [(root, frozenset(inner))]
    while stack:
        expression, around = stack.pop()
        if id(expression) in seen:
            continue
        seen.add(id(expression))
        turns = math.prod(axis.extent for axis in around if axis in expression.axes)
        total += turns * _own_cycles(expression, lanes)
        if isinstance(expression, Reduce):
            around = around.union(expression.over)
        stack.extend((operand, around) for operand in expression.operands)
    return total


def _own_cycles(expression: Expression, lanes: int) -> float:
    """Cycles of one value of an expression, without its operands."""
    if isinstance(expression, Apply):
        operator = OPERATORS.get(expression.function)
        return (operator.cost if operator is not None else 1.0) / lanes
    if isinstance(expression, Load):
        return 4.0 / lanes if expression.dynamic else 1.0 / lanes
    return 1.0 / lanes if isinstance(expression, Reduce) else 0.0
