"""Nests: a kernel's loops, each of a kind, and the moves that a schedule is made of.

A nest begins as a serial loop for each axis. A move is a pure function from a nest to another one; what it does to the
loops is shown by its example, and one that would change what the kernel means is refused with the dependence that
forbids it. However its loops are moved, each turn of the kernel is in exactly one tile: what is left of every axis
inside the innermost loop, of which the register axes are taken side by side and the vector axis in lanes.

>>> from pullback.loops import Affine, Buffer, Load, Store
>>> import numpy as np
>>> i, j = Axis("i", 10), Axis("j", 100)
>>> x, y = (Buffer(name, np.dtype(np.float32), (10, 100)) for name in "xy")
>>> index = Affine.of(i) * 100 + Affine.of(j)
>>> nest = nest_of(Kernel((i, j), (Store(y, index, Load(x, index)),)))
>>> print(nest)
serial i; serial j
>>> print(vectorise(split(parallelise(nest, i), j, strips_of(100, 32)), j, 8))
parallel i; serial j by 32·3 + 4; vector j of 8
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.errors import LoopError
from pullback.loops.index import Axis, turns_of
from pullback.loops.kernel import Kernel, Store

__all__ = [
    "Kind",
    "Level",
    "Nest",
    "Strips",
    "keep",
    "level_of",
    "levels_over",
    "nest_of",
    "parallelise",
    "reorder",
    "split",
    "strips_of",
    "unroll",
    "vectorise",
    "vectors_over",
]

Strips = tuple[tuple[int, int], ...]
"""Lengths of the parts of an axis and how many there are of each, from its start on."""


class Kind(enum.Enum):
    """What becomes of the turns of a loop."""

    PARALLEL = "parallel"
    """Threads share them out."""
    SERIAL = "serial"
    """A loop in the code."""
    UNROLLED = "unrolled"
    """Code for each."""
    REGISTER = "register"
    """Side by side: what several of them read is read once, and their sums are kept together."""
    VECTOR = "vector"
    """The lanes of vectors."""


@dataclass(frozen=True)
class Level:
    """One loop of a nest: over ``strips`` of an axis, or, as registers or ``lanes``, over the turns of a strip."""

    axis: Axis
    kind: Kind
    strips: Strips = ()
    lanes: int = 0

    def __str__(self) -> str:
        parts = " + ".join(f"{n}·{count}" if count > 1 else str(n) for n, count in self.strips)
        by = f" by {parts}" if any(length > 1 for length, _ in self.strips) else ""
        return f"{self.kind.value} {self.axis.name}{by}{f' of {self.lanes}' if self.lanes else ''}"


@dataclass(frozen=True)
class Nest:
    """The loops around a kernel's tiles, the outermost first, and then those inside a tile."""

    kernel: Kernel
    levels: tuple[Level, ...]

    @property
    def vector(self) -> Axis | None:
        """The axis that the lanes lie along."""
        return next((level.axis for level in self.levels if level.kind is Kind.VECTOR), None)

    def parts(self, low: int, high: int) -> Iterator[Mapping[Axis, range]]:
        """Full strips, and what is left of them, as turns of each axis; of a parallel one those from ``low`` on."""
        cuts = []
        for level in self.levels:
            start, found = 0, list[tuple[Axis, range]]()
            strips = level.strips
            if level.kind is Kind.PARALLEL:
                start, strips = low, strips_of(high - low, strips[0][0])
            for length, count in strips:
                found.append((level.axis, range(start, start + length * count)))
                start += length * count
            cuts += [found] if found else []
        yield from (dict(part) for part in itertools.product(*cuts))

    def __str__(self) -> str:
        return "; ".join(map(str, self.levels))


def strips_of(extent: int, size: int, even: bool = False) -> Strips:
    """Strips of ``size`` and a shorter one for what is left, or as few, but ``even`` ones, the longer ones first.

    >>> strips_of(23, 6), strips_of(23, 6, even=True)
    (((6, 3), (5, 1)), ((6, 3), (5, 1)))
    >>> strips_of(13, 6), strips_of(13, 6, even=True)
    (((6, 2), (1, 1)), ((5, 1), (4, 2)))
    """
    if even:
        count = -(-extent // size)
        short, longer = divmod(extent, count)
        pairs = [(short + 1, longer), (short, count - longer)]
    else:
        pairs = [(size, extent // size), (extent % size, 1)]
    return tuple((length, count) for length, count in pairs if length and count)


def level_of(axis: Axis, kind: Kind = Kind.SERIAL, size: int = 1, even: bool = False) -> Level:
    """A loop over ``axis`` in strips of ``size``."""
    return Level(axis, kind, strips_of(axis.extent, size, even))


def levels_over(axes: Sequence[Axis], most: int = 0) -> list[Level]:
    """A loop over each of some axes; those whose turns, with all inside, are no more than ``most`` are unrolled.

    >>> print(*levels_over([Axis("i", 3), Axis("j", 4), Axis("k", 2)], most=8), sep="; ")
    serial i; unrolled j; unrolled k
    """
    turns = [turns_of(axes[k:]) for k in range(len(axes))]
    return [level_of(a, Kind.UNROLLED if n <= most else Kind.SERIAL) for a, n in zip(axes, turns)]


def vectors_over(axis: Axis, lanes: int, most_unrolled: int = 1) -> list[Level]:
    """A loop over vectors along ``axis``, the last one with the lanes that are left; a few whole ones are unrolled.

    >>> print(*vectors_over(Axis("i", 27), 8), sep="; ")
    serial i by 8·3 + 3; vector i of 8
    """
    kind = Kind.UNROLLED if axis.extent // lanes <= most_unrolled else Kind.SERIAL
    return [level_of(axis, kind, lanes), Level(axis, Kind.VECTOR, lanes=lanes)]


def nest_of(kernel: Kernel) -> Nest:
    """A serial loop for each axis, in the kernel's order, which is always right."""
    return Nest(kernel, tuple(levels_over(kernel.axes)))


def split(nest: Nest, axis: Axis, strips: Strips) -> Nest:
    """The loop over ``axis`` goes on by strips; their turns are side by side."""
    if sum(length * count for length, count in strips) != axis.extent or any(n < 1 for n, _ in strips):
        raise LoopError(f"strips {strips} do not make the {axis.extent} turns of {axis.name}")
    return _with(nest, replace(_level(nest, axis), strips=strips))


def keep(nest: Nest, axis: Axis) -> Nest:
    """The turns of a strip of ``axis`` stand in registers side by side.

    >>> i, j = Axis("i", 7), Axis("j", 5)
    >>> print(keep(split(nest_of(Kernel((i, j), ())), i, ((3, 2), (1, 1))), i))
    serial i by 3·2 + 1; serial j; register i
    """
    return _inside(nest, Level(axis, Kind.REGISTER))


def vectorise(nest: Nest, axis: Axis, lanes: int) -> Nest:
    """The turns of a strip of ``axis`` are the lanes of vectors, of which a strip may have several.

    >>> from pullback.loops import Affine, Buffer, Literal, Store
    >>> import numpy as np
    >>> i, float32 = Axis("i", 8), np.dtype(np.float32)
    >>> store = Store(Buffer("total", float32, ()), Affine(), Literal(1, float32), accumulate="add")
    >>> vectorise(nest_of(Kernel((i,), (store,))), i, 8)
    Traceback (most recent call last):
    ...
    pullback.errors.LoopError: i cannot be lanes: its turns meet in one element of total: float32[]
    """
    store = _meeting(nest.kernel, axis)
    if store is not None:
        raise LoopError(f"{axis.name} cannot be lanes: its turns meet in one element of {store.buffer!r}")
    return _inside(nest, Level(axis, Kind.VECTOR, lanes=lanes))


def unroll(nest: Nest, axis: Axis) -> Nest:
    """Each strip of ``axis`` has code of its own."""
    return _with(nest, replace(_level(nest, axis), kind=Kind.UNROLLED))


def parallelise(nest: Nest, axis: Axis) -> Nest:
    """Threads share out the turns of ``axis``: those that a call is given."""
    store = _meeting(nest.kernel, axis)
    if store is not None:
        raise LoopError(f"{axis.name} cannot be parallel: its turns meet in one element of {store.buffer!r}")
    return _with(nest, replace(_level(nest, axis), kind=Kind.PARALLEL))


def reorder(nest: Nest, axes: Sequence[Axis]) -> Nest:
    """The loops over ``axes`` in this order, in the places that they have now.

    >>> i, j, k = (Axis(name, 2) for name in "ijk")
    >>> print(reorder(nest_of(Kernel((i, j, k), ())), [k, i]))
    serial k; serial j; serial i
    """
    moved = iter([_level(nest, axis) for axis in axes])
    levels = tuple(next(moved) if level.strips and level.axis in axes else level for level in nest.levels)
    order = [level.axis for level in levels if level.strips]
    for first, second in itertools.combinations(nest.kernel.axes, 2):
        store = _meeting(nest.kernel, first)
        swapped = order.index(first) > order.index(second)
        if swapped and store is not None and store is _meeting(nest.kernel, second):
            raise LoopError(
                f"{second.name} cannot go outside {first.name}: the turns of both meet in elements of "
                f"{store.buffer!r}, which take them in order"
            )
    return Nest(nest.kernel, levels)


def _level(nest: Nest, axis: Axis) -> Level:
    found = [level for level in nest.levels if level.axis is axis and level.strips]
    if not found:
        raise LoopError(f"the nest has no loop over {axis.name}: {nest}")
    return found[0]


def _with(nest: Nest, new: Level) -> Nest:
    old = _level(nest, new.axis)
    return replace(nest, levels=tuple(new if level is old else level for level in nest.levels))


def _inside(nest: Nest, level: Level) -> Nest:
    """The nest with one more loop inside the tile."""
    _level(nest, level.axis)
    if any(known.axis is level.axis and not known.strips for known in nest.levels):
        raise LoopError(f"the turns of a strip of {level.axis.name} are in the tile already: {nest}")
    return replace(nest, levels=(*nest.levels, level))


def _meeting(kernel: Kernel, axis: Axis) -> Store | None:
    """A store in whose elements several turns of ``axis`` may meet, one after another."""
    for store in kernel.stores:
        moved = any(axis in index.axes for index, _ in store.dynamic)
        if store.accumulate and axis not in store.inner and (moved or not store.offset.coefficient(axis)):
            return store
    return None
