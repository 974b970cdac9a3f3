"""Which of NumPy's functions give views, or the very array that they are given, rather than new ones.

Whether one is a view in a given call, NumPy itself tells (``arrays.TracedArray.derived``): ``np.diag`` of a matrix is a
view, of a vector it is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

__all__ = ["OWN_ARGUMENTS", "SPLITS", "VIEWS", "gives_itself"]

VIEWS = frozenset({
    "reshape", "ravel", "transpose", "permute_dims", "swapaxes", "moveaxis", "rollaxis", "squeeze", "expand_dims",
    "flip", "flipud", "fliplr", "rot90", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to", "diag", "diagonal",
    "matrix_transpose", "real", "sliding_window_view",
})  # fmt: skip
"""Functions that give views of their first argument."""

SPLITS = frozenset({"split", "array_split", "hsplit", "vsplit", "dsplit", "unstack"})
"""Functions that give several views of their first argument."""


def gives_itself(x: Any, name: str, keywords: Mapping[str, Any], made: Any) -> bool:
    """Whether the method ``name`` gives ``x`` itself: ``x.conj()`` of real numbers, ``x.astype(…, copy=False)``."""
    if name in ("conj", "conjugate"):
        return bool(x.dtype.kind in "iuf")
    return name == "astype" and keywords.get("copy") is False and bool(made.dtype == x.dtype)


def _einsum(arguments: Sequence[Any], keywords: Mapping[str, Any], made: Any) -> Any:
    """Of one operand whose labels are only reordered, or a diagonal, a view."""
    place = 1 if isinstance(arguments[0], str) else 0
    before, x, after = arguments[:place], arguments[place], arguments[place + 1 :]
    if len(after) > (0 if place else 2) or "dtype" in keywords or not hasattr(x, "derived"):
        return made
    return x.derived(made, lambda y: np.einsum(*before, y, *after, **keywords))


def _broadcast_arrays(arguments: Sequence[Any], keywords: Mapping[str, Any], made: Sequence[Any]) -> Any:
    views = [
        x.derived(each, partial(_broadcast, shape=each.shape)) if hasattr(x, "derived") else each
        for x, each in zip(arguments, made)
    ]
    return type(made)(views)  # type: ignore[call-arg]


def _meshgrid(arguments: Sequence[Any], keywords: Mapping[str, Any], made: Sequence[Any]) -> Any:
    """With ``copy=False`` views of the places."""
    if keywords.get("copy", True):
        return made
    turned = {0: 1, 1: 0} if keywords.get("indexing", "xy") == "xy" and len(made) > 1 else {}
    views = []
    for place, (x, each) in enumerate(zip(arguments, made)):
        along = tuple(-1 if axis == turned.get(place, place) else 1 for axis in range(len(made)))
        view = partial(_broadcast, shape=each.shape, along=along)
        views.append(x.derived(each, view) if hasattr(x, "derived") else each)
    return type(made)(views)  # type: ignore[call-arg]


def _broadcast(x: Any, shape: tuple[int, ...], along: tuple[int, ...] | None = None) -> Any:
    return np.broadcast_to(x if along is None else np.reshape(x, along), shape)


def _nan_to_num(arguments: Sequence[Any], keywords: Mapping[str, Any], made: Any) -> Any:
    """With ``copy=False`` the array itself, which is written into."""
    copy = arguments[1] if len(arguments) > 1 else keywords.get("copy", True)
    x = arguments[0]
    return x.write(made, "np.nan_to_num") if not copy and hasattr(x, "derived") else made


def _real_if_close(arguments: Sequence[Any], keywords: Mapping[str, Any], made: Any) -> Any:
    x = arguments[0]
    return x if hasattr(x, "derived") and x.dtype.kind != "c" else made


OWN_ARGUMENTS: dict[str, Callable[[Sequence[Any], Mapping[str, Any], Any], Any]] = {
    "broadcast_arrays": _broadcast_arrays,
    "einsum": _einsum,
    "meshgrid": _meshgrid,
    "nan_to_num": _nan_to_num,
    "real_if_close": _real_if_close,
}
"""What functions give that are views of other arguments than the first, or are their argument: given what they made."""
