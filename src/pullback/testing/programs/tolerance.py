"""What a result is compared with: its value, and how far rounding may carry it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

__all__ = ["MARGIN", "Expected"]

MARGIN, MARGIN_OF_CHOICES = 8.0, 1000.0
"""A difference is one when it is larger than the spread by this factor; by the other where rounding makes choices.

What is chosen by the sign of what rounding has left, and divides by it, is of any size.
"""


@dataclass(frozen=True)
class Expected:
    """A result and how far rounding may carry it."""

    value: np.ndarray
    moved: tuple[np.ndarray, ...]
    signed: Callable[[], Iterable[np.ndarray]] = tuple
    """Runs whose zero products have signs by chance, each made when it is asked for."""
    more: Callable[[], Iterable[np.ndarray]] = tuple
    """More moved runs, made when they are asked for: a few may all be moved to the same side, or not at all."""
    overflowed: Callable[[], np.ndarray | bool] = lambda: False
    """Where NaN is what numbers that are too large on the way leave, and not what arguments do that are not finite.

    Where products are not rounded before they are added, or in another order, infinity is left.
    """
    chooses: Callable[[], bool] = lambda: False
    """Whether a comparison of sizes that the result needs is another one in some of the moved runs."""
    in_any_order: Callable[[], Expected] | None = None
    """The same where sums may be made in any other order."""
    margin: float = MARGIN

    @cached_property
    def decided(self) -> np.ndarray:
        """The elements that do not hang on rounding."""
        value = self.value
        if value.dtype.kind != "f":
            return np.asarray(np.all([value == each for each in self.moved], axis=0))
        finite = np.isfinite(value)
        with np.errstate(all="ignore"):
            agree = [
                (finite & np.isfinite(m)) | (value == m) | (np.isnan(value) & np.isnan(m)) for m in self.moved
            ]
        return np.asarray(np.all(agree, axis=0))

    @cached_property
    def tolerance(self) -> np.ndarray:
        """The difference that rounding explains: zero for what is exact."""
        if self.value.dtype.kind != "f":
            return np.zeros(self.value.shape)
        value = self.value.astype(np.float64)
        with np.errstate(all="ignore"):
            spread = np.max([np.abs(each - value) for each in self.moved], axis=0)
        unit = np.finfo(self.value.dtype)
        least = 4 * np.abs(value) * float(unit.eps) + 4 * float(unit.smallest_subnormal)
        return np.where(spread > 0, self.margin * np.nan_to_num(spread) + least, 0.0)  # type: ignore[no-any-return]

    def as_rough_as(self, value: Any, runs: Sequence[Any]) -> Expected:
        """The same, moved as well as ``value`` is in ``runs``."""
        if self.value.dtype.kind == "f":
            with np.errstate(all="ignore"):
                runs = [np.where(run == value, self.value, self.value + (run - value)) for run in runs]
        return replace(self, moved=(*self.moved, *map(np.asarray, runs)))

    def difference(self, found: Any, signs: bool = True, units: float = 0.0) -> str | None:
        """What is wrong with ``found``, or ``None``.

        ``signs`` tells whether zeros have one, ``units`` in the last place may be missing in any case.
        """
        found, value = np.asarray(found), self.value
        if (found.dtype, found.shape) != (value.dtype, value.shape):
            return f"{found.dtype}{list(found.shape)} for {value.dtype}{list(value.shape)}"
        with np.errstate(all="ignore"):
            same = (found == value) | (np.isnan(found) & np.isnan(value))
            infinite = np.isinf(found) & np.isnan(value)
            if infinite.any():
                same |= infinite & self.overflowed()
            if value.dtype.kind == "f":
                least = units * float(np.finfo(value.dtype).eps) * np.abs(value)
                near = np.abs(found.astype(np.float64) - value) <= self.tolerance + least
                sign = np.signbit(value)
                zero = (found == 0) & np.all(
                    [(m == 0) & (np.signbit(m) == sign) for m in (value, *self.moved)], axis=0
                )
                other = signs & zero & (np.signbit(found) != sign)
                for run in self.signed() if other.any() else ():
                    other &= (run != 0) | (np.signbit(run) == sign)
                    if not other.any():
                        break
                same = (same | near) & ~other
        wrong = ~same & self.decided
        if not wrong.any():
            return None
        more = tuple(self.more())
        if more:
            return replace(self, moved=(*self.moved, *more), more=tuple).difference(found, signs, units)
        if self.margin == MARGIN and self.chooses():
            return replace(self, margin=MARGIN_OF_CHOICES).difference(found, signs, units)
        if self.in_any_order is not None:
            return self.in_any_order().difference(found, signs, units)
        place = tuple(int(k) for k in np.argwhere(wrong)[0])
        return (
            f"{found[place]!r} for {value[place]!r} at {place}, {int(wrong.sum())} of {value.size} elements; "
            f"rounding explains {self.tolerance[place]:.3g}"
        )
