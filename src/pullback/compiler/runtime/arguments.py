"""Arguments that the compiled entry did not take as they are: converted if that is harmless, else refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.compiler.runtime.specs import ArgumentSpec, ArraySpec
from pullback.errors import DonationError, DTypeError, ShapeError

__all__ = ["as_many", "check_overlap", "conform", "run_address"]


def conform(specs: Sequence[ArgumentSpec], values: Sequence[Any]) -> list[NDArray[Any]]:
    """Arrays just as the specifications ask: native, C-contiguous, aligned, of class ``ndarray`` itself.

    Python scalars take the dtype asked for, if it can hold them. Raises ``ShapeError``, ``DTypeError`` and
    ``DonationError``.
    """
    given = zip(specs, as_many("argument", values, specs))
    return [_conform_one(index, spec, value) for index, (spec, value) in enumerate(given)]


def as_many(what: str, arrays: Sequence[Any], specs: Sequence[Any]) -> Sequence[Any]:
    """The ``arrays``; raises ``ShapeError`` unless there is one for each specification."""
    if len(arrays) != len(specs):
        raise ShapeError(f"the program has {len(specs)} {what}s, {len(arrays)} were given")
    return arrays


def _conform_one(index: int, spec: ArgumentSpec, value: Any) -> NDArray[Any]:
    if spec.donated_to is not None:
        _check_donated(index, value)
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        array = _from_scalar(index, spec, value)
    else:
        array = np.asarray(value)
    if array.dtype.newbyteorder("=") != spec.dtype:
        raise DTypeError(
            f"argument {index} of the compiled program is {array.dtype}, it was compiled for {spec.dtype}: "
            f"pass x.astype({spec.dtype.name!r})"
        )
    if array.shape != spec.shape:
        raise ShapeError(
            f"argument {index} of the compiled program has shape {array.shape}, "
            f"it was compiled for {spec.shape}"
        )
    array = np.require(array, spec.dtype, ["C", "A"])
    # Only now that its bytes are in native order: long and long long are equal, yet two types to the entry.
    return array if array.dtype is spec.dtype else array.view(spec.dtype)


def _from_scalar(index: int, spec: ArgumentSpec, value: complex) -> NDArray[Any]:
    kind = {bool: "biufc", int: "iufc", float: "fc", complex: "c"}[type(value)]
    if spec.dtype.kind not in kind:
        raise DTypeError(
            f"argument {index} of the compiled program is {value!r}, it was compiled for {spec.dtype}"
        )
    limits: Any = np.iinfo(spec.dtype.str) if spec.dtype.kind in "iu" else None
    if limits is not None and isinstance(value, int) and not limits.min <= value <= limits.max:
        raise DTypeError(
            f"argument {index} of the compiled program is {value!r}, {spec.dtype} cannot hold it"
        )
    return np.array(value, spec.dtype)


def _check_donated(index: int, value: Any) -> None:
    if type(value) is not np.ndarray:
        raise DonationError(
            f"argument {index} is donated and is a {type(value).__name__}: pass a NumPy array"
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
        raise DonationError(
            f"argument {index} is donated and {wrong}, it cannot be updated in place: pass x.copy()"
        )


def check_overlap(
    specs: Sequence[ArgumentSpec], arrays: Sequence[NDArray[Any]], written: Sequence[NDArray[Any]] = ()
) -> None:
    """Raise ``DonationError`` if memory that is written, donated or a result, overlaps other memory."""
    spans = [
        (array.ctypes.data, array.nbytes, spec.donated_to is not None, f"argument {index}")
        for index, (spec, array) in enumerate(zip(specs, arrays))
    ]
    spans += [(array.ctypes.data, array.nbytes, True, f"result array {i}") for i, array in enumerate(written)]
    spans = sorted(span for span in spans if span[1])
    reach: dict[
        bool, tuple[int, str]
    ] = {}  # by whether it is written: how far memory seen so far extends, and whose
    for start, size, is_written, name in spans:
        for other_written, (end, other) in reach.items():
            if start < end and (is_written or other_written):
                raise DonationError(
                    f"{other} and {name} share memory and one is written in place: pass a copy"
                )
        if start + size > reach.get(is_written, (0, ""))[0]:
            reach[is_written] = (start + size, name)


def run_address(
    name: str,
    spec: ArraySpec,
    array: NDArray[Any] | None,
    *,
    steps: int,
    stride: int,
    written: bool,
) -> int:
    """The address of an array, once it is known to hold ``steps`` steps that are ``stride`` bytes apart."""
    if type(array) is not np.ndarray or array.dtype != spec.dtype:
        found = getattr(array, "dtype", type(array).__name__)
        raise DTypeError(f"{name} of the compiled program is {found}, it was compiled for {spec.dtype}")
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned and (flags.writeable or not written)):
        raise DonationError(f"{name} is not contiguous, not aligned or read-only: pass x.copy()")
    needed = spec.nbytes + stride * (steps - 1) if steps else 0
    if stride < 0 or stride % spec.dtype.itemsize or array.nbytes < needed:
        raise ShapeError(
            f"{name} has {array.nbytes} bytes, "
            f"{steps} steps of {spec.dtype}{spec.shape} that are {stride} bytes apart need {needed}"
        )
    return int(array.ctypes.data)
