"""Routines in machine code, such as LAPACK's, by which an operator is computed out of the compiled program.

An operator without a lowering may have ``routine(*types, **attributes) -> Routine``, which says where the function is
and what it is given. It is called in C's way and gives nothing back but through its arguments:

>>> import numpy as np
>>> n, integer = 4, np.dtype(np.int32)
>>> Routine(
...     "dpotrf",  # Cholesky's factor in place, of the lower triangle ("L") of a matrix that is stored by columns
...     0x7F0012345678,
...     (Scalar(76, np.dtype(np.int8)), Scalar(n, integer), OutputAt(0, start=0), Scalar(n, integer), OutputAt(1)),
...     count=10,  # matrices, one after another
... )
Routine(dpotrf of 10)

What the compiler writes itself (``compiler/codegen/routines.py`` lists it) has no address, its name says which it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

__all__ = ["InputAt", "OutputAt", "Routine", "Scalar", "WorkAt", "number"]


@dataclass(frozen=True)
class InputAt:
    """The address of an input, which the routine does not write to."""

    number: int


@dataclass(frozen=True)
class OutputAt:
    """The address of a result; it begins as a copy of the input ``start``, or with anything if that is ``None``."""

    number: int
    start: int | None = None


@dataclass(frozen=True)
class Scalar:
    """A number, given by its address as Fortran wants it, or itself (``by_value``)."""

    value: float
    dtype: np.dtype
    by_value: bool = False


@dataclass(frozen=True)
class WorkAt:
    """The address of the workspace, or so many bytes behind it: the same memory in each call."""

    offset: int = 0


def number(value: int) -> Scalar:
    """An integer of 64 bits, given itself.

    >>> number(3).by_value
    True
    """
    return Scalar(value, np.dtype(np.int64), by_value=True)


@dataclass(frozen=True)
class Routine:
    """A function at an address and its arguments.

    It is called ``count`` times, each time on the next of so many equal parts of all inputs and results.
    """

    name: str
    address: int | None = field(compare=False)
    """Of this process; what else is said here is part of the code. ``None`` of what the compiler writes itself."""
    arguments: tuple[InputAt | OutputAt | Scalar | WorkAt, ...]
    count: int = 1
    workspace: int = 0
    """Bytes of memory that the routine writes to while it runs: a result more, behind the operator's own."""
    tables: tuple[np.ndarray, ...] = field(default=(), compare=False)
    """Arrays that it reads: inputs more, behind the operator's own. What else is said here says what is in them."""

    @property
    def code(self) -> str:
        """What of it is part of a program's code."""
        return f"{self.name} {self.arguments} {self.count} {self.workspace}"

    def __repr__(self) -> str:
        return f"Routine({self.name} of {self.count})"
