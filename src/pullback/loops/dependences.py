"""Dependences: which turns of a kernel use an element that another one stores, and must therefore keep their order.

>>> import numpy as np
>>> from pullback.loops import Affine, Axis, Buffer, Literal
>>> i, j, float32 = Axis("i", 3), Axis("j", 4), np.dtype(np.float32)
>>> total = Buffer("total", float32, (3,))
>>> store = Store(total, Affine.of(i), Literal(1, float32), accumulate="add")
>>> for dependence in dependences(Kernel((i, j), (store,))):
...     print(dependence.signs, dependence)
(0, 1) turns along j meet in an element of total: float32[3]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pullback.loops.expression import Load
from pullback.loops.index import Axis
from pullback.loops.kernel import Kernel, Store, once

__all__ = ["Dependence", "dependences"]

_Term = tuple[int, float, float]
"""A coefficient, and the least and the largest integer that it is multiplied by."""


@dataclass(frozen=True, eq=False)
class Dependence:
    """Two turns use an element that at least one of them stores, or may: not all places are known.

    ``signs`` say for each axis whether the later turn, in the kernel's order, is further on there (1), further back
    (-1) or at the same place (0).
    """

    axes: tuple[Axis, ...]
    signs: tuple[int, ...]
    store: Store
    other: Store | Load

    def sign(self, axis: Axis) -> int:
        """Where along ``axis`` the later turn is."""
        return self.signs[self.axes.index(axis)]

    def __str__(self) -> str:
        along = " and ".join(axis.name for axis, sign in zip(self.axes, self.signs) if sign)
        if isinstance(self.other, Load):
            return f"of turns along {along} one reads what another stores in {self.store.buffer!r}"
        return f"turns along {along} meet in an element of {self.store.buffer!r}"


@once
def dependences(kernel: Kernel) -> tuple[Dependence, ...]:
    """The dependences between different turns of a kernel.

    Stores at computed places that do not accumulate are taken at their word: those of different turns are different.
    """
    if any(axis.extent < 1 for axis in kernel.axes):
        return ()
    written = set(kernel.writes())
    loads = [load for load in kernel.loads() if load.buffer in written]
    pairs: Iterable[tuple[Store, Store | Load]] = itertools.chain(
        itertools.combinations_with_replacement(kernel.stores, 2), itertools.product(kernel.stores, loads)
    )
    found: dict[object, list[Dependence]] = {}
    for store, other in pairs:
        if store.buffer is not other.buffer or _promised(store, other):
            continue
        # Most stores of a kernel with many differ in nothing but how far apart they are.
        alike = store.offset.terms, store.dynamic, other.offset.terms, other.dynamic, type(other)
        key = *alike, other.offset.constant - store.offset.constant
        if key not in found:
            found[key] = [
                Dependence(kernel.axes, s, store, other) for s in _directions(kernel.axes, store, other)
            ]
    return tuple(itertools.chain(*found.values()))


def _promised(store: Store, other: Store | Load) -> bool:
    """Whether two stores are at computed places, and leave it to them not to meet."""
    if isinstance(other, Load) or store.accumulate or other.accumulate:
        return False
    return bool(store.dynamic or other.dynamic)


def _directions(axes: Sequence[Axis], store: Store, other: Store | Load) -> list[tuple[int, ...]]:
    """The signs of the ways from one turn to a later one in which both may use the same element.

    With the other turn ``d`` further on, its place less the store's is a sum of terms, which must be able to be zero.
    """
    if _apart(axes, store, other):
        return []
    mine, its = store.offset.coefficient, other.offset.coefficient
    constant = other.offset.constant - store.offset.constant
    turns: list[_Term] = [(its(axis) - mine(axis), 0, axis.extent - 1) for axis in axes]
    # Loops inside the kernel's are those of each turn for itself.
    for offset, sign in ((store.offset, -1), (other.offset, 1)):
        turns += [(sign * step, 0, axis.extent - 1) for axis, step in offset.terms if axis not in axes]
    computed = [*store.dynamic, *(part for part in other.dynamic if part not in store.dynamic)]
    order = sorted(axes, key=lambda axis: -abs(its(axis)))
    found = set[tuple[int, ...]]()
    undecided: list[dict[Axis, int]] = [{}]
    while undecided:
        signs = undecided.pop()  # those of some axes, the first in order
        terms = [*turns, *((its(axis), *_distances(axis, signs.get(axis))) for axis in axes)]
        for part in computed:
            same = part in store.dynamic and part in other.dynamic
            if not same or any(signs.get(axis, 1) for axis in part[0].axes):
                terms.append((part[1], -math.inf, math.inf))
        if not _may_be_zero(constant, [term for term in terms if term[0]]):
            continue
        if len(signs) < len(order):
            axis = order[len(signs)]
            undecided += [{**signs, axis: sign} for sign in ((0, 1, -1) if axis.extent > 1 else (0,))]
        elif any(signs.values()):
            made = tuple(signs[axis] for axis in axes)
            found.add(max(made, tuple(-sign for sign in made)))
    return sorted(found, key=lambda signs: (sum(map(abs, signs)), signs))


def _apart(axes: Sequence[Axis], store: Store, other: Store | Load) -> bool:
    """Whether every turn has its own element, which both use: the steps of an axis leap over those of all smaller ones.

    So it is with most stores, and with what they read in place; nothing else is asked of them.
    """
    if store.offset != other.offset or store.dynamic or other.dynamic:
        return False
    reach = 0
    for axis, step in sorted(store.offset.terms, key=lambda term: abs(term[1])):
        if abs(step) <= reach:
            return False
        reach += abs(step) * (axis.extent - 1)
    return all(axis.extent == 1 or store.offset.coefficient(axis) for axis in axes)


def _distances(axis: Axis, sign: int | None) -> tuple[int, int]:
    """The least and the largest step along an axis, of one ``sign`` or of any."""
    most = axis.extent - 1
    return {None: (-most, most), 0: (0, 0), 1: (1, most), -1: (-most, -1)}[sign]


def _may_be_zero(constant: int, terms: Sequence[_Term]) -> bool:
    """Whether a sum can be zero as far as bounds tell: as a whole, and modulo each of the coefficients.

    >>> _may_be_zero(0, [(10, 1, 5), (1, -9, 9)]), _may_be_zero(0, [(10, 1, 5), (1, -10, 9)])
    (False, True)
    >>> _may_be_zero(1, [(2, -math.inf, math.inf), (4, 0, 5)])
    False
    """
    for modulus in (0, *(abs(step) for step, _, _ in terms)):
        rest = [term for term in terms if not modulus or term[0] % modulus]
        low = constant + sum(min(step * least, step * most) for step, least, most in rest)
        high = constant + sum(max(step * least, step * most) for step, least, most in rest)
        multiple = high // modulus * modulus if modulus and math.isfinite(high) else 0
        if not low <= multiple <= high:
            return False
    return True
