"""New arrays: concrete ones as NumPy makes them, and those shaped or filled by traced values."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.graph import Node
from pullback.graph.named import is_named, sizes_under_way
from pullback.graph.protocol import vocabulary
from pullback.graph.values import mode
from pullback.numpy import elementwise as e
from pullback.numpy.arrays import TracedArray
from pullback.numpy.dispatch import implements
from pullback.numpy.promotion import any_traced, as_array_node, broadcast_to_shape
from pullback.numpy.shapes import extents, stack

__all__ = [
    "array",
    "asanyarray",
    "asarray",
    "ascontiguousarray",
    "asfortranarray",
    "empty",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]


@implements(np.full_like)
def full_like(
    a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None
) -> Any:
    """``fill_value`` in the shape and dtype of ``a``."""
    x = as_array_node(a)
    filled = e.astype(as_array_node(fill_value), x.dtype if dtype is None else dtype)
    return broadcast_to_shape(filled, x.shape if shape is None else extents("full_like", shape))


@implements(np.zeros_like, np.empty_like)
def zeros_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> Any:
    """Zeros in the shape and dtype of ``a``."""
    return full_like(as_array_node(a), 0, dtype, shape=shape)


@implements(np.ones_like)
def ones_like(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> Any:
    """Ones in the shape and dtype of ``a``."""
    return full_like(as_array_node(a), 1, dtype, shape=shape)


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """``fill_value`` everywhere; unlike NumPy's own, it may be traced.

    >>> print(full((2,), 1.5))
    [1.5 1.5]
    """
    if not any_traced(fill_value, shape):
        return _writable(shape, fill_value, dtype)
    node = as_array_node(fill_value)
    return broadcast_to_shape(node if dtype is None else e.astype(node, dtype), extents("full", shape))


def zeros(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    """Zeros; inside a traced function an array that traced values may be written into, as NumPy's own may not.

    >>> import pullback as pb
    >>> def twice(x):
    ...     made = zeros(2)
    ...     made[:] = x
    ...     return made.sum()
    >>> float(pb.grad(twice)(1.0))
    2.0
    """
    return _writable(shape, 0, dtype)


def ones(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    """Ones; inside a traced function an array that traced values may be written into."""
    return _writable(shape, 1, dtype)


def empty(shape: Any, dtype: Any = float, order: str = "C") -> Any:
    """Zeros that are to be written over; inside a traced function traced values may be."""
    return _writable(shape, 0, dtype)


def _writable(shape: Any, value: Any, dtype: Any) -> Any:
    if any_traced(shape) or (sizes_under_way() and any(map(is_named, np.atleast_1d(shape)))):
        scalar = as_array_node(np.asarray(value, dtype))
        return TracedArray(broadcast_to_shape(scalar, extents("zeros", shape)))
    made = np.full(shape, value, dtype)
    return made if mode.trace is None else TracedArray(as_array_node(made))


def array(value: Any, dtype: Any = None) -> Any:
    """An array from nested lists, of which any element may be traced.

    >>> print(array([[1, 2], [3, 4]]).shape)
    (2, 2)
    """
    if not any_traced(value):
        return np.array(value, dtype)
    node = value if isinstance(value, Node) else stack([array(each) for each in value])
    return node if dtype is None else e.astype(node, dtype)


asarray = asanyarray = ascontiguousarray = asfortranarray = array
vocabulary.update(full=full, array=array)
