"""What ``jit(f, shapes=…)`` says of arguments: which of their axes are named, and of which size they are in a call.

A program is made for a *capacity*, the least of 8, 16, 24, 32, 48, 64, 96, … that is no less than the size, so that it
depends on the size alone, and not on what has been called before. Rows from the size on are padding. The sizes are
arguments of the program.

>>> [capacity(size) for size in (5, 17, 33, 64, 65, 97)]
[8, 24, 48, 64, 96, 128]
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from pullback.compiler.jit.parameters import leaf_names, parameters_of
from pullback.errors import NamedAxisError, TracingError
from pullback.graph import Graph, Node, Type
from pullback.graph.named import STAND_INS, NamedSize, multiple, named_sizes, with_names
from pullback.graph.source import is_users
from pullback.graph.values import mode
from pullback.numpy.arrays import to_users
from pullback.tracing.trace import tracing
from pullback.tracing.trees import Structure

__all__ = [
    "NamedCall",
    "NamedShapes",
    "Places",
    "Slices",
    "capacity",
    "cut",
    "padded",
    "sizes_known",
    "slices_of",
]

_LEAST_CAPACITY = 8
_TOO_LARGE = re.compile("iterator is too large|[Mm]aximum (allowed|supported)|array is too big")
_NUMPYS_WORDS = (
    (
        TypeError,
        "did not return an iterable",  # which NumPy puts in place of what the array has said
        "a function of NumPy's goes through an array along the axis {names} element by element, which has any size "
        "while tracing; give it a number of elements that is known, or give jit no shapes= for that axis",
    ),
    (
        ValueError,
        "n should be an integer",
        "NumPy's own np.fft.fftfreq takes an integer, no size of the axis {names}; use pullback.numpy.fft.fftfreq(n)",
    ),
    (
        TypeError,
        "expected a sequence of integers or a single",
        "NumPy's own np.zeros, np.ones, np.empty and np.full take integers, no size of the axis {names}; use "
        "pullback.numpy.zeros(n) or np.zeros_like(x, shape=n)",
    ),
)
"""What NumPy says of sizes that are no integers, and what that means to a function that is traced for any size."""

Places = tuple[tuple[int, int], ...]
"""Named axes of an array: the axis, and the number of its size."""
Slices = tuple[tuple[tuple[int, int, int, int], ...], ...]
"""For each result its named axes: the axis, the number of the size, how often it is taken, and what is added."""


def capacity(size: int) -> int:
    """The extent of the arrays that a program for ``size`` rows has: a power of two, or three fourths of one."""
    above = 1 << max(size - 1, 0).bit_length()
    between = 3 * above // 4
    return max(_LEAST_CAPACITY, above if size > between or between % _LEAST_CAPACITY else between)


class NamedCall(NamedTuple):
    """The sizes of a call, and where they stand."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    leaves: tuple[Places, ...]
    """Of each leaf its named axes."""
    types: tuple[Type, ...]

    def within_capacity(self) -> NamedCall:
        """The same with capacities for the sizes."""
        return self._with(map(capacity, self.sizes))

    def for_any_size(self) -> NamedCall:
        """The same with stand-ins for the sizes."""
        return self._with(STAND_INS[: len(self.names)])

    def _with(self, sizes: Iterable[int]) -> NamedCall:
        extents = tuple(sizes)

        def made(type: Type, places: Places) -> Type:
            shape = list(type.shape)
            for axis, which in places:
                shape[axis] = extents[which]
            return type.with_shape(tuple(shape)) if places else type

        return self._replace(sizes=extents, types=tuple(map(made, self.types, self.leaves)))


class NamedShapes:
    """``shapes=`` of a function: for parameters, or the leaves below a path, their axes."""

    def __init__(self, function: Callable[..., Any], shapes: Mapping[str, Sequence[Any]]) -> None:
        self._function = function
        self._parameters, self._rest = _parameters(function)
        self.axes: dict[str, tuple[Any, ...]] = {}
        if not isinstance(shapes, Mapping):
            raise NamedAxisError(
                f"shapes={shapes!r}: give the axes of arguments by their names, as in shapes={{'x': ('batch', 784)}}"
            )
        for path, axes in shapes.items():
            self.axes[path] = self._checked(path, axes)
        self.names = tuple(
            dict.fromkeys(axis for axes in self.axes.values() for axis in axes if isinstance(axis, str))
        )
        if not self.names:
            raise NamedAxisError(
                f"shapes={shapes!r} names no axis; leave it out, or name one: {{'x': ('batch', 784)}}"
            )
        if len(self.names) > len(STAND_INS):
            raise NamedAxisError(
                f"shapes= has {len(self.names)} names, {', '.join(self.names)}; there can be {len(STAND_INS)}"
            )
        self._named = cache(self._of_leaves)

    def _checked(self, path: Any, axes: Any) -> tuple[Any, ...]:
        root = path.split(".")[0] if isinstance(path, str) else None
        if root is None or (self._parameters and root not in self._parameters and not self._rest):
            raise NamedAxisError(
                f"shapes= has {path!r}; the function has the parameters {', '.join(self._parameters)}"
            )
        if isinstance(axes, str) or not isinstance(axes, (tuple, list)) or not axes:
            raise NamedAxisError(
                f"shapes={{{path!r}: {axes!r}}}: give a tuple of its axes, such as ('batch', 784)"
            )
        for k, axis in enumerate(axes):
            last = k == len(axes) - 1 and k > 0
            number = isinstance(axis, int) and not isinstance(axis, bool) and axis >= 0
            if not (number or axis is None or isinstance(axis, str) or (axis is ... and last)):
                raise NamedAxisError(
                    f"shapes={{{path!r}: {axes!r}}}: {axis!r} is no axis; give a name, an extent, None for an extent "
                    "that the program is compiled for, or ... last for any further axes"
                )
        return tuple(axes)

    def call(self, structure: Structure, types: Sequence[Type]) -> NamedCall:
        """The sizes in a call; raises ``NamedAxisError`` for arguments of other shapes, or sizes that differ."""
        sizes: dict[str, tuple[int, str, int]] = {}
        leaves: list[list[tuple[int, str]]] = [[] for _ in types]
        for leaf, name, wanted in self._named(structure):
            type = types[leaf]
            _refuse_other_shape(name, wanted, type)
            for axis, axis_name in enumerate(wanted):
                if not isinstance(axis_name, str):
                    continue
                leaves[leaf].append((axis, axis_name))
                extent = type.shape[axis]
                size, first, its = sizes.setdefault(axis_name, (extent, name, axis))
                if size != extent:
                    raise NamedAxisError(
                        f"axis {axis_name!r} has {size} {_unit(its)} in {first} and {extent} in {name}; "
                        "give both as many"
                    )
        names = tuple([name for name in self.names if name in sizes])
        places = tuple([tuple([(axis, names.index(name)) for axis, name in each]) for each in leaves])
        return NamedCall(names, tuple([sizes[name][0] for name in names]), places, tuple(types))

    def _of_leaves(self, structure: Structure) -> list[tuple[int, str, tuple[Any, ...]]]:
        """The leaves whose axes are given, with their names, by the longest path that fits."""
        shown = leaf_names(self._function, structure)
        met = set()
        found = []
        for leaf, path in enumerate(shown):
            below = [given for given in self.axes if path == given or path.startswith(given + ".")]
            met.update(below)
            if below:
                found.append((leaf, path, self.axes[max(below, key=len)]))
        missing = [given for given in self.axes if given not in met and "." in given]
        if missing:
            raise NamedAxisError(f"shapes= has {missing[0]!r}; the arguments are {', '.join(shown)}")
        return found


def _parameters(function: Callable[..., Any]) -> tuple[list[str], bool]:
    """The names of a function's parameters, and whether it takes others by name."""
    given = parameters_of(function)
    if given is None:
        return [], True
    names = [p.name for p in given if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return names, any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in given)


def _unit(axis: int) -> str:
    return "places" if axis else "rows"


def _refuse_other_shape(name: str, axes: tuple[Any, ...], type: Type) -> None:
    more = axes[-1] is ...
    wanted = axes[:-1] if more else axes
    fits = type.rank >= len(wanted) if more else type.rank == len(wanted)
    if not fits or any(isinstance(axis, int) and axis != have for axis, have in zip(wanted, type.shape)):
        text = ", ".join(map(str, wanted)) + (", …" if more else "," if len(wanted) == 1 else "")
        raise NamedAxisError(
            f"{name} is {type}, and shapes= says ({text}); give it that shape, or say another"
        )


@contextmanager
def sizes_known(sizes: Sequence[NamedSize]) -> Iterator[None]:
    """A context in which a function is traced for named axes; errors write names in place of stand-ins."""
    before, mode.shown = mode.shown, to_users
    with named_sizes(sizes), tracing([size.variable for size in sizes]):
        try:
            yield
        except MemoryError as error:
            raise NamedAxisError(
                "an array as long as a named axis is made while the function is traced, which has any size then "
                f"({with_names(error)}); index and write with arrays of fixed length, x.at[np.array([5])].set(v), or "
                f"give the array as an argument (at {_line_of(error)})"
            ) from None
        except Exception as error:
            names = " or ".join(size.name for size in sizes)
            line = _line_of(error)
            for kind, text, told in _NUMPYS_WORDS:
                if type(error) is kind and text in str(error):
                    raise TracingError(f"{told.format(names=names)} (at {line})") from None
            if isinstance(error, OverflowError) or _TOO_LARGE.search(str(error)):
                raise NamedAxisError(
                    "NumPy itself was to make an array of a named axis; use pullback.numpy's functions, or leave the "
                    f"axis out of shapes= (at {line})"
                ) from error
            if len(error.args) == 1 and isinstance(error.args[0], str):
                error.args = (with_names(error.args[0]),)
            raise
        finally:
            mode.shown = before


def _line_of(error: Exception) -> str:
    """The user's line that has led to an error, in this library or in NumPy."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_users(frame.filename)] or frames
    return f"{own[-1].filename}:{own[-1].lineno} in {own[-1].name}"


def slices_of(graph: Graph, sizes: Sequence[NamedSize]) -> Slices:
    """What is cut from each result of a graph that has stand-ins."""

    def cuts(node: Node) -> tuple[tuple[int, int, int, int], ...]:
        found = [(axis, multiple(extent)) for axis, extent in enumerate(node.shape)]
        return tuple([(axis, sizes.index(m.size), m.times, m.beside) for axis, m in found if m is not None])

    with named_sizes(sizes):
        return tuple(map(cuts, graph.outputs))


def padded(leaf: Any, type: Type, steps: tuple[int, ...] = ()) -> np.ndarray:
    """``leaf`` in the shape of ``type``, zeros behind its own; itself, where it has as many.

    ``steps`` are axes in front of those of the type.
    """
    array = np.asarray(leaf, type.dtype)
    shape = (*steps, *type.shape)
    if array.shape == shape:
        return array
    made = np.empty(shape, type.dtype)
    own = tuple(map(slice, array.shape))
    made[own] = array
    for axis, (extent, full) in enumerate(zip(array.shape, shape)):
        if extent != full:
            beyond = (*own[:axis], slice(extent, None))
            made[beyond] = 0
    return made


def cut(array: Any, cuts: Sequence[tuple[int, int, int, int]], sizes: Sequence[int], steps: int) -> Any:
    """A result without its padding; that of a run has ``steps`` further axes in front."""
    if not cuts:
        return array
    ends: list[slice] = [slice(None)] * array.ndim
    for axis, which, times, beside in cuts:
        ends[axis + steps] = slice(times * sizes[which] + beside)
    return np.ascontiguousarray(array[tuple(ends)])
