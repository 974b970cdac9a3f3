"""What ``jit`` is told of a function's arguments, by number or by name, and what the function says of itself."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pullback.errors import AddressError, TreeError
from pullback.tracing.trace import argument_name
from pullback.tracing.trees import Structure

__all__ = [
    "argument_numbers", "count_positional", "leaf_names", "least_positional", "most_traces", "named_arguments",
    "parameters_of",
]  # fmt: skip

_BY_POSITION = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD


def parameters_of(function: Callable[..., Any], follow: bool = True) -> list[inspect.Parameter] | None:
    """The parameters of a function; None of one that does not tell.

    What a decorator says of the function inside it is believed only where it is ``follow``ed.
    """
    try:
        return list(inspect.signature(function, follow_wrapped=follow).parameters.values())
    except (TypeError, ValueError):
        return None


def leaf_names(function: Callable[..., Any], structure: Structure) -> list[str]:
    """What the leaves of ``(arguments, keywords)`` are called: by their parameters' names where they have any.

    >>> from pullback.tracing.trees import flatten
    >>> leaf_names(lambda model, x, *more, rate: x, flatten((({"w": [1.0]}, 2.0, 3.0), {"rate": 4.0}))[1])
    ['model.w.0', 'x', 'arg2', 'rate']
    """
    by_place = [p.name for p in parameters_of(function) or () if p.kind in _BY_POSITION]

    def name(path: str) -> str:
        place, _, rest = path.partition(".")
        number, _, below = rest.partition(".")
        if place != "0" or int(number) >= len(by_place):
            return argument_name(path)
        return f"{by_place[int(number)]}{'.' if below else ''}{below}"

    return [name(path) for path in structure.paths]


def _as_tuple(numbers: int | Iterable[int]) -> tuple[int, ...]:
    return tuple(numbers) if isinstance(numbers, Iterable) else (numbers,)


def count_positional(function: Callable[..., Any], *numbers: int | Iterable[int]) -> int | None:
    """How many positional arguments the function has; None for any number, and where no numbers are given.

    What a decorator says of the function inside it is believed only where a number counts from the end.
    """
    given = [number for each in numbers for number in _as_tuple(each)]
    if not given:
        return None
    count = _count(function, follow=False)
    if count is None and any(isinstance(number, int) and number < 0 for number in given):
        count = _count(function, follow=True)
    return count


def least_positional(function: Callable[..., Any], static: Sequence[int]) -> int:
    """How many positional arguments a call must have, all of which are no static ones."""
    parameters = parameters_of(function)
    wanted = [p for p in parameters or () if p.default is p.empty]
    if parameters is None or static or not all(p.kind in _BY_POSITION for p in wanted):
        raise AddressError(
            "address: a function with static arguments, keywords, or any number of arguments needs an example of "
            "what it is called with: compiled.c_function(1.0, 2.0).address"
        )
    return len(wanted)


def _count(function: Callable[..., Any], follow: bool) -> int | None:
    parameters = parameters_of(function, follow)
    if parameters is None or any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    return sum(p.kind in _BY_POSITION for p in parameters)


def named_arguments(
    function: Callable[..., Any], names: str | Iterable[str]
) -> tuple[frozenset[str], list[int]]:
    """The names, and the positions of those that may be given by position."""
    given = (names,) if isinstance(names, str) else tuple(names)
    wrong = [name for name in given if not isinstance(name, str)]
    if wrong:
        raise TreeError(f"static_argnames={names!r}: {wrong[0]!r} is no name")
    if not given:
        return frozenset(), []
    parameters = parameters_of(function)
    if parameters is None:
        return frozenset(given), []
    known = [p.name for p in parameters]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters) and not set(known) >= set(given):
        missing = next(name for name in given if name not in known)
        raise TreeError(
            f"static_argnames={names!r}: the function has no parameter {missing!r}; it has {', '.join(known)}"
        )
    return frozenset(given), [
        k for k, p in enumerate(parameters) if p.name in given and p.kind is p.POSITIONAL_OR_KEYWORD
    ]


def most_traces(traces: int | None) -> int | None:
    """How many programs there may be, if somebody has said so."""
    if traces is not None and (isinstance(traces, bool) or not isinstance(traces, int) or traces < 1):
        raise TreeError(f"max_traces={traces!r}: give the number of programs that may be made, 1 or more")
    return traces


def argument_numbers(what: str, numbers: int | Iterable[int], positional: int | None) -> tuple[int, ...]:
    """The numbers of arguments, those from the end counted from the start; each of them once."""
    found: list[int] = []
    for given in _as_tuple(numbers):
        if isinstance(given, bool) or not hasattr(given, "__index__"):
            raise TreeError(
                f"{what}={numbers!r}: give the numbers of positional arguments, such as 0 or (0, 1)"
            )
        number = operator.index(given)
        if number < 0 and positional is None:
            raise TreeError(
                f"{what}={numbers!r}: of a function of any number of arguments, count from the start"
            )
        if positional is not None and not -positional <= number < positional:
            raise TreeError(f"{what}={numbers!r}: the function has {positional} positional arguments")
        found.append(number % positional if positional is not None else number)
    if len(set(found)) < len(found):
        raise TreeError(f"{what}={numbers!r}: an argument is named twice")
    return tuple(found)
