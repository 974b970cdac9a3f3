"""The type of a node: dtype and shape, both static."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from pullback.errors import DTypeError

__all__ = [
    "DTYPES",
    "HALVES",
    "TupleType",
    "Type",
    "dtype_kind",
    "float_limits",
    "is_complex",
    "is_float",
    "is_half",
    "one_type",
    "part_dtype",
    "remembered",
    "type_like",
]

remembered = lru_cache(maxsize=2048)
"""A type rule that is asked the same again and again."""

DTYPES: tuple[np.dtype, ...] = tuple(
    np.dtype(kind)
    for kind in (
        *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
        *(np.float16, np.float32, np.float64, np.complex64, np.complex128),
    )
)
"""NumPy's dtypes that nodes may have; beside them ``bfloat16``, where somebody has imported ``ml_dtypes``."""

_OWN = {id(dtype): dtype for dtype in DTYPES}
_BFLOAT16 = "E"
"""The letter that ``ml_dtypes`` has given its ``bfloat16``, whose kind is that of records."""
HALVES = "e" + _BFLOAT16
"""The letters of floats of 16 bits."""


def dtype_kind(dtype: np.dtype) -> str:
    """The letter of ``numpy.dtype.kind``, which is ``"f"`` for ``bfloat16`` too."""
    return "f" if dtype.char == _BFLOAT16 else dtype.kind


def is_half(dtype: np.dtype) -> bool:
    """Whether ``dtype`` is a float of 16 bits, ``float16`` or ``bfloat16``: numbers are stored in it, not computed.

    An operation on such numbers is one on the same numbers in ``float32`` whose result is rounded.
    """
    return dtype.char in HALVES


def is_float(dtype: np.dtype) -> bool:
    """Whether ``dtype`` has derivatives: floats, and complex numbers, which are pairs of them."""
    return dtype.kind in "fc" or dtype.char == _BFLOAT16


def is_complex(dtype: np.dtype) -> bool:
    """Whether ``dtype`` is one of complex numbers."""
    return dtype.kind == "c"


def part_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the real and of the imaginary part of a complex number; of a real one its own.

    >>> part_dtype(np.dtype(np.complex64))
    dtype('float32')
    """
    return np.dtype(f"float{4 * dtype.itemsize}") if is_complex(dtype) else dtype


def float_limits(dtype: np.dtype) -> Any:
    """``numpy.finfo`` of a float dtype, which has nothing to say of ``bfloat16``: there that of ``ml_dtypes``.

    >>> float(float_limits(np.dtype(np.float16)).max)
    65504.0
    """
    return sys.modules["ml_dtypes"].finfo(dtype) if dtype.char == _BFLOAT16 else np.finfo(dtype)


@dataclass(frozen=True, slots=True)
class Type:
    """A dtype and a shape.

    ``weak`` marks a value that came from a Python scalar and from nothing else: it takes the dtype of what it
    meets, as NumPy's promotion rules (NEP 50) say for the scalar itself.

    >>> print(Type(np.dtype("float32"), (100, 64)))
    float32[100, 64]
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    weak: bool = False

    def __post_init__(self) -> None:
        if id(self.dtype) in _OWN:
            return
        for known in _OWN.values():
            if known == self.dtype:
                # NumPy has several objects for one dtype: long and long long, and copies of int8 in native order.
                object.__setattr__(self, "dtype", known)
                return
        if self.dtype.char == _BFLOAT16 and self.dtype.type.__name__ == "bfloat16":
            own = np.dtype(self.dtype.type)
            _OWN[id(own)] = own  # and it is kept, so the number stays its own
            object.__setattr__(self, "dtype", own)
            return
        names = ", ".join(str(known) for known in DTYPES)
        raise DTypeError(f"dtype {self.dtype} has no place in a graph; cast the array to one of {names}")

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a contiguous array of this type."""
        return self.size * self.dtype.itemsize

    def with_shape(self, shape: tuple[int, ...]) -> Type:
        """The same dtype in another shape."""
        return Type(self.dtype, shape, self.weak)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@lru_cache(maxsize=4096)
def type_like(dtype: np.dtype, shape: tuple[int, ...], weak: bool = False) -> Type:
    """``Type(dtype, shape, weak)``, mostly one object for equal types: signatures are found by it."""
    return one_type(Type(dtype, shape, weak))


@lru_cache(maxsize=4096)
def one_type(type: Type) -> Type:
    """Of equal types mostly the same object."""
    return type


@dataclass(frozen=True, slots=True)
class TupleType(Type):
    """The type of an operation with several results: the type of each.

    No array has such a type. To whoever looks at dtypes alone it is no number.

    >>> print(TupleType.of([Type(np.dtype("float32"), (3,)), Type(np.dtype("int64"), ())]))
    (float32[3], int64[])
    """

    types: tuple[Type, ...] = ()

    def __post_init__(self) -> None:
        if self.dtype.kind != "V" or self.shape:
            raise DTypeError("a tuple of types has no dtype and no shape; make it with TupleType.of")

    @staticmethod
    def of(types: Iterable[Type]) -> TupleType:
        """The type of operations with results of these types."""
        return TupleType(np.dtype(np.void), (), False, tuple(types))

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.types))})"
