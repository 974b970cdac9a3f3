"""What a compiled program calls: arrays made of addresses, a function called on them, its results written."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pullback.control.host import HostFunction
from pullback.errors import CallbackError, MatrixError
from pullback.graph import Source, Type

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

    def __call__(self, table: int) -> None:
        """Call the function on arrays at the addresses in the ``table``: those of inputs, then those of results."""
        count = len(self.inputs) + len(self.outputs)
        addresses = [address or 0 for address in (ctypes.c_void_p * count).from_address(table)]
        given, made = addresses[: len(self.inputs)], addresses[len(self.inputs) :]
        try:
            # Copies, for a traceback may keep them when the program's memory holds something else, or is gone.
            values = self.function.call(
                [np.array(_array_at(address, type)) for address, type in zip(given, self.inputs)],
                self.outputs,
            )
        except (CallbackError, MatrixError) as error:
            if self.source is None:
                raise
            raise error.extended(f"at {self.source}", source=self.source) from None
        for address, type, value in zip(made, self.outputs, values):
            _array_at(address, type)[...] = value


def _array_at(address: int, type: Type) -> np.ndarray:
    """The array at an address, valid as long as its memory is."""
    if not type.nbytes:
        return np.zeros(type.shape, type.dtype)
    memory = memoryview((ctypes.c_char * type.nbytes).from_address(address))
    array: np.ndarray = np.frombuffer(memory, type.dtype).reshape(type.shape)
    return array
