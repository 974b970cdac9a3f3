"""Why a function is compiled again: what is new in a call, beside the nearest one that it was compiled for."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pullback.errors import RetraceError
from pullback.graph import Type
from pullback.tracing.trace import argument_name
from pullback.tracing.trees import Structure, difference

__all__ = ["note_retrace", "what_is_new"]

logger = logging.getLogger("pullback.jit")

Known = tuple[Structure, tuple[Type, ...]]

MOST_SHOWN = 3
"""Arguments of another type that are listed."""


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
    shown = [
        f"{argument_name(paths[k])} is {_told(types[k])}, it was {_told(nearest[k])}"
        for k in places[:MOST_SHOWN]
    ]
    rest = len(places) - len(shown)
    return "; ".join(shown) + (f"; and {rest} more" if rest else "")


def _told(type: Type) -> str:
    return f"{type}, a Python number" if type.weak else str(type)


def note_retrace(
    name: str, known: Iterable[Known], structure: Structure, types: tuple[Type, ...], most: int | None
) -> None:
    """Log why ``name`` is compiled once more; raise ``RetraceError`` if that is more often than ``most``."""
    known = list(known)
    count = len(known) + 1
    over = most is not None and count > most
    if not known or not (over or logger.isEnabledFor(logging.INFO)):
        return
    new = what_is_new(known, structure, types)
    if over:
        raise RetraceError(
            f"{name} would be compiled for the {_ordinal(count)} time, and max_traces is {most}: {new}; give arguments "
            "of the same types, cast them or pad them, or allow more"
        )
    logger.info("%s is compiled for the %s time: %s", name, _ordinal(count), new)


def _ordinal(count: int) -> str:
    """
    >>> [_ordinal(count) for count in (1, 2, 3, 4, 11, 22)]
    ['1st', '2nd', '3rd', '4th', '11th', '22nd']
    """
    ending = {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{'th' if count % 100 in (11, 12, 13) else ending}"
