"""The doors by which NumPy's own functions reach traced values: ``__array_ufunc__`` and
``__array_function__``.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterable
from functools import cache, partial, wraps
from importlib import import_module
from typing import Any, NamedTuple, NoReturn, ParamSpec, TypeVar

import numpy as np

from pullback.errors import NamedAxisError, TracingError
from pullback.graph import Node, free_variables, is_complex, is_known
from pullback.graph.named import is_named, shown, sizes_under_way, with_names
from pullback.graph.protocol import vocabulary
from pullback.graph.source import called_function, user_stores
from pullback.numpy.arrays import any_arrays
from pullback.numpy.axes import normal_axes
from pullback.numpy.elementwise import UFUNCS, astype, where
from pullback.numpy.promotion import any_traced, array_of, settled, where_written
from pullback.numpy.protocol import UPDATES, called, doored
from pullback.numpy.sizes import size_of

__all__ = ["FUNCTIONS", "NEAREST", "UFUNC_METHODS", "implements", "reduced_by", "refuse", "turns"]

P = ParamSpec("P")
R = TypeVar("R")

FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}
"""What answers each of NumPy's functions on traced values."""

NEAREST: dict[Callable[..., Any], str] = {}
"""What to use in place of each of NumPy's functions that cannot take traced values."""

UFUNC_METHODS: dict[str, Callable[..., Any]] = {}
"""What answers the methods of ufuncs: a function of the ufunc and its arguments."""

REDUCTIONS: dict[np.ufunc, str] = {
    np.add: "sum",
    np.multiply: "prod",
    np.maximum: "max",
    np.minimum: "min",
    np.logical_and: "all",
    np.logical_or: "any",
}
"""The function that is each ufunc's ``reduce``."""


def implements(*references: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function answer for NumPy's ``references`` on traced values; concrete ones go to NumPy's
    first.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        function = array_of(function)

        on_arrays = doored(function)
        if not isinstance(references[0], np.ufunc):
            on_arrays = partial(called, references[0])

        @wraps(function)
        def dispatched(*arguments: P.args, **keywords: P.kwargs) -> R:
            if any_traced(*arguments, *keywords.values()):
                if any_arrays((*arguments, *keywords.values())):
                    return on_arrays(*arguments, **keywords)  # type: ignore[no-any-return]
                return function(*arguments, **keywords)
            return references[0](*arguments, **keywords)  # type: ignore[no-any-return]

        enter(function, *references)
        vocabulary[function.__name__] = dispatched
        return dispatched

    return decorate


def enter(function: Callable[..., Any], *references: Callable[..., Any]) -> None:
    """Write ``function`` into the table as the answer for ``references``."""
    for reference in references:
        if isinstance(reference, np.ufunc):
            UFUNCS[reference] = function
        else:
            FUNCTIONS[reference] = function


def array_ufunc(ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
    """Answer ``np.sin(x)``, ``np.add.reduce(x)``, ``np.multiply.outer(x, y)`` for traced arguments."""
    name = ufunc.__name__
    if method == "at":
        repair = UPDATES.get(ufunc)
        raise TracingError(
            f"np.{name}.at changes an array in place, and traced values never change; "
            + (
                f"take a new array instead: x = pullback.at(x)[index].{repair}(value)"
                if repair
                else "take a new array instead: x = pullback.at(x)[index].set(...) of what it is to hold"
            )
            + where_written()
        )
    if keywords.pop("out", None) is not None:
        raise TracingError(
            f"np.{name} with out= writes into an array, and traced values cannot be written into; "
            f"take the result instead: y = np.{name}(...){where_written()}"
        )
    if method == "reduce" and ufunc in REDUCTIONS:
        keywords.setdefault("axis", 0)
        return array_function(getattr(np, REDUCTIONS[ufunc]), (), inputs, keywords)
    if method == "outer" and len(inputs) == 2:
        left, right = inputs
        extended = (...,) + (None,) * np.ndim(right)
        left = left[extended] if isinstance(left, Node) else np.asarray(left)[extended]
        return array_ufunc(ufunc, "__call__", left, right, **keywords)
    if method in UFUNC_METHODS:
        return _called(f"{name}.{method}", UFUNC_METHODS[method], (ufunc, *inputs), keywords)
    function = UFUNCS.get(ufunc) or _of_scipy(ufunc)
    if function is None or method != "__call__":
        asked = name if method == "__call__" else f"{name}.{method}"
        raise TracingError(
            f"np.{asked} has no derivative rules here, so it cannot take a traced value; write it with the "
            f"functions of pullback.numpy, or apply it to concrete arrays outside{where_written()}"
        )
    dtype = keywords.pop("dtype", None)
    if dtype is not None:
        inputs = tuple(vocabulary["astype"](value, dtype) for value in inputs)
    return _called(name, function, inputs, keywords) if keywords else function(*inputs)


def _of_scipy(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """What answers a ufunc of ``scipy.special``: that of its name here."""
    module = sys.modules.get("scipy.special._ufuncs")
    if getattr(module, ufunc.__name__, None) is not ufunc:
        return None
    special = import_module("pullback.scipy.special")
    found = special.UFUNCS.get(ufunc.__name__) or getattr(special, ufunc.__name__, None)
    return found  # type: ignore[no-any-return]


def array_function(function: Callable[..., Any], types: Any, arguments: Any, keywords: Any) -> Any:
    """Answer ``np.sum(x)``, ``np.concatenate([x, y])``, ``np.linalg.norm(x)`` for traced arguments."""
    name = getattr(function, "__name__", str(function))
    implementation = FUNCTIONS.get(function)
    if implementation is None:
        known = settled((arguments, tuple(keywords.values())))
        if not any_traced(known):
            return function(*known[0], **dict(zip(keywords, known[1])))
        repair = NEAREST.get(
            function,
            "write it with the functions of pullback.numpy, or apply it to concrete arrays outside the traced function",
        )
        raise TracingError(f"np.{name} cannot take a traced value; {repair}{where_written()}")
    return _called(name, implementation, arguments, keywords)


def reduced_by(ufunc: np.ufunc, array: Any, **keywords: Any) -> Any:
    """``ufunc.reduce(array, ...)`` of a traced value."""
    return array_ufunc(ufunc, "reduce", array, **keywords)


def _called(name: str, implementation: Callable[..., Any], arguments: Any, keywords: Any) -> Any:
    """The result of what answers ``np.name``; keywords that it does not know may be ``None``."""
    taken = _taken(implementation)
    unknown = [] if taken.names is None else [key for key in keywords if key not in taken.names]
    if unknown:
        if any(keywords[key] is not None for key in unknown):
            raise TracingError(_no_keywords(name, unknown))
        keywords = {key: value for key, value in keywords.items() if key not in unknown}
    if not taken.fits(len(arguments), keywords):
        try:
            taken.signature.bind(*arguments, **keywords)
        except TypeError as error:
            raise TracingError(f"np.{name} on a traced value: {error}{where_written()}") from None
    return implementation(*arguments, **keywords)


class _Taken(NamedTuple):
    """What a function takes."""

    signature: inspect.Signature
    names: frozenset[str] | None
    """The names of its parameters, unless it takes any."""
    by_name: frozenset[str]
    by_place: tuple[str, ...]
    needed: float
    """How many by place are enough; none where it needs others."""

    def fits(self, count: int, keywords: Iterable[str]) -> bool:
        """Whether it certainly takes ``count`` arguments by place and these keywords."""
        if not self.needed <= count <= len(self.by_place):
            return False
        return all(key in self.by_name and key not in self.by_place[:count] for key in keywords)


# Asked for when first needed: reading all signatures would make the import slower.
@cache
def _taken(function: Callable[..., Any]) -> _Taken:
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    places = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    named = [each.name for each in parameters if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)]
    free = any(each.kind is each.VAR_KEYWORD for each in parameters)
    others = [each for each in parameters if each not in places and each.kind is not each.VAR_KEYWORD]
    alone = not any(each.default is each.empty for each in others)
    needed = sum(each.default is each.empty for each in places) if alone else math.inf
    by_place = tuple([each.name for each in places])
    return _Taken(
        signature, None if free else frozenset(signature.parameters), frozenset(named), by_place, needed
    )


def _no_keywords(name: str, keywords: Iterable[str]) -> str:
    names = ", ".join(f"{key}=" for key in keywords)
    return f"np.{name} on a traced value takes no {names} argument; leave it out{where_written()}"


def _size(a: Any, axis: Any = None) -> int:
    return int(a.size) if axis is None else math.prod(a.shape[k] for k in normal_axes("size", axis, a.ndim))


enter(lambda a: a.shape, np.shape)
enter(lambda a: a.ndim, np.ndim)
enter(_size, np.size)
enter(where, np.where)
enter(lambda x, dtype, /, *, copy=True, device=None: astype(x, dtype), np.astype)
enter(lambda x: is_complex(x.dtype), np.iscomplexobj)
enter(lambda x: not is_complex(x.dtype), np.isrealobj)

_REFUSALS = {
    "bool": (
        "Python needs one truth value (if, while, and, or, not, assert, in)",
        "choose with np.where(condition, x, y), combine with & | ~, or make what decides a concrete Python "
        "value",
    ),
    "int": (
        "int() needs one number",
        "cast with .astype(np.int64), or pass the number as a concrete Python int",
    ),
    "float": (
        "float() needs one number; functions of the math module call it too",
        "cast with .astype(np.float64), and use NumPy's functions instead of math's",
    ),
    "complex": ("complex() needs one number", "cast with .astype(np.complex128)"),
    "index": (
        "Python needs one integer (range, list indices, repetition, shapes)",
        "index arrays with it (x[i] takes traced integers), or pass it as a concrete Python int",
    ),
    "array": (
        "a NumPy array needs its numbers, and so does a NumPy array indexed by it",
        "use NumPy's functions on it as it is (a @ x for a.dot(x)), np.stack or pullback.numpy.array for lists of "
        "traced values, pullback.numpy.take(table, index, axis) to index a concrete table, or return it and convert "
        "the result",
    ),
    "into NumPy": (
        "an array that NumPy itself has made holds numbers only",
        "make it with np.zeros_like(x, shape=n) of a traced x, or with pullback.numpy.zeros(n)",
    ),
    "setitem": (
        "assigning into it would change a value in place, and traced values never change",
        "use x = x.at[index].set(value) or x = x.at[index].add(value), or write into a copy, x = x.copy()",
    ),
    "delete": ("its elements cannot be deleted", "select those to keep: x[index]"),
    "shape": ("its shape never changes", "write y = x.reshape(shape)"),
    "dtype": ("its dtype never changes", "write y = x.astype(dtype)"),
    "item": ("item() needs its numbers", "return it and convert the result"),
    "nonzero": (
        "how many indices there are depends on values",
        "use pullback.numpy.nonzero(x, size=n), or np.where(mask, x, y)",
    ),
    "format": (
        "a format such as {x:.2f} needs one number",
        'show it where it is computed, pullback.debug.print("{:.2f}", x), or leave the format out',
    ),
    "tolist": ("tolist() needs its numbers", "return it and convert the result"),
    "len": ("it has no axes, so no length", "use x.shape or x.ndim, or x.reshape(-1)"),
    "iterate": ("it has no axes to iterate over", "use it as it is, or x.reshape(-1)"),
    "named len": (
        "len() needs one integer, and its first axis is one of any size",
        "use x.shape[0], with which NumPy's functions compute",
    ),
    "named iterate": (
        "its first axis is one of any size",
        "compute with all rows at once, or with pb.vmap or pb.scan over another axis",
    ),
    "named index": (
        "it is the size of an axis of any size, and Python needs one integer (range, a list's index, np.arange)",
        "use n itself in arithmetic, pullback.numpy.arange(n), pullback.numpy.zeros(n) or np.zeros_like(x, shape=n)",
    ),
    "named bool": (
        "it depends on the size of an axis of any size, and Python needs one truth value",
        "choose with np.where(n > 10, x, y), or leave the axis out of shapes=",
    ),
    "in place": (
        "this method changes it in place, and traced values never change",
        "take a new value instead",
    ),
}


def refuse(node: Node, attempt: str) -> NoReturn:
    """Raise the error of a traced value used where Python needs a concrete one."""
    if attempt in ("float", "int", "bool", "array") and user_stores():
        attempt = "into NumPy"
    if sizes_under_way() and size_of(node) is not None:
        attempt = "named bool" if node.dtype.kind == "b" else "named index"
    reason, repair = _REFUSALS[attempt]
    asked = called_function() if attempt in ("array", "float", "int", "bool") else None
    if asked is not None and asked.startswith("np.") and attempt != "array":
        asked = None
    named = "" if asked is None else f"{asked} cannot take "
    if asked is not None and asked.startswith("scipy"):
        reason, repair = "SciPy computes with numbers only", _instead(asked)
        named = named if asked.count(".") > 1 else f"a function of {named}"
    it = "" if asked is None else " here: it"
    raise TracingError(
        f"{named}a traced value {with_names(node.type)}{it} {_stands_for(node, attempt)}: "
        f"{reason}; {repair}{where_written()}"
    )


def _instead(asked: str) -> str:
    """What to use for a function of SciPy, ``scipy.special.softmax``, or for one of a module."""
    module, _, name = asked.rpartition(".") if asked.count(".") > 1 else (asked, "", "")
    try:
        found = import_module(f"pullback.{module}")
    except ImportError:
        found = None
    if name and name in getattr(found, "__all__", ()):
        return f"use pullback.{asked}"
    here = "" if found is None or module == "scipy" else f" and those of pullback.{module}"
    return f"use NumPy's functions{here}, or call it with pullback.pure_callback"


def _stands_for(node: Node, attempt: str) -> str:
    """What a traced value is, rather than one number."""
    if is_known(node) and attempt in ("float", "complex", "array", "into NumPy"):
        return "has a derivative, which would be lost"
    example = any(variable.is_example for variable in free_variables([node]))
    return "stands for each example of a batch (vmap)" if example else "stands for every value it may take"


def in_place(sign: str, name: str, x: Node, other: Any) -> Any:
    """``x += other``: of a scalar another value of the name, as of NumPy's scalars; of an array refused.

    NumPy changes the array itself, which every other name and view of it sees.
    """
    if x.ndim:
        raise TracingError(
            f"x {sign}= y would change the array {x.type} in place, for all its names and views, and traced values "
            f"never change; write x = x {sign} y{where_written()}"
        )
    return vocabulary[name](x, other)


vocabulary.update(array_ufunc=array_ufunc, array_function=array_function, in_place=in_place, refuse=refuse)


def turns(name: str, count: int) -> range:
    """The turns of a loop of Python's in the function ``name``, an operation or more for each.

    Raises ``NamedAxisError`` for as many as a named axis has elements.
    """
    if is_named(count):
        raise NamedAxisError(
            f"{name} of {shown(count)} elements along a named axis takes an operation for each of them; give it a "
            f"number of elements that is known, or give jit no shapes= for that axis{where_written()}"
        )
    return range(count)
