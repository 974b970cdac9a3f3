"""``vectorize``: a function of numbers as a function of arrays that broadcasts, as NumPy's ufuncs do, compiled.

It is ``jit`` around a ``vmap`` for each axis that the arguments are broadcast along. An argument that has no such axis,
or has length 1 along it, is not mapped there, so what it alone decides is computed once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import update_wrapper
from typing import Any

import numpy as np

from pullback.compiler.jit.compiled import jit
from pullback.errors import ShapeError, TreeError
from pullback.graph import Node
from pullback.numpy.promotion import Scalar
from pullback.tracing.tracebacks import shows_users_frames
from pullback.tracing.trees import flatten
from pullback.transforms.mapping import vmap

__all__ = ["Vectorized", "vectorize"]

Axes = tuple[str, ...]
_AXES = r"\(\s*(?:\w+(?:\s*,\s*\w+)*)?\s*\)"
_SIDE = rf"{_AXES}(?:\s*,\s*{_AXES})*"


class Vectorized:
    """A function of arrays that are broadcast; made by ``vectorize``."""

    def __init__(
        self,
        function: Callable[..., Any],
        excluded: int | str | Iterable[int | str] = (),
        signature: str | None = None,
    ) -> None:
        self.function = function
        self.excluded = frozenset((excluded,) if isinstance(excluded, (int, str)) else excluded)
        if any(isinstance(each, bool) or not isinstance(each, (int, str)) for each in self.excluded):
            raise TreeError(
                f"vectorize: excluded={excluded!r}; give numbers of arguments, and names of keywords"
            )
        self.signature = None if signature is None else _parsed(signature)
        self._compiled = jit(self._mapped)
        update_wrapper(self, function)

    @shows_users_frames
    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The function at every element of the arguments, broadcast against each other."""
        given = [each if k in self.excluded else _array(each) for k, each in enumerate(arguments)]
        named = {name: each if name in self.excluded else _array(each) for name, each in keywords.items()}
        return self._compiled(*given, **named)

    def _mapped(self, *arguments: Any, **keywords: Any) -> Any:
        """The same of arrays, once for each combination of their types."""
        every: list[tuple[int | str, Any]] = [*enumerate(arguments), *keywords.items()]
        keys = [key for key, _ in every if key not in self.excluded]
        values = [value for key, value in every if key not in self.excluded]
        inputs, outputs = self.signature or (((),) * len(values), None)
        if len(inputs) != len(values):
            raise ShapeError(
                f"vectorize: the signature has {len(inputs)} arguments, and the function was called with {len(values)}"
            )
        _check_lengths(keys, values, inputs)
        shapes = [np.shape(x)[: np.ndim(x) - len(axes)] for x, axes in zip(values, inputs)]
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError:
            listed = ", ".join(str(each) for each in shapes)
            raise ShapeError(f"vectorize: shapes {listed} cannot be broadcast together") from None

        def once(*elements: Any) -> Any:
            found = dict(zip(keys, elements))
            result = self.function(
                *[found.get(k, value) for k, value in enumerate(arguments)],
                **{name: found.get(name, value) for name, value in keywords.items()},
            )
            _check_results(result, outputs)
            return result

        mapped = once
        for axis in reversed(range(len(shape))):
            mapped = vmap(mapped, _mapped_along(axis, shapes, len(shape)), axis_size=shape[axis])
        return mapped(*[_without_ones(x, own) for x, own in zip(values, shapes)])


def _mapped_along(axis: int, shapes: Sequence[tuple[int, ...]], rank: int) -> tuple[int | None, ...]:
    """For each argument 0 where it has elements along this axis of the ``rank``, and None where they are the same."""
    places = [axis - rank + len(shape) for shape in shapes]
    return tuple(0 if place >= 0 and shape[place] != 1 else None for place, shape in zip(places, shapes))


def _without_ones(x: Any, shape: tuple[int, ...]) -> Any:
    ones = tuple(k for k, extent in enumerate(shape) if extent == 1)
    return np.squeeze(x, ones) if ones else x


def _array(value: Any) -> Any:
    return value if isinstance(value, (Node, *Scalar, np.ndarray, np.generic)) else np.asarray(value)


def _check_lengths(keys: Sequence[int | str], values: Sequence[Any], inputs: Sequence[Axes]) -> None:
    lengths: dict[str, tuple[int, int | str]] = {}
    for key, x, axes in zip(keys, values, inputs):
        if np.ndim(x) < len(axes):
            raise ShapeError(
                f"vectorize: argument {key} has shape {np.shape(x)}, and the signature {_written(axes)}"
            )
        for name, length in zip(axes, np.shape(x)[np.ndim(x) - len(axes) :]):
            known, first = lengths.setdefault(name, (length, key))
            if known != length:
                raise ShapeError(
                    f"vectorize: axis {name} is {known} long in argument {first} and {length} in argument {key}"
                )


def _check_results(result: Any, outputs: Sequence[Axes] | None) -> None:
    """Results of one element have the axes that the signature says, or none."""
    if outputs is None:
        leaves, structure = flatten(result)
        outputs, results = ((),) * len(leaves), leaves
        names = structure.paths
    else:
        results = list(result) if isinstance(result, tuple) else [result]
        names = [str(k) for k in range(len(results))]
        if len(results) != len(outputs):
            raise ShapeError(f"vectorize: {len(results)} results, and {len(outputs)} in the signature")
    for name, leaf, axes in zip(names, results, outputs):
        if np.ndim(leaf) != len(axes):
            raise ShapeError(
                f"vectorize: a result of one element{f' at {name}' if name else ''} has shape {np.shape(leaf)}, not "
                f'{_written(axes)}; say so with signature=, such as "(),()->(n)"'
            )


def _written(axes: Axes) -> str:
    return f"({','.join(axes)})"


def _parsed(signature: str) -> tuple[tuple[Axes, ...], tuple[Axes, ...]]:
    """The axes of arguments and of results.

    >>> _parsed("(m,n),(n)->(m)")
    ((('m', 'n'), ('n',)), (('m',),))
    """
    if not re.fullmatch(rf"\s*(?:{_SIDE})?\s*->\s*{_SIDE}\s*", signature):
        raise ShapeError(f'vectorize: signature {signature!r}; write it as "(m,n),(n)->(m)"')
    given, made = (
        tuple(tuple(re.findall(r"\w+", axes)) for axes in re.findall(_AXES, side))
        for side in signature.split("->")
    )
    return given, made


def vectorize(
    function: Callable[..., Any],
    excluded: int | str | Iterable[int | str] = (),
    signature: str | None = None,
) -> Vectorized:
    """``function``, written for numbers, as a compiled function of arrays, which are broadcast as NumPy's ufuncs do.

    Arguments and keywords are numbers, arrays, or what ``np.asarray`` takes; those in ``excluded``, by number or by
    name, are trees that are given whole to every call. Dtypes stay as they are. The result has the broadcast shape, a
    tree of results a tree of such arrays. With a ``signature`` such as ``"(m,n),(n)->(m)"`` the function is written
    for arrays of these axes, which come last, and what is before them is broadcast.

    It is traced and compiled once for each combination of dtypes and shapes. Derivatives and ``vmap`` go through it,
    and it may be called in traced functions.

    Raises ``ShapeError`` for shapes that cannot be broadcast or that the signature does not say, and what tracing
    raises: a function that decides by an element, ``if x > 0``, says ``np.where`` instead.

    Source: the meaning of ``excluded`` and ``signature`` is that of ``numpy.vectorize``.

    >>> import numpy as np
    >>> import pullback as pb
    >>> @vectorize
    ... def payoff(price, strike):
    ...     return np.where(price > strike, price - strike, 0.0)
    >>> payoff(np.array([80.0, 120.0]), [[90.0], [110.0]])
    array([[ 0., 30.],
           [ 0., 10.]])
    >>> pb.grad(lambda price: payoff(price, 100.0).sum())(np.array([80.0, 120.0]))
    array([0., 1.])
    >>> slope = vectorize(pb.grad(lambda x: np.sin(np.cos(x))))
    >>> slope([0.0, 1.0]).round(6)
    array([-0.      , -0.721606])
    >>> length = vectorize(lambda x: np.sqrt(x @ x), signature="(n)->()")
    >>> length(np.array([[3.0, 4.0], [5.0, 12.0]]))
    array([ 5., 13.])
    """
    return Vectorized(function, excluded, signature)
