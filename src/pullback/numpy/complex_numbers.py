"""Complex numbers: their parts, sizes, angles and conjugates.

Derivatives follow the convention of ``operators/complex_numbers.py``: of a real function of ``z = x + iy`` the gradient
is ``∂f/∂x - i ∂f/∂y``, as in JAX and autograd; PyTorch's is the conjugate of that, the direction in which ``f`` rises.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.errors import TracingError
from pullback.graph import OPERATORS, is_complex
from pullback.graph.protocol import vocabulary
from pullback.numpy import elementwise as e
from pullback.numpy.dispatch import implements
from pullback.numpy.floats import answers
from pullback.numpy.promotion import as_array_node, broadcast_to_shape, cast, where_written

__all__ = ["angle", "conjugate", "imag", "iscomplex", "isreal", "real", "real_if_close"]


@answers(np.conjugate)
def conjugate(x: Any, /) -> Any:
    """The complex conjugate: of real numbers the numbers themselves."""
    node = as_array_node(x)
    if is_complex(node.dtype):
        return OPERATORS["conjugate"](node)
    return cast(node, e.bool_to_int8(node.dtype))


@implements(np.angle)
def angle(z: Any, deg: bool = False) -> Any:
    """The angle of complex numbers, from -pi to pi, in degrees if ``deg``; of real ones 0, or pi of negative ones."""
    node = as_array_node(z)
    turned = e.arctan2(imag(node), real(node)) if is_complex(node.dtype) else e.arctan2(0, node)
    return turned * (180 / math.pi) if deg else turned


@implements(np.isreal)
def isreal(x: Any) -> Any:
    """Whether each element is real: its imaginary part is zero."""
    if is_complex(as_array_node(x).dtype):
        return e.equal(imag(x), 0)
    return broadcast_to_shape(as_array_node(np.True_), as_array_node(x).shape)


@implements(np.iscomplex)
def iscomplex(x: Any) -> Any:
    """Whether each element has an imaginary part that is not zero."""
    if is_complex(as_array_node(x).dtype):
        return e.not_equal(imag(x), 0)
    return broadcast_to_shape(as_array_node(np.False_), as_array_node(x).shape)


@implements(np.real)
def real(val: Any) -> Any:
    """The real part; of real numbers the numbers themselves.

    >>> import pullback as pb
    >>> print(pb.grad(lambda z: np.real(z * z))(1 + 2j))
    (2+4j)
    """
    node = as_array_node(val)
    return OPERATORS["real"](node) if is_complex(node.dtype) else node


@implements(np.imag)
def imag(val: Any) -> Any:
    """The imaginary part; of real numbers zeros."""
    node = as_array_node(val)
    return OPERATORS["imag"](node) if is_complex(node.dtype) else vocabulary["zeros_like"](node)


@implements(np.real_if_close)
def real_if_close(a: Any, tol: float = 100) -> Any:
    """The array itself where it is real; of a complex one the dtype would depend on values."""
    node = as_array_node(a)
    if is_complex(node.dtype):
        raise TracingError(
            f"np.real_if_close of {node.type}: whether the result is real would depend on values; take x.real"
            f"{where_written()}"
        )
    return node
