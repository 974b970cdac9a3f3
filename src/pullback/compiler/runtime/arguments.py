"""Arguments that the compiled entry did not take as they are: converted if that is harmless, else refused."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.errors import DonationError, DTypeError, ShapeError
from pullback.graph import Type

__all__ = ["conform"]


def conform(
    types: Sequence[Type], donated: Collection[int], values: Sequence[Any], names: Sequence[str]
) -> list[NDArray[Any]]:
    """Arrays just as the types ask: native, C-contiguous, aligned, of class ``ndarray`` itself.

    Those with the numbers ``donated`` are taken as they are, and overlap no other. Python scalars take the dtype asked
    for, if it can hold them. Raises ``ShapeError``, ``DTypeError`` and ``DonationError``, which call arguments by their
    ``names``.
    """
    if len(values) != len(types):
        raise ShapeError(f"the program has {len(types)} arguments, {len(values)} were given")
    for index in sorted(donated):
        _check_donated(names[index], values[index])
    arrays = list(map(_conformed, names, types, values))
    _check_overlap(arrays, donated, names)
    return arrays


def _conformed(name: str, spec: Type, value: Any) -> NDArray[Any]:
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        array = _from_scalar(name, spec, value)
    else:
        array = np.asarray(value)
    if array.dtype.newbyteorder("=") != spec.dtype:
        raise DTypeError(
            f"{name} of the compiled program is {array.dtype}, it was compiled for {spec.dtype}: "
            f"pass x.astype({spec.dtype.name!r})"
        )
    if array.shape != spec.shape:
        raise ShapeError(
            f"{name} of the compiled program has shape {array.shape}, it was compiled for {spec.shape}"
        )
    array = np.require(array, spec.dtype, ["C", "A"])
    # Only now that its bytes are in native order: long and long long are equal, yet two types to the entry.
    return array if array.dtype is spec.dtype else array.view(spec.dtype)


def _from_scalar(name: str, spec: Type, value: complex) -> NDArray[Any]:
    kind = {bool: "biufc", int: "iufc", float: "fc", complex: "c"}[type(value)]
    if spec.dtype.kind not in kind:
        raise DTypeError(f"{name} of the compiled program is {value!r}, it was compiled for {spec.dtype}")
    limits: Any = np.iinfo(spec.dtype.str) if spec.dtype.kind in "iu" else None
    if limits is not None and isinstance(value, int) and not limits.min <= value <= limits.max:
        raise DTypeError(f"{name} of the compiled program is {value!r}, {spec.dtype} cannot hold it")
    return np.array(value, spec.dtype)


def _check_donated(name: str, value: Any) -> None:
    if type(value) is not np.ndarray:
        raise DonationError(
            f"{name} is donated and is a {type(value).__name__}, no NumPy array: pass np.asarray(x)"
        )
    flags = value.flags
    if not (flags.writeable and flags.c_contiguous and flags.aligned and value.dtype.isnative):
        wrong = (
            "read-only"
            if not flags.writeable
            else "not C-contiguous"
            if not flags.c_contiguous
            else "not native"
        )
        raise DonationError(f"{name} is donated and {wrong}, it cannot be updated in place: pass x.copy()")


def _check_overlap(arrays: Sequence[NDArray[Any]], donated: Collection[int], names: Sequence[str]) -> None:
    """Raise ``DonationError`` if memory that is donated overlaps other memory."""
    spans = sorted(
        (array.ctypes.data, array.nbytes, index in donated, index)
        for index, array in enumerate(arrays)
        if array.nbytes
    )
    reach: dict[bool, tuple[int, int]] = {}
    """By whether it is written: how far memory seen so far extends, and whose."""
    for start, size, is_written, index in spans:
        for other_written, (end, other) in reach.items():
            if start < end and (is_written or other_written):
                raise DonationError(
                    f"{names[other]} and {names[index]} share memory and one is written in place: pass a copy"
                )
        if start + size > reach.get(is_written, (0, 0))[0]:
            reach[is_written] = (start + size, index)
