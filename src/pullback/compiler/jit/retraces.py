"""Why a function is compiled again: what is new in a call, beside the nearest one that it was compiled for."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from pullback.errors import RetraceError
from pullback.graph import Node, Operation, Type
from pullback.tracing.trace import argument_name
from pullback.tracing.trees import Structure, difference

__all__ = ["MANY_SHAPES", "note_one_size", "note_retrace", "varying_sizes", "what_is_new"]

logger = logging.getLogger("pullback.jit")

Known = tuple[Structure, tuple[Type, ...]]

MOST_SHOWN = 3
"""Arguments of another type, or axes of several sizes, that are listed."""
MANY_SHAPES = 16
"""Programs of one function that differ in sizes alone from which on it is said that there are many."""


def what_is_new(known: Iterable[Known], structure: Structure, types: tuple[Type, ...]) -> str:
    """How a call differs from the latest of those that differ from it in the fewest types.

    >>> import numpy as np
    >>> from pullback.tracing.trees import flatten
    >>> row = lambda n: Type(np.dtype(np.float32), (n,))
    >>> _, structure = flatten(((1.0, 2.0), {}))
    >>> what_is_new([(structure, (row(3), row(4)))], structure, (row(3), row(5)))
    'arg1 is float32[5], it was float32[4]'
    """
    *_, (latest, _) = known = list(known)
    alike = [given for own, given in known if own == structure]
    if not alike:
        return f"the arguments have another structure, {difference(latest, structure)}"
    apart = [[k for k, (new, old) in enumerate(zip(types, given)) if new != old] for given in alike]
    place = min(range(len(alike)), key=lambda k: (len(apart[k]), -k))
    nearest, places = alike[place], apart[place]
    paths = structure.paths
    shown = [f"{argument_name(paths[k])} is {_told(types[k])}, it was {_told(nearest[k])}" for k in places]
    return _listed(shown, "more")


def varying_sizes(known: Iterable[Known], structure: Structure, types: tuple[Type, ...]) -> tuple[int, str]:
    """How many programs differ from the one for these types in sizes alone, itself included, and in which axes.

    >>> import numpy as np
    >>> from pullback.tracing.trees import flatten
    >>> table = lambda n: (Type(np.dtype(np.float32), (n, 5)),)
    >>> _, structure = flatten(((1.0,), {}))
    >>> varying_sizes([(structure, table(3)), (structure, table(7))], structure, table(4))
    (3, 'arg0 has had 3 sizes along axis 0, from 3 to 7')
    """

    def kind(given: tuple[Type, ...]) -> list[tuple[object, int]]:
        return [(t.dtype, t.rank) for t in given]

    alike = [given for own, given in known if own == structure and kind(given) == kind(types)] + [types]
    paths, found = structure.paths, []
    for k, t in enumerate(types):
        for axis in range(t.rank):
            sizes = {given[k].shape[axis] for given in alike}
            if len(sizes) > 1:
                ends = f"from {min(sizes)} to {max(sizes)}"
                found.append(
                    f"{argument_name(paths[k])} has had {len(sizes)} sizes along axis {axis}, {ends}"
                )
    return len(alike), _listed(found, "more axes")


def _listed(found: Sequence[str], more: str) -> str:
    rest = len(found) - MOST_SHOWN
    return "; ".join(found[:MOST_SHOWN]) + (f"; and {rest} {more}" if rest > 0 else "")


def _told(type: Type) -> str:
    return f"{type}, a Python number" if type.weak else str(type)


def note_retrace(
    name: str, known: Iterable[Known], structure: Structure, types: tuple[Type, ...], most: int | None
) -> None:
    """Log why ``name`` is compiled once more; raise ``RetraceError`` if that is more often than ``most``.

    Many programs for arguments that differ in their sizes alone are worth a warning: at 16, and whenever there are
    twice as many.
    """
    known = list(known)
    count = len(known) + 1
    over = most is not None and count > most
    if count >= MANY_SHAPES and not over:
        alike, sizes = varying_sizes(known, structure, types)
        if alike >= MANY_SHAPES and not alike & (alike - 1):
            logger.warning(
                "%s is compiled for the %s time, once for each size of its arguments: %s; pad them to a few sizes and "
                "tell apart what is padding, or take them in pieces of one size",
                name,
                _ordinal(alike),
                sizes,
            )
    if not known or not (over or logger.isEnabledFor(logging.INFO)):
        return
    new = what_is_new(known, structure, types)
    if over:
        raise RetraceError(
            f"{name} would be compiled for the {_ordinal(count)} time, and max_traces is {most}: {new}; give arguments "
            "of the same types, cast them or pad them, or allow more"
        )
    logger.info("%s is compiled for the %s time: %s", name, _ordinal(count), new)


def note_one_size(
    name: str, axes: Sequence[str], sizes: Sequence[int], unlike: Node | None, warn: bool
) -> None:
    """Log that ``name`` has a program for these sizes alone: as a warning the first time that it has one."""
    line = f" at {unlike.source}" if isinstance(unlike, Operation) and unlike.source is not None else ""
    what = f"{unlike.operator.name}{line}" if isinstance(unlike, Operation) else "what it returns"
    logger.log(
        logging.WARNING if warn else logging.INFO,
        "%s is compiled for %s alone: %s is another operation there than for other sizes; compute what depends on a "
        "size from x.shape with NumPy's functions, or leave the axis out of shapes=",
        name,
        ", ".join(f"{axis} = {size}" for axis, size in zip(axes, sizes)),
        what,
    )


def _ordinal(count: int) -> str:
    """
    >>> [_ordinal(count) for count in (1, 2, 3, 4, 11, 22)]
    ['1st', '2nd', '3rd', '4th', '11th', '22nd']
    """
    ending = {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{'th' if count % 100 in (11, 12, 13) else ending}"
