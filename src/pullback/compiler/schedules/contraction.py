"""Recognising matrix products among kernels: one accumulator, several pairs of operands, an epilogue.

``h = tanh(x @ wx + g @ wh + b)`` is one product of two pairs whose epilogue adds ``b`` and takes the tanh; a gradient
summed over time is one product with a pair for each time step. Nothing is concatenated for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pullback.loops import (
    Affine,
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

__all__ = [
    "Contraction",
    "Pair",
    "contraction_of",
    "contractions",
    "factors_of",
    "find_contraction",
]


@dataclass(frozen=True, eq=False)
class Pair:
    """``sum over k of left[…, k] * right[k, …]``; ``depth`` are the summed axes."""

    left: Load
    right: Load
    depth: tuple[Axis, ...]

    def along(self, places: Mapping[Axis, Affine], depth: tuple[Axis, ...]) -> Pair:
        """The same sum over other axes, from which old ones have their ``places``."""
        left, right = (Load(load.buffer, load.offset.replace(places)) for load in (self.left, self.right))
        return Pair(left, right, depth)


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


def factors_of(reduce: Reduce) -> Pair | None:
    """The operands of a sum of products of two plain reads."""
    factors = operands_of(reduce.body, "multiply") if reduce.adds_floats else ()
    reads = [e for e in factors if isinstance(e, Load) and e.is_plain]
    return Pair(reads[0], reads[1], reduce.over) if len(reads) == 2 else None


def contraction_of(reduce: Reduce) -> Pair | None:
    """The operands of a sum of products of two plain reads, if each has an outer axis of its own."""
    pair = factors_of(reduce)
    if pair is None:
        return None
    left, right = (load.axes.difference(reduce.over) for load in (pair.left, pair.right))
    return pair if left - right and right - left else None


@once
def contractions(kernel: Kernel) -> dict[Reduce, Pair]:
    """The contractions that a kernel's stores are made of, but for what rare cases alone need, and their operands."""
    found = {e: pair for e in kernel.reductions if (pair := contraction_of(e))}
    usual = set(usual_parts(*(store.value for store in kernel.stores))) if found else set()
    return {e: pair for e, pair in found.items() if e in usual}


@once
def find_contraction(kernel: Kernel) -> Contraction | None:
    """The kernel as one product with an epilogue, or ``None`` if it is not of that form."""
    found = contractions(kernel)
    if not found or not kernel.axes or not kernel.is_plain:
        return None
    *rows, columns = kernel.axes
    pairs = tuple(filter(None, (_oriented(pair, columns) for pair in found.values())))
    root = _accumulation(kernel, [*found])
    if len(pairs) < len(found) or root is None or len(kernel.reductions) > len(found):
        return None
    return Contraction(tuple(rows), columns, pairs, *_with_accumulator(kernel, found, root))


def _with_accumulator(
    kernel: Kernel, found: Collection[Reduce], whole: Expression
) -> tuple[Placeholder, tuple[Store, ...]]:
    """The kernel's stores with the sum of the contractions ``found``, terms of the ``whole``, as a placeholder."""
    placeholder = Placeholder("accumulator", kernel.axes, whole.dtype)
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


def _oriented(pair: Pair, columns: Axis) -> Pair | None:
    """The pair with the operand that runs along the columns, which the other one does not, on the right."""
    if columns in pair.left.axes:
        pair = Pair(pair.right, pair.left, pair.depth)
    return pair if columns in pair.right.axes - pair.left.axes else None


def _leaves(expression: Expression) -> list[Expression]:
    """The terms of a tree of additions, from left to right."""
    terms = operands_of(expression, "add")
    return [leaf for term in terms for leaf in _leaves(term)] or [expression]


def _accumulation(kernel: Kernel, found: Sequence[Reduce]) -> Expression | None:
    """The sum that all contractions are terms of, if they and the partial sums around them are used nowhere else."""
    wanted = set(found)
    for root in kernel.expressions():
        terms = _leaves(root)
        if wanted <= set(terms) and len(terms) == len(set(terms)):
            break
    else:
        return None
    inner = {e for e in walk(root) if e is not root and not wanted.isdisjoint(_leaves(e))}
    outside = [e for e in kernel.expressions() if e not in inner and e is not root]
    used = {store.value for store in kernel.stores}.union(*(e.operands for e in outside))
    return root if inner.isdisjoint(used) else None
