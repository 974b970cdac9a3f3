"""The table of families: functions that add a random step, or several, each with its weight."""

from __future__ import annotations

from collections.abc import Callable

from pullback.testing.programs.maker import Maker

__all__ = ["FAMILIES", "Family", "family"]

Family = Callable[[Maker], object]

FAMILIES: list[tuple[Family, float]] = []
"""Each family of steps with its weight."""


def family(weight: float) -> Callable[[Family], Family]:
    """Enter a function into the table."""

    def enter(function: Family) -> Family:
        FAMILIES.append((function, weight))
        return function

    return enter
