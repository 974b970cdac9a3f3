"""Methods and attributes of an array on traced values: ``x.sum(axis=0)``, ``x.T``, ``x.at[i].add(v)``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from pullback.errors import TracingError
from pullback.graph import Node
from pullback.graph.protocol import ArrayProtocol
from pullback.numpy import (
    assembling,
    complex_numbers,
    composite,
    cumulative,
    elementwise,
    indexing,
    ordering,
    products,
    reductions,
    shapes,
)
from pullback.numpy.arrays import TracedArray
from pullback.numpy.concrete import concrete
from pullback.numpy.dispatch import refuse
from pullback.numpy.elementwise import UFUNCS
from pullback.numpy.promotion import where_written
from pullback.numpy.protocol import of_array
from pullback.numpy.updates import At

__all__ = ["METHODS", "PROPERTIES", "attribute"]


def _reshape(x: Node, *shape: Any, order: str = "C") -> Any:
    return shapes.reshape(x, shape[0] if len(shape) == 1 else shape, order)


def _transpose(x: Node, *axes: Any) -> Any:
    if len(axes) == 1 and (axes[0] is None or not isinstance(axes[0], int)):
        return shapes.transpose(x, axes[0])
    return shapes.transpose(x, axes or None)


def _astype(x: Node, dtype: Any, copy: bool = True) -> Any:
    return elementwise.astype(x, dtype)


def _compress(x: Node, condition: Any, axis: int | None = None) -> Any:
    return assembling.compress(condition, x, axis)


def _conjugate(x: Node) -> Any:
    return UFUNCS[np.conjugate](x)


def _copy(x: Node, order: str = "C") -> Node:
    return TracedArray(x.node)


def _call(name: str, x: Node, *arguments: Any, **keywords: Any) -> Any:
    """The method ``name``; raises ``TracingError`` for arguments that it does not take here."""
    try:
        return METHODS[name](x, *arguments, **keywords)
    except TypeError:
        try:
            inspect.signature(METHODS[name]).bind(x, *arguments, **keywords)
        except TypeError as error:
            raise TracingError(f"x.{name} of a traced value {x.type}: {error}{where_written()}") from None
        raise


PROPERTIES: dict[str, Callable[[Node], Any]] = {
    "T": shapes.transpose,
    "mT": lambda x: shapes.swapaxes(x, -1, -2),
    "at": At,
    "real": complex_numbers.real,
    "imag": complex_numbers.imag,
    "nbytes": lambda x: x.type.nbytes,
    "itemsize": lambda x: x.dtype.itemsize,
}
METHODS: dict[str, Callable[..., Any]] = {
    "all": reductions.all,
    "any": reductions.any,
    "argmax": reductions.argmax,
    "argmin": reductions.argmin,
    "argpartition": ordering.argpartition,
    "argsort": ordering.argsort,
    "astype": _astype,
    "choose": assembling.choose,
    "clip": composite.clip,
    "compress": _compress,
    "conj": _conjugate,
    "conjugate": _conjugate,
    "copy": _copy,
    "cumprod": cumulative.cumprod,
    "cumsum": cumulative.cumsum,
    "diagonal": products.diagonal,
    "dot": products.dot,
    "flatten": shapes.ravel,
    "max": reductions.max,
    "mean": reductions.mean,
    "min": reductions.min,
    "prod": reductions.prod,
    "ravel": shapes.ravel,
    "repeat": shapes.repeat,
    "reshape": _reshape,
    "round": composite.round,
    "searchsorted": ordering.searchsorted,
    "squeeze": shapes.squeeze,
    "std": reductions.std,
    "sum": reductions.sum,
    "swapaxes": shapes.swapaxes,
    "take": indexing.take,
    "trace": products.trace,
    "transpose": _transpose,
    "var": reductions.var,
}
_CONCRETE = {"item": "item", "tolist": "tolist", "tobytes": "tolist"}
_REFUSED = dict.fromkeys(("fill", "sort", "partition", "put", "resize", "setfield"), "in place")


def attribute(x: Node, name: str) -> Any:
    """``x.name`` for the attributes and methods that a traced value shares with an array."""
    if name in METHODS:
        return partial(_call, name, x)
    if name in PROPERTIES:
        return PROPERTIES[name](x)
    if name == "nonzero":
        return partial(ordering.nonzero, x)
    if name in _CONCRETE:
        return getattr(concrete(x, _CONCRETE[name]), name)
    if name in _REFUSED:
        return lambda *arguments, **keywords: refuse(x, _REFUSED[name])
    raise AttributeError(
        f"a traced value {x.type} has no attribute {name!r}; its methods are those of an array that compute: "
        f"{', '.join(sorted(METHODS))}"
    )


def _property(name: str) -> property:
    return property(lambda x: attribute(x, name))


# What NumPy's arrays have and traced values have not is there to tell what they have.
for _name in {*METHODS, *PROPERTIES, *_REFUSED, *dir(np.ndarray)}:
    if not _name.startswith("_") and _name not in vars(Node):
        setattr(ArrayProtocol, _name, _property(_name))
        if _name not in vars(TracedArray):
            setattr(TracedArray, _name, of_array(_name, _name in METHODS))
