"""Recognising matrix products among kernels: one accumulator, several pairs of operands, an epilogue.

``h = tanh(x @ wx + g @ wh + b)`` is one product of two pairs whose epilogue adds ``b`` and takes the tanh; a gradient
summed over time is one product with a pair for each time step. Nothing is concatenated for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.loops import (
    Apply,
    Axis,
    Expression,
    Kernel,
    Load,
    Placeholder,
    Reduce,
    Store,
    fused,
    fused_product,
    once,
    operands_of,
    turns_of,
    usual_parts,
    walk,
)

__all__ = ["Contraction", "Pair", "contractions", "find_contraction", "is_contraction", "with_accumulator"]


@dataclass(frozen=True, eq=False)
class Pair:
    """``sum over k of left[…, k] * right[k, …]``; ``depth`` are the summed axes."""

    left: Load
    right: Load
    depth: tuple[Axis, ...]


@dataclass(frozen=True, eq=False)
class Contraction:
    """A kernel whose stores are functions of one accumulated sum of products.

    ``columns`` is the axis along the vector lanes, absent from every pair's left operand.
    ``rows`` are the kernel's other axes, in order.
    """

    rows: tuple[Axis, ...]
    columns: Axis
    pairs: tuple[Pair, ...]
    accumulator: Placeholder
    stores: tuple[Store, ...]

    @property
    def depth(self) -> int:
        """How many products each sum adds up."""
        return sum(turns_of(pair.depth) for pair in self.pairs)


def is_contraction(expression: Expression) -> bool:
    """Whether the expression is a sum of products of two plain reads, one of which each outer axis belongs to."""
    if not isinstance(expression, Reduce) or not expression.adds_floats:
        return False
    factors = operands_of(expression.body, "multiply")
    if not factors or not all(isinstance(e, Load) and e.is_plain for e in factors):
        return False
    (left, right), over = factors, set(expression.over)
    return bool(left.axes - right.axes - over) and bool(right.axes - left.axes - over)


@once
def contractions(kernel: Kernel) -> list[Reduce]:
    """The contractions that a kernel's stores are made of, but for what rare cases alone need."""
    found = [e for e in kernel.reductions if is_contraction(e)]
    usual = set(usual_parts(*(store.value for store in kernel.stores))) if found else set()
    return [e for e in found if e in usual]


@once
def find_contraction(kernel: Kernel) -> Contraction | None:
    """The kernel as one product with an epilogue, or ``None`` if it is not of that form."""
    found = contractions(kernel)
    if not found or not kernel.axes or not kernel.is_plain:
        return None
    columns = kernel.axes[-1]
    if any(not store.offset.coefficient(columns) for store in kernel.stores):
        return None
    pairs = [_oriented(reduce, columns) for reduce in found]
    if any(pair is None for pair in pairs) or len({reduce.dtype for reduce in found}) > 1:
        return None
    root = _accumulation(kernel, found)
    if root is None or len(kernel.reductions) > len(found):
        return None
    placeholder, stores = with_accumulator(kernel, found, root)
    return Contraction(
        kernel.axes[:-1], columns, tuple(pair for pair in pairs if pair is not None), placeholder, stores
    )


def with_accumulator(
    kernel: Kernel, found: list[Reduce], root: Expression | None = None
) -> tuple[Placeholder, tuple[Store, ...]]:
    """The kernel's stores with the sum of the contractions ``found``, terms of ``root``, as a placeholder."""
    placeholder, whole = Placeholder("accumulator", kernel.axes, found[0].dtype), root or found[0]
    unrounded = {e.operands[k] for e in walk(whole) if (k := fused_product(e)) is not None}

    def accumulated(part: Expression) -> Expression:
        if part is not whole:
            return part
        new: Expression = placeholder
        for leaf in _leaves(whole):
            if leaf not in found:
                total = Apply("add", (new, leaf), whole.dtype)
                new = fused(total) if leaf in unrounded else total
        return new

    return placeholder, kernel.with_parts(accumulated).stores


def _oriented(reduce: Reduce, columns: Axis) -> Pair | None:
    """The pair with the operand that runs along the columns on the right."""
    assert isinstance(reduce.body, Apply)
    left, right = reduce.body.operands
    assert isinstance(left, Load) and isinstance(right, Load)
    if columns in left.axes:
        left, right = right, left
    if columns in left.axes or columns not in right.axes:
        return None
    return Pair(left, right, reduce.over)


def _leaves(expression: Expression) -> list[Expression]:
    """The terms of a tree of additions, from left to right."""
    terms = operands_of(expression, "add")
    return [leaf for term in terms for leaf in _leaves(term)] or [expression]


def _accumulation(kernel: Kernel, found: list[Reduce]) -> Expression | None:
    """The sum that all contractions are terms of, if they are used nowhere else."""
    if len(found) == 1:
        return found[0]
    wanted = {id(reduce) for reduce in found}
    uses = {id(reduce): 0 for reduce in found}
    root: Expression | None = None
    for expression in kernel.expressions():
        for operand in expression.operands:
            if id(operand) in uses:
                uses[id(operand)] += 1
        if operands_of(expression, "add"):
            leaves = [id(leaf) for leaf in _leaves(expression)]
            if root is None and wanted <= set(leaves) and len(leaves) == len(set(leaves)):
                root = expression
    stored = {id(store.value) for store in kernel.stores}
    if root is None or any(count != 1 for count in uses.values()) or stored & wanted:
        return None
    partial = [e for e in walk(root) if e is not root and operands_of(e, "add")]
    inner = {id(e) for e in partial if wanted & {id(leaf) for leaf in _leaves(e)}}
    outside = [o for e in kernel.expressions() if id(e) not in inner and e is not root for o in e.operands]
    if any(id(operand) in inner for operand in outside) or stored & inner:
        return None  # a partial sum is needed by itself
    return root
