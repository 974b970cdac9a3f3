"""What losses share: checks, what counts, and the reduction."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.errors import DTypeError, NamedAxisError, ShapeError
from pullback.graph import OPERATORS, Node, dtype_kind
from pullback.graph.source import with_users_line
from pullback.numpy import astype, broadcast_to, isinf, mean
from pullback.numpy import sum as sum_
from pullback.numpy import where as choose

__all__ = [
    "as_array",
    "check_floats",
    "check_shapes",
    "counted",
    "focused",
    "not_negative",
    "numbers_below",
    "reduced",
    "times",
    "visible",
]


def as_array(value: Any) -> Any:
    """``value`` as a node or an array."""
    return value if isinstance(value, Node) else np.asarray(value)


def check_floats(name: str, x: Any, what: str = "logits", meaning: str = "a model's outputs") -> None:
    """Raise ``DTypeError`` unless ``x`` holds floats."""
    if dtype_kind(x.dtype) != "f":
        raise DTypeError(f"[{name}] {what} of dtype {x.dtype}. Give floats: {meaning}.")


def check_shapes(name: str, what: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raise ``ShapeError`` where ``found`` is not ``expected``."""
    if found != expected:
        hint = "Reshape one of them."
        if (*found, 1) == expected:
            hint = f"Give {what} one more axis, y[..., None], or take the outputs' last one away, y[..., 0]."
        elif found == (*expected, 1):
            hint = "Take the last axis away: y[..., 0]."
        raise ShapeError(f"[{name}] {what} of shape {found} where {expected} is needed. {hint}")


def not_negative(name: str, what: str, value: float) -> None:
    """Raise ``ValueError`` unless ``value`` is a number of at least 0."""
    if not value >= 0:
        raise ValueError(f"[{name}] {what} is {value}. Give a number of at least 0.")


def numbers_below(extent: int, what: str, numbers: Any) -> Any:
    """Integers as ``int64``, checked to be 0 to ``extent - 1``: at once, or when the program runs.

    Raises ``NamedAxisError`` where ``extent`` is the size of a named axis.
    """
    if isinstance(extent, Node):
        raise NamedAxisError(
            with_users_line(
                f"{what}: numbers up to the size of a named axis cannot be checked in one program for all sizes; leave "
                "that axis out of shapes="
            )
        )
    check_index = OPERATORS["check_index"]
    apply = check_index if isinstance(numbers, Node) else check_index.reference
    return apply(numbers, extent=extent, what=what, wrap=False)


def counted(name: str, where: Any, shape: tuple[int, ...]) -> Any:
    """``where`` as bools of ``shape``, or None where everything counts."""
    if where is None:
        return None
    mask = as_array(where)
    if mask.dtype.kind != "b":
        raise DTypeError(f"[{name}] where of dtype {mask.dtype}. Give bools: where > 0, for instance.")
    extents = zip(reversed(mask.shape), reversed(shape))
    if mask.ndim > len(shape) or any(own not in (1, wanted) for own, wanted in extents):
        raise ShapeError(f"[{name}] where of shape {mask.shape} does not broadcast to the losses' {shape}.")
    return broadcast_to(mask, shape)


def focused(wrong: Any, gamma: float, losses: Any) -> Any:
    """``losses`` times ``wrong`` to the power of ``gamma``: how far an answer is from the right one, in 0 to 1.

    Where it is not at all wrong the loss is 0, and so is its slope; a power below 1 has an infinite one there, and one
    below 2 an infinite curvature. An infinite loss is wholly wrong, whatever is near.
    """
    wrong = choose(losses == np.inf, 1, wrong)
    if gamma < 2:
        wrong = choose(wrong > 0, wrong, 1)
    return wrong**gamma * losses


def times(shares: Any, x: Any) -> Any:
    """``shares`` of ``x``; 0 where there is none of what is infinite, and so is the slope by ``x``."""
    return shares * choose((shares == 0) & isinf(x), 0, x)


def visible(mask: Any, x: Any, fill: float = 0) -> Any:
    """``x`` with ``fill`` for all that does not count, which is so neither seen nor given a gradient."""
    return x if mask is None else choose(mask, x, fill)


def reduced(name: str, losses: Any, reduction: str, mask: Any = None, weights: Any = None) -> Any:
    """``losses``, of which those count that ``mask`` selects; ``weights`` are what a mean divides by for each."""
    losses = visible(mask, losses)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return sum_(losses)
    if reduction != "mean":
        raise ValueError(f"[{name}] reduction {reduction!r}. Use 'mean', 'sum' or 'none'.")
    if weights is not None:
        return sum_(losses) / sum_(visible(mask, weights))
    return mean(losses) if mask is None else sum_(losses) / astype(sum_(astype(mask, np.int64)), losses.dtype)
