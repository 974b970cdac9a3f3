"""Which arguments a derivative is taken by: ``argnums``, by number or by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pullback.errors import DerivativeError

__all__ = ["Argnums", "Chosen", "choose", "is_single"]

Argnums = int | str | Sequence[int | str]
"""A number or a name, for which a result has one part, or several, for which it has a tuple."""


class Chosen(NamedTuple):
    """A call in which all that is differentiated by is positional."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    numbers: list[int]
    """Of the arguments to differentiate by, in the order asked for."""
    names: Mapping[int, str]
    """Of those that the caller gave by keyword."""


def is_single(argnums: Argnums) -> bool:
    """Whether one argument is meant, rather than a tuple of them."""
    return isinstance(argnums, (int, str, np.integer))


def choose(
    name: str,
    function: Callable[..., Any],
    argnums: Argnums,
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
) -> Chosen:
    """The call ``function(*arguments, **keywords)`` with what ``argnums`` names among the positional arguments.

    Negative numbers count from the last positional argument; a name is a keyword of the call, or the parameter that
    a positional argument belongs to. Raises ``DerivativeError`` for what the call does not have.

    >>> chosen = choose("grad", lambda x, *, y: x * y, "y", (2,), {"y": 5})
    >>> chosen.arguments, chosen.numbers, chosen.function(2, 5)
    ((2, 5), [1], 10)
    """
    if type(argnums) is int and 0 <= argnums < len(arguments):
        return Chosen(function, arguments, keywords, [argnums], {})
    wanted = [argnums] if isinstance(argnums, (int, str)) else _several(name, argnums)
    count = len(arguments)
    named = [each for each in wanted if isinstance(each, str) and each in keywords]
    numbers = [
        _checked(name, each, count)
        if not isinstance(each, str)
        else count + named.index(each)
        if each in keywords
        else _position(name, function, each, arguments, keywords)
        for each in wanted
    ]
    if len(set(numbers)) != len(numbers):
        raise DerivativeError(f"{name}: argnums {tuple(wanted)} names an argument twice")
    if not named:
        return Chosen(function, arguments, keywords, numbers, {})
    rest = {key: value for key, value in keywords.items() if key not in named}

    def called(*given: Any, **others: Any) -> Any:
        return function(*given[:count], **dict(zip(named, given[count:])), **others)

    whole = (*arguments, *(keywords[each] for each in named))
    return Chosen(called, whole, rest, numbers, {count + k: each for k, each in enumerate(named)})


def _several(name: str, argnums: Any) -> list[int | str]:
    """The numbers and names in a sequence of them."""
    if isinstance(argnums, Iterable):
        found = [int(each) if isinstance(each, np.integer) else each for each in argnums]
        if all(isinstance(each, (int, str)) for each in found):
            return found
    elif isinstance(argnums, np.integer):
        return [int(argnums)]
    raise DerivativeError(
        f"{name}: argnums={argnums!r}; give the number or the name of an argument, or a tuple of them"
    )


def _checked(name: str, number: int, count: int) -> int:
    if not -count <= number < count:
        numbers = "0" if count == 1 else f"0 to {count - 1}"
        hint = f"they are numbered {numbers}" if count else "name a keyword"
        raise DerivativeError(
            f"{name}: argnums {number} of a function called with {count} positional arguments; {hint}"
        )
    return number % count


def _position(
    name: str,
    function: Callable[..., Any],
    wanted: str,
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
) -> int:
    """Which positional argument goes to the parameter ``wanted``."""
    import inspect

    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    given = positional[: len(arguments)]
    if wanted in given:
        return given.index(wanted)
    default = wanted in positional or any(p.name == wanted for p in parameters)
    hint = "it has its default; give it" if default else "name one of them"
    found = ", ".join([*given, *keywords]) or "none"
    raise DerivativeError(f"{name}: argnums {wanted!r}, and the call has the arguments {found}; {hint}")
