"""Nests: a kernel's loops, each of a kind, and the moves that a schedule is made of.

A nest begins as a serial loop for each axis. A move is a pure function from a nest to another one; what it does to the
loops is shown by its example, and one that would change what the kernel means is refused with the dependence that
forbids it. However its loops are moved, each turn of the kernel is in exactly one tile, which is inside all loops: the
strips of the register axes, whose turns stand side by side, and of the vector axis, whose turns are lanes. The turns of
a tile may read before any of them stores.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pullback.errors import LoopError
from pullback.loops.dependences import Dependence, dependences
from pullback.loops.index import Axis, turns_of
from pullback.loops.kernel import Kernel

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
    """Code for each: a short loop inside a tile."""
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

    @property
    def tile(self) -> frozenset[Axis]:
        """The axes of which a tile has a strip."""
        return frozenset(level.axis for level in self.levels if not level.strips)

    @property
    def grain(self) -> int:
        """Turns of the parallel loop that a whole tile takes.

        >>> i = Axis("i", 20)
        >>> rows = parallelise(nest_of(Kernel((i,), ())), i)
        >>> rows.grain, keep(split(rows, i, strips_of(20, 6)), i).grain
        (1, 6)
        """
        parallel = [level for level in self.levels if level.strips and level.kind is Kind.PARALLEL]
        return parallel[0].strips[0][0] if parallel and parallel[0].axis in self.tile else 1

    def tiles(self, low: int, high: int, together: bool = False) -> Iterator[dict[Axis, range]]:
        """The turns of each tile, in the order of the loops; of a parallel loop those from ``low`` to ``high``.

        The axes are in the order in which the turns of a tile are stored: the lanes come last. ``together`` takes the
        full strips of each axis as one, which is no order, but has each turn once as well.

        >>> i, j = Axis("i", 5), Axis("j", 2)
        >>> nest = keep(split(nest_of(Kernel((i, j), ())), i, strips_of(5, 3)), i)
        >>> for tile in nest.tiles(0, 5):
        ...     print(tile)
        {i<5: range(0, 3), j<2: range(0, 1)}
        {i<5: range(0, 3), j<2: range(1, 2)}
        {i<5: range(3, 5), j<2: range(0, 1)}
        {i<5: range(3, 5), j<2: range(1, 2)}
        """
        loops = {level.axis: self._turns(level, low, high, together) for level in self.levels if level.strips}
        for turns in itertools.product(*loops.values()):
            tile = dict(zip(loops, turns))
            if self.vector is not None:
                tile[self.vector] = tile.pop(self.vector)
            yield tile

    def _turns(self, level: Level, low: int, high: int, together: bool) -> list[range]:
        """What each turn of a loop has of its axis: a strip of a tile, or a single turn; or all equal strips."""
        start, strips, found = 0, level.strips, list[range]()
        if level.kind is Kind.PARALLEL:
            start, strips = low, strips_of(high - low, strips[0][0])
        for length, count in strips:
            stop = start + length * count
            step = length * count if together else length if level.axis in self.tile else 1
            found += [range(first, first + step) for first in range(start, stop, step)]
            start = stop
        return found

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


def level_of(axis: Axis, kind: Kind = Kind.SERIAL, size: int = 1) -> Level:
    """A loop over ``axis`` in strips of ``size``."""
    return Level(axis, kind, strips_of(axis.extent, size))


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
    """The loop over ``axis`` goes by strips; their turns follow one another until they are kept or vectorised.

    >>> i, j = Axis("i", 7), Axis("j", 5)
    >>> print(split(nest_of(Kernel((i, j), ())), i, ((3, 2), (1, 1))))
    serial i by 3·2 + 1; serial j
    """
    if sum(length * count for length, count in strips) != axis.extent or any(n < 1 for n, _ in strips):
        raise LoopError(f"strips {strips} do not make the {axis.extent} turns of {axis.name}")
    return _with(nest, replace(_level(nest, axis), strips=strips))


def keep(nest: Nest, axis: Axis) -> Nest:
    """The turns of a strip of ``axis`` stand in registers side by side, inside all loops.

    >>> i, j = Axis("i", 7), Axis("j", 5)
    >>> nest = split(nest_of(Kernel((i, j), ())), i, ((3, 2), (1, 1)))
    >>> print(keep(nest, i))
    serial i by 3·2 + 1; serial j; register i

    Nothing may depend on the turns of the loops between being done first:

    >>> from pullback.loops import Affine, Buffer, Literal, Store
    >>> import numpy as np
    >>> store = Store(Buffer("total", np.dtype(np.int64), ()), Affine(), Literal(1, np.int64), accumulate="add")
    >>> keep(nest_of(Kernel((i, j), (store,))), i)
    Traceback (most recent call last):
    ...
    pullback.errors.LoopError: i cannot be in registers: turns along i meet in an element of total: int64[]
    """
    return _checked(_inside(nest, Level(axis, Kind.REGISTER)), f"{axis.name} cannot be in registers")


def vectorise(nest: Nest, axis: Axis, lanes: int) -> Nest:
    """The turns of a strip of ``axis`` are the lanes of vectors, of which a strip may have several.

    >>> from pullback.loops import Affine, Buffer, Load, Store
    >>> import numpy as np
    >>> i, y = Axis("i", 16), Buffer("y", np.dtype(np.float32), (17,))
    >>> print(vectorise(split(nest_of(Kernel((i,), ())), i, strips_of(16, 8)), i, 8))
    serial i by 8·2; vector i of 8
    >>> store = Store(y, Affine.of(i) + 1, Load(y, Affine.of(i)))
    >>> vectorise(nest_of(Kernel((i,), (store,))), i, 8)
    Traceback (most recent call last):
    ...
    pullback.errors.LoopError: i cannot be lanes: of turns along i one reads what another stores in y: float32[17]
    """
    if nest.vector is not None:
        raise LoopError(f"{axis.name} cannot be lanes: those of {nest.vector.name} are")
    return _checked(_inside(nest, Level(axis, Kind.VECTOR, lanes=lanes)), f"{axis.name} cannot be lanes")


def parallelise(nest: Nest, axis: Axis) -> Nest:
    """Threads share out the turns of ``axis``: those that a call is given.

    >>> i, j = Axis("i", 7), Axis("j", 5)
    >>> print(parallelise(nest_of(Kernel((i, j), ())), i))
    parallel i; serial j
    """
    shared = next((level.axis for level in nest.levels if level.kind is Kind.PARALLEL), axis)
    if shared is not axis:
        raise LoopError(f"{axis.name} cannot be parallel: the turns of {shared.name} are shared out")
    new = _with(nest, replace(_level(nest, axis), kind=Kind.PARALLEL))
    return _checked(new, f"{axis.name} cannot be parallel")


def reorder(nest: Nest, axes: Sequence[Axis]) -> Nest:
    """The loops over ``axes`` in this order, in the places that they have now.

    >>> i, j, k = (Axis(name, 2) for name in "ijk")
    >>> print(reorder(nest_of(Kernel((i, j, k), ())), [k, i]))
    serial k; serial j; serial i
    """
    moved = iter([_level(nest, axis) for axis in axes])
    levels = tuple(next(moved) if level.strips and level.axis in axes else level for level in nest.levels)
    order = ", ".join(level.axis.name for level in levels if level.strips)
    return _checked(Nest(nest.kernel, levels), f"loops cannot be in the order {order}")


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
    if level.axis in nest.tile:
        raise LoopError(f"the turns of a strip of {level.axis.name} are in the tile already: {nest}")
    return replace(nest, levels=(*nest.levels, level))


def _checked(nest: Nest, refusal: str) -> Nest:
    """The nest, if the turns of every dependence run in their order, of whatever length its strips are."""
    for dependence in dependences(nest.kernel):
        if not _in_order(nest, dependence):
            raise LoopError(f"{refusal}: {dependence}")
    return nest


def _in_order(nest: Nest, dependence: Dependence) -> bool:
    """Whether the later turn is done when the earlier one is, by the same thread."""
    loops = [level for level in nest.levels if level.strips]
    if any(dependence.sign(level.axis) for level in loops if level.kind is Kind.PARALLEL):
        return False
    for level in loops:
        sign = dependence.sign(level.axis)
        if sign < 0 or (sign > 0 and level.axis not in nest.tile):
            return sign > 0
    return False  # both are in one tile
