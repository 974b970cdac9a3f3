"""What a compiled program calls: arrays made of addresses, a function called on them, its results written."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pullback.control.host import HostFunction
from pullback.errors import CallbackError, MatrixError
from pullback.graph import Source, Type
from pullback.graph.values import with_line

__all__ = ["BoundCall"]


@dataclass(frozen=True, eq=False)
class BoundCall:
    """A function with the types of the arrays that it is called on, and of its results.

    >>> from pullback.control.host import HostFunction
    >>> class Doubled(HostFunction):
    ...     def call(self, arrays, types):
    ...         return [2 * array for array in arrays]
    >>> x, y, kind = np.array([1.0, 2.0]), np.zeros(2), Type(np.dtype(np.float64), (2,))
    >>> table = (ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data)
    >>> BoundCall(Doubled(), [kind], [kind], None)(ctypes.addressof(table))
    >>> y
    array([2., 4.])
    """

    function: HostFunction
    inputs: Sequence[Type]
    outputs: Sequence[Type]
    source: Source | None

    @cached_property
    def _arrays(self) -> list[Callable[[int], np.ndarray]]:
        """What makes the arrays of inputs and results of their addresses."""
        return [_array_of(type) for type in (*self.inputs, *self.outputs)]

    def __call__(self, table: int) -> None:
        """Call the function on arrays at the addresses in the ``table``: those of inputs, then those of results."""
        addresses = (ctypes.c_void_p * len(self._arrays)).from_address(table)
        arrays = [array(address or 0) for array, address in zip(self._arrays, addresses)]
        given, made = arrays[: len(self.inputs)], arrays[len(self.inputs) :]
        try:
            # Copies, for a traceback may keep them when the program's memory holds something else, or is gone.
            values = self.function.call([np.array(array) for array in given], self.outputs)
        except (CallbackError, MatrixError) as error:
            raise with_line(error, self.source) from None
        for array, value in zip(made, values):
            array[...] = value


def _array_of(type: Type) -> Callable[[int], np.ndarray]:
    """What makes the array at an address, valid as long as its memory is."""
    shape, dtype = type.shape, type.dtype
    if not type.nbytes:
        return lambda address: np.zeros(shape, dtype)
    memory: Any = ctypes.c_char * type.nbytes
    return lambda address: np.ndarray(shape, dtype, memory.from_address(address))
